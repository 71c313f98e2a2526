"""The output of results and errors, as text or JSON, and the exit codes.

1. Results go to standard output, everything else to standard error.
2. With ``--json`` a result is one JSON document on one line; a stream is one document per line.
3. An error is one line on standard error; with ``--json`` it is a problem object (RFC 9457).
4. The exit code says what a script must know: whether the request certainly had no effect.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from coordinator.errors import (
    ConfigError,
    CoordinatorError,
    StorageError,
    UnavailableError,
    to_problem,
)
from coordinator.node.log_lines import escaped

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_UNKNOWN = 4
EXIT_NOT_IN_TIME = 75
"""What was waited for, such as a lock, had not come."""
EXIT_LOST = 76
"""The command was ended because its lock was lost."""
EXIT_NOT_STARTED = 77
"""No member answered, so the command was not started."""
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_SIGNAL_BASE = 128

_MOVING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls and directions of text that JSON allows as they are, and halves of characters."""

P = ParamSpec("P")
R = TypeVar("R")


def exit_code_of(error: CoordinatorError) -> int:
    """Return the exit code for ``error``; whatever is not certainly without effect is unknown."""
    if isinstance(error, ConfigError):
        return EXIT_USAGE
    if isinstance(error, UnavailableError):
        return EXIT_UNAVAILABLE
    return EXIT_REFUSED if error.definite else EXIT_UNKNOWN


def document(value: Any) -> str:
    """Return ``value`` as one line of JSON; what could move a cursor in it is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _MOVING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return ``text`` with every control character escaped: what others wrote moves no cursor."""
    return escaped(text)


def for_terminal(data: bytes) -> bytes:
    """Return data of others as a terminal may show it: lines and tabs stay, all else that moves a
    cursor or changes the direction of text is escaped."""
    text = data.decode("utf-8", errors="backslashreplace")
    shown = "".join(each if each in "\n\t" else escaped(each) for each in text)
    return shown.encode("utf-8")


def coloured(text: str, colour: str) -> str:
    """Return ``text`` in a colour; where it is written to no terminal, click takes that away."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, bold=True)


def show_error(error: CoordinatorError, is_json: bool) -> None:
    """Write ``error`` to standard error, on one line."""
    if is_json:
        click.echo(document(to_problem(error)), err=True)
        return
    is_known = error.definite or isinstance(error, StorageError)  # of this very machine's disk
    unknown = "" if is_known else " (it is not known whether the request took effect)"
    text = one_line(f": {error.code}: {error.message}{unknown}")
    click.echo(f"{coloured('coordinator', 'red')}{text}", err=True)


def note(text: str) -> None:
    """Tell the person at the terminal something that is not a result."""
    click.echo(one_line(f"coordinator: {text}"), err=True)


def failing_well(function: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors of our tree that leave ``function`` into a message and an exit code."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except CoordinatorError as error:
            show_error(error, _is_json())
            sys.exit(exit_code_of(error))
        except BrokenPipeError:
            _leave_quietly()

    return guarded


def _is_json() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context is not None and getattr(context.obj, "is_json", False))


def _leave_quietly() -> NoReturn:
    # The reader of our output has gone (`coordinator watch / | head -1`). Python would complain
    # once more when it flushes standard output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def show_list(
    is_json: bool,
    bodies: Iterable[Any],
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    nothing: str,
) -> None:
    """Write ``bodies``, a document a line, or ``rows`` as a table.

    Without rows a person is shown ``nothing``, on standard error: what was looked for is not there.
    """
    if is_json:
        for body in bodies:
            click.echo(document(body))
    elif rows:
        show_table(heads, rows)
    else:
        note(nothing)


def show_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write aligned columns under ``heads``; an absent value is a dash."""
    lines = [list(heads)]
    lines += [["-" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())
