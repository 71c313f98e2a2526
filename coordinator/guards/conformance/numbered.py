"""The trials of write numbers: of one holder's writes only a higher number passes."""

from __future__ import annotations

from functools import partial
from typing import Any

from coordinator.errors import StaleWriteError
from coordinator.guards.conformance.pausing import ThreadCall
from coordinator.guards.conformance.subject import Handle
from coordinator.guards.conformance.trials import Bench, Wrong, accepts, expect_value, refuses

_LINES_MAX = 400
_BLOCKED_S = 0.03
_NOT_NUMBERS: tuple[Any, ...] = ("7", 7.0, b"7", True)


def numbered_writes(bench: Bench) -> None:
    """Under one token a write passes only with a number above all that it has written with."""
    handle = bench.open()
    passes(handle, 34, 2, after="on a fresh value")
    refuses_number(handle, 34, 2, highest=2, after="after write 2 under token 34")
    refuses_number(handle, 34, 1, highest=2, after="after write 2 under token 34")
    passes(handle, 34, 7, after="after write 2 under token 34")
    accepts(handle, 34, "without a number", after="after write 7 under token 34")
    refuses_number(handle, 34, 7, highest=7, after="after a write without a number")
    passes(handle, 34, 8, after="after write 7 and one without a number under token 34")


def numbers_of_each_token(bench: Bench) -> None:
    """A higher token begins again at 1, however it came; a lower one is still refused."""
    handle = bench.open()
    passes(handle, 33, 9, after="on a fresh value")
    passes(handle, 34, 1, after="after write 9 under token 33")
    refuses_number(handle, 34, 1, highest=1, after="after write 1 under token 34")
    refuses(handle, 33, after="after write 1 under token 34", highest=34)
    handle.raise_to(35)
    passes(handle, 35, 1, after="after write 1 under token 34 and raise_to(35)")
    refuses_number(handle, 35, 1, highest=1, after="after raise_to(35) and write 1 under it")
    accepts(handle, 36, "by 36", after="after write 1 under token 35")
    passes(handle, 36, 1, after="after a write without a number under token 36")


def whole_numbers(bench: Bench) -> None:
    """Numbers are compared as whole numbers, exactly, and what is none is a TypeError."""
    for low in (9, 99, 2**53, 2**63 - 2):
        bench.fresh()
        handle = bench.open()
        passes(handle, 34, low, after="on a fresh value")
        passes(handle, 34, low + 1, after=f"after write {low}")
        refuses_number(handle, 34, low, highest=low + 1, after=f"after write {low + 1}")
    before = handle.read()
    for wrong in _NOT_NUMBERS:
        try:
            handle.write_numbered(35, wrong, f"number {wrong!r}")
        except TypeError:
            expect_value(handle, before, f"write number {wrong!r} raised TypeError")
        else:
            raise Wrong(f"write number {wrong!r} was expected to raise TypeError; it was accepted")


def numbers_elsewhere(bench: Bench) -> None:
    """What one process has numbered every other one sees, and every later one."""
    first, second = bench.open(), bench.open()
    passes(first, 34, 2, after="on a fresh value")
    refuses_number(second, 34, 2, highest=2, after="after write 2 by another handle")
    passes(second, 34, 3, after="after write 2 by another handle")
    refuses_number(first, 34, 3, highest=3, after="after write 3 by another handle")
    bench.close()
    refuses_number(bench.open(), 34, 3, highest=3, after="after write 3 and a restart")


def paused_numbered_writer(bench: Bench) -> None:
    """A write stopped anywhere inside changes nothing after one with a higher number."""
    late, other = bench.open(), bench.open()
    for line in range(1, _LINES_MAX + 1):
        low, high = 3 * line, 3 * line + 1
        call = ThreadCall(partial(late.write_numbered, 34, low, f"late, number {low}"))
        call.start(bench.own, line)
        if not call.wait_stopped(bench.patience_s):
            raise Wrong(f"a write alone was expected to return within {bench.patience_s} s")
        if not call.is_paused:
            return
        value = f"number {high}"
        overtaking = ThreadCall(partial(other.write_numbered, 34, high, value)).start()
        overtaking.wait_over(_BLOCKED_S)  # if it waits, the guard holds a lock of its store
        call.go_on()
        where = f"write {low} was stopped before line {line} of the guard's code"
        for each in (call, overtaking):
            if not each.wait_over(bench.patience_s):
                raise Wrong(f"{where}; when it went on, both were expected to return")
        if overtaking.error is not None:
            raise Wrong(f"{where}; write {high} was expected to pass: {overtaking.error!r}")
        expect_value(other, value, f"{where}, write {high} passed, and the first went on")


def passes(handle: Handle, token: int, number: int, *, after: str) -> None:
    """Write with a number, and raise Wrong unless the value is there afterwards."""
    value, what = f"number {number} under {token}", f"write {number} under token {token}"
    try:
        handle.write_numbered(token, number, value)
    except Exception as error:
        raise Wrong(f"{after}, {what} was expected to pass; it was refused: {error!r}") from error
    expect_value(handle, value, f"{after}, {what} returned")


def refuses_number(handle: Handle, token: int, number: int, *, highest: int, after: str) -> None:
    """Write with a number that was seen; raise Wrong unless it is refused in the right way."""
    before = handle.read()
    expectation = (
        f"{after}, write {number} under token {token} was expected to raise StaleWriteError"
    )
    try:
        handle.write_numbered(token, number, f"stale, number {number} under {token}")
    except StaleWriteError as error:
        named = str(error)
        if not all(str(each) in named for each in (token, number, highest)):
            raise Wrong(
                f"{expectation} naming the token, {token}, the number, {number}, and the highest "
                f"seen, {highest}; it said {error}"
            ) from error
    except Exception as error:
        raise Wrong(f"{expectation}; it raised {error!r}") from error
    else:
        raise Wrong(f"{expectation}; it returned as if all were well")
    expect_value(handle, before, f"{after}, write {number} under token {token} was refused")
