"""No command holds the loop for more than 20 ms, of any size and shape that the limits allow.

One row for each operation of the state, at its largest, or with the longest queue behind it; with
all that listens to its outcome. An operation without a row fails. What is asked for over HTTP has
rows of its own (``test_loop_time``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, get_args

import pytest

from coordinator.model.access import (
    IDENTITIES_MAX,
    MEMBER,
    NOBODY,
    ROLES_MAX,
    ROLES_PER_IDENTITY_MAX,
    RULES_PER_ROLE_MAX,
    SUBJECTS_PER_IDENTITY_MAX,
    Rule,
    Verb,
)
from coordinator.model.limits import NEW_CLUSTER, proposed_bounds_of
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.state import commands
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.commands import (
    Abandon,
    AddToken,
    Check,
    CloseSession,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    DropIdentity,
    DropRole,
    DropToken,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    FinishSession,
    Guarded,
    InitAccess,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    Put,
    PutIdentity,
    PutRole,
    Reap,
    Release,
    RenewCredential,
    Reopen,
    Resize,
    Revoke,
    SetAccess,
    SetData,
    SetLevel,
    SetLimits,
    TakeOut,
)
from coordinator.state.locks.queues import LOOKED_AT_ONCE
from tests.loop_meter import HELD_MS_MAX
from tests.wire.crowded import Crowded, crowded

LIMITS = NEW_CLUSTER
BEHIND = 1_500
"""Contenders in the queue that a command moves."""
_NUMBERS = count()


@pytest.fixture(scope="module")
def scene() -> Iterator[Crowded]:
    with crowded() as running:
        yield running


Row = Callable[[Crowded, int], Operation]
"""Makes what the operation needs, and returns it."""


def _owner(scene: Crowded, number: int) -> str:
    session_id = f"owner-{next(_NUMBERS)}-{number}"
    scene.made(OpenSession(session_id, timeout_ms=3_600_000, label=""))
    return session_id


def _entered(scene: Crowded, entry: Enter) -> tuple[str, int]:
    found = scene.loop.run(scene.do(entry)).contenders[0]
    return found.path, found.stat.czxid


def _held_before_many(
    scene: Crowded, number: int, kind: Kind, session_id: str = "", **options: Any
) -> tuple[str, int]:
    """Hold a lock with a long queue behind; return the path and token of the holder."""
    session_id = session_id or _owner(scene, number)
    directory = f"/locks/moved-{kind.value}-{session_id}"
    held = _entered(
        scene,
        Enter(
            (directory,),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=session_id,
            data=b"{}",
            **options,
        ),
    )

    async def queue() -> None:
        for _ in range(BEHIND):
            prefix = "read-" if kind is Kind.SHARED else "lock-"
            await scene.do(
                Enter((directory,), prefix=prefix, kind=kind, session_id=session_id, data=b"{}")
            )

    scene.loop.run(queue())
    return held


def _slots_with_many(scene: Crowded, number: int) -> Operation:
    session_id = _owner(scene, number)
    directory = f"/locks/pool-{session_id}"

    async def queue() -> None:
        for _ in range(BEHIND):
            entry = Enter(
                (directory,),
                prefix="slot-",
                kind=Kind.SLOT,
                session_id=session_id,
                data=b"{}",
                size=1,
            )
            await scene.do(entry)

    scene.loop.run(queue())
    return Resize(directory, 10_000)


def _closed_queue(scene: Crowded, number: int) -> Operation:
    path, czxid = _held_before_many(scene, number, Kind.SHARED, lock_delay_ms=60_000)
    directory = path.rpartition("/")[0]
    scene.made(Revoke(path, czxid=czxid, by="", reason=""))
    return Reopen(f"{directory}/delay-0000000000", czxid=czxid, term=1)


def _with_many_ephemerals(scene: Crowded, number: int) -> str:
    session_id = _owner(scene, number)

    async def fill() -> None:
        for each in range(4 * ENDED_AT_ONCE):
            await scene.enter(session_id, f"/locks/of-{session_id}-{each}")

    scene.loop.run(fill())
    return session_id


def _granting_on(scene: Crowded, number: int) -> Operation:
    """Of many who share a lock, and were too many for the command that let them in."""
    path, czxid = _held_before_many(scene, number, Kind.SHARED)
    scene.member._later_grants.stop()
    scene.made(Release(path, czxid))
    return FinishGrants()


def _taking_out(scene: Crowded, number: int) -> Operation:
    """Of those who wait for one lock, and may not have it any more, as many as one takes out."""
    scene.member._in_pieces[-1].stop()  # or the leader would have been quicker
    scene.made(SetAccess(is_on=False))
    session_id = f"nobody-{next(_NUMBERS)}"
    scene.loop.run(scene.do(OpenSession(session_id, timeout_ms=3_600_000, label=""), NOBODY))
    path, _ = _held_before_many(scene, number, Kind.EXCLUSIVE, session_id)
    _with_access(scene)
    locks = scene.member._replica.machine.locks
    waiters = locks.contenders(path.rpartition("/")[0], LOOKED_AT_ONCE, 1)
    assert all(map(locks.has_lost_right, waiters))
    return TakeOut(tuple([each.path for each in waiters]))


def _finishing(scene: Crowded, number: int) -> Operation:
    session_id = _with_many_ephemerals(scene, number)
    return FinishSession(session_id, ENDED_AT_ONCE)


def _creations(number: int, how_many: int) -> tuple[Create, ...]:
    return tuple([Create(f"/c{number}/{each:05}", b"x" * 200) for each in range(how_many)])


def _multi(scene: Crowded, number: int) -> Operation:
    scene.made(Create(f"/c{number}"))
    return Multi(_creations(number, LIMITS.operations_per_multi_max))


def _guarded(scene: Crowded, number: int) -> Operation:
    scene.made(Create(f"/c{100 + number}"))
    half = LIMITS.operations_per_multi_max // 2
    return Guarded(tuple([Check("/wide")] * half), _creations(100 + number, half))


def _deleted(scene: Crowded, number: int) -> Operation:
    top = f"/gone{number}"
    scene.made(Create(top))
    creations = [Create(f"{top}/{each}") for each in range(LIMITS.recursive_delete_max - 1)]
    scene.made_at_once(list(creations))
    return Delete(top, is_recursive=True)


def _shared_by_many(scene: Crowded, number: int) -> Operation:
    """As many holders as one recursive delete may take, each with all that is kept of a hold."""
    sessions = [_owner(scene, number) for _ in range(4)]
    directory = f"/locks/shared-{sessions[0]}"

    async def hold() -> None:
        for each in range(LIMITS.recursive_delete_max - 1):
            owner, session_id = f"o{each}", sessions[each % 4]
            entry = Enter(
                (directory,),
                prefix="read-",
                kind=Kind.SHARED,
                session_id=session_id,
                data=b"{}",
                owner=owner,
                max_hold_ms=3_600_000,
            )
            await scene.do(entry)

    scene.loop.run(hold())
    return Delete(directory, is_recursive=True)


def _multi_lock(number: int) -> tuple[str, ...]:
    return tuple([f"/locks/many-{number}-{each:02}" for each in range(64)])


def _abandoned(scene: Crowded, number: int) -> Operation:
    return Abandon(f"client-{number}", 1)


def _reaped(scene: Crowded, number: int) -> Operation:
    scene.made(Create(f"/ttl{number}", data=b"", mode=CreateMode.TTL, ttl_ms=3_600_000))
    return Reap(f"/ttl{number}", mzxid=1, pzxid=1, term=1)


# --- access rights, on, with as many roles and identities as there may be


def _with_access(scene: Crowded) -> None:
    """Fill the table once, and turn it on."""

    async def fill() -> None:
        table = scene.member._replica.machine.access
        if not table.revision:
            for number in range(ROLES_MAX - 1):
                await scene.do(PutRole(f"r{number}", _rules(9)))
            roles = tuple([f"r{number}" for number in range(ROLES_PER_IDENTITY_MAX)])
            for number in range(table.identity_count, IDENTITIES_MAX - 10):
                await scene.do(PutIdentity(f"i{number}", roles))
            await scene.do(InitAccess("operator", token_id="operator", digest=bytes(32)))
        await scene.do(SetAccess(is_on=True))

    scene.loop.run(fill())


def _rules(count: int) -> tuple[Rule, ...]:
    return tuple([Rule(f"/team{number}", tuple(Verb)) for number in range(count)])


def _identity_of_many(scene: Crowded, number: int) -> str:
    """Return an identity with a token, which has opened many sessions, each with a lock."""
    _with_access(scene)
    identity, token_id = f"owner{number}", f"owner{next(_NUMBERS):08d}"
    scene.made(
        PutIdentity(identity, ("admin",)), AddToken(identity, token_id=token_id, digest=bytes(32))
    )
    token = scene.member._replica.machine.access.token(token_id)
    assert token is not None, "it was added"

    async def open_many() -> None:
        for each in range(BEHIND):
            session_id = f"{token_id}-{each}"
            await scene.do(OpenSession(session_id, 3_600_000), token.caller)
            wanted = Enter(
                (f"/locks/{session_id}",),
                prefix="lock-",
                kind=Kind.EXCLUSIVE,
                session_id=session_id,
                data=b"{}",
            )
            await scene.do(wanted, token.caller)

    scene.loop.run(open_many())
    return identity


def _init_access(scene: Crowded, number: int) -> Operation:
    _with_access(scene)
    scene.made(SetAccess(is_on=False))
    return InitAccess("operator", token_id=f"operator{number}", digest=bytes(32))


def _set_access(scene: Crowded, _number: int) -> Operation:
    _with_access(scene)
    scene.made(SetAccess(is_on=False))
    return SetAccess(is_on=True)


def _put_role(scene: Crowded, number: int) -> Operation:
    """One that administers no longer: whether another does is looked for."""
    _with_access(scene)
    admin = (Rule("@", (Verb.ADMIN,)), Rule(f"/{number}", tuple(Verb)))
    scene.made(PutRole("r0", admin))
    return PutRole("r0", _rules(RULES_PER_ROLE_MAX))


def _drop_role(scene: Crowded, number: int) -> Operation:
    _with_access(scene)
    return DropRole(f"r{ROLES_MAX - 2 - number}")


def _put_identity(scene: Crowded, number: int) -> Operation:
    _with_access(scene)
    roles = tuple([f"r{number}" for number in range(ROLES_PER_IDENTITY_MAX)])
    subjects = tuple(
        [f"cert:{number}-{each}" + "s" * 400 for each in range(SUBJECTS_PER_IDENTITY_MAX)]
    )
    return PutIdentity(f"i{number}", roles=roles, subjects=subjects)


def _drop_token(scene: Crowded, number: int) -> Operation:
    identity = _identity_of_many(scene, number)
    view = scene.member._replica.machine.access.identity(identity)
    assert view is not None, "it was made"
    return DropToken(view.tokens[-1].token_id)


def _add_token(scene: Crowded, number: int) -> Operation:
    _with_access(scene)
    return AddToken(
        identity=f"i{number}",
        token_id=f"added{next(_NUMBERS):08d}",
        digest=bytes(32),
        expires_ms=0,
        label="l" * 100,
    )


ROWS: dict[type, Row] = {
    Create: lambda scene, number: Create(f"/large{number}", b"x" * LIMITS.data_bytes_max),
    SetData: lambda scene, number: SetData("/big", b"y" * LIMITS.data_bytes_max),
    Put: lambda scene, number: Put("/big", b"z" * LIMITS.data_bytes_max),
    Delete: _deleted,
    Check: lambda scene, number: Check("/wide"),
    Multi: _multi,
    Guarded: _guarded,
    OpenSession: lambda scene, number: OpenSession(
        f"new-{number}", timeout_ms=60_000, label="l" * 256
    ),
    CloseSession: lambda scene, number: CloseSession(
        _with_many_ephemerals(scene, number), failure="", at_once=ENDED_AT_ONCE
    ),
    ExpireSession: lambda scene, number: ExpireSession(
        _with_many_ephemerals(scene, number), term=1, silent_ms=0, at_once=ENDED_AT_ONCE
    ),
    FinishSession: _finishing,
    FinishGrants: _granting_on,
    Release: lambda scene, number: Release(*_held_before_many(scene, number, Kind.SHARED)),
    Abandon: _abandoned,
    Reap: _reaped,
    Enter: lambda scene, number: Enter(
        _multi_lock(number),
        prefix="lock-",
        kind=Kind.EXCLUSIVE,
        session_id=_owner(scene, number),
        data=b"x" * 4_096,
    ),
    Downgrade: lambda scene, number: Downgrade(*_held_before_many(scene, number, Kind.SHARED)),
    Resize: _slots_with_many,
    Note: lambda scene, number: Note(
        *_held_before_many(scene, number, Kind.EXCLUSIVE), note=b"n" * 1_024
    ),
    ExtendHold: lambda scene, number: ExtendHold(
        *_held_before_many(scene, number, Kind.SHARED, max_hold_ms=3_600_000),
        by_ms=0,
        to_ms=7_200_000,
    ),
    Revoke: lambda scene, number: Revoke(
        *_held_before_many(scene, number, Kind.SHARED), by="b" * 256, reason="r" * 512
    ),
    EndHold: lambda scene, number: EndHold(
        *_held_before_many(scene, number, Kind.SHARED, max_hold_ms=3_600_000), term=1
    ),
    Reopen: _closed_queue,
    SetLimits: lambda scene, number: SetLimits((("znodes_max", 1_000_000 - number),)),
    SetLevel: lambda _scene, _number: SetLevel(1),
    RenewCredential: lambda scene, number: RenewCredential(_owner(scene, number)),
    InitAccess: _init_access,
    SetAccess: _set_access,
    PutRole: _put_role,
    DropRole: _drop_role,
    PutIdentity: _put_identity,
    DropIdentity: lambda scene, number: DropIdentity(_identity_of_many(scene, number)),
    AddToken: _add_token,
    DropToken: _drop_token,
    TakeOut: _taking_out,
}


FURTHER_ROWS: dict[str, Row] = {"delete of a queue that thousands hold": _shared_by_many}


def test_every_operation_has_a_row() -> None:
    """A new operation says what costs it most."""
    assert set(ROWS) == set(get_args(commands.Operation))


@pytest.mark.parametrize("name", [*(kind.__name__ for kind in ROWS), *FURTHER_ROWS])
def test_no_command_holds_the_loop(scene: Crowded, name: str) -> None:
    """With all that listens to its outcome: the least of some repetitions, 20 ms."""
    rows = {**{kind.__name__: row for kind, row in ROWS.items()}, **FURTHER_ROWS}

    def act(repetition: int) -> None:
        operation = rows[name](scene, repetition)
        scene.loop.loop.longest_ms = 0.0
        scene.loop.run(scene.do(operation, NOBODY if type(operation) in BY_MEMBERS else MEMBER))

    held_ms = scene.loop.held_ms(act)

    assert held_ms <= HELD_MS_MAX, f"{name} holds the loop for {held_ms:.1f} ms"


@pytest.mark.check
def test_the_most_grants_that_may_be_set_for_one_command_do_not_hold_the_loop() -> None:
    """As many share a lock as ``grants_per_command_max`` may be set to let in at once."""
    _, most = proposed_bounds_of("grants_per_command_max")

    with crowded() as scene:
        scene.made(SetLimits((("grants_per_command_max", most),)))

        def act(repetition: int) -> None:
            session_id = _owner(scene, repetition)
            directory = f"/locks/most-{session_id}"
            first = _entered(
                scene,
                Enter(
                    (directory,),
                    prefix="lock-",
                    kind=Kind.EXCLUSIVE,
                    session_id=session_id,
                    data=b"{}",
                ),
            )

            async def queue() -> None:
                for each in range(most):
                    owner = f"o{each}"
                    await scene.do(
                        Enter(
                            (directory,),
                            prefix="read-",
                            kind=Kind.SHARED,
                            session_id=session_id,
                            data=b"{}",
                            owner=owner,
                            max_hold_ms=3_600_000,
                        )
                    )

            scene.loop.run(queue())
            scene.loop.loop.longest_ms = 0.0
            scene.made(Release(*first))
            holders = scene.member._replica.machine.locks.holder_count(directory)
            assert holders == most

        held_ms = scene.loop.held_ms(act)

    assert held_ms <= HELD_MS_MAX, f"{most} grants hold the loop for {held_ms:.1f} ms"
