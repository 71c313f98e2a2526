"""/v1/backup: a backup of the cluster from this member, piece by piece."""

from __future__ import annotations

from coordinator.errors import BadArgumentsError
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.auditing import note_request
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.queries import Query
from coordinator.wire.routes.route import Route

_QUERY = frozenset({"id", "offset"})


class BackupRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the route of backups."""
        return (Route("GET", "/v1/backup", self.read, "backup"),)

    async def read(self, request: IncomingRequest) -> Answer:
        """Begin a backup and return its first piece, or return another piece of one."""
        door, backups = self._door, self._door.member.backups
        query = Query(request.query, _QUERY)
        backup_id, offset = query.text("id"), query.integer("offset", minimum=0)
        if backup_id is not None:
            piece = await backups.read(backup_id, offset or 0, request.caller)
            return door.reply_now(request, piece)
        if offset:
            raise BadArgumentsError("query.id: expected the id of the backup, found none")
        piece = await backups.begin(request.caller, door.deadline_ms(request))
        detail: dict[str, object] = {"backup_id": piece.backup_id, "bytes": piece.size_bytes}
        note_request(door, request, "request.backup", verb="admin", detail=detail)
        return door.reply_now(request, piece)
