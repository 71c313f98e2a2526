"""The configuration of one member, with all defaults: one frozen Config, read once.

``config_file.load`` reads a TOML file, then ``COORDINATOR_<SECTION>_<KEY>`` of the environment;
``config_rules`` holds the ranges. Each room gets the part it needs. Units are in the names. Every
limit on something that can grow is here, or in ``model.limits``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from coordinator.model.limits import NEW_CLUSTER, MachineLimits


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """One member of the cluster, as all members know it."""

    member_id: str
    client_url: str
    """Where clients reach it, for example ``http://127.0.0.1:7071``."""
    member_host: str
    """Where the other members reach it."""
    member_port: int


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The members of the cluster; equal on all of them."""

    name: str = "coordinator"
    secret_file: str | None = None
    """File (mode 0600) with the secret that members prove to each other; several members need it,
    or certificates."""
    tls_ca_file: str | None = None
    """The CA whose certificates the members show each other."""
    members: tuple[MemberAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The settings of this member."""

    member_id: str = "1"
    data_dir: str = "data/member-1"
    member_bind_host: str | None = None
    """Address to listen on for members; None: its own ``member_host``."""
    tls: str = "required"
    """``required``: with a certificate it talks to members by TLS alone; ``accepted``: to those
    without one, too, while members are given theirs one after the other."""
    tls_cert_file: str | None = None
    """What this member shows the others; its name is ``tls.names.member_uri``."""
    tls_key_file: str | None = None
    """The key of it (mode 0600)."""

    @property
    def has_tls(self) -> bool:
        """Whether it talks to other members over TLS."""
        return self.tls_cert_file is not None


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP door. It listens on loopback only, unless that is changed."""

    bind_host: str = "127.0.0.1"
    bind_port: int = 7071
    tls: str = "required"
    """``required``: beyond loopback it listens with a certificate only; ``off``: never with one."""
    access: str = "required"
    """``required``: until access rules are on, callers beyond loopback get /health alone; ``off``:
    until then everybody may do anything."""
    tls_cert_file: str | None = None
    """What it shows clients; with it every connection is TLS."""
    tls_key_file: str | None = None
    """The key of it (mode 0600)."""
    client_ca_file: str | None = None
    """The CA whose certificates clients show."""
    is_client_cert_required: bool = True
    """With ``client_ca_file``: false also lets in clients without a certificate."""
    allowed_hosts: str | None = None
    """Names, separated by commas, under which clients may call a member, beyond addresses,
    ``localhost`` and the hosts of ``client_url`` and ``bind_host``; ``*.name`` is every name below
    one, ``*`` alone any name at all."""
    learn_url: str | None = None
    """Where stories play on this development cluster; ``coordinator dev`` sets it."""
    header_deadline_ms: int = 5_000
    body_deadline_ms: int = 10_000
    idle_deadline_ms: int = 60_000
    request_deadline_ms: int = 10_000
    """Default time a request may take in all, where the request does not say."""
    request_deadline_ms_max: int = 60_000
    body_bytes_max: int = 1_572_864
    bodies_bytes_max: int = 64 * 1024 * 1024
    """The bytes of all bodies that have come in part, and of all that wait to be read; a request
    beyond it is refused with Throttled."""
    json_depth_max: int = 32
    connections_max: int = 10_000
    connections_per_address_max: int = 2_000
    """Higher than what one person needs: many workers may share one address."""
    shutdown_grace_ms: int = 3_000

    @property
    def has_tls(self) -> bool:
        """Whether clients connect by TLS."""
        return self.tls_cert_file is not None


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timing and storage of the log. Heartbeat << election timeout << session timeout."""

    heartbeat_interval_ms: int = 133
    election_timeout_ms_min: int = 400
    election_timeout_ms_max: int = 800
    snapshot_every_entries: int = 20_000
    snapshot_every_bytes: int = 4 * 1024 * 1024
    keep_entries_after_snapshot: int = 5_000
    snapshot_piece_bytes: int = 256 * 1024
    segment_bytes: int = 16 * 1024 * 1024
    frame_bytes_max: int = 4 * 1024 * 1024
    append_batch_bytes: int = 1024 * 1024
    send_buffer_bytes_max: int = 32 * 1024 * 1024
    """The bytes that wait to leave for another member, of each kind: entries, short requests and
    answers, long ones."""
    proposals_in_flight_max: int = 1_200
    """The writes under way on a member, of which one client has at most as many as are free."""
    proposals_bytes_max: int = 16 * 1024 * 1024
    """The bytes of the writes under way on a member, together: from its clients, and to it as the
    leader."""
    reconnect_delay_ms_min: int = 20
    reconnect_delay_ms_max: int = 1_000
    handshake_deadline_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The settings of sessions and leases."""

    timeout_ms_default: int = 10_000
    tick_ms: int = 100
    """How often the leader looks for leases that ran out."""


@dataclass(frozen=True, slots=True)
class MemberLimits:
    """The limits of one member's watches and queues; they are no part of the state."""

    watches_per_stream_max: int = 10_000
    watch_streams_max: int = 10_000
    watch_selectors_max: int = 200_000
    """The selectors of all watch streams of one member together; each costs about half a
    kilobyte."""
    watch_history_changes: int = 50_000
    watch_history_bytes: int = 64 * 1024 * 1024
    watch_values_bytes: int = 32 * 1024 * 1024
    """The bytes of the data in recent changes, for watches with values; what is older is forgotten
    first."""
    watch_buffer_changes: int = 10_000
    bookmark_interval_ms: int = 5_000
    reap_interval_ms: int = 10_000
    """For how long a container stays that has lost its last child."""
    lock_waiters_max: int = 20_000
    """The attempts that wait at one member. Of these, of ``watch_streams_max`` and of
    ``watch_selectors_max`` a client has at most as many as are still free
    (``service/base/places``)."""
    requests_per_second_max: int = 20_000
    """The requests of one client on one member, and as many ahead; a list counts as four, a
    long body as up to four."""
    long_hold_ms: int = 60_000
    """A lock held for longer is listed, counted and named once in the leader's log."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of the log on stderr."""

    level: str = "info"
    """The least that is said: debug, info, warning or error."""
    format: str = "text"
    """``text`` for people, ``json`` for programs: one object a line."""
    slow_ms: int = 1_000
    """A write that takes so long is logged, with its parts; 0 logs none."""


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Where a member keeps its audit log, and how much of it."""

    target: str = "log"
    """``file``, ``stderr``, ``syslog``, or ``log``: no lines of its own, but in the log above."""
    file: str | None = None
    """With ``target = "file"``: its path, outside of ``data_dir``."""
    file_bytes_max: int = 64 * 1024 * 1024
    """A larger file is renamed, and another one begun."""
    files_max: int = 10
    """The number of renamed files; the oldest are deleted."""
    syslog_address: str = "/dev/log"
    """With ``target = "syslog"``: a socket's path, or ``host:port`` of UDP."""
    queue_events_max: int = 10_000
    """Events that wait to be written; what is beyond is counted and left out."""
    refusals_per_second_max: int = 50
    """Refused requests that are written, on average; of the rest only the number."""


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """Where backups are made by themselves, and how often; one member at a time makes them."""

    directory: str | None = None
    """Where this member writes them; None: it makes none."""
    every_ms: int = 86_400_000
    keep: int = 7
    """How many of the cluster's backups in the directory stay; the oldest are deleted."""
    command: str | None = None
    """A program that is run with the path of each, to bring it to another place."""
    command_deadline_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """The OpenID Connect issuer whose tokens prove who a client is (the extra ``oidc``)."""

    issuer: str | None = None
    """Its URL, as its tokens name it; None: such tokens prove nothing."""
    audience: str = "coordinator"
    """For whom its tokens must be made."""
    jwks_url: str | None = None
    """Where its keys are; None: where its discovery document says."""
    jwks_token_file: str | None = None
    """File with the token that this member shows when it asks for the keys."""
    ca_file: str | None = None
    """The CA of the issuer's certificate; None: those of the system."""
    clock_skew_ms: int = 30_000
    jwks_refresh_ms: int = 600_000
    jwks_keep_ms: int = 86_400_000
    """For how long keys are believed that cannot be fetched again."""
    lifetime_ms_max: int = 86_400_000
    """A token that lives longer is refused: it cannot be revoked by itself."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything one member needs to know."""

    member: MemberConfig = field(default_factory=MemberConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    raft: RaftConfig = field(default_factory=RaftConfig)
    sessions: SessionConfig = field(default_factory=SessionConfig)
    limits: MemberLimits = field(default_factory=MemberLimits)
    first_limits: MachineLimits = NEW_CLUSTER
    """What this member proposes if it is the first leader of a new cluster. Set in the sections
    ``[sessions]`` (``SESSION_LIMITS``) and ``[limits]``."""
    log: LogConfig = field(default_factory=LogConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    oidc: OidcConfig = field(default_factory=OidcConfig)
    backup: BackupConfig = field(default_factory=BackupConfig)

    def value(self, section: str, key: str) -> Any:
        """Return what ``key`` of ``[section]`` is set to."""
        return getattr(getattr(self, SETTINGS[section][key]), key)


SESSION_LIMITS = (
    "timeout_ms_min",
    "timeout_ms_max",
    "sessions_max",
    "sessions_per_address_max",
    "sessions_per_client_max",
    "sessions_per_identity_max",
)
"""The first limits that are keys of ``[sessions]``; the others are keys of ``[limits]``."""


def _keys() -> dict[str, dict[str, str]]:
    keys = {
        part.name: {key.name: part.name for key in fields(getattr(Config(), part.name))}
        for part in fields(Config)
    }
    for name in keys.pop("first_limits"):
        keys["sessions" if name in SESSION_LIMITS else "limits"][name] = "first_limits"
    return keys


SETTINGS = _keys()
"""The settings, by section and key: the part of a Config that holds the value."""
