"""The audit log that a configuration asks for; what writes it is loaded only if it asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.clock import Clock
from coordinator.config import Config

if TYPE_CHECKING:
    from coordinator.audit.log import AuditLog
    from coordinator.audit.targets import Target


def open_audit(config: Config, clock: Clock) -> AuditLog | None:
    """Return the audit log that ``config`` asks for, not started; None if it asks for none."""
    audit, member_id = config.audit, config.member.member_id
    if audit.target not in ("file", "stderr", "syslog"):
        return None
    from coordinator.audit.log import AuditLog
    from coordinator.audit.targets import FileTarget, StreamTarget, SyslogTarget

    target: Target
    if audit.target == "file":
        assert audit.file is not None, "checked with the configuration"
        target = FileTarget(
            Path(audit.file), bytes_max=audit.file_bytes_max, files_max=audit.files_max
        )
    elif audit.target == "stderr":
        target = StreamTarget()
    else:
        target = SyslogTarget(audit.syslog_address, member_id)
    return AuditLog(target, audit, clock, cluster=config.cluster.name, member_id=member_id)
