"""Asking the holder of a lock to give it up, which it may refuse: a cooperative revocation.

::

    grant = lock.acquire()                                    # the holder
    grant.on_asked(lambda request: request.refuse("nearly done"))

    answer = Revoker(client, "gpu").ask("the report is due", within=30)      # another client
    if answer.outcome == "refused":
        print(answer.reason)

1. Nothing is taken away. A holder that does not listen, or does not answer, keeps its lock; an
   operator can end its grant by force (``client.revoke``).
2. The holder may agree, and must then release; or refuse; or release without an answer. The client
   that asked learns which, at the latest when ``within`` is over.
3. The queue stays fair: the released lock goes to the next in it. To ask for the lock for oneself,
   queue first.
4. A request is a znode of the session that asks, and goes with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, Literal

from coordinator.client import AsyncClient, Check, ClientT, Contender, Create, both
from coordinator.client import within as within_limit
from coordinator.errors import BadArgumentsError, NotOwnerError
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.ephemeral import Ephemeral, make, remove, unique_name
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import (
    WHO_CHARACTERS_MAX,
    WHY_CHARACTERS_MAX,
    checked_text,
    name_of,
)
from coordinator.recipes.locks.requests import AGREED, REFUSED, RequestRecord, directory_of
from coordinator.recipes.waits import is_seconds

Outcome = Literal["ended", "agreed", "refused", "silent"]
WITHIN_S_MAX = 24 * 3_600.0


@dataclass(frozen=True, slots=True)
class RevokeAnswer:
    """The outcome of a request to give up a lock.

    ``ended``: the grant of ``fencing_token`` does not hold any more, by its holder's will or not.
    ``refused``: its holder keeps it. ``agreed``: it said that it will release, and has not in time.
    ``silent``: no answer in time; it keeps its lock. ``reason`` is the holder's.
    """

    outcome: Outcome
    fencing_token: int
    reason: str = ""


class Revoker(Generic[ClientT]):
    """Asks the holder of the lock ``name``. For elections there is ``Election.ask``."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        self.client = client
        self.name = name_of(name)

    async def _ask(
        self,
        reason: str,
        *,
        by: str = "",
        within: float = 30.0,
        fencing_token: int | None = None,
    ) -> RevokeAnswer:
        """Ask the holder, and wait for its answer, or its release, for ``within`` seconds.

        ``fencing_token`` says which holder, where several hold together. ``by`` is the client's
        label if it is not given.

        Raises:
            NotOwnerError: nobody holds the lock, or nobody with this token; nobody was asked.
            SessionExpiredError: this client's session ended, and the request with it.
            UnavailableError, OutcomeUnknownError: no member answered; it may have been asked.
            BadArgumentsError: an argument is out of its range, or several hold and none is named.
        """
        core = self.client.core
        if not is_seconds(within) or not 0 < within <= WITHIN_S_MAX:
            raise BadArgumentsError(
                f"within: expected seconds up to {WITHIN_S_MAX:g}, found {within!r}"
            )
        record = RequestRecord(
            checked_text("by", by or core.settings.label[:WHO_CHARACTERS_MAX], WHO_CHARACTERS_MAX),
            checked_text("reason", reason, WHY_CHARACTERS_MAX),
            round(within * 1000),
        )
        with within_limit(core.clock, core.settings.timeout_ms):
            holder = await self._holder(fencing_token)
            made = await self._asked(holder, record)
        if made is None:
            return RevokeAnswer("ended", holder.fencing_token)
        try:
            answering = _answer(core, holder, made, record.within_ms)
            return await made.session.while_alive(answering)
        finally:
            core.background.start(remove(core, made), f"take {made.path} away")

    ask = both(_ask, has_own_time=True)

    async def _asked(self, holder: Contender, record: RequestRecord) -> Ephemeral | None:
        """Write the request; None if the hold has ended."""
        core = self.client.core
        session = await core.session(core.time_left_ms() / 1000)
        directory = directory_of(holder.path, holder.fencing_token)
        path = f"{directory}/{unique_name(core, session)}"
        is_held = Check(holder.path, expected_czxid=holder.fencing_token)
        create = Create(
            path, record.to_bytes(), "ephemeral", session.session_id, parents="container"
        )
        return await make(core, session, path, [is_held], [create])

    async def _holder(self, fencing_token: int | None) -> Contender:
        holders = (await self.client.core.lock(self.name)).holders
        found = [each for each in holders if fencing_token in (None, each.fencing_token)]
        if not found:
            asked = "" if fencing_token is None else f" with token {fencing_token}"
            raise NotOwnerError(
                f"lock {self.name!r}: expected a holder{asked} to ask, found none; nobody was asked"
            )
        if len(found) > 1:
            raise BadArgumentsError(
                f"lock {self.name!r}: expected one holder, found {len(found)}; say which one by "
                f"its fencing_token"
            )
        return found[0]


async def _answer(
    core: AsyncClient, holder: Contender, made: Ephemeral, within_ms: int
) -> RevokeAnswer:
    """Wait until the holder refuses, or holds no more: of what it writes, and of its place."""
    token, record = holder.fencing_token, RequestRecord("", "", 0)

    async def heard() -> RevokeAnswer | None:
        nonlocal record
        if (znode := await read(core, made.path)) is not None:  # else the session is ending
            record = RequestRecord.of(znode.data) or record
        is_refused = record.answer == REFUSED
        return RevokeAnswer("refused", token, record.answer_reason) if is_refused else None

    async def ended() -> RevokeAnswer | None:
        stat = await core.exists(holder.path)
        if stat is not None and stat.czxid == token:
            return None
        await heard()  # it may have said why
        return RevokeAnswer("ended", token, record.answer_reason)

    waits = [
        asyncio.create_task(until(core, path, "znode", look, within_ms))
        for path, look in ((holder.path, ended), (made.path, heard))
    ]
    try:
        for done in asyncio.as_completed(waits):
            if (answer := await done) is not None:
                return answer
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    outcome: Outcome = "agreed" if record.answer == AGREED else "silent"
    return RevokeAnswer(outcome, token, record.answer_reason)
