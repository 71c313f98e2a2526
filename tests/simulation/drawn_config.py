"""What the members of a world are told, drawn: small limits, so that much comes near them."""

from __future__ import annotations

import random
from dataclasses import replace

from coordinator.model.limits import NEW_CLUSTER
from coordinator.node.config import (
    ClusterConfig,
    Config,
    MemberAddress,
    MemberLimits,
    RaftConfig,
)


def drawn_config(count: int, draw: random.Random) -> Config:
    """Draw what a member is told: small limits, so that snapshots and compaction are frequent."""
    addresses = tuple(
        MemberAddress(
            str(number),
            client_url=f"http://member-{number}:1",
            member_host="127.0.0.1",
            member_port=number,
        )
        for number in range(1, count + 1)
    )
    return Config(
        cluster=ClusterConfig(members=addresses),
        raft=replace(
            RaftConfig(),
            snapshot_every_entries=draw.choice((40, 150, 400, 20_000)),
            keep_entries_after_snapshot=draw.choice((0, 20, 100)),
            snapshot_piece_bytes=draw.choice((512, 4_096, 65_536)),
            segment_bytes=draw.choice((4_096, 65_536)),
            append_batch_bytes=draw.choice((400, 1_048_576, 1_048_576)),
        ),
        first_limits=replace(
            NEW_CLUSTER,
            request_window=draw.choice((4, 4, 16, 16, 128)),
            clients_max=draw.choice((30, 1_000)),
        ),
        limits=MemberLimits(
            watch_history_changes=draw.choice((50, 50_000)),
            watch_buffer_changes=draw.choice((8, 10_000)),
            bookmark_interval_ms=1_000,
            reap_interval_ms=draw.choice((500, 3_000)),
        ),
    )
