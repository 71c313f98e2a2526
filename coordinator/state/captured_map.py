"""A dict whose capture costs nothing: later changes are kept beside it until the capture ends.

1. A capture is the dict itself, which does not change while its ``CaptureHold`` is kept. Changes
   are kept beside it meanwhile, and every look-up considers both.
2. After the hold is dropped, each further change merges a few of them into the dict. So no step is
   long, neither at the beginning of a capture nor at its end.
3. The order is that of a plain dict: by insertion; a key that was deleted and added again is last.
   Iterating during a capture yields the captured keys first.
4. The first capture costs nothing. Another one, while the first is held, is a copy.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar

from coordinator.state.emptying import emptied

V = TypeVar("V")

_MERGED_AT_ONCE = 8
_GONE: Any = object()
_MISSING: Any = object()


class CaptureHold:
    """Keeps a capture unchanged as long as it is referenced."""

    __slots__ = ("__weakref__",)


class CapturedMap(MutableMapping[str, V]):
    """Values by a text."""

    def __init__(self, values: dict[str, V] | None = None) -> None:
        self._base: dict[str, V] = {} if values is None else values
        self._beside: OrderedDict[str, V] | None = None
        """The changes since the capture; ``_GONE`` for a deleted key."""
        self._anew: set[str] = set()
        """Keys of the capture that were deleted and added again."""
        self._hold: weakref.ref[CaptureHold] | None = None
        self._length = 0
        self.get: Any = self._base.get
        """The dict's own method while there are no changes beside it."""

    def capture(self) -> tuple[dict[str, V], CaptureHold]:
        """Return all values as they are now, and the hold that keeps them unchanged."""
        if self._hold is not None and self._hold() is not None:
            return dict(self.items()), CaptureHold()
        self._merge(len(self._beside or ()))
        hold = CaptureHold()
        self._hold = weakref.ref(hold)
        self._beside = OrderedDict()
        self._length = len(self._base)
        self.get = self._look
        return self._base, hold

    def _look(self, key: str, default: V | None = None) -> V | None:
        assert self._beside is not None, "something lies beside it"
        value = self._beside.get(key, _MISSING)
        if value is _MISSING:
            return self._base.get(key, default)
        return default if value is _GONE else value

    def _merge(self, count: int) -> None:
        """Merge up to ``count`` changes into the dict; after the last one it is a plain dict."""
        beside, base = self._beside, self._base
        if beside is None:
            return
        for _ in range(min(count, len(beside))):
            key, value = beside.popitem(last=False)
            if value is _GONE:
                del base[key]
            else:
                if key in self._anew:
                    self._anew.discard(key)
                    del base[key]
                base[key] = value
        if not beside:
            self._beside = self._hold = None
            self.get = base.get

    def _is_held(self) -> bool:
        """Whether changes are kept beside the dict; if it is no longer held, merge some first."""
        if self._hold is not None and self._hold() is None:
            self._merge(_MERGED_AT_ONCE)
        return self._beside is not None

    def emptied(self) -> Iterator[None]:
        """Empty it by one value at each step; as long as it is captured the steps do nothing."""
        while self._hold is not None and self._hold() is not None:
            yield None
        yield from emptied(self._base, self._beside or {})

    # --- a mapping

    def __len__(self) -> int:
        return len(self._base) if self._beside is None else self._length

    def __contains__(self, key: object) -> bool:
        if self._beside is not None and key in self._beside:
            return self._beside[key] is not _GONE  # type: ignore[index]
        return key in self._base

    def __getitem__(self, key: str) -> V:
        value: V = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: V) -> None:
        if self._beside is None or not self._is_held():
            self._base[key] = value
            return
        beside = self._beside
        assert beside is not None, "it is held"
        known = beside.get(key, _MISSING)
        if known is _GONE:
            self._anew.add(key)
            del beside[key]  # it is added again, behind all others
        if known is _GONE or (known is _MISSING and key not in self._base):
            self._length += 1
        beside[key] = value

    def __delitem__(self, key: str) -> None:
        if self._beside is None or not self._is_held():
            del self._base[key]
            return
        beside = self._beside
        assert beside is not None, "it is held"
        if key not in self:
            raise KeyError(key)
        self._length -= 1
        if key in self._base:
            self._anew.discard(key)
            beside[key] = _GONE
        else:
            del beside[key]

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Remove ``key`` and return its value, or ``default``; KeyError without one."""
        if self._beside is None or not self._is_held():
            return self._base.pop(key) if default is _MISSING else self._base.pop(key, default)
        return super().pop(key) if default is _MISSING else super().pop(key, default)

    def values(self) -> ValuesView[V]:
        """Return the values, in the order of insertion."""
        return self._base.values() if self._beside is None else super().values()

    def items(self) -> ItemsView[str, V]:
        """Return the keys with their values, in the order of insertion."""
        return self._base.items() if self._beside is None else super().items()

    def __iter__(self) -> Iterator[str]:
        beside = self._beside
        if beside is None:
            yield from self._base
            return
        for key in self._base:
            if beside.get(key) is not _GONE and key not in self._anew:
                yield key
        for key, value in beside.items():
            if value is not _GONE and (key not in self._base or key in self._anew):
                yield key
