"""A small history after which everything that a state can hold is there, and two machines of it."""

from __future__ import annotations

from dataclasses import replace

from coordinator.model.access import NOBODY, Rule, Verb
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Abandon,
    AddToken,
    Check,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    DropToken,
    Enter,
    ExpireSession,
    ExtendHold,
    Guarded,
    InitAccess,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    Read,
    Release,
    RequestId,
    Revoke,
    SetData,
)
from coordinator.state.machine import StateMachine
from tests.state.values import changed

LIMITS = replace(
    MachineLimits(), clients_max=4, request_window=4, timeout_ms_min=10,
    sessions_per_address_max=3, sessions_per_client_max=2,
)  # fmt: skip
A, B, R, S = "/locks/a", "/locks/b", "/locks/rw", "/locks/sem"


def _enter(queues: tuple[str, ...], session_id: str, **more: object) -> Enter:
    return Enter(
        queues, prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b"who", **more
    )  # type: ignore[arg-type]


def rich_history() -> list[Command]:
    """Return commands to apply in entries of their own, of term 1, from index 1 on."""
    shared = {"prefix": "read-", "kind": Kind.SHARED}
    steps: list[tuple[Operation, RequestId | None]] = [
        (
            OpenSession(
                session_id="s1", timeout_ms=50, label="one", address="10.0.0.1", client_id="k1"
            ),
            None,
        ),
        (
            OpenSession(
                session_id="s2",
                timeout_ms=60,
                label="two",
                address="10.0.0.1",
                client_id="",
                by="ann",
            ),
            None,
        ),
        (OpenSession("s3", 70), None),
        (OpenSession("s4", 80), None),
        (Create("/app", b"data"), None),
        (Create("/app/config", b"first"), None),
        (SetData("/app/config", b"second"), None),
        (Create("/app/n-", data=b"", mode=CreateMode.PERSISTENT_SEQUENTIAL), None),
        (Create("/app/n-", data=b"", mode=CreateMode.PERSISTENT_SEQUENTIAL), None),
        (Create("/app/mine", data=b"e", mode=CreateMode.EPHEMERAL, session_id="s1"), None),
        (Create("/box", data=b"", mode=CreateMode.CONTAINER), None),
        (Create("/box/child"), None),
        (Delete("/box/child"), None),
        (Create("/late", data=b"", mode=CreateMode.TTL, session_id=None, ttl_ms=5_000), None),
        (Create("/gone"), None),
        *[(Create("/gone/n-", data=b"", mode=CreateMode.PERSISTENT_SEQUENTIAL), None)] * 9,
        (Delete("/gone", is_recursive=True), None),
        *[
            (SetData("/app", b"x"), RequestId(f"old{n}", number=1, floor_index=99))
            for n in range(6)
        ],
        (
            Multi((SetData("/app", b"y"), Read("/app/config"))),
            RequestId("c1", number=2, floor_index=99),
        ),
        (Guarded((), (SetData("/app", b"z"),)), RequestId("c1", number=3, floor_index=99)),
        (Delete("/nowhere"), RequestId("c1", number=4, floor_index=99)),
        (
            _enter((A,), "s1", owner="t1", lock_delay_ms=9, max_hold_ms=8),
            RequestId("s1", number=1, floor_index=99),
        ),
        (_enter((A,), "s2", owner="t2"), RequestId("s2", number=1, floor_index=99)),
        (_enter((A,), "s2", owner="t2"), RequestId("s2", number=1, floor_index=99)),
        (_enter((A, B), "s3"), RequestId("s3", number=1, floor_index=99)),
        (_enter((B,), "s2"), RequestId("s2", number=2, floor_index=99)),
        (Enter((R,), session_id="s1", data=b"", lock_delay_ms=7, **shared), None),  # type: ignore[arg-type]
        (Enter((R,), session_id="s2", data=b"", **shared), None),  # type: ignore[arg-type]
        (Enter((S,), prefix="slot-", kind=Kind.SLOT, session_id="s1", data=b"", size=2), None),
        (Enter((S,), prefix="slot-", kind=Kind.SLOT, session_id="s2", data=b"", size=2), None),
        (Note(A, czxid=0, note=b"note"), None),
        (ExtendHold(A, czxid=0, by_ms=3, to_ms=0), None),
        (_enter(("/locks/r",), "s1"), RequestId("s1", number=5, floor_index=99)),
        (Release("/locks/r", 0), None),
        (_enter(("/locks/f",), "s2"), None),
        (Revoke("/locks/f", czxid=0, by="ops", reason="stuck"), None),
        (
            _enter(("/locks/d",), "s4", lock_delay_ms=1_000),
            RequestId("s4", number=1, floor_index=99),
        ),
        (ExpireSession("s4", term=1, silent_ms=12), None),
        (OpenSession("s5", 80), None),
        (CloseSession("s5"), None),
        (Abandon("c1", number=5, floor_index=99), None),
        *[
            (Check("/"), RequestId(session_id, number=6, floor_index=99))
            for session_id in ("s1", "s2", "s3")
        ],
    ]
    return [
        Command(operation, wall_ms=1_000 + n, request=request)
        for n, (operation, request) in enumerate(steps)
    ]


def rich_machine(limits: MachineLimits = LIMITS) -> StateMachine:
    """Return a machine that has applied ``rich_history``."""
    machine = StateMachine(limits)
    for index, command in enumerate(rich_history(), 1):
        outcome = machine.apply(with_token(machine, command), index, 1)
        refusal = outcome.refusal
        assert refusal is None or refusal.code == "NoNode", f"{command}: {refusal}"
    return machine


def with_token(machine: StateMachine, command: Command) -> Command:
    """Let a command that names a queue name its first contender."""
    operation = command.operation
    if isinstance(operation, Note | ExtendHold | Release | Revoke) and operation.czxid == 0:
        first = machine.locks.contenders(operation.path)[0]
        return changed(command, operation=changed(operation, path=first.path, czxid=first.czxid))
    return command


def rich_machine_with_rights() -> StateMachine:
    """Return the same with access rights on: identities with quotas, tokens and subjects, what they
    have created, sessions and waiters of theirs, and a credential that is gone."""
    machine = rich_machine(replace(LIMITS, sessions_per_address_max=9, clients_max=8))

    def do(operation: Operation, name: str = "", request: RequestId | None = None) -> None:
        token = machine.access.token(f"{name}token01")
        caller = NOBODY if token is None else token.caller
        command = Command(
            operation, wall_ms=2_000 + machine.applied_index, request=request, caller=caller
        )
        machine.apply(command, machine.applied_index + 1, 1).unwrap()

    everything = (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))
    do(PutRole("all", everything))
    do(PutRole("spare", (Rule("/app*", (Verb.READ, Verb.WATCH)),)))
    for name in ("anonymous", "web", "pay", "gone"):
        do(PutIdentity(name, ("all",)))
        if name != "anonymous":
            do(
                AddToken(
                    identity=name,
                    token_id=f"{name}token01",
                    digest=b"d" * 32,
                    expires_ms=9_000,
                    label="label",
                )
            )
    do(
        PutIdentity(
            "pay",
            roles=("spare", "all"),
            subjects=("cert:pay",),
            quota=(("sessions", 5), ("bytes", 90_000)),
        )
    )
    do(PutIdentity("web", roles=None, subjects=None, quota=(("znodes", 50), ("waiters", 5))))
    do(InitAccess("ops", token_id="opstoken01", digest=b"d" * 32))
    for number, name in enumerate(("web", "pay", "gone", "gone")):
        do(
            OpenSession(
                session_id=f"r{number}",
                timeout_ms=90,
                label=name,
                address="10.0.0.2",
                client_id=f"k{number}",
            ),
            name,
        )
        do(
            Create(f"/app/of-{name}-{number}", b"12"),
            name,
            RequestId(f"c-{name}", number=number + 1, floor_index=99),
        )
        do(_enter(("/locks/r",), f"r{number}", owner="t1"), name)
    do(_enter(("/locks/r1", "/locks/r2"), "r0"), "web")
    do(SetData("/app/of-web-0", b"1234"), "pay")
    do(Create("/app/nobodys"))
    do(ExpireSession("r0", 1))
    do(DropToken("gonetoken01"))
    return machine
