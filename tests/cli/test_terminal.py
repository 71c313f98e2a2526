"""What clients wrote into names and data moves no cursor of a person who looks at it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from coordinator.cli.output import document, for_terminal
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember

HOSTILE = b"a\x1b]0;pwned\x07\tb\n\x9b2J\xe2\x80\xaec\r\xff"
ESCAPED = b"a\\x1b]0;pwned\\x07\tb\n\\x9b2J\\u202ec\\r\\xff"


def on_a_terminal(member: ServedMember, *arguments: str) -> bytes:
    """Return what a verb writes to a terminal, its line ends as they were before it."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COORDINATOR_ENDPOINTS": member.url}
    try:
        command = [sys.executable, "-m", "coordinator", *arguments]
        subprocess.run(command, stdout=theirs, env=environment, check=True, timeout=30)
        return os.read(ours, 65_536).replace(b"\r\n", b"\n")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_neither_escapes_nor_other_directions(
    coordinator: CommandLine, member: ServedMember, tmp_path: Path
) -> None:
    """A pipe gets names and data as they are."""
    (tmp_path / "data").write_bytes(HOSTILE)
    coordinator.text("create", "/shown/x\u202egnp", "--file", str(tmp_path / "data"), "--parents")

    assert on_a_terminal(member, "ls", "/shown") == b"x\\u202egnp\n"
    assert on_a_terminal(member, "get", "/shown/x\u202egnp") == ESCAPED + b"\n"
    assert coordinator("get", "/shown/x\u202egnp").stdout_bytes == HOSTILE
    assert coordinator.text("ls", "/shown") == "x\u202egnp\n"


def test_what_can_be_printed_stays() -> None:
    """Also what is not ASCII."""
    assert for_terminal("Zoë 東京\n\tok".encode()) == "Zoë 東京\n\tok".encode()


def test_json_moves_no_cursor_either() -> None:
    """It is the same document; only its text is escaped."""
    said = "a\x1b\x7f\x9b31m\u202e\u2066\u2028é\ud800"
    shown = document({"note": said})

    assert shown.replace("é", "").isascii()
    assert shown.isprintable()
    assert json.loads(shown) == {"note": said}
