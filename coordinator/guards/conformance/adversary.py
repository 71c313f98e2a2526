"""The trials with an adversary: writers stopped, at once, and killed, at every place there is.

1. A paused writer is stopped before each line of the guard's code in turn, while a higher token
   writes or raises; then it goes on. Nothing it does from then on may change the value.
2. If the others wait until it goes on, the guard holds a lock of its store there: that is fine.
3. Findings never depend on timing: a slow store weakens a trial, it does not fail it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from coordinator.errors import StaleTokenError
from coordinator.guards.conformance.pausing import ThreadCall, count_lines, crash_at
from coordinator.guards.conformance.subject import Handle
from coordinator.guards.conformance.trials import Bench, Wrong, accepts, expect_value, refuses

_LINES_MAX = 400
_CRASHES_MAX = 15
_BLOCKED_S = 0.03
"""How long to wait for one that may be waiting for the paused writer."""

_WRITERS = 4
_WRITES = 12


def paused_writer(bench: Bench) -> None:
    """A writer stopped anywhere inside its write changes nothing after a higher token wrote."""
    for each in _rounds(bench):
        call = ThreadCall(partial(each.late.write, each.low, f"late, by {each.low}"))
        if not _stopped(bench, call, each.line):
            return
        value = f"by {each.high}"
        other = ThreadCall(partial(each.successor.write, each.high, value)).start()
        other.wait_over(_BLOCKED_S)
        _both_to_their_end(bench, call, other, each.line, f"a write under {each.high}")
        expect_value(
            each.successor,
            value,
            f"a write under token {each.low} was stopped before line {each.line} of the guard's "
            f"code, a write under token {each.high} passed, and the first went on "
            f"({_outcome(call)})",
        )


def paused_before_a_raise(bench: Bench) -> None:
    """A writer stopped anywhere inside its write changes nothing after the guard was raised."""
    for each in _rounds(bench):
        call = ThreadCall(partial(each.late.write, each.low, f"late, by {each.low}"))
        if not _stopped(bench, call, each.line):
            return
        what = f"raise_to({each.high})"
        other = ThreadCall(partial(each.successor.raise_to, each.high)).start()
        was_raised = other.wait_over(_BLOCKED_S) and other.error is None
        before = each.successor.read() if was_raised else None
        _both_to_their_end(bench, call, other, each.line, what)
        if was_raised:
            expect_value(
                each.successor,
                before,
                f"a write under token {each.low} was stopped before line {each.line} of the "
                f"guard's code, {what} returned, and the write went on ({_outcome(call)})",
            )
        refuses(each.late, each.low, after=f"after {what}", highest=each.high)


def paused_raise(bench: Bench) -> None:
    """A raise stopped anywhere does not lower the guard when it goes on."""
    for each in _rounds(bench):
        call = ThreadCall(partial(each.late.raise_to, each.low + 1))
        if not _stopped(bench, call, each.line):
            return
        highest = each.high + 1
        other = ThreadCall(partial(each.successor.write, highest, f"by {highest}")).start()
        other.wait_over(_BLOCKED_S)
        _both_to_their_end(bench, call, other, each.line, f"a write under token {highest}")
        refuses(
            each.successor,
            highest - 1,
            after=f"after raise_to({each.low + 1}) was stopped before line {each.line} of the "
            f"guard's code, a write under token {highest} passed, and the raise went on",
            highest=highest,
        )


def crash(bench: Bench) -> None:
    """A process killed anywhere inside its write leaves the old value or the new, guarded."""
    if not hasattr(os, "fork"):
        return
    for line in _spread(_count_lines(bench), _CRASHES_MAX):
        handle, _ = _two_handles(bench)
        crash_at(bench.own, line, partial(_write_in_a_child, bench.opener()), bench.patience_s)
        where = f"a process was killed before line {line} of the guard's code, writing under 34"
        value = handle.read()
        if value not in ("first, by 33", "by 34"):
            raise Wrong(f"{where}; the value is neither the old nor the new one: {value!r}")
        if value == "by 34":
            refuses(handle, 33, after=f"after {where}, and its value is there", highest=34)
        after = ThreadCall(partial(handle.write, 35, "by 35")).start()
        if not after.wait_over(bench.patience_s):
            raise Wrong(f"{where}; the next write was expected to return, found it waiting")
        if after.error is not None:
            raise Wrong(f"{where}; the next write, under 35, failed: {after.error!r}")
        expect_value(handle, "by 35", f"{where}; the next write, under 35, returned")


@dataclass(frozen=True, slots=True)
class _Write:
    token: int
    value: str
    began: int
    ended: int
    error: Exception | None


def concurrent_writers(bench: Bench) -> None:
    """Of many writers at once, none passes after one with a higher token has."""
    moments = itertools.count()
    handles = [bench.open() for _ in range(_WRITERS)]
    done: list[_Write] = []

    def work(token: int, handle: Handle) -> None:
        for number in range(_WRITES):
            value, began = f"{token}, number {number}", next(moments)
            error: Exception | None = None
            try:
                handle.write(token, value)
            except Exception as raised:
                error = raised
            done.append(_Write(token, value, began, next(moments), error))
            if isinstance(error, StaleTokenError):
                return

    calls = [
        ThreadCall(partial(work, token, handle)).start()
        for token, handle in enumerate(handles, 101)
    ]
    if not all(call.wait_over(10 * bench.patience_s) for call in calls):
        raise Wrong(f"{_WRITERS} writers at once were expected to finish; some never return")
    _judge(done, bench.open())


def _judge(done: list[_Write], reader: Handle) -> None:
    passed = [write for write in done if write.error is None]
    if not passed:
        raise Wrong(f"of {len(done)} writes at once none passed; the last said {done[-1].error!r}")
    for late in passed:
        for earlier in passed:
            if earlier.ended < late.began and late.token < earlier.token:
                raise Wrong(
                    f"a write under token {late.token} passed though it began after one under "
                    f"token {earlier.token} had returned"
                )
    highest = max(write.token for write in done if not isinstance(write.error, StaleTokenError))
    last = [write for write in done if write.token == highest]
    # One whose outcome is unknown may be there, and then nothing that came before it.
    allowed = {write.value for write in last if write.error is not None}
    allowed.add([write.value for write in last if write.error is None][-1])
    found = reader.read()
    if found not in allowed:
        raise Wrong(
            f"after {_WRITERS} writers at once, the last write of the highest token, "
            f"{[write.value for write in last][-1]!r}, was expected to stay; found {found!r}"
        )


# --- how it is done


@dataclass(frozen=True, slots=True)
class _Round:
    """One line to stop at; ``low`` has written before, ``high`` is its successor's token."""

    line: int
    late: Handle
    successor: Handle
    low: int
    high: int


def _rounds(bench: Bench) -> Iterator[_Round]:
    """Yield a round for each line, on one value, with higher tokens each time."""
    late, successor = bench.open(), bench.open()
    for line in range(1, _LINES_MAX + 1):
        low = 10 * line + 3
        accepts(late, low, f"first, by {low}", after="under a token higher than all before")
        yield _Round(line, late, successor, low, low + 2)


def _spread(count: int, places_max: int) -> list[int]:
    """Return up to ``places_max`` of the lines 1 to ``count``, evenly."""
    places = min(count, places_max)
    return sorted({1 + number * count // places for number in range(places)})


def _two_handles(bench: Bench) -> tuple[Handle, Handle]:
    bench.fresh()
    first, second = bench.open(), bench.open()
    accepts(first, 33, "first, by 33", after="on a fresh value")
    return first, second


def _count_lines(bench: Bench) -> int:
    handle, _ = _two_handles(bench)
    return count_lines(bench.own, partial(handle.write, 34, "by 34"))


def _write_in_a_child(opener: Callable[[], Handle]) -> None:
    opener().write(34, "by 34")


def _stopped(bench: Bench, call: ThreadCall, line: int) -> bool:
    """Run ``call`` up to ``line``; False when it has no such line."""
    call.start(bench.own, line)
    if not call.wait_stopped(bench.patience_s):
        raise Wrong(f"a write alone was expected to return within {bench.patience_s} s")
    return call.is_paused


def _both_to_their_end(
    bench: Bench, call: ThreadCall, other: ThreadCall, line: int, what: str
) -> None:
    call.go_on()
    for each, name in ((call, "it"), (other, what)):
        if not each.wait_over(bench.patience_s):
            raise Wrong(
                f"a call was stopped before line {line} of the guard's code; when it went on "
                f"{name} was expected to return within {bench.patience_s} s"
            )
    if other.error is not None:
        raise Wrong(
            f"while another call was stopped before line {line} of the guard's code, {what} was "
            f"expected to pass; it raised {other.error!r}"
        )


def _outcome(call: ThreadCall) -> str:
    return "it returned" if call.error is None else f"it raised {type(call.error).__name__}"
