"""What a leader sends in one pass of the loop, and in the next."""

from __future__ import annotations

from dataclasses import replace

from coordinator.config import RaftConfig
from coordinator.raft.network.messages import Append, Appended, Message
from coordinator.raft.replication import PASS_BATCHES_MAX, Replication

RAFT = replace(RaftConfig(), append_batch_bytes=1_000)
ALL = PASS_BATCHES_MAX * RAFT.append_batch_bytes


class Sent:
    """Who was sent how many bytes of entries, in order."""

    def __init__(self, followers: int, sizes: list[int]) -> None:
        log = [(b"\x01", index, 1) for index in (1, 2)]
        log += [(b"e" * size, index, 1) for index, size in enumerate(sizes, 3)]
        self._told: list[tuple[str, int]] = []
        self.replication = Replication(
            [str(number) for number in range(2, 2 + followers)], log=log, raft=RAFT,
            send=self._note, on_snapshot_needed=lambda _: None,
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
            reply = Appended(1, progress.epoch, progress.next_index, True)
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
