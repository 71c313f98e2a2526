"""The caller of a request, found out in one place, for every door, before a route is asked.

What a caller may do is judged where it is done: at apply, and where the state is read. Here only a
caller is refused whose credential is worth nothing, and one without a credential where nothing is
allowed without. Until access rights are on, callers from other machines are refused, unless the
operator has said that they need not be (``http.access``).
"""

from __future__ import annotations

from coordinator.errors import AuthFailedError, CoordinatorError, NoAuthError, ThrottledError
from coordinator.service.access import ConnectionProof
from coordinator.wire.admission import ASKED_OF_A_FULL_MEMBER
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.route import Route


class Gate:
    """The gate of one door: who is asking, and may they."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._is_wide = door.config.access == "off"
        """Whether all who reach it may do everything until access rights are on."""

    def knows(self, request: IncomingRequest, route: Route) -> bool:
        """Know at once who asks, if that can be: from the last request of the same connection, if
        that counts still, or because nothing was shown and access rights are not on."""
        if route.is_open:
            return True
        place, authorization = request.place, request.authorization
        if authorization is None:
            is_nobody = place is None or (
                not place.certificate_names and (place.is_local or self._is_wide)
            )
            return is_nobody and not self._door.has_rights
        proved = None if place is None else place.proved
        if not isinstance(proved, ConnectionProof) or proved.authorization != authorization:
            return False
        if not self._door.member.access.holds(proved):
            return False
        request.caller = proved.caller
        return True

    async def admit_spare(self, request: IncomingRequest, route: Route, full: str) -> Answer | None:
        """Find out who asks on a connection that is one too many, because of ``full``. Return the
        answer to who may not ask for this there, None to others: an operator may ask for all.

        Raises: as ``admit``, of who shows a credential, or asks for what anybody may."""
        names = () if request.place is None else request.place.certificate_names
        is_for_anybody = (route.method, route.template) in ASKED_OF_A_FULL_MEMBER
        if is_for_anybody or request.authorization or names:
            await self.admit(request, route)
        if is_for_anybody or self._door.member.access.is_operator(request.caller):
            return None
        answer = self._door.problem(ThrottledError(full), encoding=request.encoding, status=503)
        answer.closes = True
        return answer

    async def admit(self, request: IncomingRequest, route: Route) -> None:
        """Find out who asks.

        Raises:
            NoAuthError: access rights are not on, and it is from another machine.
            RequestForgottenError: it was sent before, and its token has expired.
            AuthFailedError: what was shown proves nobody, or nothing was shown where something is
                needed.
        """
        if self.knows(request, route):
            return
        await self.find_out(request)

    async def find_out(self, request: IncomingRequest) -> None:
        """Find out who asks, when that is not known at once; raises as ``admit`` does."""
        door, place = self._door, request.place
        access, deadline_ms = door.member.access, door.deadline_ms(request)
        is_near = place is None or place.is_local or self._is_wide
        if not is_near and await access.is_off(deadline_ms):
            raise NoAuthError(
                "access rights are not on yet, so callers from other machines get /health alone: "
                "run `coordinator access init` on the member's machine, or put "
                'access = "off" into its [http] if the network is trusted'
            )
        names = () if place is None else place.certificate_names
        authorization = request.authorization
        try:
            request.caller = caller = await access.caller(authorization, names, deadline_ms)
        except AuthFailedError as error:
            # Of an earlier attempt nothing is said to a stranger; whose token has expired is none.
            if "identity" in error.fields and (repeated := door.request_id(request)) is not None:
                access.refuse_repeat(repeated, error)
            raise
        if place is not None and authorization is not None:
            place.proved = access.proof(authorization, caller)


def shown_error(error: CoordinatorError, request: IncomingRequest) -> CoordinatorError:
    """Return what a client sees of ``error``: without the right, and without a credential, that
    one is needed."""
    if type(error) is not NoAuthError or "verb" not in error.fields or request.caller.credential:
        return error
    return AuthFailedError(f"a credential is needed: {error.message}", **error.fields)


def may_label(door: Door, answer: Answer, *, is_admitted: bool) -> bool:
    """Return whether an answer may say how far the state is: not to strangers, whom that number
    would tell what the cluster does. Until access rights are on there are none."""
    return not door.has_rights or (is_admitted and answer.status != 401)
