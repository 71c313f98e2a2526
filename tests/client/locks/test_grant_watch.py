"""What heartbeats tell of grants: taken in any order, counted from when they were sent."""

from __future__ import annotations

from coordinator.client.sessions.grant_watch import GrantWatch
from coordinator.model.sessions import LOST_MAX, LostGrant, SessionLease

PATH, OTHER = "/locks/a/lock-0000000001", "/locks/b/lock-0000000007"


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ms = 10_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def taken(path: str, token: int, how: str, **why: str) -> LostGrant:
    return LostGrant(path=path, fencing_token=token, how=how, **why)


def told(*lost: LostGrant, **holds: int) -> SessionLease:
    paths = {"one": PATH, "other": OTHER}
    left_ms = {paths[name]: ms for name, ms in holds.items()}
    return SessionLease(session_id="s", timeout_ms=10_000, holds=left_ms, lost=lost)


def test_a_hold_is_counted_from_when_its_heartbeat_was_sent() -> None:
    """Less the margin: the longer the stretch, the further clocks may drift apart in it."""
    clock = Now()
    watch = GrantWatch(clock, 0.025)
    watch.watch([PATH], 5)
    assert watch.hold_remaining_ms([PATH]) == 0

    watch.on_heartbeat(9_000, told(one=60_000))

    assert watch.hold_remaining_ms([PATH]) == 60_000 - 1_000 - 1_500
    clock.now_ms += 70_000
    assert watch.hold_remaining_ms([PATH]) == 0


def test_an_old_answer_that_comes_late_takes_nothing_back() -> None:
    """Each answer is a promise of at least so long; the furthest one counts."""
    watch = GrantWatch(Now(), 0.0)
    watch.watch([PATH], 5)
    watch.on_heartbeat(10_000, told(one=5_000))
    before_ms = watch.hold_remaining_ms([PATH])

    watch.on_heartbeat(8_000, told(one=6_000))
    watch.on_heartbeat(10_000, told())

    assert watch.hold_remaining_ms([PATH]) == before_ms


def test_of_several_that_hold_as_one_the_nearest_end_that_is_known_counts() -> None:
    """And one of them is enough to know it."""
    watch = GrantWatch(Now(), 0.0)
    watch.watch([PATH, OTHER], 5)
    watch.on_heartbeat(10_000, told(one=5_000))
    assert watch.hold_remaining_ms([PATH, OTHER]) == 4_950

    watch.on_heartbeat(10_000, told(other=3_000))

    assert watch.hold_remaining_ms([PATH, OTHER]) == 2_950


def test_a_taken_grant_is_told_once_to_who_attends_and_stays_known() -> None:
    """However often the heartbeats repeat it; another incarnation of the path is not meant."""
    received: list[str] = []
    watch = GrantWatch(Now(), 0.0)
    watch.watch([PATH], 5, received.append)
    forced = taken(PATH, 5, "forced", by="ops", reason="stuck")

    watch.on_heartbeat(0, told(taken(PATH, 4, "forced", by="x", reason="y")))
    assert received == []
    for _ in range(3):
        watch.on_heartbeat(0, told(forced, taken(OTHER, 9, "deleted")))

    assert received == ["ops took it by force: stuck"]
    assert watch.loss_reason([PATH]) == received[0]
    assert watch.loss_reason([OTHER]) == ""
    watch.stop_watching([PATH])
    assert watch.loss_reason([PATH]) == ""


def many(first: int, count: int = LOST_MAX) -> tuple[LostGrant, ...]:
    """Return lost grants with these tokens, as a heartbeat tells them at one time."""
    return tuple(taken(OTHER, token, "deleted") for token in range(first, first + count))


def test_a_full_list_of_nothing_heard_before_may_have_been_cut() -> None:
    """Whoever is not in it may have been before it: every grant of the session is doubted."""
    received: list[str] = []
    watch = GrantWatch(Now(), 0.0)
    watch.watch([PATH], 5, received.append)
    watch.on_heartbeat(0, told(*many(100, LOST_MAX - 1)))
    watch.on_heartbeat(0, told(*many(110)))
    assert received == []

    watch.on_heartbeat(0, told(*many(300)))

    assert len(received) == 1
    assert "taken at once" in watch.loss_reason([PATH])


def test_what_was_heard_once_raises_no_doubt_when_a_member_has_forgotten_it() -> None:
    """One that was started anew tells less; the next one tells the old list again."""
    watch = GrantWatch(Now(), 0.0)
    watch.on_heartbeat(0, told(*many(100, 60)))
    watch.on_heartbeat(0, told(*many(130)))
    watch.watch([PATH], 5)

    watch.on_heartbeat(0, told())
    watch.on_heartbeat(0, told(*many(130)))

    assert watch.loss_reason([PATH]) == ""
