"""What is checked at the end of a run, on the one log and on what the clients were told.

Each check takes values and returns the violations it finds as (promise, what), so that a test can
show each of them a world in which it must fail. ``judge`` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from coordinator.model.events import Event, EventType
from coordinator.model.queue_order import sequence_of
from coordinator.state.commands import (
    Abandon,
    Create,
    Delete,
    EndHold,
    Guarded,
    Multi,
    Release,
    Revoke,
    SetData,
    ZnodeOperation,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import GuardedDone, SessionEnded
from coordinator.state.session_operations import opened_by
from tests.history.checker import check_key
from tests.history.operations import Operation
from tests.history.register import Register
from tests.history.search import Budget, Verdict
from tests.simulation.lock_model import LockModel
from tests.simulation.log import Entry, is_of_rights
from tests.simulation.told import Looked, Told, Watching, Written

if TYPE_CHECKING:
    from tests.simulation.record import BegunAgain
    from tests.simulation.world import World

Found = Iterator[tuple[str, str]]

CHECK_STEPS_MAX = 3_000_000


def judge(world: World) -> None:
    """Run every check; the violations go into the record."""
    record = world.record
    log = record.log
    everything = sorted([*log, *record.lost], key=_zxid)
    held = [log[each.kept - at] for each in record.begun_again for at in range(each.held, 0, -1)]
    told = sorted([each for each in everything if each not in held], key=_zxid)
    checks: list[tuple[Callable[..., Found], tuple[object, ...]]] = [
        (check_zxids, (log, record.begun_again)),
        (check_once, (log,)),
        (check_sequences, (log, record.lost, record.begun_again)),
        (check_ephemerals, (log,)),
        (check_told, (record.locks, world.grants)),
        (check_looked, (record.locks, [e for e in world.looked if not record.is_lost(e.zxid)])),
        (check_conditions, (log, record.locks, world.conditions)),
        (check_written, (everything, world.written)),
        (check_refused, (log, world.refused)),
        (check_abandoned, (log, world.abandoned)),
        (check_history, (world.recorder.history(), world.registers)),
    ]
    for watching in world.watchings:
        checks.append((check_watching, (told, watching)))
        record.tally.events += len(watching.changes)
    for run_check, arguments in checks:
        for promise, what in run_check(*arguments):
            record.violate(promise, what)
    if not record.violations:
        final = [member.machine() for member in world.members]
        for promise, what in check_replay(log, final, record.begun_again):
            record.violate(promise, what)


def check_zxids(log: Sequence[Entry], begun_again: Sequence[BegunAgain] = ()) -> Found:
    """Grow by exactly one for each command that changed something, and never otherwise; where the
    cluster was begun again, it skips some."""
    zxid, skips = 0, {each.kept: each.first_zxid for each in begun_again}
    for position, entry in enumerate(log):
        outcome = entry.outcome
        zxid = skips.get(position, zxid)
        if outcome.is_repeat:
            continue
        is_change = bool(outcome.events) or _opens_or_ends(entry)
        # A change of nothing but a sequence counter or a session is one, too; events are not all.
        if outcome.zxid not in (zxid, zxid + 1) or (is_change and outcome.zxid != zxid + 1):
            yield "one order", f"zxid {outcome.zxid} after {zxid} at {entry.index}.{entry.part}"
        if outcome.refusal is not None and outcome.events:
            yield "all or nothing", f"refused, with events, at {entry.index}.{entry.part}"
        zxid = outcome.zxid


def check_once(log: Sequence[Entry]) -> Found:
    """A request number has one outcome: whoever comes again is told the first, and changes nothing.

    And a value that is written once by its client is never written twice.
    """
    first: dict[tuple[str, int], Entry] = {}
    values: dict[tuple[str, bytes], int] = {}
    for entry in log:
        request, outcome = entry.command.request, entry.outcome
        if request is not None and outcome.refusal is None:
            key = (request.client_id, request.number)
            known = first.setdefault(key, entry)
            is_same = known.outcome.zxid == outcome.zxid and known.outcome.result == outcome.result
            if known is not entry and not (outcome.is_repeat and is_same):
                yield "once", f"{key} at {known.index}.{known.part} and {entry.index}.{entry.part}"
        if outcome.refusal is not None or outcome.is_repeat:
            continue
        for operation in done_by(entry):
            if isinstance(operation, Create | SetData) and b":" in operation.data:
                if operation.data.startswith(b"{"):
                    continue  # what a lock's contender says of itself is no value of its own
                at = values.setdefault((operation.path, operation.data), entry.index)
                if at != entry.index:
                    yield "once", f"{operation.data!r} was written at {at} and at {entry.index}"


def check_sequences(
    log: Sequence[Entry],
    lost: Sequence[Entry] = (),
    begun_again: Sequence[BegunAgain] = (),
) -> Found:
    """Numbers of one parent are unique and grow, over everything that happens to the parent; those
    of a cluster that was begun again are above all of before, also above those that were lost."""
    highest: dict[str, int] = {}
    for entry, event, number in _numbered(log):
        parent = event.path.rpartition("/")[0]
        if number <= highest.get(parent, -1):
            yield "sequences", (
                f"{event.path} after number {highest[parent]} at {entry.index}.{entry.part}"
            )
        highest[parent] = max(number, highest.get(parent, -1))
    for again in begun_again:
        for _, event, number in _numbered([*log[: again.kept], *lost]):
            if number >= again.first_sequence:
                yield "sequences", f"{event.path} was given before {again.first_sequence}"
        for _, event, number in _numbered(log[again.kept :]):
            if number < again.first_sequence:
                yield "sequences", f"{event.path} is below {again.first_sequence}, begun again"


def _numbered(log: Sequence[Entry]) -> Iterator[tuple[Entry, Event, int]]:
    for entry, event in _events(log):
        name = event.path.rpartition("/")[2]
        # A lock-delay stands in the place, and under the number, of who was lost.
        number = None if name.startswith("delay-") else sequence_of(name)
        if event.type is EventType.CREATED and number is not None:
            yield entry, event, number


def check_ephemerals(log: Sequence[Entry]) -> Found:
    """Go with their session, all in one command, and before only if they are deleted by name."""
    open_sessions: dict[str, set[str]] = {}
    owner_of: dict[str, str] = {}
    for entry in log:
        outcome, operation = entry.outcome, entry.command.operation
        if outcome.is_repeat:
            continue
        result = outcome.result
        place = f"at {entry.index}.{entry.part}"
        opened = opened_by(operation, result)
        if opened is not None:
            open_sessions[opened] = set()
        ended = result.session_id if isinstance(result, SessionEnded) and result.was_open else None
        for event in outcome.events:
            if event.type is EventType.CREATED and event.ephemeral_owner is not None:
                if event.ephemeral_owner not in open_sessions:
                    yield "ephemerals", f"{event.path} is born to no open session {place}"
                    continue
                open_sessions[event.ephemeral_owner].add(event.path)
                owner_of[event.path] = event.ephemeral_owner
            elif event.type is EventType.DELETED and event.path in owner_of:
                owner = owner_of.pop(event.path)
                open_sessions.get(owner, set()).discard(event.path)
                if owner != ended and not _may_delete(operation) and not is_of_rights(event.path):
                    yield "ephemerals", (
                        f"{event.path} vanished by {type(operation).__name__} {place}"
                    )
        if ended is not None:
            left = open_sessions.pop(ended, set())
            if left:
                yield "ephemerals", f"{sorted(left)} outlived session {ended} {place}"


def check_locks(log: Sequence[Entry]) -> Found:
    """What ``lock_model`` says of a log, which in a world is judged as it is written."""
    model = LockModel()
    for entry in log:
        yield from model.apply(entry)


def check_told(locks: LockModel, grants: Iterable[Told]) -> Found:
    """Whoever was told of a grant held so at the zxid it was told, after the grant it was told."""
    for told in grants:
        state = locks.at(told.directory, told.zxid)
        held = state.holders.get(told.path)
        if held is None or held.czxid != told.token:
            yield "one holder", f"{told}; at zxid {told.zxid} held {sorted(state.holders)}"
        elif held.kind.value != told.kind:
            yield "one holder", f"{told}; at zxid {told.zxid} it was {held.kind.value}"
        before = None if state.last is None else state.last.told
        if told.directory.startswith("/locks/") and told.previous != before:
            yield "the grant before", f"{told}; the one before was {before}"


def check_looked(locks: LockModel, looked: Iterable[Looked]) -> Found:
    """Who is shown as holding held."""
    for each in looked:
        holders = locks.at(each.directory, each.zxid).holders.values()
        held = tuple(place.czxid for place in sorted(holders, key=lambda place: place.number))
        if each.holders != held:
            yield "one holder", f"{each}; at zxid {each.zxid} held {held}"


def check_conditions(
    log: Sequence[Entry], locks: LockModel, conditions: Mapping[bytes, tuple[str, int]]
) -> Found:
    """What a client wrote under a grant was written while that grant held, whoever passed it on."""
    for entry in log:
        if entry.outcome.refusal is not None or entry.outcome.is_repeat:
            continue
        for operation in done_by(entry):
            if not isinstance(operation, Create | SetData) or operation.data not in conditions:
                continue
            directory, token = conditions[operation.data]
            holders = locks.at(directory, entry.outcome.zxid - 1).holders.values()
            if token not in [place.czxid for place in holders]:
                yield "writes under a grant", (
                    f"{operation.data!r} was written at {entry.index}.{entry.part}; token {token} "
                    f"of {directory} did not hold"
                )


def check_written(log: Sequence[Entry], written: Iterable[Written]) -> Found:
    """Every acknowledged write is in the log, at the zxid that was told, as it was asked for."""
    values: dict[tuple[int, str], list[bytes]] = {}
    for entry in log:
        if entry.outcome.refusal is not None or entry.outcome.is_repeat:
            continue
        created = [e.path for e in entry.outcome.events if e.type is EventType.CREATED]
        for operation in done_by(entry):
            if isinstance(operation, SetData):
                values.setdefault((entry.outcome.zxid, operation.path), []).append(operation.data)
            elif isinstance(operation, Create):
                path = operation.path
                if operation.mode.is_sequential:
                    path = next((each for each in created if each.startswith(path)), path)
                values.setdefault((entry.outcome.zxid, path), []).append(operation.data)
    for each in written:
        there = values.get((each.zxid, each.path), [])
        if each.value not in there[-2:]:
            yield "acknowledged writes stay", f"{each}; the log has {there!r} there"


def check_refused(log: Sequence[Entry], refused: Mapping[bytes, str]) -> Found:
    """What was reported as certainly not done was not done, and never will be."""
    for entry in log:
        if entry.outcome.refusal is not None or entry.outcome.is_repeat:
            continue
        for operation in done_by(entry):
            if isinstance(operation, Create | SetData) and operation.data in refused:
                yield "the truth about outcomes", (
                    f"{operation.data!r} was reported as {refused[operation.data]} and was "
                    f"done at {entry.index}.{entry.part}"
                )


def check_abandoned(log: Sequence[Entry], abandoned: Iterable[tuple[str, int, int]]) -> Found:
    """An attempt that was reported as undone when the log was so long is never made afterwards."""
    undone: dict[tuple[str, int], int] = {}
    for client_id, number, length in abandoned:
        undone[client_id, number] = min(length, undone.get((client_id, number), length))
    for position, entry in enumerate(log):
        request, outcome = entry.command.request, entry.outcome
        if request is None or outcome.refusal is not None or outcome.is_repeat:
            continue
        length = undone.get((request.client_id, request.number), position + 1)
        if position >= length and outcome.events:
            yield "nothing is left behind", (
                f"request {request.number} of {request.client_id} was reported as undone and was "
                f"done at {entry.index}.{entry.part}"
            )


def check_watching(log: Sequence[Entry], watching: Watching) -> Found:
    """A stream told every change that it was asked for, once, whole and in order."""
    expected = []
    for entry in log:
        outcome = entry.outcome
        if outcome.is_repeat or not watching.start_zxid < outcome.zxid <= watching.told_zxid:
            continue
        told = [_shape(e) for e in outcome.events if _is_watched(watching, e)]
        if told:
            expected.append((outcome.zxid, told))
    found = [
        (change.zxid, [(e.type, e.path, e.version, e.czxid, e.ephemeral_owner) for e in events])
        for change in watching.changes
        for events in (change.events,)
    ]
    if found != expected:
        missing = [each for each in expected if each not in found]
        extra = [each for each in found if each not in expected]
        yield "watches", (
            f"{watching.who} {watching.kind} {watching.selectors} from {watching.start_zxid} to "
            f"{watching.told_zxid}: not told {missing[:3]}, told wrongly {extra[:3]}, "
            f"{len(found)} of {len(expected)}"
        )


def check_history(
    history: Sequence[Operation], registers: Mapping[str, Register] | None = None
) -> Found:
    """What the clients were told of the registers is linearizable, znode by znode."""
    keys = dict.fromkeys(each.key for each in history)
    for key in keys:
        register = (registers or {}).get(key, Register())
        # What is stale may be of before the history, if that has something before it.
        has_before = registers is not None and key in registers
        kinds = ("stale_read",) if has_before else ()
        of_key = [each for each in history if each.key == key and each.kind not in kinds]
        found = check_key(key, of_key, register, Budget(steps_max=CHECK_STEPS_MAX))
        if found.verdict is not Verdict.OK:
            unplaced = [str(each) for each in found.unplaced[:4]]
            yield "linearizable", f"{key}: {found.verdict}; one of these was next: {unplaced}"


def check_replay(
    log: Sequence[Entry], machines: Iterable[StateMachine], begun_again: Sequence[BegunAgain] = ()
) -> Found:
    """A machine that runs through the log alone ends where the members are."""
    alone, skips = StateMachine(), {each.kept: each for each in begun_again}
    for position in range(len(log) + 1):
        if again := skips.get(position):
            alone.continue_from(alone.applied_index, again.first_zxid, again.first_sequence)
        if position < len(log):
            entry = log[position]
            alone.apply(entry.command, entry.index, entry.term)
    digest = alone.digest()
    for machine in machines:
        if machine.digest() != digest:
            yield "equal digests", (
                f"a member at index {machine.applied_index} and zxid {machine.zxid} differs from "
                f"the replayed log at zxid {alone.zxid}"
            )


# --- reading the log


def _zxid(entry: Entry) -> int:
    return entry.outcome.zxid


def _events(log: Sequence[Entry]) -> Iterator[tuple[Entry, Event]]:
    for entry in log:
        if not entry.outcome.is_repeat:
            for event in entry.outcome.events:
                yield entry, event


def done_by(entry: Entry) -> tuple[ZnodeOperation, ...]:
    """Return the operations on znodes that the entry did."""
    operation, result = entry.command.operation, entry.outcome.result
    match operation:
        case Multi():
            return operation.operations
        case Guarded():
            assert isinstance(result, GuardedDone)
            return operation.then if result.is_then else operation.otherwise
        case Create() | SetData() | Delete():
            return (operation,)
    return ()


def _may_delete(operation: object) -> bool:
    return isinstance(operation, Delete | Multi | Guarded | Release | Abandon | Revoke | EndHold)


def _opens_or_ends(entry: Entry) -> bool:
    result = entry.outcome.result
    return opened_by(entry.command.operation, result) is not None or (
        isinstance(result, SessionEnded) and result.was_open
    )


def _is_watched(watching: Watching, event: Event) -> bool:
    path = event.path
    parent = path.rpartition("/")[0] or "/"
    for selected in watching.selectors:
        match watching.kind:
            case "znode":
                if path == selected:
                    return True
            case "children":
                is_coming_or_going = event.type is not EventType.DATA_CHANGED
                if is_coming_or_going and parent == selected and path != "/":
                    return True
            case _:
                if selected == "/" or path == selected or path.startswith(selected + "/"):
                    return True
    return False


def _shape(event: Event) -> tuple[str, str, int, int, str | None]:
    return event.type.value, event.path, event.version, event.czxid, event.ephemeral_owner
