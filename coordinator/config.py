"""The configuration of one member, with all defaults: one frozen Config, read once.

``config_file.load`` reads a TOML file, then ``COORDINATOR_<SECTION>_<KEY>`` of the environment;
``config_rules`` holds the ranges. Each room gets the part it needs. Units are in the names. Every
limit on something that can grow is here.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """Who the members are; the same on all of them."""

    name: str = "coordinator"
    secret_file: str | None = None
    """File (mode 0600) with the secret that members prove to each other; required off loopback."""
    members: tuple[MemberAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """This member."""

    member_id: str = "1"
    data_dir: str = "data/member-1"
    member_bind_host: str | None = None
    """Address to listen on for members; None: its own ``member_host``."""


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP door. Loopback unless told otherwise."""

    bind_host: str = "127.0.0.1"
    bind_port: int = 7071
    is_insecure: bool = False
    """Must be true to listen beyond loopback without TLS."""
    allowed_hosts: str | None = None
    """Names, separated by commas, under which clients may call a member, beyond addresses,
    ``localhost`` and the hosts of ``client_url`` and ``bind_host``; ``*.name`` is every name below
    one, ``*`` alone any name at all."""
    header_deadline_ms: int = 5_000
    body_deadline_ms: int = 10_000
    idle_deadline_ms: int = 60_000
    request_deadline_ms: int = 10_000
    """Default time a request may take in all, where the request does not say."""
    request_deadline_ms_max: int = 60_000
    body_bytes_max: int = 1_572_864
    bodies_bytes_max: int = 64 * 1024 * 1024
    """Of all bodies that have come in part; whoever sends more is refused with Throttled."""
    json_depth_max: int = 32
    connections_max: int = 10_000
    connections_per_address_max: int = 2_000
    """Higher than what one person needs: many workers stand behind one address."""
    shutdown_grace_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timing and storage of the log. Heartbeat << election timeout << session timeout."""

    heartbeat_interval_ms: int = 75
    election_timeout_ms_min: int = 400
    election_timeout_ms_max: int = 800
    snapshot_every_entries: int = 20_000
    snapshot_every_bytes: int = 64 * 1024 * 1024
    keep_entries_after_snapshot: int = 5_000
    snapshot_piece_bytes: int = 256 * 1024
    segment_bytes: int = 16 * 1024 * 1024
    frame_bytes_max: int = 4 * 1024 * 1024
    append_batch_bytes: int = 1024 * 1024
    send_buffer_bytes_max: int = 32 * 1024 * 1024
    proposals_in_flight_max: int = 1_000
    proposals_bytes_max: int = 64 * 1024 * 1024
    """Of the writes under way on a member, together: from its clients, and to it as the leader."""
    reconnect_delay_ms_min: int = 20
    reconnect_delay_ms_max: int = 1_000
    handshake_deadline_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Leases."""

    timeout_ms_min: int = 1_000
    timeout_ms_max: int = 3_600_000
    timeout_ms_default: int = 10_000
    tick_ms: int = 100
    """How often the leader looks for leases that ran out."""
    sessions_max: int = 50_000
    sessions_per_address_max: int = 10_000
    """Of clients with one address; of IPv6 one /64. A proxy before the members is one address."""
    sessions_per_client_max: int = 1_000
    """Opened under one client id (``Coordinator-Client-Id``)."""


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits of the tree, the exactly-once table, the watches and the queues."""

    data_bytes_max: int = 1_048_576
    path_bytes_max: int = 1_024
    path_depth_max: int = 64
    children_max: int = 100_000
    znodes_max: int = 1_000_000
    state_bytes_max: int = 1024 * 1024 * 1024
    ordinary_percent_max: int = 95
    """The rest of ``sessions_max``, ``znodes_max`` and ``state_bytes_max`` is a reserve: of
    sessions for operators, of the others for locks and elections."""
    operations_per_multi_max: int = 1_000
    ephemerals_per_session_max: int = 20_000
    recursive_delete_max: int = 1_500
    grants_per_command_max: int = 500
    request_window: int = 128
    """Outcomes remembered for each client id; the number of requests it may have in flight."""
    clients_max: int = 20_000
    """Client ids remembered beyond those bound to open sessions."""
    remembered_bytes_max: int = 256 * 1024 * 1024
    """Outcomes remembered for retries, together; the least recently used clients go first."""
    released_grants_max: int = 4_096
    grant_history_max: int = 10_000
    """Grants that ended and are still told of (``coordinator grants``)."""
    grant_history_bytes_max: int = 16 * 1024 * 1024
    watches_per_stream_max: int = 10_000
    watch_streams_max: int = 10_000
    watch_selectors_max: int = 200_000
    """Of all watch streams of one member together; each costs about half a kilobyte."""
    watch_history_changes: int = 50_000
    watch_history_bytes: int = 64 * 1024 * 1024
    watch_buffer_changes: int = 10_000
    bookmark_interval_ms: int = 5_000
    reap_interval_ms: int = 10_000
    """For how long a container stays that has lost its last child."""
    lock_waiters_max: int = 10_000
    long_hold_ms: int = 60_000
    """A lock held for longer is listed, counted and named once in the leader's log."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a member says on stderr, and in which form."""

    level: str = "info"
    """The least that is said: debug, info, warning or error."""
    format: str = "text"
    """``text`` for people, ``json`` for programs: one object a line."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything one member needs to know."""

    member: MemberConfig = field(default_factory=MemberConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    raft: RaftConfig = field(default_factory=RaftConfig)
    sessions: SessionConfig = field(default_factory=SessionConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    log: LogConfig = field(default_factory=LogConfig)
