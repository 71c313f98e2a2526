"""The history of grants (state/locks/grant_history.py): every query finds the same grants."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    AddToken,
    Command,
    Enter,
    Kind,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    Release,
    SetAccess,
)
from coordinator.state.locks.contender import Ending
from coordinator.state.locks.grant_history import GrantQuery, KeptGrant
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered
from tests.state.exercised import EXERCISED, about
from tests.state.strategies import SMALL_LIMITS, lock_histories, thorough


def is_asked_for(grant: KeptGrant, query: GrantQuery) -> bool:
    """Say by the words of the query alone whether it asks for a grant."""
    return (
        grant.number > query.after
        and query.directory in (None, grant.directory)
        and query.session_id in (None, grant.session_id)
        and query.token in (None, grant.czxid)
        and query.how in (None, grant.how)
        and (query.until_ms is None or grant.granted_ms <= query.until_ms)
        and (query.since_ms is None or grant.ended_ms is None or grant.ended_ms >= query.since_ms)
    )


def queries_about(grant: KeptGrant) -> list[GrantQuery]:
    """Return queries that ask for this grant, and for some others or none."""
    return [
        GrantQuery(grant.directory),
        GrantQuery(grant.directory, after=grant.number - 1, limit=2),
        GrantQuery(grant.directory, session_id=grant.session_id, token=grant.czxid),
        GrantQuery(session_id=grant.session_id),
        GrantQuery(token=grant.czxid, how=grant.how),
        GrantQuery(how=grant.how, limit=3),
        GrantQuery(since_ms=grant.granted_ms, until_ms=grant.granted_ms),
        GrantQuery(grant.directory, since_ms=grant.ended_ms, after=grant.number, limit=1),
    ]


def played(history: list[Command]) -> StateMachine:
    machine = StateMachine(SMALL_LIMITS)
    for command in history:
        EXERCISED.apply(machine, command)
    return machine


@about(holder_ended=100, sessions_ended_with_holders=15, evicted=25)
@thorough
@given(lock_histories)
def test_a_query_tells_exactly_what_it_asks_for(history: list[Command]) -> None:
    """Asked by queue or session or otherwise, the answer is that part of the whole, in order."""
    locks = played(history).locks
    whole = locks.history(GrantQuery())

    for grant in whole:
        for query in queries_about(grant):
            expected = [each for each in whole if is_asked_for(each, query)]
            assert list(locks.history(query)) == expected[: query.limit]


@about(handed_over=25, holder_ended=100)
@thorough
@given(lock_histories)
def test_the_next_token_is_that_of_the_first_grant_since_the_end(history: list[Command]) -> None:
    """None while nobody was granted the same queue since, or while the grant is held."""
    whole = played(history).locks.history(GrantQuery())

    for grant in whole:
        end = grant.ended_zxid
        later = [
            each.czxid
            for each in whole
            if each.directory == grant.directory and end is not None and each.granted_zxid >= end
        ]
        assert grant.next_token == (later[0] if later else None)


@about(holder_ended=100, evicted=25)
@thorough
@given(lock_histories)
def test_what_ended_last_in_a_queue_is_what_the_history_tells_of_it(history: list[Command]) -> None:
    """``latest_ended`` is the queue's part of the history, the last end first."""
    locks = played(history).locks
    whole = locks.ended()

    for directory in {each.directory for each in whole}:
        ends = [(each.czxid, each.ended_zxid) for each in whole if each.directory == directory]
        latest = [
            (each.contender.czxid, each.ended_zxid) for each in locks.latest_ended(directory, 100)
        ]
        assert latest == ends[::-1]
        assert locks.latest_ended(directory, 1) == [locks.last_ended(directory)]
        assert len(locks.history(GrantQuery(directory))) >= len(ends)


def test_what_is_forgotten_is_forgotten_of_its_queue_too() -> None:
    """The oldest ends go, of whichever queue; one of which nothing is kept is as if never held."""
    machine = StateMachine(MachineLimits(grant_history_max=5))
    machine.apply(Command(OpenSession("s1", 10_000), 0), 1, 1)
    for name in ["old", *["new"] * 5]:
        entered = machine.apply(
            Command(
                Enter(
                    (f"/locks/{name}",),
                    prefix="lock-",
                    kind=Kind.EXCLUSIVE,
                    session_id="s1",
                    data=b"",
                ),
                0,
            ),
            machine.applied_index + 1,
            1,
        ).unwrap()
        assert isinstance(entered, Entered)
        created = entered.contenders[0]
        release = Command(Release(created.path, created.stat.czxid), 0)
        machine.apply(release, machine.applied_index + 1, 1)
    locks = machine.locks

    assert locks.history(GrantQuery("/locks/old")) == ()
    assert locks.last_ended("/locks/old") is None
    assert locks.latest_ended("/locks/old", 10) == []
    assert len(locks.history(GrantQuery("/locks/new"))) == 5
    assert {each.how for each in locks.ended()} == {Ending.RELEASED}


def ending(machine: StateMachine, name: str, session_id: str, caller: Caller = NOBODY) -> None:
    """Take a lock and release it."""
    enter = Enter(
        (f"/locks/{name}",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b""
    )
    entered = done(machine, enter, caller)
    assert isinstance(entered, Entered)
    created = entered.contenders[0]
    done(machine, Release(created.path, created.stat.czxid), caller)


def done(machine: StateMachine, operation: Operation, caller: Caller = NOBODY) -> object:
    command = Command(operation, 0, caller=caller)
    return machine.apply(command, machine.applied_index + 1, 1).unwrap()


def queues_in(machine: StateMachine) -> Counter[str]:
    return Counter(each.directory for each in machine.locks.history(GrantQuery()))


def test_one_queue_pushes_out_no_history_of_others() -> None:
    """Where there are no identities; with a greater share it may have more."""
    limits = MachineLimits(grant_history_max=20, remembered_percent_max=50)
    machine = StateMachine(limits)
    done(machine, OpenSession("s1", 10_000))
    for number in range(9):
        ending(machine, f"quiet-{number}", "s1")
    for _ in range(200):
        ending(machine, "busy", "s1")

    kept = queues_in(machine)
    assert kept.pop("/locks/busy") == 11
    assert kept == {f"/locks/quiet-{number}": 1 for number in range(9)}
    tokens = [each.czxid for each in machine.locks.history(GrantQuery("/locks/busy"))]
    assert tokens == sorted(tokens)
    assert tokens[-1] > machine.zxid - 4, "of a queue the newest are kept"


def test_one_identity_pushes_out_no_history_of_others() -> None:
    """By as many locks as it likes; the order of all is that of their ends, after a restore too."""
    machine = StateMachine(MachineLimits(grant_history_max=20, remembered_percent_max=30))
    everything = (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))
    done(machine, PutRole("all", everything))
    for name in ("greedy", "other"):
        done(machine, PutIdentity(name, roles=("all",), subjects=(f"cert:{name}",)))
    operator = PutIdentity("operator", roles=("all",))
    token = AddToken(
        identity="operator", token_id="operator0001", digest=bytes(32), expires_ms=0, label=""
    )
    for operation in (operator, token, SetAccess(is_on=True)):
        done(machine, operation)
    greedy, other = map(machine.access.by_subject, ("cert:greedy", "cert:other"))
    assert greedy is not None
    assert other is not None
    for session_id, caller in (("s1", greedy), ("s2", other)):
        done(machine, OpenSession(session_id, 10_000), caller)
    for number in range(5):
        ending(machine, f"theirs-{number}", "s2", other)
    for number in range(200):
        ending(machine, f"own-{number}", "s1", greedy)

    kept = machine.locks.history(GrantQuery())
    assert [each.directory for each in kept[:5]] == [f"/locks/theirs-{n}" for n in range(5)]
    assert [each.directory for each in kept[5:]] == [f"/locks/own-{n}" for n in range(185, 200)]
    again = StateMachine()
    again.restore(machine.snapshot())
    for each in (machine, again):
        ending(each, "own-more", "s1", greedy)
    assert again.digest() == machine.digest()


def test_a_state_without_the_limit_forgets_the_oldest() -> None:
    """As every release before."""
    machine = StateMachine(MachineLimits(grant_history_max=5))
    done(machine, OpenSession("s1", 10_000))
    ending(machine, "quiet", "s1")
    for _ in range(5):
        ending(machine, "busy", "s1")

    assert queues_in(machine) == {"/locks/busy": 5}
