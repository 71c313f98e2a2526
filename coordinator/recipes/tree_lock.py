"""The same fair lock, made by the client alone from nothing but znodes (ZooKeeper, "Locks").

::

    with TreeLock(client, "daily-report", timeout=10) as grant:
        save(report, token=grant.fencing_token)

It is queued with the contenders that the server runs: the znodes are the same,
``/locks/<name>/lock-0000000042``, and so is the decision (``place_of``). Prefer ``Lock``:
it waits in one request. This one shows that the plain tree is enough.

1. Create an ephemeral sequential znode; its czxid is the fencing token.
2. List the siblings. The lowest number holds; every other one watches its predecessor only.
3. The watch begins at the listing's zxid, so a predecessor that went in between is noticed.
4. After waking, decide again. On every way out without a grant the own znode is deleted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from coordinator.client import TRY_MS, ClientT
from coordinator.client.locks import Acquired, GrantReply
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LockTimeoutError,
    OutcomeUnknownError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes.base.names import name_of
from coordinator.recipes.contender import LockContender
from coordinator.recipes.grant import Grant
from coordinator.recipes.hold import Hold
from coordinator.recipes.options import Options, WhenUnsure
from coordinator.recipes.tree_place import TreePlace
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout

_ROOT = "/locks"
_NAME_CHARACTERS_MAX = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""How long one try looks for a member that can decide it, as ``Lock`` does."""


class TreeLock(LockContender[Grant[ClientT], ClientT]):
    """One contender for the lock ``name``, over the plain tree; otherwise like ``Lock``.

    ``on_before_watch`` is awaited between the listing and the watch; for tests of that gap.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        when_unsure: WhenUnsure = "stop",
        label: str = "",
        on_before_watch: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.name = name_of(name)
        self._directory = f"{_ROOT}/{segment_of(self.name)}"
        self._on_before_watch = on_before_watch
        options = Options.of(client, timeout=timeout, when_unsure=when_unsure, label=label)
        self._prepare(client, f"lock {self.name!r}", options)

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What this object holds, None when nothing."""
        return self._holding.held

    # --- the recipe

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        core = self.client.core
        limit_s = None if wait_ms is None else wait_ms / 1000
        if wait_ms == 0:
            limit_s = min(core.settings.timeout_ms, TRY_MS) / 1000
        contender = TreePlace(core, self._directory, self._on_position, self._on_before_watch)
        try:
            async with asyncio.timeout(limit_s) as scope:
                session = await core.session(limit_s)
                work = contender.enter_and_wait(session, self._data(), is_try=wait_ms == 0)
                await session.while_alive(work)
        except LockTimeoutError:
            await contender.leave()
            raise
        except TimeoutError:
            is_left = await contender.leave()
            if not scope.expired():
                raise
            raise self._not_in_time(contender, is_left) from None
        except SessionExpiredError:
            is_left = await contender.leave()
            if contender.is_unheard:  # lost only because no member answered: that is what is said
                raise self._not_in_time(contender, is_left) from None
            raise
        except UnavailableError as error:  # of a look at the queue, where the contender is queued
            if not await contender.leave():
                raise self._not_in_time(contender, is_left=False) from error
            raise
        except BaseException:
            await contender.leave()
            raise
        if session.remaining_safe_ms() == 0:
            await contender.leave()
            raise SessionExpiredError(f"lock {self.name!r}: granted too late, and released")
        reply = GrantReply(
            grant_id=contender.grant_id,
            lock=self.name,
            fencing_token=contender.czxid,
            session_id=session.session_id,
            path=contender.path,
            zxid=contender.czxid,
        )
        return Grant(self.client, Hold(Acquired(reply, session), contender), contender, reply)

    def _not_in_time(self, contender: TreePlace, is_left: bool) -> CoordinatorError:
        if not is_left:
            contender.check_session()
            return OutcomeUnknownError(
                f"lock {self.name!r}: not granted, and it is not known whether the contender is "
                f"gone; its removal continues in the background"
            )
        if not contender.path or contender.is_unheard:
            return UnavailableError(f"lock {self.name!r}: no member could be reached in time")
        return LockTimeoutError(f"lock {self.name!r}: not granted in time")

    def _data(self) -> bytes:
        request = self._options.request()
        shown = {"label": request.label, "host": request.host, "pid": request.pid, "trace_id": ""}
        return json.dumps(shown).encode("utf-8")


def segment_of(name: str) -> str:
    """Return the name of the znode of the lock ``name``, as the members call it.

    Raises:
        BadArgumentsError: the members would not take it for a name, so no other client could
            acquire this lock.
    """
    if not 1 <= len(name) <= _NAME_CHARACTERS_MAX or name in (".", "..") or _CONTROL.search(name):
        raise BadArgumentsError(
            f"expected the name of a lock to be 1 to {_NAME_CHARACTERS_MAX} characters without "
            f"control characters, and not a dot or two; found {name[:60]!a}"
        )
    return quote(name, safe="")
