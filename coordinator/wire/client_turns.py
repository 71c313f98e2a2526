"""The turns of clients, as the doors ask for them: whose a request is, what it counts as, its rate.

1. A client is the identity that it proves, else its address (of IPv6 the /64).
2. What keeps a session, gives something back or asks for the health of the member is *urgent*: it
   goes first among what its client asks. As many as its sessions need in a second, and a few more,
   are not counted as asking, and never refused for their rate; the rest is asked like anything.
3. A turn ends with the answer, or as soon as the request waits for others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from coordinator.errors import ThrottledError
from coordinator.service.access import ConnectionProof
from coordinator.service.base.turns import KEY, LONG_COST, FirstFew, cost_of
from coordinator.service.member import Member
from coordinator.wire.addresses import network_of
from coordinator.wire.request import ClientRequest

LONG_BYTES: Final = 2 * 1024
"""An answer of more is counted (``note_long``)."""
_UNSAID_BYTES: Final = 1024 * 1024
"""The length of a body that does not say it: that is known when it was read."""
URGENT_FREE: Final = 64
"""Urgent requests of a client in a second that count as nothing; and more for each session: the
shortest one is renewed three times a second."""
URGENT_PER_SESSION: Final = 3
_IDENTITY: Final = "identity "
_QUICK_KIB: Final = 4
"""What a request counts as, in kibibytes of a long answer, that holds no turn (``note_quick``)."""
_TREE: Final = "/v1/tree"
_WATCH: Final = "/v1/watch"
_PAGES: Final = ("/console", "/learn")
_URGENT: Final = ("/v1/sessions", "/v1/locks", "/v1/elections", "/health")


class TurnRequest(ClientRequest, Protocol):
    """A request, as its turns see it."""

    key: str
    """The key of its client, once it was looked up."""
    mark: int
    """The mark of its turn; 0 while it has none."""
    cost: int

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""

    @property
    def body_length(self) -> int | None:
        """How many bytes the body has, None if that is not said."""


def is_open(target: str) -> bool:
    """Whether a request is for the health of the member, which is always answered."""
    return target.startswith("/health")


def is_urgent(method: str, target: str) -> bool:
    """Whether a request keeps a session, gives something back, or asks how the member is."""
    if target.startswith(_TREE) or not target.startswith(_URGENT):
        return False
    if method == "DELETE" or target.startswith("/health"):
        return True
    return target.startswith("/v1/sessions/") and "/heartbeat" in target


def is_long(method: str, target: str) -> bool:
    """Whether an answer may be long to make: of a read of more than one znode."""
    if method != "GET" or target.startswith((_WATCH, "/health", *_PAGES)):
        return False
    if not target.startswith(_TREE):
        return True
    query = target.partition("?")[2]
    return "children" in query or "subtree" in query or "%" in query  # which may spell it


class ClientTurns:
    """The turns of a member's clients, as its doors ask for them."""

    def __init__(self, member: Member, wait_ms: int, now_ms: Callable[[], int]) -> None:
        self._turns = member.turns
        self.waiting = member.turns.waiting
        """The keys of clients whose requests wait, or are not read."""
        self._access = member.access
        self._wait_s = wait_ms / 1_000
        self._urgent = FirstFew(now_ms)

    def key(self, request: TurnRequest) -> str:
        """Return whose request this is: the identity that its connection has proved, else its
        network. A token of the cluster counts from the first request on, others from the second."""
        place = request.place
        if place is None:
            return network_of(request.remote)
        proved = place.proved
        if proved is None and request.authorization is None and not place.certificate_names:
            return place.network
        identity = ""
        if isinstance(proved, ConnectionProof) and proved.authorization == request.authorization:
            identity = proved.caller.identity  # it is judged again before it is answered
        elif proved is None and request.authorization is not None:
            identity = self._access.identity_of_token(request.authorization)
        elif place.certificate_names:
            identity = self._access.identity(place.certificate_names)
        return _IDENTITY + identity if identity else place.network

    def begin(self, request: TurnRequest) -> bool:
        """Give a request its turn now, or return False: it has to wait. Its cost is set, but for
        its body.

        Raises:
            ThrottledError: its client sends too many a second."""
        request.key = key = self.key(request)
        if request.has_body:
            length = request.body_length
            request.cost += cost_of(_UNSAID_BYTES if length is None else length) - 1
        is_free = is_urgent(request.method, request.target) and self._is_needed(key)
        request.mark = self._turns.begin(key, request.cost, is_urgent=is_free, is_charged=True)
        return request.mark > 0

    def _is_needed(self, key: str) -> bool:
        """Whether one more urgent request is no more than a client's sessions need."""
        count = self._urgent.count(key)
        if count <= URGENT_FREE:
            return True
        identity = key.removeprefix(_IDENTITY)
        count_of = self._access.replica.machine.session_count_of
        sessions = count_of(address=key) if identity == key else count_of(identity=identity)
        return count <= URGENT_FREE + URGENT_PER_SESSION * sessions

    def wait(self, request: TurnRequest, begin: Callable[[], bool]) -> None:
        """Call ``begin`` when it is the turn of ``request``, or when it has waited for too long: it
        has no mark then. It returns whether the client still waits for the answer."""
        is_first = is_urgent(request.method, request.target)
        marked = partial(_marked, request, begin)
        self._turns.wait(request.key, marked, self._wait_s, request.cost, is_urgent=is_first)

    async def turn(self, request: TurnRequest) -> None:
        """Wait for the turn of ``request``.

        Raises:
            ThrottledError: its client sends too many a second, or there was no turn in time."""
        request.cost = LONG_COST if is_long(request.method, request.target) else 1
        if not self.begin(request):
            is_first = is_urgent(request.method, request.target)
            request.mark = await self._turns.turn(
                request.key, self._wait_s, request.cost, is_urgent=is_first
            )
            if not request.mark:
                raise no_turn()

    def end(self, request: TurnRequest) -> None:
        """A request was answered, or waits for others. Idempotent."""
        mark, request.mark = request.mark, 0
        if mark:
            self._turns.end(request.key, mark, request.cost)

    def note_quick(self) -> None:
        """Count what was over at once for the client of this task: a refusal for want of room, or
        the begin of a stream. It holds no turn, so thousands of it would count as nothing."""
        self._turns.note_work(KEY.get(), _QUICK_KIB)

    def note_long(self, size: int) -> None:
        """Count the work of a long answer, of so many bytes, for the client of this task."""
        self._turns.note_work(KEY.get(), size >> 10)

    def is_line_full(self, key: str) -> bool:
        """Whether no more of what this client sends should be read."""
        return self._turns.is_line_full(key)

    def hold(self, key: str, go_on: Callable[[], None]) -> None:
        """Have ``go_on`` called when more of what this client sends may be read."""
        self._turns.hold(key, go_on)


def no_turn() -> ThrottledError:
    """Return the error of a request that waited too long; nothing of it was done."""
    return ThrottledError(
        "other requests of this client took all its turns for too long; nothing was done, try "
        "again with fewer at once"
    )


def _marked(request: TurnRequest, begin: Callable[[], bool], mark: int) -> bool:
    request.mark = mark
    return begin()
