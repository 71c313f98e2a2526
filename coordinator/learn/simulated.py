"""A film made of the trace of a simulated world: a failing seed to look at, step by step.

``python -m tests.simulation --seed 7 --trace`` prints the trace: a line for each thing, with the
simulated time, who acted and what it was. Whatever is not understood is shown as its own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coordinator.clock import ManualClock
from coordinator.errors import BadArgumentsError
from coordinator.learn.film import STEPS_MAX, Film, Recorder, Value

_LINE = re.compile(r"^ *(\d{1,12}\.\d{4}) (\S+) +(.+)$")
_BROKEN = re.compile(r"^\[ *(\d{1,12}\.\d+)\] (.+)$")
_WORLD = re.compile(r"^seed (\d+): ")
_LIFE = re.compile(r"^m(\w+)\.(\d+)$")
_ROLE = re.compile(r"^(leader|candidate|follower) in term (\d{1,18})\b")
_LOG = re.compile(r"^log \S+ (\w+) zxid (\d{1,18})\b")
_GRANTED = re.compile(r"^granted /(?:locks|elections)/([^/]+)/\S+ at (\d{1,18})\b")
_RELEASED = re.compile(r"^release (?:locks|elections)/(\S+) \S+ True")
_ENDS = ("power cut", "killed", "stops", "stopped", "crash", "disk lost", "failed")

Changes = dict[tuple[str, ...], Value]


def film_of_trace(lines: Iterable[str]) -> Film:
    """Return the film of a trace; what comes after STEPS_MAX steps is left out, and said.

    Raises:
        BadArgumentsError: there is not one line of a trace.
    """
    recorder = Recorder(ManualClock(), "A simulated world", "simulated: members, clients, faults")
    began_s: float | None = None
    broken: list[tuple[float, str]] = []
    for raw in lines:
        line = raw.rstrip("\n")
        found = _LINE.match(line)
        if found is None:
            violation = _BROKEN.match(line)
            if violation is not None:
                broken.append((float(violation[1]), violation[2]))
            continue
        at_s, who, what = float(found[1]), found[2], found[3]
        began_s = at_s if began_s is None else began_s
        world = _WORLD.match(what) if who == "world" else None
        if world is not None:
            recorder.title = f"Seed {world[1]}"
        zxid, changes = _changes(who, what)
        if len(recorder.steps) < STEPS_MAX - 100:  # the broken promises are the point
            recorder.step(who, f"{who}: {what}", changes, zxid=zxid, at_ms=_ms(at_s - began_s))
    if began_s is None:
        raise BadArgumentsError(
            "trace: expected lines of `python -m tests.simulation --seed N --trace`, found none"
        )
    for at_s, text in broken:
        recorder.step("promise", f"BROKEN PROMISE: {text}", {("world", "broken"): text},
                      at_ms=max(0, _ms(at_s - began_s)))  # fmt: skip
    return recorder.film()


def _changes(who: str, what: str) -> tuple[int | None, Changes]:
    """Return the zxid of a line, and what it changes in the picture."""
    if who == "fault":
        return None, {("world", "last fault"): what}
    if who == "world":
        return None, {("world", "world"): what}
    life = _LIFE.match(who)
    if life is not None:
        return _of_member(life[1], int(life[2]), what)
    granted, released = _GRANTED.match(what), _RELEASED.match(what)
    if granted is not None:
        name = ("locks", granted[1])
        return None, {(*name, "holder"): who, (*name, "token"): int(granted[2])}
    if released is not None:
        return None, {("locks", released[1], "holder"): None}
    return None, {}


def _of_member(member_id: str, life: int, what: str) -> tuple[int | None, Changes]:
    member = ("members", member_id)
    role, log = _ROLE.match(what), _LOG.match(what)
    if log is not None:
        zxid = int(log[2])
        return zxid, {("world", "zxid"): zxid, ("world", "last command"): log[1]}
    if role is not None:
        return None, {(*member, "role"): role[1], (*member, "term"): int(role[2])}
    if what in ("boots", "runs"):
        return None, {(*member, "is_up"): True, (*member, "role"): "follower",
                      (*member, "life"): life}  # fmt: skip
    if what.startswith(_ENDS):
        return None, {(*member, "is_up"): False, (*member, "role"): None}
    return None, {}


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
