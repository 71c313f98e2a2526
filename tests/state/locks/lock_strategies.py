"""Random commands on queues: three queues and two sessions, so that they meet each other."""

from __future__ import annotations

from hypothesis import strategies as st

from coordinator.state.commands import (
    Abandon,
    CloseSession,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishSession,
    HeldCondition,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    Release,
    Reopen,
    Resize,
    Revoke,
)

PREFIXES = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}

directories = st.sampled_from(["/locks/a", "/locks/a", "/locks/b", "/elections/a"])
bad_directories = st.sampled_from(["/locks", "/locks/", "/locks/a/b", "/lock/a", "locks/a", ""])
contender_paths = st.builds(
    lambda directory, prefix, number: f"{directory}/{prefix}{number:010d}",
    directories,
    st.sampled_from(["lock-", "lock-", "read-", "slot-", "delay-", "delay-0-"]),
    st.integers(0, 4),
)
session_ids = st.sampled_from(["s1", "s1", "s2", "s3"])
czxids = st.integers(2, 14)
terms = st.integers(1, 2)
kinds = st.sampled_from([Kind.EXCLUSIVE, Kind.EXCLUSIVE, Kind.SHARED, Kind.SLOT])


@st.composite
def fitting_enters(draw: st.DrawFn) -> Enter:
    """Attempts whose arguments fit each other."""
    kind = draw(kinds)
    several = draw(st.sets(directories, min_size=1, max_size=3))
    if kind is not Kind.EXCLUSIVE:
        several = {min(several)}
    session_id = draw(session_ids)
    timeout_ms = draw(st.sampled_from([None, None, None, 50, 60, 5]))
    return Enter(
        tuple(sorted(several)),
        prefix=PREFIXES[kind],
        kind=kind,
        session_id=session_id,
        data=draw(st.binary(max_size=9)),
        owner=draw(st.sampled_from(["", "t1", "t2"])),
        is_try=draw(st.booleans()),
        lock_delay_ms=draw(st.sampled_from([0, 0, 1_000])),
        max_hold_ms=draw(st.sampled_from([0, 0, 2_000])),
        size=draw(st.sampled_from([None, 1, 2])) if kind is Kind.SLOT else None,
        opening=None
        if timeout_ms is None
        else OpenSession(session_id, timeout_ms=timeout_ms, label="opened"),
    )


any_enters = st.builds(
    Enter,
    st.lists(st.one_of(directories, bad_directories), max_size=2).map(tuple),
    st.sampled_from(["lock-", "read-", "delay-", "", "a/", "x1", "x" * 33]),
    kinds,
    session_ids,
    st.binary(max_size=9),
    st.sampled_from(["", "t1", "o" * 129]),
    st.booleans(),
    st.sampled_from([0, -1, 60_001]),
    st.sampled_from([0, -1, 2**60]),
    st.sampled_from([None, 0, 10_001]),
    st.one_of(st.none(), st.builds(OpenSession, session_ids, st.just(50))),
)
by_hand: st.SearchStrategy[Operation] = st.one_of(
    st.builds(
        lambda directory, prefix, session_id: Create(
            f"{directory}/{prefix}",
            data=b"",
            mode=CreateMode.EPHEMERAL_SEQUENTIAL,
            session_id=session_id,
            ttl_ms=None,
            parents=CreateMode.CONTAINER,
        ),
        directories,
        st.sampled_from(["lock-", "read-", "slot-", "x", "1"]),
        session_ids,
    ),
    st.builds(Create, contender_paths, st.just(b""), parents=st.just(CreateMode.PERSISTENT)),
    st.builds(Delete, contender_paths),
    st.builds(Delete, directories, is_recursive=st.just(True)),
    st.builds(
        lambda doomed, path: Multi((Delete(doomed), Create(path))),
        contender_paths,
        contender_paths,
    ),
    st.builds(
        lambda one, other: Multi((Create(one), Create(other))), contender_paths, contender_paths
    ),
)
lock_operations: st.SearchStrategy[Operation] = st.one_of(
    fitting_enters(),
    fitting_enters(),
    fitting_enters(),
    any_enters,
    by_hand,
    st.builds(Release, contender_paths, czxids),
    st.builds(Release, contender_paths, czxids),
    st.builds(Downgrade, contender_paths, czxids),
    st.builds(Resize, st.one_of(directories, bad_directories), st.integers(0, 3)),
    st.builds(Note, contender_paths, czxids, st.sampled_from([b"", b"note", b"x" * 1025])),
    st.builds(
        Revoke, contender_paths, czxids, st.sampled_from(["ops", "x" * 257]), st.just("stuck")
    ),
    st.builds(EndHold, contender_paths, czxids, terms, st.integers(0, 1)),
    st.builds(ExtendHold, contender_paths, czxids, st.integers(-1, 2), st.integers(0, 9)),
    st.builds(Reopen, contender_paths, czxids, terms),
    st.builds(OpenSession, session_ids, st.just(50)),
    st.one_of(
        st.builds(
            CloseSession,
            session_ids,
            st.sampled_from(["", "", "the probe failed"]),
            st.integers(0, 2),
        ),
        st.builds(ExpireSession, session_ids, st.just(1), st.integers(0, 9), st.integers(0, 2)),
        st.builds(FinishSession, session_ids, st.integers(0, 2)),
    ),
    st.builds(Abandon, st.sampled_from(["c1", "s1"]), st.integers(1, 6), st.just(1_000)),
)
conditions = st.one_of(
    st.just(()),
    st.just(()),
    st.just(()),
    st.builds(HeldCondition, st.one_of(directories, bad_directories), czxids).map(
        lambda each: (each,)
    ),
)
