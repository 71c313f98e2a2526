"""Which members there are, and how they must be timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pysyncobj.config import SyncObjConf  # type: ignore[import-untyped]

from coordinator.errors import ConfigError
from coordinator.node.config import RaftConfig
from coordinator.node.config_rules import bounds_of
from coordinator.raft.membership import ELECTION_TIMEOUT_MS_LONGEST, check_timing


def test_the_longest_election_timeout_is_the_one_that_the_library_takes() -> None:
    """So nobody meets its bare assertion, and nothing that it takes is refused."""
    longest = ELECTION_TIMEOUT_MS_LONGEST

    check_timing(replace(RaftConfig(), election_timeout_ms_max=longest))
    SyncObjConf(raftMaxTimeout=longest / 1000).validate()

    assert bounds_of("raft", "election_timeout_ms_max")[1] == longest
    with pytest.raises(ConfigError, match=r"at most 3500 ms, because PySyncObj.* found 3501 ms"):
        check_timing(replace(RaftConfig(), election_timeout_ms_max=longest + 1))
    with pytest.raises(AssertionError):
        SyncObjConf(raftMaxTimeout=(longest + 1) / 1000).validate()


@pytest.mark.parametrize(("low", "high"), [(399, 800), (800, 800), (900, 800)])
def test_a_follower_hears_several_heartbeats_before_it_stands(low: int, high: int) -> None:
    """And no two members wait for the same time."""
    raft = replace(RaftConfig(), election_timeout_ms_min=low, election_timeout_ms_max=high)

    with pytest.raises(ConfigError, match=r"more than three heartbeat intervals \(399 ms\)"):
        check_timing(raft)
