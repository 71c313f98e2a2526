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
    > close s1                                    > expire s1 term=1
    > release /locks/a/lock-0000000000 czxid=5
    > abandon c1:3 floor=0
    > reap /locks/a mzxid=5 pzxid=9 term=1
    > get /a      > ls /a after=x limit=2      > sessions      > ephemerals s1      > idle
    > restart                                     (snapshot, restore into another machine, go on)

Any command takes ``by=client:number`` or ``by=client:number:floor`` (its request id) and
``entry=N`` (its log index; the next one otherwise). The term of all entries is 1. Wall time is the
entry times 1000.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from coordinator.state.codec import decode_command, decode_outcome, encode_command, encode_outcome
from coordinator.state.commands import (
    ANY_VERSION,
    Abandon,
    Check,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    ExpireSession,
    Guarded,
    Multi,
    OpenSession,
    Operation,
    Read,
    Reap,
    Release,
    RequestId,
    SetData,
    ZnodeOperation,
)
from coordinator.state.limits import MachineLimits
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import (
    Abandoned,
    Checked,
    Created,
    DataSet,
    Deleted,
    GuardedDone,
    MultiDone,
    Outcome,
    ReadDone,
    Reaped,
    Released,
    SessionEnded,
    SessionOpened,
    Stat,
)
from tests.golden_traces import commands_of, parsed, text_of

TERM = 1


class Words:
    """One command line: its verb, its first word, and its options."""

    def __init__(self, line: str) -> None:
        words = shlex.split(line)
        self.line = line
        self.verb = words[0]
        self.first = words[1] if len(words) > 1 and "=" not in words[1] else ""
        rest = words[2:] if self.first else words[1:]
        self._options = dict(word.partition("=")[::2] for word in rest)

    def text(self, name: str, default: str = "") -> str:
        return self._options.pop(name, default)

    def maybe_text(self, name: str) -> str | None:
        return self._options.pop(name, None)

    def number(self, name: str, default: int) -> int:
        return int(self._options.pop(name, default))

    def maybe_number(self, name: str) -> int | None:
        value = self._options.pop(name, None)
        return None if value is None else int(value)

    def maybe_answer(self, name: str) -> bool | None:
        value = self._options.pop(name, None)
        return None if value is None else {"yes": True, "no": False}[value]

    def has(self, name: str) -> bool:
        return self._options.pop(name, None) is not None

    def numbers(self) -> dict[str, int]:
        found = {name: int(value) for name, value in self._options.items()}
        self._options.clear()
        return found

    def finish(self) -> None:
        assert not self._options, f"{self.line}: not understood: {self._options}"


def znode_operation(words: Words) -> ZnodeOperation:
    """Return the operation that a line describes."""
    path = words.first
    if words.verb == "create":
        parents = words.maybe_text("parents")
        return Create(
            path,
            words.text("data").encode(),
            CreateMode(words.text("mode", "persistent")),
            words.maybe_text("session"),
            words.maybe_number("ttl"),
            None if parents is None else CreateMode(parents),
        )
    if words.verb == "set":
        return SetData(path, words.text("data").encode(), words.number("version", ANY_VERSION))
    if words.verb == "delete":
        return Delete(
            path,
            words.number("version", ANY_VERSION),
            words.maybe_number("czxid"),
            words.has("recursive"),
        )
    if words.verb == "read":
        return Read(path)
    assert words.verb in {"check", "if"}, f"unknown command: {words.line}"
    return Check(
        path,
        words.maybe_answer("exists"),
        words.number("version", ANY_VERSION),
        words.maybe_number("czxid"),
        words.maybe_answer("children"),
        words.maybe_text("owner"),
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
        several(parts["then"]),
        several(parts["else"]),
    )


def operation_of(words: Words, more: list[str]) -> Operation:
    """Return the operation that a command describes."""
    match words.verb:
        case "multi":
            return Multi(several(more))
        case "guarded":
            return guarded(more)
        case "open":
            return OpenSession(words.first, words.number("timeout", 10_000), words.text("label"))
        case "close":
            return CloseSession(words.first)
        case "expire":
            return ExpireSession(words.first, words.number("term", TERM))
        case "release":
            return Release(words.first, words.number("czxid", 0))
        case "abandon":
            client_id, _, number = words.first.partition(":")
            return Abandon(client_id, int(number), words.number("floor", 0))
        case "reap":
            return Reap(
                words.first,
                words.number("mzxid", 0),
                words.number("pzxid", 0),
                words.number("term", TERM),
            )
    operation = znode_operation(words)
    assert not isinstance(operation, Read), "a read stands in a multi only"
    return operation


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
        case Reaped(was_deleted):
            return ["reaped" if was_deleted else "not reaped"]
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
            request = RequestId(client_id, int(number), int(floor[0]) if floor else 0)
        operation = operation_of(words, more)
        command = Command(operation, self.entry * 1000, request)
        command = decode_command(encode_command(command))
        outcome = self.machine.apply(command, self.entry, TERM)
        assert decode_outcome(encode_outcome(outcome)) == outcome
        yield from shown_outcome(outcome)

    def _limits(self, words: Words) -> Iterator[str]:
        self.limits = MachineLimits(**words.numbers())
        self.machine = StateMachine(self.limits)
        return iter(())

    def _restart(self, words: Words) -> Iterator[str]:
        restored = StateMachine(self.limits)
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
                f"{each.opened_ms}, entry {each.opened_index}, zxid {each.opened_zxid}, "
                f"{self.machine.ephemeral_count(each.session_id)} ephemerals"
            )

    def _ephemerals(self, words: Words) -> Iterator[str]:
        yield from self.machine.ephemerals_of(words.first)

    def _idle(self, words: Words) -> Iterator[str]:
        for each in sorted(self.machine.idle_candidates()):
            yield f"{each.path} mzxid {each.mzxid} pzxid {each.pzxid} ttl {each.ttl_ms}"


def rewritten(text: str) -> str:
    """Run the commands of ``text``; return it with what they print now."""
    trace = Trace()
    parts = parsed(text)
    for command in commands_of(parts):
        command.printed = trace.run(command.line, command.more)
    return text_of(parts)
