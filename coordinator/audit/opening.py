"""The audit log that a configuration asks for; what writes it is loaded only if it asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.clock import Clock
from coordinator.node.config import Config

if TYPE_CHECKING:
    from coordinator.audit.files import AuditLogs
    from coordinator.audit.targets import Target

STRANGERS = ".strangers"
"""Behind the name of the file: that of what callers without an identity were refused."""
_STRANGERS_SHARE = 10
"""Their files are a tenth as large."""


def open_audit(config: Config, clock: Clock) -> AuditLogs | None:
    """Return the audit log that ``config`` asks for, not started; None if it asks for none."""
    audit, member_id = config.audit, config.member.member_id
    if audit.target not in ("file", "stderr", "syslog"):
        return None
    from coordinator.audit.files import AuditLogs
    from coordinator.audit.log import AuditLog
    from coordinator.audit.targets import FileTarget, StreamTarget, SyslogTarget

    def log_to(target: Target, name: str = "the audit log") -> AuditLog:
        cluster = config.cluster.name
        return AuditLog(target, audit, clock, cluster=cluster, member_id=member_id, name=name)

    target: Target
    if audit.target == "file":
        assert audit.file is not None, "checked with the configuration"
        path, bytes_max, files_max = Path(audit.file), audit.file_bytes_max, audit.files_max
        share = bytes_max // _STRANGERS_SHARE
        others = FileTarget(Path(audit.file + STRANGERS), bytes_max=share, files_max=files_max)
        return AuditLogs(
            log_to(FileTarget(path, bytes_max=bytes_max, files_max=files_max)),
            log_to(others, "the audit log of strangers"),
        )
    if audit.target == "stderr":
        target = StreamTarget()
    else:
        target = SyslogTarget(audit.syslog_address, member_id)
    return AuditLogs(log_to(target))
