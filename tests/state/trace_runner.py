"""Runs a trace: a scenario of commands in a readable form, each followed by what it came to.

The form of the text is that of every trace (``tests/golden_traces.py``); ``| `` goes on with the
operations of a multi or a guarded write.

::

    > limits children_max=2                       (first of all; restarts with an empty machine)
    > open s1 timeout=10000 label=worker
    > create /a data=x mode=ephemeral session=s1 parents=container ttl=500
    > set /a data=y version=3
    > delete /a version=3 czxid=7 recursive
    > check /a exists=yes version=3 czxid=7 children=no owner=s1
    > multi                                       then: | create /a, | set /a, | read /a ...
    > guarded                                     then: | if /a exists=no, | then ..., | else ...
    > close s1 failure="no disk"                  > expire s1 term=1
    > release /locks/a/lock-0000000000 czxid=5
    > abandon c1:3 floor=0 at=/locks/a
    > reap /locks/a mzxid=5 pzxid=9 term=1
    > enter /locks/a session=s1 kind=shared owner=t1 try lock_delay=1000 max_hold=500 size=2
    > enter /locks/a,/locks/b session=s1          (a multi-lock; prefix=candidate- for elections)
    > downgrade /locks/a/lock-0000000000 czxid=5
    > note /locks/a/lock-0000000000 czxid=5 text=half
    > revoke /locks/a/lock-0000000000 czxid=5 who=ops reason=stuck
    > endhold /locks/a/lock-0000000000 czxid=5 term=1
    > reopen /locks/a/delay-0000000000 czxid=7 term=1
    > resize /locks/a size=3
    > queue /locks/a      > history /locks/a after=2 limit=5 token=5 how=expired
    > get /a      > ls /a after=x limit=2      > sessions      > ephemerals s1      > idle
    > restart                                     (snapshot, restore into another machine, go on)

Any command takes ``by=client:number`` or ``by=client:number:floor`` (its request id),
``as=name:token id:zxid`` (its caller; the commands on access rights are in ``access_words``),
``held=/locks/a:5`` (only if that token holds there) and ``entry=N`` (its log index; the next one
otherwise). The term of all entries is 1. Wall time is the
entry times 1000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coordinator.model.limits import MachineLimits
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    ANY_VERSION,
    Abandon,
    Check,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    Guarded,
    HeldCondition,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    Read,
    Reap,
    Release,
    Reopen,
    RequestId,
    Resize,
    Revoke,
    SetData,
    SetLimits,
    ZnodeOperation,
)
from coordinator.state.locks.contender import Ending
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from coordinator.state.outcome_codec import decode_outcome, encode_outcome
from coordinator.state.outcomes import (
    Abandoned,
    AccessChanged,
    Checked,
    Created,
    CredentialRenewed,
    DataSet,
    Deleted,
    Downgraded,
    Entered,
    GrantsFinished,
    GuardedDone,
    HoldEnded,
    HoldExtended,
    LevelSet,
    LimitsSet,
    MultiDone,
    Noted,
    Outcome,
    ReadDone,
    Reaped,
    Released,
    Reopened,
    Resized,
    Revoked,
    SessionEnded,
    SessionOpened,
    Stat,
)
from tests.golden_traces import commands_of, parsed, text_of
from tests.state import access_words
from tests.state.access_words import caller_of
from tests.state.words import Words

TERM = 1


def znode_operation(words: Words) -> ZnodeOperation:
    """Return the operation that a line describes."""
    path = words.first
    if words.verb == "create":
        parents = words.maybe_text("parents")
        return Create(
            path,
            data=words.text("data").encode(),
            mode=CreateMode(words.text("mode", "persistent")),
            session_id=words.maybe_text("session"),
            ttl_ms=words.maybe_number("ttl"),
            parents=None if parents is None else CreateMode(parents),
        )
    if words.verb == "set":
        return SetData(
            path,
            data=words.text("data").encode(),
            expected_version=words.number("version", ANY_VERSION),
        )
    if words.verb == "delete":
        return Delete(
            path,
            expected_version=words.number("version", ANY_VERSION),
            expected_czxid=words.maybe_number("czxid"),
            is_recursive=words.has("recursive"),
        )
    if words.verb == "read":
        return Read(path)
    assert words.verb in {"check", "if"}, f"unknown command: {words.line}"
    return Check(
        path,
        exists=words.maybe_answer("exists"),
        expected_version=words.number("version", ANY_VERSION),
        expected_czxid=words.maybe_number("czxid"),
        has_children=words.maybe_answer("children"),
        expected_owner=words.maybe_text("owner"),
    )


def several(lines: list[str]) -> tuple[ZnodeOperation, ...]:
    found = []
    for line in lines:
        words = Words(line)
        found.append(znode_operation(words))
        words.finish()
    return tuple(found)


def guarded(lines: list[str]) -> Guarded:
    parts: dict[str, list[str]] = {"if": [], "then": [], "else": []}
    for line in lines:
        keyword, _, rest = line.partition(" ")
        parts[keyword].append(f"check {rest}" if keyword == "if" else rest)
    conditions = several(parts["if"])
    return Guarded(
        tuple(each for each in conditions if isinstance(each, Check)),
        then=several(parts["then"]),
        otherwise=several(parts["else"]),
    )


def operation_of(words: Words, more: list[str]) -> Operation:
    """Return the operation that a command describes."""
    match words.verb:
        case "multi":
            return Multi(several(more))
        case "guarded":
            return guarded(more)
        case "open":
            return OpenSession(
                words.first, timeout_ms=words.number("timeout", 10_000), label=words.text("label")
            )
        case "close":
            return CloseSession(words.first, words.text("failure"))
        case "expire":
            return ExpireSession(
                words.first, term=words.number("term", TERM), silent_ms=words.number("silent", 0)
            )
        case "release":
            return Release(
                words.first,
                czxid=words.number("czxid", 0),
                spares_repeated=words.has("spares_repeated"),
            )
        case "abandon":
            client_id, _, number = words.first.partition(":")
            floor_index = words.number("floor", 0)
            spares = words.has("spares_holder")
            return Abandon(
                client_id,
                number=int(number),
                floor_index=floor_index,
                directory=words.text("at"),
                spares_holder=spares,
            )
        case "reap":
            return Reap(
                words.first,
                mzxid=words.number("mzxid", 0),
                pzxid=words.number("pzxid", 0),
                term=words.number("term", TERM),
            )
    if words.verb in access_words.VERBS:
        return words.access()
    if words.verb == "setlimits":
        version = words.number("expected_version", ANY_VERSION)
        return SetLimits(tuple(words.numbers().items()), version)
    if words.verb in LOCK_VERBS:
        return lock_operation(words)
    operation = znode_operation(words)
    assert not isinstance(operation, Read), "a read stands in a multi only"
    return operation


LOCK_VERBS = {
    "enter", "downgrade", "note", "extend", "revoke", "endhold", "reopen", "resize",
}  # fmt: skip
PREFIXES = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}


def lock_operation(words: Words) -> Operation:
    """Return the operation on a queue that a command describes."""
    first = words.first
    if words.verb == "enter":
        kind = Kind(words.text("kind", "exclusive"))
        session_id, timeout_ms = words.text("session"), words.maybe_number("opening")
        return Enter(
            tuple(first.split(",")),
            prefix=words.text("prefix", PREFIXES[kind]),
            kind=kind,
            session_id=session_id,
            data=words.text("data").encode(),
            owner=words.text("owner"),
            is_try=words.has("try"),
            lock_delay_ms=words.number("lock_delay", 0),
            max_hold_ms=words.number("max_hold", 0),
            size=words.maybe_number("size"),
            opening=None if timeout_ms is None else OpenSession(session_id, timeout_ms),
        )
    if words.verb == "resize":
        return Resize(first, words.number("size", 1))
    czxid = words.number("czxid", 0)
    if words.verb == "downgrade":
        return Downgrade(first, czxid)
    if words.verb == "note":
        return Note(first, czxid=czxid, note=words.text("text").encode())
    if words.verb == "extend":
        return ExtendHold(
            first, czxid=czxid, by_ms=words.number("later", 0), to_ms=words.number("to", 0)
        )
    if words.verb == "revoke":
        return Revoke(first, czxid=czxid, by=words.text("who"), reason=words.text("reason"))
    term = words.number("term", TERM)
    if words.verb == "reopen":
        return Reopen(first, czxid=czxid, term=term)
    return EndHold(first, czxid=czxid, term=term, extensions=words.number("extensions", 0))


# --- what is printed


def shown_stat(stat: Stat) -> str:
    owner = "" if stat.ephemeral_owner is None else f" owner {stat.ephemeral_owner}"
    ttl = "" if stat.ttl_ms is None else f" ttl {stat.ttl_ms}"
    return (
        f"[{stat.mode}{owner}{ttl} czxid {stat.czxid} mzxid {stat.mzxid} pzxid {stat.pzxid} "
        f"ctime {stat.ctime_ms} mtime {stat.mtime_ms} version {stat.version} "
        f"cversion {stat.cversion} length {stat.data_length} children {stat.num_children}]"
    )


def shown_result(result: object) -> list[str]:
    match result:
        case Created(path, stat):
            return [f"created {path} {shown_stat(stat)}"]
        case DataSet(path, stat):
            return [f"set {path} {shown_stat(stat)}"]
        case Deleted(path, deleted_count):
            return [f"deleted {path}, {deleted_count} in all"]
        case Checked(path):
            return [f"checked {path}"]
        case ReadDone(path, data, stat):
            found = "nothing" if stat is None else f"{data.decode()!r} {shown_stat(stat)}"
            return [f"read {path}: {found}"]
        case MultiDone(results):
            return ["done", *(f"| {line}" for each in results for line in shown_result(each))]
        case GuardedDone(is_then, results):
            lines = [f"| {line}" for each in results for line in shown_result(each)]
            return ["then" if is_then else "else", *lines]
        case SessionOpened(session_id, timeout_ms):
            return [f"opened {session_id}, timeout {timeout_ms} ms"]
        case SessionEnded(session_id, was_open, is_void):
            void = "void, " if is_void else ""
            return [f"ended {session_id}: {void}{'was open' if was_open else 'ended nothing'}"]
        case Released(path, czxid):
            return [f"released {path} of czxid {czxid}"]
        case Abandoned(deleted_path):
            return [f"abandoned, deleted {deleted_path or 'nothing'}"]
        case AccessChanged(what, revision, was_changed):
            return [f"{what}: {'' if was_changed else 'as before, '}revision {revision}"]
        case CredentialRenewed(session_id):
            return [f"renewed {session_id}"]
        case Reaped(was_deleted):
            return ["reaped" if was_deleted else "not reaped"]
    return [shown_lock_result(result)]


def shown_lock_result(result: object) -> str:
    match result:
        case Entered(contenders, is_granted, position, is_entered):
            paths = " ".join(each.path for each in contenders)
            if not is_entered:
                return f"not entered, {position} before"
            return f"entered {paths}: {'granted' if is_granted else f'{position} before'}"
        case Downgraded(path, czxid):
            return f"downgraded {path} of czxid {czxid}"
        case Noted(path, czxid):
            return f"noted {path} of czxid {czxid}"
        case HoldExtended(path, _, max_hold_ms, extensions):
            return f"hold of {path}: extended {extensions}, ends {max_hold_ms} ms from now at most"
        case Revoked(path, czxid, paths, was_holder):
            role = "a holder" if was_holder else "one who waited"
            return f"revoked {path} of czxid {czxid}, {role}: {' '.join(paths)}"
        case HoldEnded(path, czxid, was_held):
            return f"hold of {path}: {'ended' if was_held else 'void'}"
        case Reopened(path, _, was_closed):
            return f"{path}: {'reopened' if was_closed else 'void'}"
        case LimitsSet(version, changes):
            shown = ", ".join(f"{name} {was} to {now}" for name, was, now in changes)
            return f"limits of version {version}: {shown or 'as they were'}"
        case LevelSet(level, was_changed):
            return f"level {level}{'' if was_changed else ', as it was'}"
        case GrantsFinished(left):
            return f"gone through; queues still to be granted: {left}"
        case Resized(directory, size, size_before):
            return f"resized {directory} from {size_before} to {size}"
    raise AssertionError(f"no words for {result}")


def shown_outcome(outcome: Outcome) -> Iterator[str]:
    head = f"zxid {outcome.zxid}{' again' if outcome.is_repeat else ''}: "
    if outcome.refusal is not None:
        yield f"{head}refused {outcome.refusal.code}: {outcome.refusal.message}"
        for name, value in sorted(outcome.refusal.fields.items()):
            yield f"  {name} = {value}"
    else:
        first, *others = shown_result(outcome.result)
        yield head + first
        yield from (f"  {line}" for line in others)
    for event in outcome.events:
        owner = "" if event.ephemeral_owner is None else f" owner {event.ephemeral_owner}"
        yield (
            f"  {event.type.value} {event.path} version {event.version} czxid {event.czxid}{owner}"
        )
    for path in outcome.granted:
        yield f"  granted {path}"


class Trace:
    """A machine and the commands it is given."""

    def __init__(self) -> None:
        self.limits = MachineLimits()
        self.machine = StateMachine(self.limits)
        self.entry = 0
        self._questions: dict[str, Callable[[Words], Iterator[str]]] = {
            "limits": self._limits,
            "restart": self._restart,
            "get": self._get,
            "ls": self._ls,
            "sessions": self._sessions,
            "ephemerals": self._ephemerals,
            "idle": self._idle,
            "queue": self._queue,
            "history": self._history,
        }

    def run(self, line: str, more: list[str]) -> list[str]:
        """Run one command; return what it prints."""
        words = Words(line)
        ask = self._questions.get(words.verb)
        printed = list(ask(words) if ask is not None else self._apply(words, more))
        words.finish()
        return printed

    def _apply(self, words: Words, more: list[str]) -> Iterator[str]:
        self.entry = words.number("entry", self.entry + 1)
        request = None
        if (by := words.maybe_text("by")) is not None:
            client_id, number, *floor = by.split(":")
            request = RequestId(
                client_id, number=int(number), floor_index=int(floor[0]) if floor else 0
            )
        held = [each.split(":") for each in words.text("held").split(",") if each]
        operation = operation_of(words, more)
        command = Command(
            operation,
            wall_ms=self.entry * 1000,
            request=request,
            caller=caller_of(words.text("as")),
            if_held=tuple([HeldCondition(directory, int(token)) for directory, token in held]),
        )
        command = decode_command(encode_command(command))
        outcome = self.machine.apply(command, self.entry, TERM)
        assert decode_outcome(encode_outcome(outcome)) == outcome
        yield from shown_outcome(outcome)

    def _limits(self, words: Words) -> Iterator[str]:
        self.limits = MachineLimits(**words.numbers())
        self.machine = StateMachine(self.limits)
        return iter(())

    def _restart(self, words: Words) -> Iterator[str]:
        restored = StateMachine()  # the limits come with the snapshot
        restored.restore(self.machine.snapshot())
        assert restored.digest() == self.machine.digest()
        self.machine = restored
        return iter(())

    def _get(self, words: Words) -> Iterator[str]:
        found = self.machine.get(words.first)
        yield "nothing" if found is None else f"{found[0].decode()!r} {shown_stat(found[1])}"

    def _ls(self, words: Words) -> Iterator[str]:
        names = self.machine.children(
            words.first, words.maybe_text("after"), words.maybe_number("limit")
        )
        yield "nothing" if names is None else f"{len(names)}: {' '.join(names)}".rstrip()

    def _sessions(self, words: Words) -> Iterator[str]:
        for each in self.machine.sessions():
            yield (
                f"{each.session_id} timeout {each.timeout_ms} label {each.label!r} opened at "
                f"{each.opened_ms}, {_bound(each.bound_index)}, zxid {each.opened_zxid}, "
                f"{self.machine.ephemeral_count(each.session_id)} ephemerals"
            )

    def _ephemerals(self, words: Words) -> Iterator[str]:
        yield from sorted(self.machine.ephemerals_of(words.first))

    def _idle(self, words: Words) -> Iterator[str]:
        for each in sorted(filter(None, map(self.machine.idle, self.machine.idle_paths()))):
            yield f"{each.path} mzxid {each.mzxid} pzxid {each.pzxid} ttl {each.ttl_ms}"

    def _queue(self, words: Words) -> Iterator[str]:
        locks = self.machine.locks
        size = locks.size(words.first)
        for closing in locks.closed(words.first):
            yield f"closed by {closing.path} czxid {closing.czxid} for {closing.delay_ms} ms"
        for each in locks.contenders(words.first):
            standing = locks.standing(each.path)
            place = "holds" if standing.is_holder else f"{standing.position} before"
            since = f" since zxid {each.granted_zxid}" if standing.is_holder else ""
            owner = f" owner {each.owner}" if each.owner else ""
            note = f" note {each.note.decode()}" if each.note else ""
            yield f"{each.name} {each.kind.value} of {each.session_id}{owner}: {place}{since}{note}"
        yield f"{locks.length(words.first)} in all" + ("" if size is None else f", size {size}")

    def _history(self, words: Words) -> Iterator[str]:
        how = words.maybe_text("how")
        query = GrantQuery(
            directory=words.first or None,
            session_id=words.maybe_text("session"),
            token=words.maybe_number("token"),
            since_ms=words.maybe_number("since"),
            until_ms=words.maybe_number("until"),
            how=None if how is None else Ending(how),
            after=words.number("after", 0),
            limit=words.number("limit", 100),
        )
        for each in self.machine.locks.history(query):
            owner = f" owner {each.owner}" if each.owner else ""
            head = (
                f"{each.number}: {each.path} token {each.fencing_token} {each.kind.value} of "
                f"{each.session_id}{owner}, entered {each.entered_ms}, granted {each.granted_ms} "
                f"(zxid {each.granted_zxid})"
            )
            if each.how is Ending.HELD:
                yield f"{head}, held"
                continue
            facts = {"by": each.by, "reason": each.reason, "note": each.note.decode()}
            text = "".join(f", {name} {fact!r}" for name, fact in facts.items() if fact)
            silent = f", silent {each.silent_ms} ms" if each.silent_ms else ""
            yield (
                f"{head}, {each.how.value} {each.ended_ms} (zxid {each.ended_zxid}) in term "
                f"{each.term}{silent}{text}, next {each.next_token}"
            )


def rewritten(text: str) -> str:
    """Run the commands of ``text``; return it with what they print now."""
    trace = Trace()
    parts = parsed(text)
    for command in commands_of(parts):
        command.printed = trace.run(command.line, command.more)
    return text_of(parts)


def _bound(bound_index: int) -> str:
    return f"entry {bound_index}" if bound_index else "binds no client"
