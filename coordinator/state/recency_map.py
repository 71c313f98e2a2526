"""A map in the order of last use, the oldest first, whose capture copies nothing.

1. As an OrderedDict: a use of a key sets its value and makes it the last, and the first goes.
2. A capture is the OrderedDict itself, which does not change while its ``CaptureHold`` is kept.
   Who is used meanwhile is the last, so the uses are kept beside it, in their order, and its key
   in it counts no more (``_passed``), as that of one who was removed.
3. After the hold is dropped each further change, or ``merge_some``, takes some passed keys out, and
   puts some of the oldest uses in their place: behind all that is left in it. At the end nothing is
   beside it.
4. The first capture costs nothing. Another one, while the first is held, is a copy.
5. To go through an OrderedDict takes as long as to read it. So a walk that is done in parts goes on
   where it was (``keep_walk``) if nothing has changed since: iterators of the map say so.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, filterfalse, islice
from typing import Any, Final, TypeVar

from coordinator.state.capture_hold import CaptureHold
from coordinator.state.large_map import MERGED_TOGETHER
from coordinator.state.thread_breaks import with_breaks

K = TypeVar("K")
V = TypeVar("V")

_MERGED_AT_ONCE: Final = 4
_TAKEN_AT_ONCE: Final = 1_000
"""How many passed keys are taken before the first that counts."""
_MISSING: Any = object()


class RecencyMap(Mapping[K, V]):
    """Values by key."""

    def __init__(self, values: Iterable[tuple[K, V]] = ()) -> None:
        self._base: OrderedDict[K, V] = OrderedDict(with_breaks(values))
        self._beside: OrderedDict[K, V] | None = None
        """The uses since the capture."""
        self._passed: set[K] = set()
        """The keys of ``_base`` that were used or removed since."""
        self._hold: weakref.ref[CaptureHold] | None = None
        self._rest: Iterator[K] = iter(())
        """While it is held: the keys of ``_base`` that count, behind ``_first``."""
        self._first: Any = _MISSING
        self._walk: tuple[int, Iterator[K], Iterator[K]] | None = None
        """How many keys a walk has still to come, these, and what tells whether they still are."""
        self.get: Any = self._base.get
        """Returns the value of a key, or the second argument, or None."""

    # --- changes

    def use(self, key: K, value: V) -> None:
        """Set the value of ``key``, which is the last from now on."""
        base, beside = self._base, self._beside
        if beside is not None:
            if self._is_held():
                if key in base:
                    self._passed.add(key)
            elif self._beside is not None:
                base.pop(key, None)
                self._passed.discard(key)
            else:
                beside = base
            beside[key] = value
            beside.move_to_end(key)
            return
        base[key] = value
        base.move_to_end(key)

    def pop(self, key: K, default: Any) -> Any:
        """Remove ``key`` and return its value; ``default`` if it is not there."""
        if self._beside is None or not self._is_held():
            return self._pop(key, default)
        value: Any = self._beside.pop(key, _MISSING)
        if value is not _MISSING:
            return value
        if key in self._passed:
            return default
        value = self._base.get(key, _MISSING)
        if value is _MISSING:
            return default
        self._passed.add(key)
        return value

    def _pop(self, key: K, default: Any) -> Any:
        """Remove a key from what is not held."""
        if self._beside is None:
            return self._base.pop(key, default)
        value: Any = self._base.pop(key, default)
        if key in self._passed:
            self._passed.discard(key)
            value = default
        return self._beside.pop(key, value)

    def pop_first(self) -> tuple[K, V]:
        """Remove the key that was not used for longest; return it with its value."""
        if self._beside is None:
            return self._base.popitem(last=False)
        key = self.first()
        return key, self.pop(key, None) if self.is_captured else self._pop(key, None)

    def first(self, default: Any = _MISSING) -> Any:
        """Return the key that was not used for longest; ``default`` if there is none."""
        if self._beside is None:
            return next(iter(self._base), default)
        if self.is_captured:
            while self._first is _MISSING or self._first in self._passed:
                found: Any = next(self._rest, _MISSING)
                if found is _MISSING:
                    return next(iter(self._beside), default)
                self._first = found
            return self._first
        base, passed = self._base, self._passed
        for _ in range(_TAKEN_AT_ONCE):
            found = next(iter(base), _MISSING)
            if found not in passed:
                break
            passed.discard(found)
            del base[found]
        return next(iter(self), default)

    # --- capture

    def capture(self) -> tuple[Mapping[K, V], CaptureHold]:
        """Return all keys with their values as they are now, and the hold that keeps them so."""
        if self.is_captured:
            return dict(self.items()), CaptureHold()
        if self._beside is not None:
            self._merge(len(self._beside) + len(self._passed))
        hold = CaptureHold()
        self._hold = weakref.ref(hold)
        self._beside = OrderedDict()
        self._rest = filterfalse(self._passed.__contains__, iter(self._base))
        self._first = _MISSING
        self.get = self._get_beside
        return self._base, hold

    @property
    def is_captured(self) -> bool:
        """Whether a capture is held."""
        return self._hold is not None and self._hold() is not None

    def merge_some(self) -> bool:
        """Merge some uses if no capture is held; return whether there are more to merge."""
        if self._beside is None or self.is_captured:
            return False
        return self._merge(MERGED_TOGETHER)

    def _is_held(self) -> bool:
        """Whether the base must not change; if it may again, merge some of what is beside it."""
        if self.is_captured:
            return True
        self._merge(_MERGED_AT_ONCE)
        return False

    def _merge(self, count: int) -> bool:
        """Merge up to ``count`` passed keys and uses; return whether more are left beside."""
        base, beside, passed = self._base, self._beside, self._passed
        assert beside is not None, "something lies beside it"
        self._rest, self._first = iter(()), _MISSING
        for _ in range(min(count, len(passed))):
            del base[passed.pop()]
        for _ in range(min(count, len(beside))):
            key, value = beside.popitem(last=False)
            if key in passed:
                passed.discard(key)
                del base[key]
            base[key] = value
        if beside or passed:
            return True
        self._beside = self._hold = None
        self.get = base.get
        return False

    # --- a mapping

    def _get_beside(self, key: K, default: Any = None) -> Any:
        assert self._beside is not None, "something lies beside it"
        value: Any = self._beside.get(key, _MISSING)
        if value is not _MISSING:
            return value
        return default if key in self._passed else self._base.get(key, default)

    def __len__(self) -> int:
        if self._beside is None:
            return len(self._base)
        return len(self._base) - len(self._passed) + len(self._beside)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __getitem__(self, key: K) -> V:
        value: Any = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[K]:
        if self._beside is None:
            return iter(self._base)
        return chain(filterfalse(self._passed.__contains__, self._base), self._beside)

    def __reversed__(self) -> Iterator[K]:
        if self._beside is None:
            return reversed(self._base)
        in_base = filterfalse(self._passed.__contains__, reversed(self._base))
        return chain(reversed(self._beside), in_base)

    # --- a walk through all keys in parts

    def walk(self, left: int) -> Iterator[K]:
        """Return the keys of the ``left`` oldest values, the latest of them first, for as long as
        nothing is changed."""
        kept, self._walk = self._walk, None
        is_next = kept is not None and kept[0] == left and self._beside is None
        if is_next and kept is not None and _is_unchanged(kept[2]):
            return kept[1]
        passed = len(self) - left
        if passed <= left:
            return islice(reversed(self), passed, None)
        keys = list(islice(self, left))
        keys.reverse()
        return iter(keys)

    def keep_walk(self, left: int, keys: Iterator[K]) -> None:
        """Keep ``keys``, of which ``left`` are still to come, for who asks for these next."""
        if self._beside is None:
            self._walk = (left, keys, iter(self._base))

    # --- the end

    def given_up(self) -> tuple[OrderedDict[K, V], ...]:
        """Be empty from now on; return what it is made of, for who frees it; nothing is held."""
        parts = (self._base,) if self._beside is None else (self._base, self._beside)
        self._base, self._beside, self._hold = OrderedDict(), None, None
        self._passed = set()
        self._rest = iter(())
        self._walk = None
        self.get = self._base.get
        return parts


def _is_unchanged(keys: Iterator[Any]) -> bool:
    """Whether an OrderedDict is as it was when this iterator of it was made."""
    try:
        next(keys)
    except (RuntimeError, StopIteration):
        return False
    return True
