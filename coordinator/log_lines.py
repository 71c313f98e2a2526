"""Log lines: each event is one line, whatever clients and peers wrote into it.

1. What cannot be printed (line ends, escapes of terminals, marks that turn the direction of text)
   is written as its escape, so nobody forges a second line or moves a cursor.
2. A traceback keeps its lines; each is indented, so none of them looks like an event.

The server installs this for everything that its process logs. Beside it, ``service`` and ``wire``
quote what clients wrote where they log it (a test reads their source): programs that embed a member
have formatters of their own.
"""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_INDENT = "    "


def escaped(text: str) -> str:
    """Return ``text`` with whatever cannot be printed as its escape."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


class LineFormatter(logging.Formatter):
    """Formats an event as one line, and a traceback as indented lines below it."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(_INDENT + escaped(line) for line in text.splitlines())
