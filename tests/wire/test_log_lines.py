"""Nothing that a client writes ends a line of the log, or moves a cursor."""

from __future__ import annotations

import ast
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from coordinator.node.config import MemberLimits
from coordinator.node.log_lines import LineFormatter, escaped
from tests.wire.serving import Api, serving

ROOT = Path(__file__).resolve().parents[2]
FORGED = (
    "maintenance\n2026-11-22 07:00:00,000 WARNING coordinator.audit: forced release of /locks/pay"
    "\x1b]0;pwned\x07\u202egnp.exe\u2066\u2028\x9b2J\r"
)
IN_A_NAME = "x\u202egnp\u2066\u2028y\ufeff"
"""What a name in a path may hold: no control characters, but marks of direction, for one."""


async def do_all(api: Api) -> None:
    """Do whatever is logged, with something to forge a line with in every text there is."""
    lock = f"/v1/locks/{quote(IN_A_NAME)}"
    session_id = (await api.post("/v1/sessions", {"timeout_ms": 60_000, "label": FORGED})).body[
        "session_id"
    ]
    body = {
        "session_id": session_id, "label": FORGED[:150], "host": FORGED[:150], "owner": FORGED[:99],
        "trace_id": FORGED[:150], "guard": FORGED[:150],
    }  # fmt: skip
    grant = (await api.post(lock, body)).body["grant"]
    await api.put(f"{lock}/grants/{grant['grant_id']}/note", {"note": FORGED})
    hold_times = api.member._hold_times
    hold_times.look(hold_times._clock.monotonic_ms() + 10_000)
    forced = await api.post(f"{lock}/revoke", {"by": FORGED[:50], "reason": FORGED})
    assert forced.status == 200
    late = {
        "data": FORGED,
        "if_held": {"lock": IN_A_NAME, "fencing_token": grant["fencing_token"]},
    }
    assert (await api.post(f"/v1/tree/{quote(IN_A_NAME)}", late)).code == "LockLost"
    bounded = await api.post(lock, {"session_id": session_id, "max_hold_ms": 1})
    assert bounded.status == 200
    await api.delete(f"/v1/sessions/{session_id}?failure={'%0A%1B%5B2J%E2%80%AE' * 9}")
    await api.post(lock, {"lease_ms": 60_000, "label": FORGED[:150], "timeout_ms": 0})
    for header in ("Host", "Origin", "Content-Type", "Coordinator-Client-Id", "Expect"):
        await api.get("/v1/nothing", **{header: IN_A_NAME})


@pytest.fixture
def as_written() -> Iterator[io.StringIO]:
    """What a server of ours writes to its log."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter())
    logging.getLogger().addHandler(handler)
    yield written
    logging.getLogger().removeHandler(handler)


async def test_no_text_of_a_client_forges_a_line(
    caplog: pytest.LogCaptureFixture, as_written: io.StringIO
) -> None:
    """Each message is printable by itself, whatever formats it; each line written is an event."""
    caplog.set_level(logging.DEBUG, "coordinator")
    async with serving(limits=MemberLimits(long_hold_ms=1_000)) as api:
        await do_all(api)

    logged = [each.getMessage() for each in caplog.records if each.name.startswith("coordinator")]
    assert any("forced release" in each for each in logged)
    assert any("does not hold any more" in each for each in logged)
    assert any("ended by its client" in each for each in logged)
    for each in logged:
        assert each.isprintable(), ascii(each)
    lines = as_written.getvalue().splitlines()
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\S+Z [A-Z]+ \w|    ", line), ascii(line)
    audited = [each for each in lines if re.match(r"\S+ WARNING coordinator.audit: for", each)]
    assert len(audited) == 1


def test_a_traceback_does_not_look_like_events() -> None:
    """Its lines are indented, and what others wrote into its error is escaped."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter())
    log = logging.Logger("coordinator.http")
    log.addHandler(handler)
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("unexpected failure in %s", FORGED)

    first, *rest = written.getvalue().rstrip("\n").split("\n")
    assert "unexpected failure in maintenance\\n2026" in first
    assert rest
    assert all(each.startswith("    ") and each.isprintable() for each in rest)


def test_what_can_be_printed_stays_as_it_is() -> None:
    """People's names are in many scripts."""
    assert escaped("Zoë 東京 ok") == "Zoë 東京 ok"
    assert escaped("a\nb\u202ec") == "a\\nb\\u202ec"


SAFE = {
    "', '.join(map(repr, result.paths))",
    "'held' if result.was_holder else 'waiting'",
    "_named(operation)",  # class names and reprs
    "session_id", "recorded.session_id",  # of a session that is open: checked when it was opened
    "grant_id_of(path, hold.czxid)", "name", "shown",  # made here
    "difference.sentence",  # made here, of numbers and paths, which are ``shown``
    "difference",  # names and values of limits, and a member's id
    "self._place.address", "self.place.address", "self._address",
    "ascii(reason)", "ascii(mistake.message)",
    "operation_id", "type(command.operation).__name__",  # of our tables
    "f'; request {command.request.number}' if command.request is not None else ''",  # a number
    "config.bind_host or 'every address'",
}  # fmt: skip


def test_what_is_logged_as_it_is_was_looked_at() -> None:
    """In ``service`` and ``wire`` a new %s is either quoted (%r) or explained here."""
    for room in ("service", "wire"):
        for path in (ROOT / "coordinator" / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
                    for shown in plain_arguments(node):
                        where = f"{path}:{node.lineno}: {shown}"
                        assert shown in SAFE, f"{where}: quote it (%r), or say in SAFE why not"


def plain_arguments(call: ast.Call) -> list[str]:
    """Return what a logging call shows by %s."""
    template, *arguments = call.args[ast.unparse(call.func) == "logger.log" :]
    if not isinstance(template, ast.Constant):
        assert ast.unparse(call) == "logger.error(*args, **kw)", ast.unparse(call)
        return []
    kinds = re.findall(r"%[.\d]*([a-z])", str(template.value))
    return [ast.unparse(each) for kind, each in zip(kinds, arguments, strict=True) if kind == "s"]
