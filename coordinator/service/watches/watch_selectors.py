"""The selectors of a watch, and the events that each is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from coordinator.errors import BadArgumentsError, QuotaExceededError
from coordinator.model.events import Event, EventType, WatchKind, WatchSelector
from coordinator.model.limits import MachineLimits
from coordinator.service.watches.watch_stream import Wanted
from coordinator.state import paths

Key: TypeAlias = tuple[WatchKind, str]


def checked_keys(
    selectors: Sequence[WatchSelector], wanted: Wanted, limits: MachineLimits, count_max: int
) -> tuple[Key, ...]:
    """Return the selectors as keys, each once.

    Raises:
        BadArgumentsError: there is none, or it cannot be one, or ``wanted`` cannot be.
        QuotaExceededError: they are more than ``count_max``.
    """
    if not selectors:
        raise BadArgumentsError("expected at least one path to watch, found none")
    if len(selectors) > count_max:
        raise QuotaExceededError(
            f"expected at most {count_max} watches in one stream, found {len(selectors)}"
        )
    keys: dict[Key, None] = {}
    for selector in selectors:
        try:
            kind = WatchKind(selector.kind)
        except ValueError:
            raise BadArgumentsError(
                f"expected a kind of znode, children or subtree, found {selector.kind!r}"
            ) from None
        paths.validate(selector.path, limits)
        keys[kind, selector.path] = None
    if paths.utf8_length(wanted.prefix) > limits.path_bytes_max:
        raise BadArgumentsError(
            f"prefix: expected at most {limits.path_bytes_max} bytes, found more"
        )
    return tuple(keys)


class Selection:
    """The selectors of one stream, asked about one change at a time (for the replay)."""

    __slots__ = ("_by_kind", "_wanted")

    def __init__(self, selectors: Sequence[Key], wanted: Wanted) -> None:
        self._wanted = wanted
        self._by_kind: dict[WatchKind, set[str]] = {kind: set() for kind in WatchKind}
        for kind, path in selectors:
            self._by_kind[kind].add(path)

    def matches(self, event: Event) -> bool:
        """Say whether one of the selectors is about ``event``, and the stream wants it."""
        if not self._wanted.passes(event):
            return False
        return any(path in self._by_kind[kind] for kind, path in keys_of(event))


def keys_of(event: Event) -> Iterator[Key]:
    """Yield the (kind, path) of every selector that matches ``event``."""
    path = event.path
    yield WatchKind.ZNODE, path
    yield WatchKind.SUBTREE, path
    is_first_parent = event.type is not EventType.DATA_CHANGED
    while path != "/":
        path = path[: path.rindex("/")] or "/"
        if is_first_parent:
            yield WatchKind.CHILDREN, path
            is_first_parent = False
        yield WatchKind.SUBTREE, path
