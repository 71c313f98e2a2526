"""The sentence by which a member says how it is, where others are refused or nobody leads."""

from __future__ import annotations

from dataclasses import replace

from coordinator.node.config import MemberAddress
from coordinator.raft.engine import EngineStatus, Role
from coordinator.service.reporting.status import in_words, members_of, what_is_wrong

ADDRESSES = tuple(
    MemberAddress(i, client_url=f"http://h:{i}", member_host="127.0.0.1", member_port=int(i))
    for i in "123"
)
FOLLOWS = EngineStatus(
    member_id="1",
    role=Role.FOLLOWER,
    term=4,
    leader_id="2",
    commit_index=9,
    applied_index=9,
    last_index=9,
    snapshot_index=0,
    is_ready=True,
    is_reachable={"2": True, "3": True},
)
WAITS = replace(FOLLOWS, leader_id=None, is_ready=False, is_reachable={"2": True, "3": False})


def said(engine: EngineStatus) -> str:
    wrong = what_is_wrong(engine, is_stopping=False, failure=None)
    return in_words(members_of(ADDRESSES, engine), engine, wrong)


def test_a_new_cluster_says_whom_it_waits_for() -> None:
    """Not that an election is under way: none can succeed."""
    engine = replace(WAITS, obstacle="a new cluster ...; not reachable: 3: start it")

    assert said(engine) == (
        "member 1 knows no leader: a new cluster ...; not reachable: 3: start it."
    )


def test_a_refused_member_is_named_with_the_reason() -> None:
    """Whether there is a leader or not, and beside what else is wrong."""
    why = "members 1 and 3 differ in the list of members: ...; write the same list"

    for engine in (FOLLOWS, WAITS):
        words = said(replace(engine, refused={"3": why}))
        assert f"; refused: {why}" in words
    assert "(and 1 more)" in said(replace(WAITS, refused={"3": why, "4": why}))
    views = members_of(ADDRESSES, replace(FOLLOWS, refused={"3": why}))
    assert [each.refusal for each in views] == ["", "", why]


def test_an_alarm_is_in_the_sentence() -> None:
    """Somebody must look, though everything goes on."""
    words = said(replace(FOLLOWS, alarms={"3": "member 3 claims to lead in term 4"}))

    assert words.endswith("; ALARM: member 3 claims to lead in term 4.")
