"""What a leader sends in one pass of the loop, and in the next."""

from __future__ import annotations

from dataclasses import replace

from coordinator.node.config import RaftConfig
from coordinator.raft.network.messages import Append, Appended, CommitNotice, Message, Probe
from coordinator.raft.notice_pacing import FOLLOWED_MIN, NOTICE_DELAY_MS, SOON_MS
from coordinator.raft.replication import (
    OVERTAKEN_BYTES,
    PASS_BATCHES_MAX,
    Replication,
)

RAFT = replace(RaftConfig(), append_batch_bytes=1_000)
ALL = PASS_BATCHES_MAX * RAFT.append_batch_bytes


class Sent:
    """Who was sent how many bytes of entries, in order."""

    def __init__(self, followers: int, sizes: list[int]) -> None:
        log = [(b"\x01", index, 1) for index in (1, 2)]
        log += [(b"e" * size, index, 1) for index, size in enumerate(sizes, 3)]
        self._told: list[tuple[str, int]] = []
        self.now_ms = 0
        self.replication = Replication(
            [str(number) for number in range(2, 2 + followers)], log=log, raft=RAFT,
            now_ms=lambda: self.now_ms, send=self._note, on_snapshot_needed=lambda _: None,
        )  # fmt: skip
        for progress in self.replication.followers.values():
            progress.step_back(3)

    def _note(self, member_id: str, message: Message) -> bool:
        if isinstance(message, Append):
            self._told.append((member_id, sum(len(entry) for _, entry in message.entries)))
        return True

    def told(self) -> list[tuple[str, int]]:
        """Return what was sent since it was asked last."""
        told, self._told = self._told, []
        return told


def test_what_is_long_leaves_for_one_follower_in_a_pass() -> None:
    """Each gets it in its turn, nobody twice, and no pass is left with none."""
    sent = Sent(followers=3, sizes=[2 * ALL])

    sent.replication.send_entries(1, 0)
    told = [sent.told()]
    while sent.replication.is_cut_off:
        sent.replication.begin_pass(1, 0)
        told.append(sent.told())

    assert told == [[("2", 2 * ALL)], [("3", 2 * ALL)], [("4", 2 * ALL)]]


def test_what_is_short_leaves_for_all_at_once() -> None:
    """An ordinary group of proposals waits for no pass."""
    sent = Sent(followers=8, sizes=[ALL // 8])

    sent.replication.send_entries(1, 0)

    assert [member_id for member_id, _ in sent.told()] == [str(n) for n in range(2, 10)]
    assert not sent.replication.is_cut_off


def test_nobody_is_left_out_for_ever() -> None:
    """While there is more and more for all, each is the first one in its turn."""
    sent = Sent(followers=3, sizes=[ALL] * 40)
    sent.replication.send_entries(1, 0)
    served = [sent.told()[0][0]]

    for _ in range(8):
        for member_id, progress in sent.replication.followers.items():
            reply = Appended(
                term=1, epoch=progress.epoch, next_index=progress.next_index, is_success=True
            )
            sent.replication.on_appended(member_id, reply, 1, 0)
        sent.told()
        assert sent.replication.is_cut_off
        sent.replication.begin_pass(1, 0)
        served.append(sent.told()[0][0])

    assert served[1:7] == ["3", "4", "2", "3", "4", "2"]


def test_a_heartbeat_leaves_though_entries_wait() -> None:
    """It is no entry: who is left out of this pass still hears the leader."""
    sent = Sent(followers=2, sizes=[2 * ALL])
    sent.replication.send_entries(1, 0)
    sent.told()

    sent.replication.send_heartbeats(1, 0)

    assert sent.told() == [("2", 0), ("3", 0)]


def test_a_follower_to_which_much_is_under_way_gets_its_heartbeats_ahead_of_that() -> None:
    """A probe is a word of Raft's own; an append waits behind the others (``network.lanes``)."""
    leader = Leader()
    leader.log.append((bytes(OVERTAKEN_BYTES + 1), 3, 1))

    leader.replication.send_heartbeats(1, 0)
    leader.replication.begin_pass(1, 0)
    assert all(isinstance(each, Append) for _, each in leader.said)
    leader.said.clear()
    leader.replication.send_heartbeats(1, 0)

    assert leader.said.count(("2", Probe(1, 0))) == leader.said.count(("3", Probe(1, 0))) == 1


class Leader:
    """A leader's side of the log with two followers, a clock, and what it says."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log = [(b"\x01", index, 1) for index in (1, 2)]
        self.said: list[tuple[str, Message]] = []
        self.replication = Replication(
            ["2", "3"], log=self.log, raft=RAFT, now_ms=lambda: self.now_ms, send=self._say,
            on_snapshot_needed=lambda _: None,
        )  # fmt: skip
        for progress in self.replication.followers.values():
            progress.step_back(3)

    def _say(self, member_id: str, message: Message) -> bool:
        self.said.append((member_id, message))
        return True

    def write(self, *, after_ms: int) -> None:
        """Log and send an entry; both acknowledge it, and a pass commits it."""
        self.now_ms += after_ms
        self.acknowledge(self.write_ahead())

    def write_ahead(self) -> int:
        """Log and send an entry; return its index."""
        self.log.append((b"e", self.log[-1][1] + 1, 1))
        self.replication.send_entries(1, self.log[-2][1])
        return self.log[-1][1]

    def acknowledge(self, index: int) -> None:
        """Both acknowledge all up to ``index``, and a pass commits it."""
        for member_id, progress in self.replication.followers.items():
            reply = Appended(term=1, epoch=progress.epoch, next_index=index + 1, is_success=True)
            self.replication.on_appended(member_id, reply, 1, index - 1)
        self.commit(index)

    def commit(self, index: int | None = None) -> None:
        """A pass: all that is logged is committed, or up to ``index``."""
        self.replication.send_commit_index(1, self.log[-1][1] if index is None else index)

    def notices(self) -> list[tuple[str, int]]:
        """Return the commit notices since it was asked last."""
        said, self.said = self.said, []
        return [(each, told.commit_index) for each, told in said if isinstance(told, CommitNotice)]


def _followed_closely() -> Leader:
    leader = Leader()
    for _ in range(FOLLOWED_MIN + 1):
        leader.write(after_ms=1)
    leader.said.clear()
    return leader


def test_a_commit_is_told_at_once_while_no_append_is_expected() -> None:
    """To each follower that has it, whatever comes later."""
    leader = Leader()

    for number in range(2 * FOLLOWED_MIN):
        leader.write(after_ms=SOON_MS)

        assert leader.notices() == [("2", 3 + number), ("3", 3 + number)]


def test_where_appends_follow_at_once_they_carry_the_commit_index() -> None:
    """No notice leaves as long as they do; each append names what was committed before it."""
    leader = _followed_closely()

    for _ in range(10):
        leader.write(after_ms=1)

    assert [each for each in leader.said if isinstance(each[1], CommitNotice)] == []
    appends = [told for _, told in leader.said if isinstance(told, Append)]
    assert [each.commit_index for each in appends] == [each.prev_index for each in appends]


def test_a_commit_that_nothing_follows_is_told_after_some_milliseconds() -> None:
    """By the pass that is due then, once; and the next ones are told at once again."""
    leader = _followed_closely()
    leader.write(after_ms=1)
    index = leader.log[-1][1]
    assert leader.replication.notice_due_ms == leader.now_ms + NOTICE_DELAY_MS

    leader.now_ms += NOTICE_DELAY_MS - 1
    leader.commit()
    assert leader.notices() == []
    leader.now_ms += 1
    leader.commit()

    assert leader.notices() == [("2", index), ("3", index)]
    assert leader.replication.notice_due_ms is None
    leader.write(after_ms=1)
    assert leader.notices() == [("2", index + 1), ("3", index + 1)]


def test_appends_that_come_later_and_later_are_not_waited_for() -> None:
    """The first one that is late ends it, though it comes before the notice is due."""
    leader = _followed_closely()
    leader.write(after_ms=1)

    leader.write(after_ms=SOON_MS)

    index = leader.log[-1][1]
    assert SOON_MS < NOTICE_DELAY_MS
    assert leader.notices() == [("2", index), ("3", index)]


def test_an_answer_to_a_follower_carries_the_commit_index_to_it() -> None:
    """Its client waits until it has applied the entry; the other one still waits for an append."""
    leader = _followed_closely()
    leader.write(after_ms=1)
    index = leader.log[-1][1]
    leader.said.clear()

    leader.replication.send_commit_index_to("3", 1, index)
    leader.replication.send_commit_index_to("3", 1, index)
    assert leader.notices() == [("3", index)]
    leader.now_ms += NOTICE_DELAY_MS
    leader.commit()

    assert leader.notices() == [("2", index)]


def test_a_commit_behind_which_entries_are_under_way_is_told_with_theirs() -> None:
    """Under load: each follower is woken once for an entry. The last commit is told at once."""
    leader = Leader()
    for _ in range(5):
        first = leader.write_ahead()
        second = leader.write_ahead()

        leader.acknowledge(first)
        assert leader.notices() == []
        assert not leader.replication.must_notify(first)
        leader.acknowledge(second)
        assert leader.notices() == [("2", second), ("3", second)]
        assert leader.replication.notice_due_ms is None


def test_a_commit_does_not_wait_for_ever_for_what_is_under_way() -> None:
    """The next entry may be acknowledged late, or by nobody."""
    leader = Leader()
    first, _ = leader.write_ahead(), leader.write_ahead()
    leader.acknowledge(first)
    assert leader.replication.notice_due_ms == leader.now_ms + NOTICE_DELAY_MS

    leader.now_ms += NOTICE_DELAY_MS - 1
    leader.commit(first)
    assert leader.notices() == []
    leader.now_ms += 1
    leader.commit(first)

    assert leader.notices() == [("2", first), ("3", first)]
    assert leader.replication.notice_due_ms is None


def test_a_follower_that_acknowledges_late_is_not_left_waiting() -> None:
    """A pass is asked for, unless the time of one is set."""
    leader = Leader()
    leader.write(after_ms=10)
    leader.said.clear()

    leader.replication.followers["3"].sent_commit_index = 0

    assert leader.replication.must_notify(leader.log[-1][1])
    leader.commit()
    assert leader.notices() == [("3", leader.log[-1][1])]
    assert not leader.replication.must_notify(leader.log[-1][1])
