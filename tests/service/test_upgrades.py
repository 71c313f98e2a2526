"""The sentences of an upgrade: who runs what, what is to be done, and when it may be finished."""

from __future__ import annotations

import pytest

from coordinator.model.members import MemberFacts, MemberReport
from coordinator.service.reporting.upgrades import upgrade_of


def report(member_id: str, release: str, newest: int) -> MemberReport:
    """Return what a member says of itself; nothing without a release."""
    if not release:
        silence = f"member {member_id} does not answer"
        return MemberReport(
            member_id, client_url="", is_self=False, facts=None, silence=silence
        )
    facts = MemberFacts(
        member_id=member_id, role="follower", leader_id="1", term=1, commit_index=1,
        applied_index=1, last_index=1, snapshot_index=0, log_entries=1, zxid=1, is_ready=True,
        summary="", version=release, started_ms=0, sees=(), level_oldest=1, level_newest=newest,
    )  # fmt: skip
    return MemberReport(member_id, client_url="", is_self=False, facts=facts)


@pytest.mark.parametrize(
    ("members", "can_finish", "text", "todo"),
    [
        (
            (("0.1.0", 1), ("0.1.0", 1), ("0.1.0", 1)), False,
            "The cluster is at level 1, the newest that its members read; all run release 0.1.0.",
            "",
        ),
        (
            (("0.2.0", 2), ("0.1.0", 1), ("0.1.0", 1)), False,
            "The cluster is at level 1; release 0.2.0: member 1; release 0.1.0: members 2, 3.",
            "Start members 2, 3 with the new release, one after the other.",
        ),
        (
            (("0.2.0", 2), ("", 0), ("0.2.0", 2)), False,
            "The cluster is at level 1; release 0.2.0: members 1, 3; member 2 is not answering.",
            "Wait until member 2 is here again, then look again.",
        ),
        (
            (("0.2.0", 2), ("0.2.0", 2), ("0.3.0", 3)), True,
            "The cluster is at level 1, and all members read level 2; release 0.2.0: members 1, 2;"
            " release 0.3.0: member 3.",
            "Each member can still be started with its former release. To go on for good:"
            " coordinator upgrade finish",
        ),
    ],
)  # fmt: skip
def test_the_upgrade_is_told_in_sentences(
    members: tuple[tuple[str, int], ...], can_finish: bool, text: str, todo: str
) -> None:
    """All alike, half way, one that is silent, and all ready to go on."""
    view = upgrade_of(1, [report(str(at), *each) for at, each in enumerate(members, 1)])

    assert view.text == text
    assert view.todo == todo
    assert view.can_finish is can_finish
    assert [each.level_newest for each in view.members] == [newest for _, newest in members]


def test_what_was_finished_has_nothing_left_to_do() -> None:
    """At the newest level that all read."""
    view = upgrade_of(2, [report(each, "0.2.0", 2) for each in "123"])

    assert (view.can_finish, view.todo) == (False, "")
