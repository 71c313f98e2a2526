"""The verbs of operators: look at a member and at sessions, set the limits of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.client.calling.calls import Call, packed, queried
from coordinator.client.verbs.verb_group import VerbGroup
from coordinator.model.backup import BackupPiece
from coordinator.model.diagnosis import Diagnosis
from coordinator.model.fields import ANY_VERSION
from coordinator.model.limits import LimitsChange, LimitsView
from coordinator.model.members import LogLevelReply, LogLevelRequest, MemberList
from coordinator.model.sessions import SessionInfo, SessionList
from coordinator.model.status import Status
from coordinator.model.upgrade import FinishUpgrade, UpgradeView
from coordinator.wire.codec import reader


class OperatorVerbs(VerbGroup):
    """The verbs of operators."""

    async def status(self) -> Status:
        """Return what one member says of itself and the others, without asking them.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", "/v1/status", is_for_any=True), reader(Status))

    async def members(self) -> MemberList:
        """Return how the cluster is, and what each member says of itself: one asks the others.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", "/v1/members", is_for_any=True), reader(MemberList))

    async def examination(self) -> Diagnosis:
        """Return how the cluster is, with the ``checks`` of an examination of all members.

        Raises:
            NoAuthError: this client does not administer the members.
            UnavailableError: no member answered in time.
        """
        target = "/v1/diagnosis?checks=true&limit=1"
        return await self._read(Call("GET", target, is_for_any=True), reader(Diagnosis))

    async def backup_piece(self, backup_id: str | None = None, offset: int = 0) -> BackupPiece:
        """Return a piece of a backup from one member, which holds it for some minutes.

        Args:
            backup_id: of the first piece; None begins a backup.
            offset: where it begins: 0, or the ``next_offset`` of another piece.

        Raises:
            CompactedError: the member that was asked does not hold this backup; begin another one.
            ThrottledError: enough are being read from this member.
            UnavailableError: no member answered in time, or it keeps nothing on a disk.
        """
        query = [] if backup_id is None else [("id", backup_id), ("offset", str(offset))]
        call = packed("GET", "/v1/backup" + queried(query), is_for_any=True)
        return await self._read(call, reader(BackupPiece))

    async def set_log_level(self, level: str, member_id: str | None = None) -> LogLevelReply:
        """Change what all members log, or one, until their next start.

        Args:
            level: the least that is logged: debug, info, warning or error.

        Raises:
            NoAuthError: this client does not administer the members.
            UnavailableError: no member answered in time.
        """
        call = Call("PUT", "/v1/members/log-level", LogLevelRequest(level, member_id))
        return await self._read(call, reader(LogLevelReply))

    async def upgrade_status(self) -> UpgradeView:
        """Return which member runs which release, and what to do next.

        Raises:
            NoAuthError: this client does not administer the members.
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", "/v1/upgrade", is_for_any=True), reader(UpgradeView))

    async def finish_upgrade(self, *, by: str = "") -> UpgradeView:
        """Raise the level of the cluster by one, if every member reads the next one.

        Args:
            by: who does this, for people.

        Raises:
            BadVersionError: a member does not answer, or its release reads no further.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        call = Call("POST", "/v1/upgrade/finish", FinishUpgrade(by))
        return await self._write(call, reader(UpgradeView))

    async def limits(self) -> LimitsView:
        """Return the limits of the cluster: how much there may be of everything.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", "/v1/limits"), reader(LimitsView))

    async def set_limits(
        self, limits: Mapping[str, int], *, by: str = "", expected_version: int = ANY_VERSION
    ) -> LimitsView:
        """Set limits by name; what exists beyond a lower one stays, only growth is refused.

        Args:
            by: who does this, for people.
            expected_version: that of the limits before; -1 accepts any.

        Raises:
            BadVersionError: another client has changed them.
            BadArgumentsError: there is no limit of this name, or it may not have this value.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        body = LimitsChange(dict(limits), by, expected_version)
        return await self._write(Call("PATCH", "/v1/limits", body), reader(LimitsView))

    async def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all open sessions.

        Raises:
            UnavailableError: no member answered in time.
        """
        pages = self._pages("/v1/sessions", (), reader(SessionList))
        return tuple([each async for page in pages for each in page.sessions])
