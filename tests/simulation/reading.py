"""What reads show, judged when a client hears it: no older state, and no less than was asked for.

A member labels each answer with the zxid of the state that it was made from. Whatever is shown
anywhere was committed, so every label counts as shown, that of a stale read too.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from urllib.parse import parse_qs

from coordinator.client.calling.transport import Request, Response
from coordinator.wire import messages

Found = Iterator[tuple[str, str]]

LINEARIZABLE = ("tree", "locks")
"""What is read from a state that is fresh, unless the request says otherwise."""
FRESHNESS = ("stale", "at_least_zxid")


class ReadOrder:
    """Whoever asks after an answer was given must not be shown an older state.

    Moments count up. What is heard later is added later.
    """

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._zxids: list[int] = []

    @property
    def latest_zxid(self) -> int:
        """The latest state that anybody was shown."""
        return self._zxids[-1] if self._zxids else 0

    def note_shown(self, now: int, zxid: int) -> None:
        """Somebody was told that there is a state ``zxid``."""
        self._moments.append(now)
        self._zxids.append(max(zxid, self.latest_zxid))

    def heard(self, request: Request, response: Response, *, called_at: int, now: int) -> Found:
        """Note an answer to what was asked at ``called_at``; iterate over what is wrong with it."""
        label = response.headers.get(messages.ZXID_HEADER.lower())
        is_read = request.method == "GET"
        if label is None or response.status not in ((200, 404) if is_read else (200,)):
            return
        zxid, target = int(label), request.target
        shown = self._shown_before(called_at)
        self.note_shown(now, zxid)
        path, _, query = target.partition("?")
        asked = parse_qs(query, keep_blank_values=True)
        if not is_read or path.split("/")[2] not in LINEARIZABLE:
            return
        if "at_least_zxid" in asked and zxid < int(asked["at_least_zxid"][0]):
            yield "reads show what was asked for", f"{target} was answered with zxid {zxid}"
        if zxid < shown and not any(each in asked for each in FRESHNESS):
            yield (
                "reads never go back",
                f"{target} was shown zxid {zxid}; before it was asked, {shown} had been",
            )

    def _shown_before(self, moment: int) -> int:
        position = bisect.bisect_left(self._moments, moment) - 1
        return self._zxids[position] if position >= 0 else 0
