"""The rules of a Config beyond its types: ranges, and values that must fit each other.

Ranges and orders are tables. Two checks are functions below them: the members, and what may be
reachable from outside this machine. Nothing here reads files.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath
from typing import NoReturn
from urllib.parse import urlsplit

from coordinator.errors import ConfigError
from coordinator.model.limits import PROPOSED_MAX, WHY_NO_MORE, proposed_bounds_of
from coordinator.model.status import DEVELOPMENT
from coordinator.node.config import SETTINGS, Config, HttpConfig, MemberAddress

Origin = Callable[[str, str], str]
"""Says where ``(section, key)`` was set, for a message."""

_DAY_MS = 24 * 3_600_000
_TIB = 1024**4

# Bounds (both inclusive) by the end of a key; the first that fits counts.
_BOUNDS_BY_SUFFIX: tuple[tuple[str, int, int], ...] = (
    ("_port", 0, 65_535),
    ("_ms", 1, 30 * _DAY_MS),
    ("_ms_min", 1, 30 * _DAY_MS),
    ("_ms_max", 1, 30 * _DAY_MS),
    ("_bytes", 1, _TIB),
    ("_bytes_max", 1, _TIB),
    ("", 1, 1_000_000_000),
)

_BOUNDS: dict[tuple[str, str], tuple[int, int]] = {
    ("http", "shutdown_grace_ms"): (0, _DAY_MS),
    ("http", "json_depth_max"): (2, 200),
    ("http", "body_bytes_max"): (1_024, 256 * 1024**2),
    ("raft", "election_timeout_ms_max"): (2, 3_500),
    ("raft", "keep_entries_after_snapshot"): (0, 1_000_000_000),
    ("raft", "segment_bytes"): (4_096, 2 * 1024**3),
    # A command has 64 KiB less than a frame, a question for heartbeats up to 512 KiB.
    ("raft", "frame_bytes_max"): (1024**2, 256 * 1024**2),
    ("raft", "snapshot_piece_bytes"): (1_024, 64 * 1024**2),
    # Clients take a stream for dead after 12 s without a line (``client.lines``).
    ("limits", "bookmark_interval_ms"): (1, 10_000),
    ("limits", "watch_history_changes"): (0, 150_000),
    ("limits", "watch_history_bytes"): (0, _TIB),
    ("limits", "watch_values_bytes"): (0, _TIB),
    ("oidc", "clock_skew_ms"): (0, 300_000),
    ("backup", "every_ms"): (1_000, 30 * _DAY_MS),
    ("backup", "keep"): (1, 10_000),
    ("audit", "file_bytes_max"): (65_536, _TIB),
    ("log", "slow_ms"): (0, _DAY_MS),
    ("audit", "files_max"): (1, 10_000),
    ("audit", "queue_events_max"): (16, 1_000_000),
    ("audit", "refusals_per_second_max"): (1, 10_000),
}

_WHY_BOUNDED: dict[tuple[str, str], str] = {
    ("raft", "election_timeout_ms_max"): "PySyncObj, the Raft library, takes no more",
    ("limits", "watch_history_changes"): WHY_NO_MORE,
    **{("limits", name): WHY_NO_MORE for name in PROPOSED_MAX},
    ("sessions", "sessions_max"): WHY_NO_MORE,
}

# (section, key) must be at least `factor` times the other one, and why.
_AT_LEAST: tuple[tuple[str, str, int, str, str, str], ...] = (
    ("raft", "election_timeout_ms_min", 3, "raft", "heartbeat_interval_ms",
     "a follower must not start an election while heartbeats are merely late"),
    ("sessions", "timeout_ms_default", 1, "sessions", "timeout_ms_min", ""),
    ("sessions", "timeout_ms_max", 1, "sessions", "timeout_ms_default", ""),
    ("sessions", "timeout_ms_default", 1, "raft", "election_timeout_ms_max",
     "a session should outlive an election"),
    ("sessions", "timeout_ms_min", 1, "sessions", "tick_ms",
     "leases are looked at once in a tick"),
    ("http", "request_deadline_ms_max", 1, "http", "request_deadline_ms", ""),
    ("http", "connections_max", 1, "http", "connections_per_address_max", ""),
    ("limits", "watch_selectors_max", 1, "limits", "watches_per_stream_max", ""),
    ("http", "body_bytes_max", 1, "limits", "data_bytes_max",
     "a request must be able to carry the largest data"),
    ("http", "bodies_bytes_max", 1, "http", "body_bytes_max", ""),
    ("raft", "frame_bytes_max", 2, "http", "body_bytes_max",
     "a frame between members must be able to carry the largest request"),
    ("raft", "frame_bytes_max", 2, "raft", "append_batch_bytes", ""),
    ("raft", "frame_bytes_max", 2, "raft", "snapshot_piece_bytes", ""),
    ("raft", "send_buffer_bytes_max", 1, "raft", "frame_bytes_max", ""),
    ("raft", "proposals_bytes_max", 1, "raft", "frame_bytes_max", ""),
    ("raft", "send_buffer_bytes_max", 1, "raft", "proposals_bytes_max",
     "what a member's clients write is forwarded to the leader"),
    ("raft", "reconnect_delay_ms_max", 1, "raft", "reconnect_delay_ms_min", ""),
)  # fmt: skip

_MEMBER_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
_HOST_NAME = re.compile(r"[^\s/:@\x00-\x1f]{1,253}")
_ALLOWED_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LEARN_URL = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}/learn#key=[\w-]{1,64}", re.ASCII)
_MEMBERS_MAX = 9
_NAME_BYTES_MAX = 255
_SHOWN_MAX = 120


def check_range(section: str, key: str, number: int, where: str) -> None:
    """Raise ConfigError if ``key`` of ``[section]`` may not be ``number``, set at ``where``."""
    low, high = bounds_of(section, key)
    if not low <= number <= high:
        expected = f"a whole number from {low} to {high}"
        if why := _WHY_BOUNDED.get((section, key)):
            expected += f", because {why}"
        _fail(where, key, expected, number)


def problems(config: Config, origin: Origin) -> Iterator[ConfigError]:
    """Yield what is wrong with values of ``config`` that must fit each other, one error a rule."""
    rules: tuple[Callable[[Config, Origin], None], ...] = (
        *(partial(_check_order, *row) for row in _AT_LEAST),
        _check_timeouts,
        _check_members,
        _check_words,
        _check_door,
        _check_exposure,
        _check_audit,
        _check_oidc,
        _check_backup,
    )
    for rule in rules:
        try:
            rule(config, origin)
        except ConfigError as error:
            yield error


def _fail(where: str, key: str, expected: str, found: object) -> NoReturn:
    shown = str(found)
    shown = shown if len(shown) <= _SHOWN_MAX else shown[: _SHOWN_MAX - 3] + "..."
    raise ConfigError(
        f"{where}: expected {expected}, found {shown}", key=key, expected=expected, found=shown
    )


def bounds_of(section: str, key: str) -> tuple[int, int]:
    """Return the smallest and the largest value that ``key`` of ``[section]`` may have."""
    if SETTINGS[section][key] == "first_limits":
        return proposed_bounds_of(key)
    if (section, key) in _BOUNDS:
        return _BOUNDS[section, key]
    return next((low, high) for suffix, low, high in _BOUNDS_BY_SUFFIX if key.endswith(suffix))


def _check_order(
    section: str,
    key: str,
    factor: int,
    other_section: str,
    other_key: str,
    reason: str,
    config: Config,
    origin: Origin,
) -> None:
    value = config.value(section, key)
    other = config.value(other_section, other_key)
    if value < factor * other:
        multiple = f"{factor} times " if factor > 1 else ""
        expected = f"at least {multiple}[{other_section}] {other_key} ({factor * other})"
        if reason:
            expected += f", because {reason}"
        _fail(origin(section, key), key, expected, value)


def _check_timeouts(config: Config, origin: Origin) -> None:
    raft = config.raft
    if raft.election_timeout_ms_max <= raft.election_timeout_ms_min:
        _fail(
            origin("raft", "election_timeout_ms_max"),
            "election_timeout_ms_max",
            f"more than election_timeout_ms_min ({raft.election_timeout_ms_min}), because equal "
            "timeouts split votes",
            raft.election_timeout_ms_max,
        )


WORDS = {
    ("log", "level"): ("debug", "info", "warning", "error"),
    ("log", "format"): ("text", "json"),
    ("audit", "target"): ("log", "file", "stderr", "syslog"),
    ("http", "tls"): ("required", "off"),
    ("member", "tls"): ("required", "accepted"),
    ("http", "access"): ("required", "off"),
}
"""Settings that are one of a few words."""


def _check_words(config: Config, origin: Origin) -> None:
    for (section, key), words in WORDS.items():
        value = config.value(section, key)
        if value not in words:
            _fail(origin(section, key), key, "one of " + ", ".join(words), repr(value))


def _check_audit(config: Config, origin: Origin) -> None:
    audit = config.audit
    if audit.target != "file" and audit.file is not None:
        expected = 'target = "file" beside it, or none'
        _fail(origin("audit", "file"), "file", expected, f"target = {audit.target!r}")
    if audit.target == "file" and audit.file is None:
        where = origin("audit", "file")
        _fail(where, "file", 'the path of the audit log beside target = "file"', "none")
    if audit.file is not None and PurePath(audit.file).is_relative_to(config.member.data_dir):
        expected = "a path outside of [member] data_dir, which is replaced when data are recovered"
        _fail(origin("audit", "file"), "file", expected, audit.file)
    host, _, port = audit.syslog_address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65_535
    is_host = _is_host(host.strip("[]")) and is_port
    if not audit.syslog_address.startswith("/") and not is_host:
        expected = "the path of a socket, or host:port"
        _fail(origin("audit", "syslog_address"), "syslog_address", expected, audit.syslog_address)


def _check_backup(config: Config, origin: Origin) -> None:
    backup = config.backup
    if backup.directory is None and backup.command is not None:
        _fail(origin("backup", "command"), "command", "[backup] directory as well", "none")
    if backup.directory is not None and PurePath(backup.directory).is_relative_to(
        config.member.data_dir
    ):
        expected = "a path outside of [member] data_dir, which is lost with it"
        _fail(origin("backup", "directory"), "directory", expected, backup.directory)


def _check_oidc(config: Config, origin: Origin) -> None:
    """Check that keys come by HTTPS, or from this machine: they decide who is believed."""
    for key in ("issuer", "jwks_url"):
        url = config.value("oidc", key)
        if url is not None and not is_safe_url(url):
            expected = "an https address (http on this machine alone) without user and fragment"
            _fail(origin("oidc", key), key, expected, repr(url))
    for key in ("jwks_url", "jwks_token_file", "ca_file"):
        if config.oidc.issuer is None and config.value("oidc", key) is not None:
            _fail(origin("oidc", key), key, "[oidc] issuer as well, or nothing is believed", "none")
    if config.oidc.issuer is not None and not config.oidc.audience:
        _fail(origin("oidc", "audience"), "audience", "a name, as tokens are made for it", "none")


def is_safe_url(url: str) -> bool:
    """Say whether what comes from there can be believed: HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username or parts.password or "#" in url or not url.isprintable():
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


# --- members


def _check_members(config: Config, origin: Origin) -> None:
    members = config.cluster.members
    here = origin("cluster", "members")
    _check_member_id(config.member.member_id, origin("member", "member_id"))
    if not config.cluster.name or not config.cluster.name.isprintable():
        where = origin("cluster", "name")
        _fail(where, "name", "a printable name", repr(config.cluster.name))
    if len(config.cluster.name.encode("utf-8", "replace")) > _NAME_BYTES_MAX:
        where = origin("cluster", "name")
        _fail(where, "name", f"at most {_NAME_BYTES_MAX} bytes", len(config.cluster.name.encode()))
    if len(members) > _MEMBERS_MAX:
        _fail(here, "members", f"at most {_MEMBERS_MAX} members", len(members))
    for number, member in enumerate(members, 1):
        _check_address(member, f"{here}, number {number}")
    ids = [member.member_id for member in members]
    _check_distinct(ids, here, "member_id")
    _check_distinct([each.client_url.lower().rstrip("/") for each in members], here, "client_url")
    addresses = [f"{member.member_host.lower()}:{member.member_port}" for member in members]
    _check_distinct(addresses, here, "member_host and member_port")
    if members and config.member.member_id not in ids:
        where = origin("member", "member_id")
        expected = "one of the ids in [[cluster.members]] (" + ", ".join(ids) + ")"
        _fail(where, "member_id", expected, config.member.member_id)
    _check_ports(config, origin)


def _check_ports(config: Config, origin: Origin) -> None:
    """Check that this member does not listen for clients where it listens for members."""
    for member in config.cluster.members if len(config.cluster.members) > 1 else ():
        host = config.member.member_bind_host or member.member_host
        is_same = (host, member.member_port) == (config.http.bind_host, config.http.bind_port)
        if member.member_id == config.member.member_id and is_same:
            expected = f"another port than that for members ({host}:{member.member_port})"
            _fail(origin("http", "bind_port"), "bind_port", expected, config.http.bind_port)


def _check_member_id(member_id: str, where: str) -> None:
    # It becomes part of file names and of log lines.
    if not _MEMBER_ID.fullmatch(member_id):
        _fail(where, "member_id", "1 to 64 of A-Z a-z 0-9 . _ -", repr(member_id))


def _check_address(member: MemberAddress, where: str) -> None:
    _check_member_id(member.member_id, f"{where}: member_id")
    if "[" in member.member_host:
        expected = "an address or a host name, without brackets and port"
        _fail(f"{where}: member_host", "member_host", expected, repr(member.member_host))
    _check_host(member.member_host, f"{where}: member_host", "member_host")
    if _is_any_address(member.member_host):
        expected = "the address by which the other members reach it; [member] member_bind_host may"
        expected += " be any address"
        _fail(f"{where}: member_host", "member_host", expected, member.member_host)
    if not 1 <= member.member_port <= 65_535:
        expected = "a port from 1 to 65535"
        _fail(f"{where}: member_port", "member_port", expected, member.member_port)
    if not _is_base_url(member.client_url):
        expected = "a URL such as http://127.0.0.1:7071, without a path, by which clients reach it"
        _fail(f"{where}: client_url", "client_url", expected, repr(member.client_url))


def _check_host(host: str, where: str, key: str) -> None:
    # An IPv6 address is the one host name with colons.
    if not _is_host(host):
        _fail(where, key, "a host name or an address, without a port", repr(host))


def _is_host(host: str) -> bool:
    return _HOST_NAME.fullmatch(host) is not None or _ip_address(host) is not None


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        return (
            parts.scheme in {"http", "https"}
            and url.isprintable()  # urlsplit leaves out line ends and tabs
            and _is_host(parts.hostname or "")
            and not _is_any_address(parts.hostname or "")
            and parts.port != 0
            and parts.path in {"", "/"}
            and is_plain
        )
    except ValueError:
        return False


def _check_distinct(values: list[str], where: str, key: str) -> None:
    for number, value in enumerate(values):
        if value in values[:number]:
            expected = f"a different {key} for each member"
            _fail(where, key, expected, f"{value} twice")


# --- what may be reachable from other machines


def is_loopback(host: str) -> bool:
    """Say whether ``host`` can be reached from this machine only."""
    address = _ip_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _is_any_address(host: str) -> bool:
    address = _ip_address(host)
    return address is not None and address.is_unspecified


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _check_door(config: Config, origin: Origin) -> None:
    bind_host = config.http.bind_host
    if bind_host and ("[" in bind_host or not _is_host(bind_host)):
        expected = "an address or a host name, without brackets and port"
        _fail(origin("http", "bind_host"), "bind_host", expected, repr(bind_host))
    for name in (config.http.allowed_hosts or "").split(","):
        allowed = name.strip()
        if allowed and allowed != "*" and not _ALLOWED_NAME.fullmatch(allowed):
            where = origin("http", "allowed_hosts")
            expected = "names such as locks.example, without scheme and port; *.example; or *"
            _fail(where, "allowed_hosts", expected, repr(allowed))
    _check_stories(config, origin)


def _check_stories(config: Config, origin: Origin) -> None:
    """Check that stories are offered on a development cluster alone, and by a page from here."""
    url, where = config.http.learn_url, origin("http", "learn_url")
    if url is None:
        return
    if not _LEARN_URL.fullmatch(url):
        _fail(where, "learn_url", "what coordinator dev writes there", repr(url))
    hosts = [urlsplit(each.client_url).hostname or "" for each in config.cluster.members]
    if config.cluster.name != DEVELOPMENT or not all(map(is_loopback, hosts)):
        expected = "none beyond a cluster of coordinator dev, with all members on this machine"
        _fail(where, "learn_url", expected, f"one of cluster {config.cluster.name!r}")


def _check_exposure(config: Config, origin: Origin) -> None:
    _check_client_tls(config, origin)
    _check_member_tls(config, origin)
    bind_host = config.member.member_bind_host
    if bind_host is not None:
        _check_host(bind_host, origin("member", "member_bind_host"), "member_bind_host")
    has_proof = config.cluster.secret_file is not None or config.member.has_tls
    if len(config.cluster.members) > 1 and not has_proof:
        _fail(
            origin("cluster", "secret_file"),
            "secret_file",
            'secret_file = "cluster-secret" there, a file with the secret by which the members know'
            " each other (members on one machine make it at their first start; else make it with"
            " `coordinator secret cluster-secret`, and copy it to all), or certificates"
            " ([cluster] tls_ca_file, [member] tls_cert_file and tls_key_file)",
            "none",
        )


def _check_client_tls(config: Config, origin: Origin) -> None:
    http = config.http
    if problem := exposure_problem(http):
        _fail(origin("http", "bind_host"), "bind_host", problem, repr(http.bind_host))
    _check_together(config, origin, "http", "tls_cert_file", "tls_key_file")
    _check_needs(config, origin, ("http", "client_ca_file"), ("http", "tls_cert_file"))
    if http.tls == "off" and http.has_tls:
        expected = 'no tls_cert_file beside it, or tls = "required"'
        _fail(origin("http", "tls"), "tls", expected, "off, and a certificate")
    own = next(
        (m.client_url for m in config.cluster.members if m.member_id == config.member.member_id), ""
    )
    if http.has_tls and own.startswith("http://"):
        expected = "https:// in the client_url of this member, because http.tls_cert_file is set"
        _fail(origin("cluster", "members"), "members", expected, own)


def _check_member_tls(config: Config, origin: Origin) -> None:
    _check_together(config, origin, "member", "tls_cert_file", "tls_key_file")
    _check_needs(config, origin, ("member", "tls_cert_file"), ("cluster", "tls_ca_file"))
    _check_needs(config, origin, ("cluster", "tls_ca_file"), ("member", "tls_cert_file"))
    if config.member.tls == "accepted":
        given = config.member.tls_cert_file, config.cluster.secret_file
        if None in given:
            expected = (
                "[member] tls_cert_file and [cluster] secret_file beside it, because members with"
                " and without certificates are to know this one"
            )
            found = "neither" if given == (None, None) else "one of them"
            _fail(origin("member", "tls"), "tls", f'{expected}; or "required"', found)


def _check_together(config: Config, origin: Origin, section: str, one: str, other: str) -> None:
    _check_needs(config, origin, (section, one), (section, other))
    _check_needs(config, origin, (section, other), (section, one))


def _check_needs(
    config: Config, origin: Origin, given: tuple[str, str], needed: tuple[str, str]
) -> None:
    if config.value(*given) is not None and config.value(*needed) is None:
        expected = f"[{needed[0]}] {needed[1]} as well (`coordinator certs` makes such files)"
        _fail(origin(*given), given[1], expected, "none")


def exposure_problem(http: HttpConfig) -> str:
    """Return what is expected where a member listens for clients, "" if it is so."""
    if is_loopback(http.bind_host) or http.has_tls or http.tls == "off":
        return ""
    return (
        "a loopback address such as 127.0.0.1, or [http] tls_cert_file and tls_key_file beside it"
        ' (`coordinator certs` makes them), or tls = "off", with which everybody between a client'
        " and this member can read and change what they send"
    )


def what_is_off(config: Config) -> tuple[str, ...]:
    """Return what a member leaves open to others than this machine, a sentence each."""
    http, found = config.http, []
    if config.member.tls == "accepted":
        found.append(
            "member.tls is accepted: what members say may pass without TLS; take it away when every"
            " member has its certificate"
        )
    if is_loopback(http.bind_host):
        return tuple(found)
    if not http.has_tls:
        found.append(
            "http.tls is off: everybody between a client and this member can read and change what"
            " they send"
        )
    if http.access == "off":
        found.append(
            "http.access is off: until access rules are on, every client that reaches this member"
            " may read and change everything"
        )
    return tuple(found)
