"""Every judgement on locks finds the log, or the story, that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from coordinator.model.access import NOBODY
from coordinator.model.events import Event, EventType
from coordinator.model.limits import MachineLimits
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    CloseSession,
    Command,
    Create,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    HeldCondition,
    Kind,
    Note,
    OpenSession,
    Operation,
    Release,
    Reopen,
    Resize,
    Revoke,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Refusal
from tests.simulation import properties
from tests.simulation.lock_model import LockModel
from tests.simulation.log import Entry
from tests.simulation.record import Record
from tests.simulation.told import Looked, Told
from tests.simulation.waiting import stuck_owners
from tests.state.values import changed

ONE, OTHER = "00000000000000aa", "00000000000000bb"
A, B = "/locks/a", "/locks/b"
PREFIXES = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}
X0, X1, X2 = (f"{A}/lock-000000000{number}" for number in range(3))
R0, R1, R2 = (f"{A}/read-000000000{number}" for number in range(3))
S0, S1 = (f"{A}/slot-000000000{number}" for number in range(2))
Log = list[Entry]


def enter(
    kind: Kind = Kind.EXCLUSIVE,
    *directories: str,
    session_id: str = ONE,
    owner: str = "",
    size: int | None = None,
    lock_delay_ms: int = 0,
    max_hold_ms: int = 0,
) -> Enter:
    return Enter(
        directories or (A,),
        prefix=PREFIXES[kind],
        kind=kind,
        session_id=session_id,
        data=b"{}",
        owner=owner,
        lock_delay_ms=lock_delay_ms,
        max_hold_ms=max_hold_ms,
        size=size,
    )


def log_of(*asked: Operation | Command | float) -> Log:
    """Apply to a machine; a number is a second at which what follows is applied."""
    machine, log, at_s, index = StateMachine(MachineLimits()), [], 0.0, 1
    begin = (OpenSession(ONE, 5_000), OpenSession(OTHER, 5_000))
    for each in (*begin, *asked):
        if isinstance(each, float):
            at_s = each
            continue
        index += 1
        command = each if isinstance(each, Command) else Command(each, 1_000)
        outcome = machine.apply(command, index, 1)
        log.append(Entry(index, 0, 1, encode_command(command), command, outcome, at_s))
    return log


def promises(log: Log) -> set[str]:
    return {promise for promise, _ in properties.check_locks(log)}


def last(log: Log, **changes: object) -> Log:
    """Return the log with another outcome of its last entry."""
    *before, entry = log
    return [*before, replace(entry, outcome=changed(entry.outcome, **changes))]


def refused(log: Log, code: str) -> Log:
    """Return the log with its last command refused."""
    zxid = log[-2].outcome.zxid
    return last(log, zxid=zxid, result=None, refusal=Refusal(code, ""), events=(), granted=())


def everything() -> Log:
    """Return some of all that can be done with locks, as it should be."""
    return log_of(
        enter(max_hold_ms=500),  # lock 0 of a, zxid 3
        enter(Kind.SHARED, session_id=OTHER),
        Note(X0, czxid=3, note=b"c1:1"),
        Command(
            Create("/h", b"c1:2"),
            wall_ms=1_000,
            request=None,
            caller=NOBODY,
            if_held=(HeldCondition(A, 3),),
        ),
        Downgrade(X0, 3),
        enter(Kind.SHARED),
        enter(owner="t"),
        0.5,
        EndHold(X0, czxid=3, term=1),
        Revoke(R1, czxid=4, by="me", reason="why not"),
        Command(
            Create("/h", b"c1:3"),
            wall_ms=1_000,
            request=None,
            caller=NOBODY,
            if_held=(HeldCondition(A, 3),),
        ),
        Release(R2, 8),
        enter(Kind.EXCLUSIVE, A, B, session_id=OTHER, lock_delay_ms=1_000),
        CloseSession(ONE),
        ExpireSession(OTHER, 1),
        OpenSession("00000000000000cc", 5_000),
        enter(session_id="00000000000000cc"),
        2.0,
        Reopen(f"{A}/delay-0000000004", czxid=15, term=1),
        enter(Kind.SLOT, "/locks/s", session_id="00000000000000cc", size=1),
        enter(Kind.SLOT, "/locks/s", session_id="00000000000000cc", size=1),
        Resize("/locks/s", 2),
        enter(Kind.SLOT, "/locks/s", session_id="00000000000000cc"),
        Resize("/locks/s", 1),
        Release("/locks/s/slot-0000000000", 19),
    )


def test_a_good_log_breaks_nothing_and_is_counted() -> None:
    """What a machine does keeps every promise, and something of each kind happened."""
    log = everything()
    model = LockModel()

    assert [found for entry in log for found in model.apply(entry)] == []
    assert model.tally == {
        "exclusive": 3,
        "notes": 1,
        "fenced writes": 1,
        "fenced out": 1,
        "downgrades": 1,
        "shared": 2,
        "max_hold": 1,
        "forced": 1,
        "released": 2,
        "closed": 1,
        "several": 2,
        "expired": 2,
        "delays": 2,
        "slot": 2,
        "resizes": 2,
    }


WAITING = (enter(), enter(session_id=OTHER))


@pytest.mark.parametrize(
    ("log", "granted", "found"),
    [
        (log_of(*WAITING), (X1,), "one holder"),
        (log_of(enter(Kind.SHARED), enter()), (X1,), "one holder"),
        (log_of(enter(), enter(Kind.SHARED)), (R1,), "one holder"),
        (log_of(enter(Kind.SHARED), enter(Kind.SLOT, size=2)), (S1,), "one holder"),
        (log_of(enter(Kind.SLOT, size=1), enter(Kind.SLOT)), (S1,), "size of a semaphore"),
        (log_of(enter(Kind.SHARED), enter(), enter(Kind.SHARED)), (R2,), "fair order"),
        (log_of(enter()), (X1,), "one holder"),
        (log_of(enter(), Note(X0, czxid=3, note=b"")), (X0,), "one holder"),
        (log_of(enter(Kind.EXCLUSIVE, A, B)), (X0,), "several locks as one"),
    ],
    ids=[
        "two writers", "a writer beside a reader", "a reader beside a writer",
        "a slot beside a reader", "one slot too many", "a reader before a writer",
        "nobody", "granted twice", "half of two",
    ],
)  # fmt: skip
def test_a_wrong_grant_is_found(log: Log, granted: tuple[str, ...], found: str) -> None:
    """Whoever is granted beside, before or without those that it must not."""
    assert promises(log) == set()

    assert found in promises(last(log, granted=granted))


@pytest.mark.parametrize(
    "log",
    [
        log_of(*WAITING, Release(X0, 3)),
        log_of(*WAITING, Revoke(X0, czxid=3, by="me", reason="so")),
        log_of(enter(), enter(Kind.SHARED), Downgrade(X0, 3)),
        log_of(enter(Kind.SLOT, size=1), enter(Kind.SLOT), Resize(A, 2)),
        log_of(enter(), enter(Kind.EXCLUSIVE, A, B), Release(X0, 3)),
        log_of(
            enter(lock_delay_ms=500), enter(session_id=OTHER), ExpireSession(ONE, 1), 0.5,
            Reopen(f"{A}/delay-0000000000", czxid=5, term=1),
        ),
    ],
    ids=["release", "revoke", "downgrade", "resize", "several", "reopen"],
)  # fmt: skip
def test_somebody_who_waits_in_vain_is_found(log: Log) -> None:
    """Whoever may hold holds from the command on that makes way."""
    assert promises(log) == set()
    assert log[-1].outcome.granted

    assert promises(last(log, granted=())) == {"nobody waits in vain"}


def test_a_token_that_falls_is_found() -> None:
    """A later holder has a larger token, of whatever kind it is."""
    log = log_of(enter(), enter(Kind.SHARED), Release(X0, 3))
    events = tuple(structs.replace(event, czxid=3) for event in log[3].outcome.events)
    log[3] = last(log[:4], events=events)[-1]

    assert promises(log) == {"tokens grow"}


def test_several_locks_of_which_one_stays_are_found() -> None:
    """They are given back together."""
    log = log_of(enter(Kind.EXCLUSIVE, A, B), Release(X0, 3))

    assert promises(last(log, events=log[-1].outcome.events[:1])) == {"several locks as one"}


@pytest.mark.parametrize(
    "operation",
    [
        Release(X0, 4),
        Release(X1, 3),
        Revoke(X1, czxid=4, by="", reason=""),
        EndHold(X0, czxid=3, term=1),
        CloseSession(OTHER),
        Note(X0, czxid=3, note=b""),
    ],
    ids=["other token", "other path", "other grant", "without bound", "other session", "note"],
)
def test_a_grant_that_goes_by_a_command_about_another_is_found(operation: Operation) -> None:
    """A release frees its own grant, and so does every other command."""
    log = log_of(*WAITING, Release(X0, 3))
    log[-1] = replace(log[-1], command=Command(operation, 1_000))

    assert "one's own grant" in promises(log)


# --- what ends by itself


@pytest.mark.parametrize(
    ("at_s", "found"), [(0.5, set()), (0.495, set()), (0.48, {"bounded holds"})]
)
def test_a_bounded_hold_that_ends_early_is_found(at_s: float, found: set[str]) -> None:
    """It lasts for its bound, or what a clock 1 % fast takes for it."""
    assert promises(log_of(enter(max_hold_ms=500), at_s, EndHold(X0, czxid=3, term=1))) == found


LOST = (enter(lock_delay_ms=1_000), enter(session_id=OTHER), ExpireSession(ONE, 1))


def _granted_at_once(log: Log) -> Log:
    return last(log, granted=(X1,))


def _without_the_delay(log: Log) -> Log:
    events = log[-1].outcome.events
    return last(log, granted=(X1,), events=tuple(e for e in events if "delay-" not in e.path))


@pytest.mark.parametrize("spoil", [_granted_at_once, _without_the_delay])
def test_a_grant_within_the_lock_delay_is_found(spoil: Callable[[Log], Log]) -> None:
    """After a loss nobody is granted, whether the queue was closed or that was forgotten."""
    log = log_of(*LOST)
    assert promises(log) == set()

    assert promises(spoil(log)) == {"lock-delay"}


@pytest.mark.parametrize(("at_s", "found"), [(1.0, set()), (0.9, {"lock-delay"})])
def test_a_lock_delay_that_is_over_early_is_found(at_s: float, found: set[str]) -> None:
    """It lasts for as long as the holder that was lost had asked for."""
    log = log_of(*LOST, at_s, Reopen(f"{A}/delay-0000000000", czxid=5, term=1))

    assert promises(log) == found


def test_a_delay_after_a_clean_end_is_found() -> None:
    """Whoever gives back lets the next one in at once."""
    log = log_of(enter(lock_delay_ms=1_000), Release(X0, 3))
    closing = Event(EventType.CREATED, path=f"{A}/delay-0000000000", version=0, czxid=4)
    log = last(log, events=(*log[-1].outcome.events, closing))

    assert promises(log) == {"lock-delay"}


# --- conditions


def fenced(token: int) -> Command:
    return Command(
        Create("/h", b"c1:1"),
        wall_ms=1_000,
        request=None,
        caller=NOBODY,
        if_held=(HeldCondition(A, token),),
    )


def done(log: Log) -> Log:
    return last(log, refusal=None)


@pytest.mark.parametrize(
    "log",
    [
        done(log_of(*WAITING, Release(X0, 3), fenced(3))),
        done(log_of(*WAITING, Revoke(X0, czxid=3, by="me", reason="so"), fenced(3))),
        done(log_of(*WAITING, fenced(4))),
        refused(log_of(enter(), fenced(3)), "LockLost"),
    ],
    ids=["released", "forced out", "waiting", "held and refused"],
)
def test_a_write_against_its_condition_is_found(log: Log) -> None:
    """It is done if the grant holds at that entry, and else refused."""
    assert promises(log) == {"writes under a grant"}


@pytest.mark.parametrize(
    ("before", "found"), [((), set()), ((Release(X0, 3),), {"writes under a grant"})]
)
def test_a_write_whose_condition_was_lost_on_the_way_is_found(
    before: tuple[Operation, ...], found: set[str]
) -> None:
    """What the client had asked for counts, not what reached the log."""
    log = log_of(enter(), *before, Create("/h", b"c1:1"))

    checked = properties.check_conditions(log, modelled(log), {b"c1:1": (A, 3)})

    assert {promise for promise, _ in checked} == found


# --- who waits for whom

CROSSWISE = (
    enter(owner="one"),
    enter(Kind.EXCLUSIVE, B, session_id=OTHER, owner="other"),
    enter(session_id=OTHER, owner="other"),
    enter(Kind.EXCLUSIVE, B, owner="one"),
)


def test_a_deadlock_is_refused_and_that_is_right() -> None:
    """The last of those who wait crosswise is told so, and a circle is found there."""
    log = log_of(*CROSSWISE)

    refusal = log[-1].outcome.refusal
    assert refusal is not None
    assert refusal.code == "Deadlock"
    assert promises(log) == set()


def test_a_circle_that_was_let_in_is_found() -> None:
    """Nobody may be let wait for ever."""
    machine_log = log_of(*CROSSWISE[:3], structs.replace(CROSSWISE[3], owner="another"))
    entered = replace(machine_log[-1], command=Command(CROSSWISE[3], 1_000))

    assert promises([*machine_log[:-1], entered]) == {"no deadlock"}


@pytest.mark.parametrize(
    "log",
    [
        log_of(*CROSSWISE[:3]),
        log_of(enter(Kind.SLOT, size=3), enter(Kind.SLOT), Resize(A, 1)),
    ],
    ids=["enter", "resize"],
)
def test_a_needless_deadlock_is_found(log: Log) -> None:
    """Who could go on is not refused."""
    assert promises(log) == set()

    assert promises(refused(log, "Deadlock")) == {"no needless Deadlock"}


@pytest.mark.parametrize(("size", "stuck"), [(1, {("one",), ("other",)}), (2, set())])
def test_any_of_several_slots_may_make_way(size: int, stuck: set[tuple[str]]) -> None:
    """A circle through a semaphore is none while another slot of it will be given back."""
    one, other, third = ("one",), ("other",), ("third",)
    slots = [(one, Kind.SLOT, True), (other, Kind.SLOT, False)]
    if size == 2:
        slots.insert(1, (third, Kind.SLOT, True))
    locks = [(other, Kind.EXCLUSIVE, True), (one, Kind.EXCLUSIVE, False)]

    assert stuck_owners({"/locks/s": slots, A: locks}, {"/locks/s": size}) == stuck


# --- what is told

TOLD = Told("c1", A, X0, 3, "exclusive", 3)


def modelled(log: Log) -> LockModel:
    model = LockModel()
    assert [found for entry in log for found in model.apply(entry)] == []
    return model


@pytest.mark.parametrize(
    "told",
    [
        replace(TOLD, path=X1, token=4),  # the second in the queue
        replace(TOLD, zxid=2),  # before it was there
        replace(TOLD, zxid=5, previous=(3, "released", b"n", 6)),  # after it was released
        replace(TOLD, token=4),  # another token
        replace(TOLD, kind="shared"),
    ],
)
def test_a_grant_to_somebody_who_does_not_hold_is_found(told: Told) -> None:
    """At the zxid that was told the contender must have held, as what it was told."""
    locks = modelled(log_of(*WAITING, Release(X0, 3)))
    assert list(properties.check_told(locks, [TOLD])) == []

    assert "one holder" in {each for each, _ in properties.check_told(locks, [told])}


@pytest.mark.parametrize(
    "previous", [None, (2, "released", b"n", 6), (3, "expired", b"n", 6), (3, "released", b"", 6)]
)
def test_a_wrong_word_of_the_grant_before_is_found(
    previous: tuple[int, str, bytes, int] | None,
) -> None:
    """The next holder is told the token, the end and the note of the one before."""
    locks = modelled(log_of(*WAITING, Note(X0, czxid=3, note=b"n"), Release(X0, 3)))
    right = Told("c2", A, X1, 4, "exclusive", 6, (3, "released", b"n", 6))
    assert list(properties.check_told(locks, [right])) == []

    found = properties.check_told(locks, [replace(right, previous=previous)])

    assert {each for each, _ in found} == {"the grant before"}


def test_a_look_that_shows_another_holder_is_found() -> None:
    """Who is shown as a holder held at the zxid of the answer."""
    locks = modelled(log_of(*WAITING, Release(X0, 3)))
    assert list(properties.check_looked(locks, [Looked("c1", A, 4, (3,))])) == []

    found = properties.check_looked(locks, [Looked("c1", A, 5, (3,))])

    assert {each for each, _ in found} == {"one holder"}


# --- what a heartbeat says


def recorded(log: Log) -> tuple[Record, list[float]]:
    now_s = [0.0]
    record = Record(lambda: now_s[0])
    for entry in log:
        now_s[0] = entry.at_s
        record.note_applied("m1", entry.index, 0, 1, entry.payload, entry.outcome)
    return record, now_s


def outcomes_of(record: Record) -> set[str]:
    return {violation.promise for violation in record.violations}


@pytest.mark.parametrize(
    ("arrived_s", "lost", "found"),
    [(2.0, [3], set()), (2.0, [], {"the holder is told"}), (0.5, [], set())],
    ids=["told", "not told", "came before"],
)
def test_a_heartbeat_that_keeps_a_loss_to_itself_is_found(
    arrived_s: float, lost: list[int], found: set[str]
) -> None:
    """Whoever is told that its session lives is told what it does not hold any more."""
    record, _ = recorded(log_of(enter(), 1.0, Revoke(X0, czxid=3, by="me", reason="so")))

    record.note_lease(ONE, arrived_s, {}, lost)

    assert outcomes_of(record) == found


@pytest.mark.parametrize(("left_ms", "found"), [(500, set()), (700, {"bounded holds"})])
@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_hold_that_is_promised_for_too_long_is_found(
    left_ms: int, found: set[str], is_told_late: bool
) -> None:
    """What is left of a bounded hold, as a heartbeat says, is left; whoever hears of it."""
    log = log_of(enter(max_hold_ms=500), 0.5, EndHold(X0, czxid=3, term=1))
    record, _ = recorded(log if is_told_late else log[:-1])

    record.note_lease(ONE, 0.0, {X0: left_ms}, [3] if is_told_late else [])
    if not is_told_late:
        entry = log[-1]
        record.now_s = lambda: 0.5
        record.note_applied("m1", entry.index, 0, 1, entry.payload, entry.outcome)

    assert outcomes_of(record) == found


@pytest.mark.parametrize(
    ("learned_s", "found"), [(1.5, {"one holder"}), (0.5, set())], ids=["after it", "before it"]
)
def test_a_grant_that_ended_before_it_was_heard_of_is_found(
    learned_s: float, found: set[str]
) -> None:
    """A member that was behind asks a quorum before it tells a waiter that it holds."""
    record, _ = recorded(log_of(*WAITING, Release(X0, 3), 1.0, Release(X1, 4)))
    record.learned_s["m2.1", X1] = learned_s

    record.check_late_word("m2.1", [X1])

    assert outcomes_of(record) == found


def test_an_outcome_is_judged_as_soon_as_it_is_known() -> None:
    """A record judges each entry when the first member has applied it."""
    log = log_of(*WAITING)
    wrong: Outcome = changed(log[-1].outcome, granted=(X1,))

    record, _ = recorded([*log[:-1], replace(log[-1], outcome=wrong)])

    assert outcomes_of(record) == {"one holder"}
