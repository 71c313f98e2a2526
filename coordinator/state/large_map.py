"""A map for very many keys: neither its growth nor its capture is one long step.

Python moves all of a dict to another table, in one step, when the table is two thirds full; with
many keys that takes tens of milliseconds, whether the dict grows or keys only come and go.

1. A map is made of parts: dicts of at most ``PART_MAX`` keys. A new key goes into the last one, so
   the order is that of a plain dict: by insertion; a key that was deleted and added again is last.
2. As long as there is one part, ``get``, ``pop`` and ``change`` are its own methods.
3. A part before the last only shrinks. An empty one goes, and two neighbours that have become
   small are joined, a few keys with each change. So there are few parts, whatever happened before.
4. A capture is the parts themselves, which do not change while its ``CaptureHold`` is kept. Changes
   are kept beside them meanwhile, and every look-up considers both. After the hold is dropped, each
   further change merges a few of them, and ``merge_some`` more. Iterating meanwhile yields the
   captured keys first.
5. The first capture costs nothing. Another one, while the first is held, is a copy.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import (
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from itertools import chain, filterfalse
from typing import Any, TypeVar

from coordinator.state.capture_hold import CaptureHold
from coordinator.state.thread_breaks import with_breaks

K = TypeVar("K")
V = TypeVar("V")

PART_MAX = 262_144
"""To move as many to another table takes some 10 ms."""
_JOINED_AT_ONCE = 8
_MERGED_AT_ONCE = 8
MERGED_TOGETHER = 500
"""By ``merge_some``: some half a millisecond."""
_LOOK_EVERY = 1_024
_GONE: Any = object()
_MISSING: Any = object()


class LargeMap(MutableMapping[K, V]):
    """Values by key."""

    def __init__(self, values: Iterable[tuple[K, V]] = (), part_max: int = PART_MAX) -> None:
        self._part_max = part_max
        self._last: dict[K, V] = {}
        self._full: list[dict[K, V]] = []
        """The parts before the last, in their order."""
        self._joining: list[K] = []
        """Keys that are moved into the part ``_into`` from the one behind it, the next one last."""
        self._into = 0
        self._beside: OrderedDict[K, V] | None = None
        """The changes since the capture; ``_GONE`` for a deleted key."""
        self._again: set[K] = set()
        """Keys of the capture that were deleted and added again."""
        self._hold: weakref.ref[CaptureHold] | None = None
        self._length = 0
        """While changes are kept beside: how many keys there are."""
        self.get: Any = self._last.get
        self.pop: Any = self._last.pop
        """Removes a key and returns its value, or the second argument; KeyError without one."""
        self.change: Any = self._last.__setitem__
        """Sets the value of a key that is there."""
        for key, value in with_breaks(values):
            self[key] = value

    @property
    def parts(self) -> tuple[dict[K, V], ...]:
        """The dicts that it is made of, in their order; nobody else changes them."""
        return (*self._full, self._last)

    def _bind(self) -> None:
        if self._beside is not None:
            self.get, self.pop, self.change = self._get_beside, self._pop_beside, self.__setitem__
        elif self._full:
            self.get, self.pop, self.change = self._get, self._pop, self._change
        else:
            last = self._last
            self.get, self.pop, self.change = last.get, last.pop, last.__setitem__

    # --- the parts, without what is kept beside them

    def _get(self, key: K, default: Any = None) -> Any:
        value: Any = self._last.get(key, _MISSING)
        if value is not _MISSING:
            return value
        for part in self._full:
            value = part.get(key, _MISSING)
            if value is not _MISSING:
                return value
        return default

    def _has(self, key: Any) -> bool:
        return key in self._last or (bool(self._full) and self._get(key, _MISSING) is not _MISSING)

    def _add(self, key: K, value: V) -> None:
        last = self._last
        last[key] = value
        if len(last) >= self._part_max:
            self._full.append(last)
            self._last = {}
            self._bind()
        if self._joining:
            self._join()

    def _change(self, key: K, value: V) -> None:
        for part in self._full:
            if key in part:
                part[key] = value
                return
        self._last[key] = value

    def _pop(self, key: K, default: Any = _MISSING) -> Any:
        if not self._full:
            return self._last.pop(key) if default is _MISSING else self._last.pop(key, default)
        for part in (self._last, *self._full):
            value: Any = part.pop(key, _MISSING)
            if value is not _MISSING:
                if self._joining:
                    self._join()
                elif not len(part) % min(_LOOK_EVERY, self._part_max):
                    self._look()
                return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def _join(self) -> None:
        """Move some of the keys that are to be moved, and look for more after the last."""
        into, source, keys = self._full[self._into], self._full[self._into + 1], self._joining
        for _ in range(min(_JOINED_AT_ONCE, len(keys))):
            key = keys.pop()
            value: Any = source.pop(key, _MISSING)
            if value is not _MISSING:
                into[key] = value
        if not keys:
            self._look()

    def _look(self) -> None:
        """Drop empty parts; begin to join two small ones."""
        full, small = self._full, self._part_max // 2
        full[:] = [part for part in full if part]
        if len(full) == 1 and not self._last and len(full[0]) <= small:
            self._last = full.pop()
        self._bind()
        for at in range(len(full) - 1):
            if len(full[at]) + len(full[at + 1]) <= small:
                self._into, self._joining = at, list(reversed(full[at + 1]))
                return

    # --- capture

    def capture(self) -> tuple[Parts[K, V], CaptureHold]:
        """Return all values as they are now, and the hold that keeps them unchanged."""
        if self._hold is not None and self._hold() is not None:
            return Parts((dict(self.items()),)), CaptureHold()
        self._merge(len(self._beside or ()))
        hold = CaptureHold()
        self._hold = weakref.ref(hold)
        self._length = len(self)
        self._beside = OrderedDict()
        self._bind()
        return Parts(self.parts), hold

    def _merge(self, count: int) -> bool:
        """Merge up to ``count`` changes into the parts; return whether more are beside them."""
        beside = self._beside
        if beside is None:
            return False
        for _ in range(min(count, len(beside))):
            key, value = beside.popitem(last=False)
            if value is _GONE:
                self._pop(key)
                continue
            if key in self._again:
                self._again.discard(key)
                self._pop(key)
            if self._has(key):
                self._change(key, value)
            else:
                self._add(key, value)
        if beside:
            return True
        self._beside = self._hold = None
        self._bind()
        return False

    def merge_some(self) -> bool:
        """Merge some changes if no capture is held; return whether there are more to merge."""
        if self._beside is None or self.is_captured:
            return False
        return self._merge(MERGED_TOGETHER)

    def _is_held(self) -> bool:
        """Whether changes are kept beside the parts; if none is held any more, merge some."""
        if self._hold is not None and self._hold() is None:
            self._merge(_MERGED_AT_ONCE)
        return self._beside is not None

    def _get_beside(self, key: K, default: Any = None) -> Any:
        assert self._beside is not None, "something lies beside it"
        value: Any = self._beside.get(key, _MISSING)
        if value is _MISSING:
            return self._get(key, default)
        return default if value is _GONE else value

    def _set_beside(self, key: K, value: V) -> None:
        beside = self._beside
        assert beside is not None, "it is held"
        known: Any = beside.get(key, _MISSING)
        if known is _GONE:
            self._again.add(key)
            del beside[key]  # it is added again, behind all others
        if known is _GONE or (known is _MISSING and not self._has(key)):
            self._length += 1
        beside[key] = value

    def _pop_beside(self, key: K, default: Any = _MISSING) -> Any:
        if not self._is_held():
            return self._pop(key, default)
        value = self._get_beside(key, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                raise KeyError(key)
            return default
        beside = self._beside
        assert beside is not None, "it is held"
        self._length -= 1
        if self._has(key):
            self._again.discard(key)
            beside[key] = _GONE
        else:
            del beside[key]
        return value

    # --- the end

    def given_up(self) -> tuple[dict[K, V], ...]:
        """Be empty from now on; return the parts, for who frees them."""
        parts = self.parts
        self._full, self._joining, self._last = [], [], {}
        self._beside = self._hold = None
        self._again.clear()
        self._bind()
        return parts

    @property
    def is_captured(self) -> bool:
        """Whether a capture is held."""
        return self._hold is not None and self._hold() is not None

    # --- a mapping

    def __len__(self) -> int:
        if self._beside is not None:
            return self._length
        length = len(self._last)
        for part in self._full:
            length += len(part)
        return length

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def __contains__(self, key: Any) -> bool:
        if self._beside is not None:
            return self._get_beside(key, _MISSING) is not _MISSING
        return key in self._last or (bool(self._full) and self._has(key))

    def get_all(self, keys: Sequence[K]) -> list[V | None]:
        """Return the value of each key, None for one that is not there; most quickly if all of
        them came one after the other, for then one part has them all."""
        if self._beside is None:
            for part in self._full:
                if keys[0] in part:
                    found = [*map(part.get, keys)]
                    if None not in found:
                        return found
        return [*map(self.get, keys)]

    def has_any(self, keys: Collection[K]) -> bool:
        """Whether any of ``keys`` is there; in a tenth of the time of one after the other."""
        if self._beside is not None:
            return any(key in self for key in keys)
        return not all(part.keys().isdisjoint(keys) for part in self.parts)

    def __getitem__(self, key: K) -> V:
        value: Any = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __setitem__(self, key: K, value: V) -> None:
        if self._beside is not None and self._is_held():
            self._set_beside(key, value)
        elif self._full and self._has(key):
            self._change(key, value)
        else:
            self._add(key, value)

    def add(self, key: K, value: V) -> None:
        """Set the value of a key that is not there."""
        if self._beside is not None and self._is_held():
            self._set_beside(key, value)
            return
        last = self._last
        last[key] = value
        if len(last) >= self._part_max or self._joining:
            self._add(key, value)

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def clear(self) -> None:
        """Remove all keys, in one step."""
        self.given_up()

    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of ``key``, which is ``default`` from now on if it had none."""
        value = self.get(key, _MISSING)
        if value is _MISSING:
            value = default
            self.add(key, value)
        return value

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts) if self._beside is None else self._with_changes()

    def _with_changes(self) -> Iterator[K]:
        beside, again = self._beside, self._again
        assert beside is not None, "something lies beside it"
        there = [key for key, value in beside.items() if value is not _GONE]
        gone = again.union([key for key, value in beside.items() if value is _GONE])
        behind = [key for key in there if key in again or not self._has(key)]
        return chain(filterfalse(gone.__contains__, chain.from_iterable(self.parts)), behind)

    def values(self) -> ValuesView[V]:
        """Return the values, in the order of insertion."""
        if self._beside is not None:
            return ValuesView(self)
        return _Values(self, self.parts) if self._full else self._last.values()

    def items(self) -> ItemsView[K, V]:
        """Return the keys with their values, in the order of insertion."""
        if self._beside is not None:
            return ItemsView(self)
        return _Items(self, self.parts) if self._full else self._last.items()


class Parts(Mapping[K, V]):
    """Some dicts that have no key in common, as one; who made it sees that nothing changes."""

    def __init__(self, parts: tuple[dict[K, V], ...]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum([len(part) for part in self.parts])

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def __getitem__(self, key: K) -> V:
        for part in self.parts:
            if key in part:
                return part[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts)

    def values(self) -> ValuesView[V]:
        """Return the values, in the order of insertion."""
        return _Values(self, self.parts)

    def items(self) -> ItemsView[K, V]:
        """Return the keys with their values, in the order of insertion."""
        return _Items(self, self.parts)


class _Values(ValuesView[V]):
    def __init__(self, of: Mapping[Any, V], parts: tuple[dict[Any, V], ...]) -> None:
        super().__init__(of)
        self._parts = parts

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable([part.values() for part in self._parts])

    def __bool__(self) -> bool:
        return len(self) > 0


class _Items(ItemsView[K, V]):
    def __init__(self, of: Mapping[K, V], parts: tuple[dict[K, V], ...]) -> None:
        super().__init__(of)
        self._parts = parts

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable([part.items() for part in self._parts])

    def __bool__(self) -> bool:
        return len(self) > 0
