"""Random commands for the property tests: few names and numbers, so that they meet each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields

from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    ExpireSession,
    FinishGrants,
    FinishSession,
    Guarded,
    Multi,
    OpenSession,
    Operation,
    Put,
    Read,
    Reap,
    Release,
    RequestId,
    SetData,
    SetLimits,
    TakeOut,
    ZnodeOperation,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.amount import histories as histories_of
from tests.state.access_history import access_history
from tests.state.locks.lock_histories import lock_history
from tests.state.locks.lock_strategies import conditions, lock_operations
from tests.state.znode_histories import mixed_history, znode_history

thorough = histories_of(
    80,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
"""How the laws of locks are tried."""
SMALL_LIMITS = MachineLimits(
    data_bytes_max=8,
    path_bytes_max=64,
    path_depth_max=4,
    children_max=5,
    znodes_max=20,
    state_bytes_max=10_000,
    operations_per_multi_max=5,
    ephemerals_per_session_max=5,
    recursive_delete_max=6,
    request_window=3,
    clients_max=2,
    remembered_bytes_max=6_000,
    released_grants_max=2,
    grant_history_max=5,
    grant_history_bytes_max=4_000,
    remembered_percent_max=40,
    timeout_ms_min=10,
    timeout_ms_max=100,
    sessions_max=3,
)

SESSION_IDS = ("s1", "s2", "s3")

names = st.sampled_from(["a", "b", "n-", "n-0000000001"])
good_paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
bad_paths = st.sampled_from(
    ["", "/", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/\x00", "/\x85", "/" + "x" * 70, "/a" * 5]
)
paths = st.one_of(*[good_paths] * 9, bad_paths)
data = st.binary(max_size=9)
versions = st.integers(-1, 2)
zxids = st.integers(0, 12)
maybe_zxids = st.one_of(st.none(), zxids)
session_ids = st.sampled_from(SESSION_IDS)
terms = st.integers(1, 2)
modes = st.sampled_from(CreateMode)


@st.composite
def fitting_creates(draw: st.DrawFn) -> Create:
    """Creates whose arguments fit their mode."""
    mode = draw(modes)
    return Create(
        draw(good_paths),
        data=draw(data),
        mode=mode,
        session_id=draw(session_ids) if mode.is_ephemeral else None,
        ttl_ms=draw(st.integers(1, 9)) if mode.is_ttl else None,
        parents=draw(st.sampled_from([None, CreateMode.CONTAINER, CreateMode.PERSISTENT])),
    )


any_creates = st.builds(
    Create,
    paths,
    data,
    modes,
    st.one_of(st.none(), session_ids),
    st.one_of(st.none(), st.integers(-1, 9)),
    st.one_of(st.none(), modes),
)
checks = st.builds(
    Check,
    paths,
    st.one_of(st.none(), st.booleans()),
    versions,
    maybe_zxids,
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), session_ids),
)
znode_operations: st.SearchStrategy[ZnodeOperation] = st.one_of(
    fitting_creates(),
    fitting_creates(),
    any_creates,
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions, maybe_zxids, st.booleans()),
    checks,
    st.builds(Read, paths),
)
branches = st.lists(znode_operations, max_size=4).map(tuple)
likely_operations = st.one_of(
    fitting_creates(),
    st.builds(SetData, good_paths, st.just(b"set")),
    st.builds(Delete, good_paths, is_recursive=st.just(True)),
)
doomed_branches = st.lists(likely_operations, min_size=1, max_size=4).map(
    lambda several: (*several, Check("/never"))
)
"""Operations that often go through, and a last one that never does: what must be rolled back."""

limit_changes = st.builds(
    SetLimits,
    st.lists(
        st.tuples(
            st.sampled_from([each.name for each in fields(MachineLimits)] * 2 + ["no_limit"]),
            st.sampled_from([0, 1, 2, 4, 10, 64, 100, 1_000, 20_000]),
        ),
        max_size=3,
    ).map(tuple),
    st.sampled_from([-1, -1, -1, 0, 1]),
    st.just((("rule", "1"),)),
    st.sampled_from(["", "ops", "x" * 257]),
)

failures = st.sampled_from(["", "", "the probe failed", "x" * 513])
operations: st.SearchStrategy[Operation] = st.one_of(
    fitting_creates(),
    fitting_creates(),
    znode_operations.filter(lambda each: not isinstance(each, Read)),
    st.builds(Multi, branches),
    st.builds(Multi, doomed_branches),
    st.builds(Put, paths, data),
    st.builds(Put, good_paths, st.just(b"put")),
    st.builds(Guarded, st.lists(checks, max_size=2).map(tuple), branches, branches),
    st.builds(OpenSession, session_ids, st.integers(9, 101), st.text(max_size=3)),
    st.builds(OpenSession, session_ids, st.just(50)),
    st.builds(CloseSession, session_ids, failures, st.integers(0, 3)),
    st.builds(ExpireSession, session_ids, terms, st.integers(0, 9), st.integers(0, 3)),
    st.builds(FinishSession, session_ids, st.integers(0, 3)),
    st.builds(FinishGrants),
    st.builds(TakeOut, st.lists(paths, max_size=3).map(tuple)),
    st.builds(Release, paths, zxids),
    st.builds(
        Abandon,
        st.sampled_from(["c1", "c2", "s1", "bad id"]),
        st.integers(0, 6),
        st.integers(-1, 30),
    ),
    st.builds(Reap, paths, zxids, zxids, terms),
    limit_changes,
    lock_operations,
    lock_operations,
)
request_ids = st.builds(
    RequestId,
    st.sampled_from(["c1", "c2", "c3", "c4", "s1", "s2", "bad id", ""]),
    st.integers(-1, 8),
    st.sampled_from([-1, 0, 0, 5, 20, 1_000]),
)
commands: st.SearchStrategy[Command] = st.builds(
    Command,
    operations,
    st.integers(0, 2**40),
    st.one_of(st.none(), st.none(), request_ids),
    st.just(NOBODY),
    conditions,
)
lock_commands: st.SearchStrategy[Command] = st.builds(
    Command,
    lock_operations,
    st.integers(0, 2**40),
    st.one_of(
        st.none(), st.none(), st.builds(RequestId, st.just("c1"), st.integers(1, 6), st.just(0))
    ),
    st.sampled_from([NOBODY, Caller("ops@example")]),
    conditions,
)


seeded = st.integers(0, 2**32).map(random.Random)


@st.composite
def drawn_histories(
    draw: st.DrawFn, drawn: Callable[[random.Random, MachineLimits, int], list[Command]]
) -> list[Command]:
    """Commands about what is there: see ``tests.state.drawn_history``.

    Most by a seed, which spreads evenly: hypothesis likes zeros, which here are repetitions. What
    it draws itself, it can shrink; of a seed it shortens the history only.
    """
    chance = draw(st.one_of(seeded, seeded, seeded, st.randoms(use_true_random=False)))
    return drawn(chance, SMALL_LIMITS, draw(st.integers(20, 48)))


lock_histories = drawn_histories(lock_history)
blind_lock_histories = st.lists(lock_commands, min_size=4, max_size=40).map(
    lambda history: [
        Command(OpenSession("s1", 50), 0),
        Command(OpenSession("s2", 50), 0),
        *history,
    ]
)
"""Any paths and tokens at all, hardly ever those of somebody who is there."""

blind_histories = st.one_of(st.lists(commands, min_size=1, max_size=40), blind_lock_histories)
histories = st.one_of(
    lock_histories,
    drawn_histories(znode_history),
    drawn_histories(mixed_history),
    lock_histories,
    drawn_histories(znode_history),
    drawn_histories(mixed_history),
    drawn_histories(access_history),
    blind_histories,
)


def apply_all(machine: StateMachine, history: list[Command], *, first: int = 1) -> list[Outcome]:
    """Apply each command in an entry of its own, all of term 1."""
    return [machine.apply(command, index, 1) for index, command in enumerate(history, first)]
