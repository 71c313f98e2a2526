"""The check of ``serve --check``: whether a member could start, with all that is in its way.

It starts nothing and changes nothing. First the configuration is read; if that is whole, each thing
that it names is looked at: secret, certificates, data directory, ports, files.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from coordinator.clock import SystemClock
from coordinator.errors import ConfigError, CoordinatorError
from coordinator.model.sizes import in_bytes
from coordinator.node.config import Config
from coordinator.node.config_file import examine
from coordinator.node.config_rules import is_loopback, what_is_off
from coordinator.node.open_files import open_files
from coordinator.node.secret_file import read_secrets
from coordinator.oidc.opening import check_issuer, open_issuer
from coordinator.raft.storage.disk import OsDisk, refuse_shared
from coordinator.raft.storage.ownership import Owner, refuse_another
from coordinator.raft.storage.ownership import load as load_owner
from coordinator.tls.certificates import of_door, of_member
from coordinator.tls.files import MemberTls, Reloaded, ServerTls, expiry_warning

DISK_FREE_MIN = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found: ``problems`` prevent a start, ``notes`` do not; a sentence each."""

    config: Config
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def preflight(path: str | os.PathLike[str] | None) -> Preflight:
    """Return what is in the way of a member whose configuration is ``path``."""
    config, wrong = examine(path)
    found = Preflight(config, [each.message for each in wrong])
    if wrong:
        return found
    found.notes.extend(what_is_off(config))
    of_members, of_clients = partial(of_member, config), partial(of_door, config.http)
    for look in (
        _look_at_secret,
        partial(_look_at_certificate, "[member]", of_members),
        partial(_look_at_certificate, "[http]", of_clients),
        _look_at_issuer,
        _look_at_data,
        _look_at_ports,
        _look_at_audit,
        _look_at_open_files,
    ):
        try:
            look(found)
        except CoordinatorError as error:
            found.problems.append(error.message)
    return found


def _look_at_secret(found: Preflight) -> None:
    cluster = found.config.cluster
    is_made = all(is_loopback(each.member_host) for each in cluster.members)
    if cluster.secret_file is not None and is_made and not Path(cluster.secret_file).exists():
        return  # the first member to start makes it
    read_secrets(cluster, is_needed=not found.config.member.has_tls)


def _look_at_certificate(
    name: str, read: Callable[[], Reloaded[MemberTls] | Reloaded[ServerTls] | None],
    found: Preflight,
) -> None:
    files = read()  # which refuses one that has expired
    if files is not None:
        soon = expiry_warning(name, files.current.expires_ms, SystemClock().wall_ms())
        found.notes.extend([soon] if soon else [])


def _look_at_issuer(found: Preflight) -> None:
    open_issuer(found.config.oidc, SystemClock())
    check_issuer(found.config.oidc)


def _look_at_data(found: Preflight) -> None:
    config, disk = found.config, OsDisk()
    directory = Path(config.member.data_dir).absolute()
    if not directory.exists():
        above = next(each for each in directory.parents if each.exists())
        _refuse_foreign(above, "[member] data_dir")
        return
    _refuse_foreign(directory, "[member] data_dir")
    refuse_shared(str(directory))
    own = Owner(config.cluster.name, config.member.member_id)
    if (owner := load_owner(disk, str(directory))) is not None:
        ids = [each.member_id for each in config.cluster.members]
        refuse_another(str(directory), owner, own, ids or [own.member_id])
    free_bytes = disk.room_bytes(str(directory))
    if free_bytes < DISK_FREE_MIN:
        found.notes.append(f"{directory} has {in_bytes(free_bytes)} of disk left")


def _look_at_ports(found: Preflight) -> None:
    """Try to listen, unless this member runs and does so itself."""
    config, log = found.config, Path(found.config.member.data_dir) / "log"
    if OsDisk().is_locked(str(log)):
        found.notes.append("this member runs: its ports were not tried")
        return
    listening = [("http.bind_port", config.http.bind_host, config.http.bind_port)]
    for each in config.cluster.members if len(config.cluster.members) > 1 else ():
        if each.member_id == config.member.member_id:
            host = config.member.member_bind_host or each.member_host
            listening.append(("member_port", host, each.member_port))
    for key, host, port in listening:
        if problem := _why_not(host, port):
            found.problems.append(f"{key}: cannot listen on {host}:{port}: {problem}")


def _why_not(host: str, port: int) -> str:
    """Return why nobody can listen there; "" if this process could."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "another program listens there"
        return error.strerror or str(error)
    return ""


def _look_at_audit(found: Preflight) -> None:
    if found.config.audit.file is not None:
        _refuse_foreign(Path(found.config.audit.file).absolute().parent, "[audit] file")


def _look_at_open_files(found: Preflight) -> None:
    _, files_max = open_files()
    wanted = found.config.http.connections_max
    if files_max is not None and files_max < wanted:
        found.notes.append(
            f"at most {files_max} files may be open, so fewer than http.connections_max ({wanted})"
            " clients can connect: raise the limit (LimitNOFILE, ulimit -n)"
        )


def _refuse_foreign(directory: Path, key: str) -> None:
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: expected a directory to read and write, found {directory}")
