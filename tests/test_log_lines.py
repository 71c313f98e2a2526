"""The log lines of a member."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from coordinator.node.log_lines import FORMATTERS, FloodFilter, add_fields, configure

FORGED = "bye\n2026-11-22T10:00:00.000Z WARNING coordinator.audit: x\r\x1b]0;x\x07\u202e\u2028\x85"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger; without the handlers of the test, and as loud as before, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    for added in set(root.handlers) - set(handlers):
        root.removeHandler(added)
    root.setLevel(level)


@pytest.mark.parametrize("form", sorted(FORMATTERS))
def test_what_a_client_sends_cannot_forge_a_line(root: logging.Logger, form: str) -> None:
    """Newlines, escapes and marks of direction come out escaped, on one line."""
    stream = io.StringIO()
    configure("info", form, stream)

    root.warning("released, and said why: %s", FORGED)

    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text[:-1].isascii()
    assert text[:-1].isprintable()


def test_plain_letters_of_any_language_are_shown(root: logging.Logger) -> None:
    """Only what is not plainly shown is escaped."""
    stream = io.StringIO()
    configure("info", "text", stream)

    root.info("Bücher 本 café")

    assert stream.getvalue().endswith(" INFO root: Bücher 本 café\n")


def test_text_lines_say_when_how_bad_and_who(root: logging.Logger) -> None:
    """UTC in milliseconds, level, logger, message; a traceback is indented."""
    stream = io.StringIO()
    configure("info", "text", stream)

    try:
        raise ValueError("no\nway")
    except ValueError:
        logging.getLogger("coordinator.server").exception("it failed")

    first, *trace = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR coordinator\.server: it failed", first
    )
    assert trace[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in trace)


def test_json_lines_are_objects(root: logging.Logger) -> None:
    """One object a line; the message is whole, the traceback a field of its own."""
    stream = io.StringIO()
    configure("info", "json", stream)

    try:
        raise ValueError("no")
    except ValueError:
        root.error("said: %s", FORGED, exc_info=True)
    root.info("fine")

    failed, fine = (json.loads(line) for line in stream.getvalue().splitlines())
    assert failed["message"] == f"said: {FORGED}"
    assert failed["level"] == "error"
    assert failed["exception"].endswith("ValueError: no")
    assert fine.keys() == {"time", "level", "logger", "message"}


def test_a_json_line_says_which_member_and_about_which_other(root: logging.Logger) -> None:
    """The fields of the member as they are then; ``peer`` only where a line is about one."""
    stream = io.StringIO()
    configure("info", "json", stream)
    now = {"cluster": "locks", "member": "1", "term": 3, "zxid": 41}
    add_fields(lambda: now)

    root.info("member %s connected", "2", extra={"peer": "2"})
    now["zxid"] = 42
    root.info("fine")

    connected, fine = (json.loads(line) for line in stream.getvalue().splitlines())
    assert connected | {"time": ""} == {
        "time": "", "level": "info", "logger": "root", "message": "member 2 connected",
        "cluster": "locks", "member": "1", "term": 3, "zxid": 41, "peer": "2",
    }  # fmt: skip
    assert (fine["zxid"], "peer" in fine) == (42, False)


def test_less_than_the_level_is_not_said(root: logging.Logger) -> None:
    """`[log] level = "warning"` keeps info out."""
    stream = io.StringIO()
    configure("warning", "text", stream)

    root.info("not this")
    root.warning("this")

    assert "not this" not in stream.getvalue()
    assert stream.getvalue().endswith("WARNING root: this\n")


def test_a_proven_member_cannot_flood_the_log(root: logging.Logger) -> None:
    """So many lines of a kind in ten seconds; the next window says how many there were."""
    flood = FloodFilter()
    logger = "coordinator.raft.rejoin.incarnations"

    def line(at_s: float, name: str = logger, text: str = "member %s lies") -> str | None:
        record = logging.LogRecord(name, logging.ERROR, "", 0, text, ("2",), None)
        record.created = at_s
        return record.getMessage() if flood.filter(record) else None

    passed = [line(1_000 + number / 2_000) for number in range(10_000)]
    assert [each for each in passed if each] == ["member 2 lies"] * 20
    assert line(1_005, text="member %s stops") == "member 2 stops"
    assert line(1_010) == "member 2 lies (9980 more like it were not logged)"
    assert line(900) == "member 2 lies", "the clock was set back"
    for number in range(1_000):
        assert line(1_011 + number / 1_000, "coordinator.audit", "forced %s"), "audit always passes"


def test_the_handler_of_a_member_has_the_filter(root: logging.Logger) -> None:
    """It is installed where all lines of the process go through."""
    stream = io.StringIO()
    configure("info", "text", stream)

    for _ in range(1_000):
        logging.getLogger("coordinator.raft.network.transport").info("member %s connected", "2")

    assert stream.getvalue().count("\n") <= 40
