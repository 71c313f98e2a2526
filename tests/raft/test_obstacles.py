"""Why there is no leader, in words that say what to do."""

from __future__ import annotations

import pytest

from coordinator.raft.obstacles import Shown, obstacle

VOTES, NO_VOTE = Shown(is_proven=True), Shown(is_proven=False)
OURS, THEIRS = b"\x01" * 16, b"\x02" * 16


@pytest.mark.parametrize(
    ("shown", "own", "is_new", "expected"),
    [
        ({"2": VOTES, "3": VOTES}, VOTES, False, ""),
        ({"2": VOTES}, NO_VOTE, False, "no vote before a leader lets it catch up, and 2 of 3"),
        ({"2": VOTES}, NO_VOTE, True, "not reachable: 3: start it"),
        ({"2": NO_VOTE}, VOTES, False, "member 2 has no vote before a leader lets it catch up"),
        ({"2": VOTES}, VOTES, False, ""),
        ({"2": NO_VOTE, "3": VOTES}, VOTES, False, ""),
        ({}, VOTES, False, ""),
        ({"2": NO_VOTE, "3": NO_VOTE}, NO_VOTE, True, ""),
        ({"2": NO_VOTE}, NO_VOTE, True, "not reachable: 3: start it"),
        ({}, NO_VOTE, True, ""),
        ({"2": NO_VOTE, "3": VOTES}, NO_VOTE, False, "members 1, 2 have no vote, and 2 of 3"),
        ({"2": NO_VOTE, "3": VOTES}, NO_VOTE, True, "members 1, 2 have no vote, and 2 of 3"),
        ({"2": NO_VOTE, "3": NO_VOTE}, NO_VOTE, False, "members 1, 2, 3 have no vote"),
    ],
)
def test_a_member_says_what_stands_in_the_way_of_a_leader(
    shown: dict[str, Shown], own: Shown, is_new: bool, expected: str
) -> None:
    """Nothing, where those that may vote are enough, or all are new."""
    reason = obstacle("1", ("2", "3"), shown=shown, own=own, is_first=is_new)

    assert expected in reason
    assert bool(reason) is bool(expected)
    if "no vote, and" in reason:
        assert "empty all data directories" in reason
        assert "coordinator recover" in reason


def test_who_has_no_vote_yet_is_no_obstacle_while_a_leader_lets_him_catch_up() -> None:
    """Nobody is to empty directories of a cluster that has just begun again."""
    shown = {"2": NO_VOTE, "3": NO_VOTE}

    assert not obstacle("1", ("2", "3"), shown=shown, own=VOTES, is_first=False, has_leader=True)


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ({"2": OURS, "3": b""}, ""),
        ({"2": OURS, "3": THEIRS}, "member 3 runs on the data of another cluster"),
        ({"2": THEIRS, "3": THEIRS}, "stop member 1, and give it its own data_dir"),
    ],
)
def test_a_member_says_whose_data_are_another_clusters(
    theirs: dict[str, bytes], expected: str
) -> None:
    """Those of the fewer are."""
    shown = {each: Shown(True, cluster_id) for each, cluster_id in theirs.items()}

    for has_leader in (False, True):
        reason = obstacle(
            "1", ("2", "3"), shown=shown, own=Shown(True, OURS), is_first=False,
            has_leader=has_leader,
        )  # fmt: skip
        assert expected in reason
        assert bool(reason) is bool(expected)
