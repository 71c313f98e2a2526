"""The trials: what a guard must do, each with what goes wrong in production if it does not.

A trial gets a ``Bench`` and raises ``Wrong`` with a sentence about what was done, what was expected
and what was found. Its docstring is the rule it tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from coordinator.errors import StaleTokenError
from coordinator.guards.conformance.pausing import OwnCode
from coordinator.guards.conformance.subject import Factory, Handle


class Wrong(Exception):
    """A guard did not do what its rule asks."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One rule and how it is tried; ``danger`` is what breaking it costs."""

    name: str
    rule: str
    danger: str
    run: Callable[[Bench], None]


class Bench:
    """Fresh values to try a guard on; closes every handle it opened."""

    def __init__(self, factory: Factory, own: OwnCode, patience_s: float) -> None:
        self._factory = factory
        self._opened: list[Handle] = []
        self._name = ""
        self.own = own
        self.patience_s = patience_s
        self.fresh()

    def fresh(self) -> None:
        """From now on open a value that nobody has written yet."""
        self.close()
        self._name = f"conformance-{uuid4().hex}"

    def open(self) -> Handle:
        """Open one more handle on the current value."""
        handle = Handle(self._factory, self._name)
        self._opened.append(handle)
        return handle

    def opener(self) -> Callable[[], Handle]:
        """Return what opens the current value in a forked process."""
        factory, name = self._factory, self._name
        return lambda: Handle(factory, name)

    def close(self) -> None:
        """Close what was opened, as a process does at its end."""
        opened, self._opened = self._opened, []
        for handle in opened:
            handle.close()


def accepts(handle: Handle, token: int, value: str, *, after: str) -> None:
    """Write, and raise Wrong unless the value is there afterwards."""
    try:
        handle.write(token, value)
    except Exception as error:
        raise Wrong(
            f"{after}, a write under token {token} was expected to pass; "
            f"it was refused: {_words(error)}"
        ) from error
    expect_value(handle, value, f"{after}, a write under token {token} returned")


def refuses(handle: Handle, token: int, *, after: str, highest: int) -> None:
    """Write under a lower token; raise Wrong unless it is refused in the right way."""
    before = handle.read()
    value = f"stale, under {token}"
    expectation = f"{after}, a write under token {token} was expected to raise StaleTokenError"
    try:
        handle.write(token, value)
    except StaleTokenError as error:
        if str(token) not in str(error) or str(highest) not in str(error):
            raise Wrong(
                f"{expectation} naming both tokens, {token} and {highest}; it said {error}"
            ) from error
    except Exception as error:
        raise Wrong(f"{expectation}; it raised {_words(error)}") from error
    else:
        is_there = handle.read() == value
        raise Wrong(
            f"{expectation}; it returned as if all were well, and "
            f"{'the value is overwritten' if is_there else 'nothing was written'}"
        )
    expect_value(handle, before, f"{after}, a write under token {token} was refused")


def expect_value(handle: Handle, value: str | None, after: str) -> None:
    """Raise Wrong if ``handle`` reads another value."""
    found = handle.read()
    if found != value:
        raise Wrong(f"{after}; the value was expected to be {value!r}, found {found!r}")


@contextmanager
def expecting(what: str) -> Iterator[None]:
    """Raise Wrong, with ``what`` was expected to work, if the body raises anything else."""
    try:
        yield
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{what} was expected to work; it raised {_words(error)}") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# --- the trials without an adversary, simplest first


def growing_tokens(bench: Bench) -> None:
    """A first write passes, and so does one under a higher token."""
    handle = bench.open()
    with expecting("reading a value that nobody has written"):
        expect_value(handle, None, "nothing was written yet")
    accepts(handle, 33, "by 33", after="on a fresh value")
    accepts(handle, 34, "by 34", after="after a write under token 33")


def lower_tokens(bench: Bench) -> None:
    """Once a token has written, every lower one is refused with StaleTokenError."""
    handle = bench.open()
    with expecting("raise_to(32) on a fresh value"):
        handle.raise_to(32)
    accepts(handle, 34, "by 34", after="after raise_to(32)")
    refuses(handle, 33, after="after a write under token 34", highest=34)
    refuses(handle, 1, after="after a write under token 34", highest=34)


def equal_tokens(bench: Bench) -> None:
    """The holder may write again under its own token, from any of its connections."""
    handle = bench.open()
    accepts(handle, 34, "first", after="on a fresh value")
    accepts(handle, 34, "second", after="after a write under token 34")
    accepts(bench.open(), 34, "third", after="after a write under token 34 by another handle")
    with expecting("raise_to(34) by the holder itself"):
        handle.raise_to(34)
    accepts(handle, 34, "fourth", after="after raise_to(34)")


def raised_guard(bench: Bench) -> None:
    """raise_to(n) refuses every token below n from then on, though n has written nothing yet."""
    handle = bench.open()
    accepts(handle, 33, "by 33", after="on a fresh value")
    with expecting("raise_to(34)"):
        handle.raise_to(34)
    expect_value(handle, "by 33", "raise_to(34) returned")
    refuses(handle, 33, after="after raise_to(34)", highest=34)
    accepts(handle, 34, "by 34", after="after raise_to(34)")


def raising_lowers_nothing(bench: Bench) -> None:
    """raise_to with a lower token leaves the guard where it was."""
    handle = bench.open()
    accepts(handle, 34, "by 34", after="on a fresh value")
    try:
        handle.raise_to(30)
    except StaleTokenError:
        pass  # the better answer; saying nothing will do
    refuses(handle, 33, after="after a write under 34 and raise_to(30)", highest=34)


def numbers_not_words(bench: Bench) -> None:
    """Tokens are compared as whole numbers, exactly, up to 2**63 - 1."""
    for low in (9, 99, 2**53, 2**63 - 2):
        bench.fresh()
        handle = bench.open()
        accepts(handle, low, "low", after="on a fresh value")
        accepts(handle, low + 1, "high", after=f"after a write under token {low}")
        refuses(handle, low, after=f"after a write under token {low + 1}", highest=low + 1)


NOT_TOKENS: tuple[Any, ...] = (
    "34",
    str(UUID(int=34)),
    UUID(int=34),
    34.0,
    Decimal(34),
    b"34",
    None,
)


def only_integers(bench: Bench) -> None:
    """What is not an integer is a TypeError, and nothing is written under it."""
    handle = bench.open()
    _raises_type_error(handle, True, "on a fresh value")
    accepts(handle, 30, "by 30", after="on a fresh value, after write(True, ...)")
    for wrong in NOT_TOKENS:
        _raises_type_error(handle, wrong, "after a write under token 30")
        expect_value(handle, "by 30", f"write({wrong!r}, ...) raised TypeError")
        accepts(handle, 30, "by 30", after=f"after write({wrong!r}, ...) raised TypeError")


def _raises_type_error(handle: Handle, wrong: Any, after: str) -> None:
    expectation = (
        f"{after}, a write under {wrong!r}, of type {type(wrong).__name__}, was expected "
        f"to raise TypeError"
    )
    try:
        handle.write(wrong, f"under {wrong!r}")
    except TypeError:
        return
    except Exception as error:
        raise Wrong(f"{expectation}; it raised {_words(error)}") from error
    raise Wrong(f"{expectation}; it was accepted")


def only_tokens_in_range(bench: Bench) -> None:
    """Zero, negative numbers and numbers from 2**63 on are refused."""
    handle = bench.open()
    for wrong in (0, -1, 2**63):
        try:
            handle.write(wrong, "out of range")
        except Exception:
            expect_value(handle, None, f"a write under token {wrong} was refused")
        else:
            raise Wrong(f"a write under token {wrong} was expected to be refused; it was accepted")


def another_handle(bench: Bench) -> None:
    """What one process wrote or raised, every other process sees."""
    first, second = bench.open(), bench.open()
    accepts(first, 33, "by 33", after="on a fresh value")
    accepts(second, 34, "by 34", after="after a write under token 33 by another handle")
    refuses(first, 33, after="after a write under token 34 by another handle", highest=34)
    with expecting("raise_to(36)"):
        second.raise_to(36)
    refuses(first, 35, after="after raise_to(36) by another handle", highest=36)


def restart(bench: Bench) -> None:
    """The guard remembers after it was closed and opened again."""
    accepts(bench.open(), 34, "by 34", after="on a fresh value")
    bench.close()
    handle = bench.open()
    refuses(handle, 33, after="after a write under token 34 and a restart", highest=34)
    handle.raise_to(36)
    bench.close()
    refuses(bench.open(), 35, after="after raise_to(36) and a restart", highest=36)


def separate_values(bench: Bench) -> None:
    """Each guarded value has a highest token of its own."""
    accepts(bench.open(), 100, "by 100", after="on a fresh value")
    bench.fresh()
    accepts(bench.open(), 1, "by 1", after="after another value was written under token 100")
