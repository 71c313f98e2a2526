"""The observation of an election: who is elected, and again whenever that changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from coordinator.model.access import MEMBER
from coordinator.model.events import Bookmark, Resync, WatchKind, WatchSelector
from coordinator.model.views import ElectionView
from coordinator.service.watches.hub import WatchHub


async def observed(
    hub: WatchHub, directory: str, look: Callable[[], ElectionView]
) -> AsyncGenerator[ElectionView | Bookmark, None]:
    """Yield what ``look`` shows of the election at ``directory``, as its service says."""
    selector = WatchSelector(directory, WatchKind.SUBTREE)
    stream = hub.watch([selector], caller=MEMBER)
    try:
        view = look()
        yield view
        while True:
            is_broken = False
            async for item in stream:
                is_broken = isinstance(item, Resync)
                latest = look()
                if latest.elected != view.elected:
                    view = latest
                    yield view
                elif isinstance(item, Bookmark):
                    yield item
            if not is_broken:
                return
            stream = hub.watch([selector], caller=MEMBER)
    finally:
        stream.close()
