"""Log lines: each event is one line, whatever clients and other members wrote into it.

1. Unprintable characters (line ends, terminal escapes, marks that change the direction of text) are
   escaped, so no client can forge a second line or move a cursor.
2. A traceback keeps its lines; each is indented, so none of them looks like an event. In JSON it is
   the field ``exception``.
3. Times are UTC, RFC 3339, in milliseconds.
4. Other members cannot flood the log (all that ``coordinator.raft`` logs): the lines of one kind in
   ten seconds are bounded, and the next line says how many were dropped.

The server installs this for everything that its process logs. In addition, ``service`` and ``wire``
quote texts of clients where they log them (a test reads their source): programs that embed a member
have their own formatters.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PEER = "peer"
"""The attribute of a record that names the other member it is about: ``extra={"peer": id}``."""
_INDENT = "    "
FLOODED = "coordinator.raft"
"""The loggers of events that other members cause."""
_KINDS_MAX = 1_000


def escaped(text: str) -> str:
    """Return ``text`` with unprintable characters escaped."""
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

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with a stack trace as lines of its own below it."""
        record.exc_text = None  # another handler's formatter may have left its own there
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the record's time, in UTC."""
        return _moment(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without control characters, so that no message forges a second one."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        """Return the stack trace, indented."""
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        """Return the stack, indented."""
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object, in ASCII: ``time``, ``level``, ``logger``, ``message``,
    what ``fields`` says of the member now, ``peer`` if it is about another member, and
    ``exception`` where there is one."""

    fields: Callable[[], Mapping[str, object]] = staticmethod(dict)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one JSON object."""
        fields: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(),
        }
        if (peer := getattr(record, PEER, None)) is not None:
            fields[PEER] = peer
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class FloodFilter(logging.Filter):
    """Bounds the lines of one kind in each window; the kind is the text before its values.

    Audit lines, and all other lines of the service, always pass."""

    def __init__(self, *, prefix: str = FLOODED, lines_max: int = 20, window_s: int = 10) -> None:
        super().__init__(prefix)
        self._lines_max = lines_max
        self._window_s = window_s
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}
        """The windows by kind: when each began, and how many lines came in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is to be written: not if its kind came too often."""
        if not super().filter(record):
            return True  # not of those that are limited
        if len(self._windows) > _KINDS_MAX:
            self._windows.clear()
        kind = (record.name, str(record.msg))
        began, count = self._windows.get(kind, (record.created, 0))
        if not 0 <= record.created - began < self._window_s:  # over, or the clock was set back
            dropped = max(0, count - self._lines_max)
            began, count = record.created, 0
            if dropped and isinstance(record.args, tuple):
                record.msg = f"{record.msg} (%d more like it were not logged)"
                record.args = (*record.args, dropped)
        self._windows[kind] = (began, count + 1)
        return count < self._lines_max


FORMATTERS: dict[str, type[LineFormatter | JsonFormatter]] = {
    "text": LineFormatter,
    "json": JsonFormatter,
}


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send what is logged in this process from ``level`` on to ``stream`` (stderr).

    Args:
        level: debug, info, warning or error.
        form: text or json.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(FORMATTERS[form]())
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())


def add_fields(fields: Callable[[], Mapping[str, object]]) -> None:
    """Let each JSON line that ``configure`` set up have these fields, as they are then."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter):
            handler.formatter.fields = fields


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _indented(text: str) -> str:
    return "\n".join(_INDENT + escaped(line) for line in text.splitlines())
