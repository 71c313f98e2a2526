"""One program's registration in a group, kept up while the program lives; see ``group``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from coordinator.client import Check, ClientT, Create, SessionState, SetData, both, within
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    NodeExistsError,
    RequestError,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.ended_by_with import EndedByWith
from coordinator.recipes.base.ephemeral import Ephemeral, make, remove
from coordinator.recipes.groups.members import MemberState
from coordinator.recipes.waits import is_seconds


class Membership(EndedByWith[ClientT]):
    """What ``Group.join`` returns; ``with`` leaves at its end."""

    def __init__(
        self, client: ClientT, path: str, metadata: dict[str, Any], state: MemberState
    ) -> None:
        self.client = client
        self._path = path
        self._metadata = metadata
        self._state: MemberState = state
        self._reason = ""
        self._made: Ephemeral | None = None
        self._has_left = False
        self._publishing = asyncio.Lock()
        self._returning: asyncio.Task[None] | None = None
        """Its registration in another session, which is under way."""
        self._stop_following: Callable[[], None] = lambda: None
        """Ends the callback of the session that it is registered in."""
        self._data()

    def __repr__(self) -> str:
        return f"Membership({self._path})"

    @property
    def name(self) -> str:
        """The member's name, as a segment of a path."""
        return self._path.rpartition("/")[2]

    @property
    def fencing_token(self) -> int:
        """The token of the present registration; 0 while there is none."""
        return 0 if self._made is None or self._made.session.is_lost else self._made.czxid

    @property
    def is_registered(self) -> bool:
        """Whether this client may rely on being listed; asks the clock alone."""
        return self.fencing_token > 0

    @both
    async def update(self, metadata: Mapping[str, Any]) -> bool:
        """Publish other metadata; False: not registered now, it is published with the next one.

        Raises:
            BadArgumentsError, DataTooLargeError: it cannot be published.
            UnavailableError, OutcomeUnknownError: it was not published; it may have been.
        """
        return await self._say(metadata=dict(metadata))

    @both
    async def report(self, state: MemberState, reason: str = "") -> bool:
        """Publish that this member is ``up``, ``draining`` or ``down``, and why.

        Raises:
            All that ``update`` raises.
        """
        return await self._say(state=_checked(state), reason=reason)

    async def _drain(self, linger: float = 5.0, reason: str = "") -> None:
        """Say that no new work should come here, wait ``linger`` seconds for that, and leave.

        Raises:
            BadArgumentsError: ``linger`` is no number of seconds.
        """
        if not is_seconds(linger):
            raise BadArgumentsError(f"linger: expected seconds from 0, found {linger!r}")
        try:
            with within(self.client.clock, self.client.core.settings.timeout_ms):
                await self._say(state="draining", reason=reason)
            await asyncio.sleep(linger)
        except CoordinatorError:
            pass  # leaving says it, too
        await self._leave()

    drain = both(_drain, has_own_time=True)

    async def _leave(self) -> bool:
        """Be registered no more; False when that is left to the end of the session. Idempotent.

        Raises:
            UnavailableError, OutcomeUnknownError: never: its removal goes on in the background.
        """
        self._has_left = True
        self._stop_following()
        returning = self._returning
        if returning is not None and returning is not asyncio.current_task():
            returning.cancel()  # it takes away what it has made
        made, self._made = self._made, None
        if made is None:
            return True
        core = self.client.core
        removing = core.background.start(remove(core, made), f"leave {made.path}")
        await asyncio.wait({removing}, timeout=core.settings.timeout_ms / 1000)
        return removing.done() and not removing.cancelled() and removing.result()

    leave = both(_leave)

    # --- inside

    async def register(self, wait_ms: int | None) -> None:
        """Create the znode, when no other member has the name any more; for ``Group.join``.

        Raises:
            All that ``Group.join`` raises.
        """
        core = self.client.core
        every: list[tuple[Ephemeral, bytes]] = []
        session = await core.session(core.time_left_ms() / 1000)

        async def look() -> tuple[Ephemeral, bytes] | None:
            data = self._data()
            create = Create(self._path, data, "ephemeral", session.session_id, parents="container")
            nobody = Check(self._path, exists=False)
            made = await make(core, session, self._path, [nobody], [create])
            if made is None:
                return None
            every.append((made, data))
            return every[-1]

        try:
            found = await session.while_alive(until(core, self._path, "znode", look, wait_ms))
        except BaseException:
            for made, _ in every:  # cancelled on the way here
                core.background.start(remove(core, made), f"leave {made.path}")
            raise
        if found is None and every:
            found = every[-1]  # it came in the instant when time was up
        if found is None:
            raise NodeExistsError(
                f"{self._path}: expected no other member of this name, found one; its session "
                f"has not ended. Wait longer, or choose another name",
                path=self._path,
            )
        self._made, data = found
        self._stop_following()
        self._stop_following = session.on_change(self._on_state)
        if session.is_lost:
            self._on_state(session.state)
        if self._has_left:
            await self._leave()
        elif data != self._data():
            await self._say()

    async def _say(
        self,
        *,
        metadata: dict[str, Any] | None = None,
        state: MemberState | None = None,
        reason: str | None = None,
    ) -> bool:
        """Publish what is said from now on; None: as before. What is refused is not said later."""
        async with self._publishing:  # the last caller's is the last one to be written
            before = self._metadata, self._state, self._reason
            self._metadata = self._metadata if metadata is None else metadata
            self._state = self._state if state is None else state
            self._reason = self._reason if reason is None else reason[:200]
            try:
                return await self._publish()
            except RequestError:
                self._metadata, self._state, self._reason = before
                raise

    async def _publish(self) -> bool:
        data, made, core = self._data(), self._made, self.client.core
        if made is None or made.session.is_lost:
            return False
        reply = await core.guarded(
            [Check(made.path, expected_czxid=made.czxid)], then=[SetData(made.path, data)]
        )
        return reply.branch == "then"

    def _on_state(self, state: SessionState) -> None:
        made = self._made
        if state is SessionState.LOST and made is not None and made.session.is_lost:
            self._made = None
            background = self.client.core.background
            again = f"register {made.path} again"
            self._returning = background.start(self._register_again(), again)

    async def _register_again(self) -> None:
        core, failures = self.client.core, 0
        while not self._has_left:
            try:
                await self.register(None)
                return
            except ClientClosedError:
                return
            except CoordinatorError:
                failures += 1
                await core.wait(core.retry_delay_ms(failures))

    def _data(self) -> bytes:
        state = _checked(self._state)
        document = {"state": state, "reason": self._reason, "metadata": self._metadata}
        try:
            return json.dumps(document, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadArgumentsError(f"metadata: expected JSON values, found: {error}") from None

    async def _end(self, error: BaseException | None) -> None:
        await self._leave()


def _checked(state: MemberState) -> MemberState:
    if state not in get_args(MemberState):
        raise BadArgumentsError(f"state: expected up, draining or down, found {state!r}")
    return state
