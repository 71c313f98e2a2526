"""The options of an attempt to hold: how it waits, for whom and until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Required, TypedDict

from coordinator.model.access import Caller
from coordinator.state.commands import HeldCondition, OpenSession, RequestId


class AcquireOptions(TypedDict, total=False):
    """How to wait, for whom and until when; the first three are always given.

    ``wait_deadline_ms`` bounds everything, however many predecessors leave one by one. A try
    decides at once, in one command that leaves nothing behind; the deadline then bounds the
    proposal (and is taken as a second when less). With ``opening`` the same command opens the
    session; of a repeated request, the first one did. ``on_entered`` is called once it is certain
    whether a place was taken (and the session opened). ``own_request`` is the number of an attempt
    that has none, drawn by the member, which can then withdraw it as well. ``on_queued`` is called
    once, if it has to wait, with the session and the place in the queue; ``on_position`` with the
    place, first and whenever it changes, not for 0, which costs the member work.
    ``leave_on_cancel``: whether a cancelled call takes its contender out of the queue.
    """

    session_id: Required[str]
    request: Required[RequestId | None]
    wait_deadline_ms: Required[int]
    is_try: bool
    caller: Caller
    if_held: tuple[HeldCondition, ...]
    opening: OpenSession | None
    own_request: RequestId | None
    on_entered: Callable[[bool], None] | None
    on_queued: Callable[[str, int], None] | None
    on_position: Callable[[int], None] | None
    leave_on_cancel: bool
