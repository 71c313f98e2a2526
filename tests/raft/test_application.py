"""Entries that nobody here wrote: the member stops, and says which entry."""

from __future__ import annotations

import msgpack
import pytest

from coordinator.config import RaftConfig
from coordinator.raft.application import Application
from coordinator.raft.hardening import NO_OP, REGULAR, InvariantError
from coordinator.raft.proposals import Proposals
from tests.raft.simulated_cluster import ListReplica


@pytest.mark.parametrize(
    "entry",
    [
        b"", b"\x7f", REGULAR, REGULAR + b"\xc1", REGULAR + msgpack.packb([b"a"]) + b"x",
        REGULAR + msgpack.packb(["text"]), REGULAR + msgpack.packb(5), REGULAR + b"\x92\xc4\x01a",
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_taken_apart_is_named(entry: bytes) -> None:
    """Not by a surprise of the decoder, and before any of its commands is applied (tests/fuzz)."""
    replica = ListReplica()
    application = Application(Proposals(RaftConfig(), command_bytes_max=1_000))
    assert application.apply(replica, 6, 1, NO_OP) == 1

    with pytest.raises(InvariantError, match="entry 7"):
        application.apply(replica, 7, 1, entry)

    assert replica.commands == []
