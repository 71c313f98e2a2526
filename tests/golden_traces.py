"""Golden traces as text: which runner a file belongs to, what is input in it and what is output.

Lines that begin with ``#`` are comments, ``> `` starts a command, ``| `` goes on with it; all other
lines are what the runner printed. A runner turns text into text: the same commands, with what they
print now.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "traces"

PREFIXES = {
    "engine": ("engine-",),
    "service": ("watches-", "leases-", "locks-"),
    "recipes": ("recipe-",),
}
"""By the first word of their names; all others belong to the state machine."""


def traces_of(room: str) -> list[Path]:
    """Return the traces of ``engine``, ``service``, ``recipes`` or ``state``."""
    claimed = tuple(prefix for each in PREFIXES.values() for prefix in each)
    found = sorted(FOLDER.glob("*.txt"))
    if room == "state":
        return [path for path in found if not path.name.startswith(claimed)]
    return [path for path in found if path.name.startswith(PREFIXES[room])]


@dataclass
class Command:
    """One command, with the lines that go on with it and those that it prints."""

    line: str
    more: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


def parsed(text: str) -> list[str | Command]:
    """Return comments, empty lines and commands in order; what was printed before is dropped."""
    parts: list[str | Command] = []
    is_behind_command = False
    for line in text.splitlines():
        if line.startswith("> "):
            parts.append(Command(line[2:]))
            is_behind_command = True
        elif line.startswith("| ") and is_behind_command:
            last = parts[-1]
            assert isinstance(last, Command)
            last.more.append(line[2:])
        elif line.startswith("#"):
            parts.append(line.rstrip())
            is_behind_command = False
        elif not line.strip():
            # One empty line between blocks, whatever stood there before.
            if parts and parts[-1] != "":
                parts.append("")
            is_behind_command = False
        else:
            is_behind_command = False  # What was printed before.
    return parts


def commands_of(parts: Iterable[str | Command]) -> list[Command]:
    return [part for part in parts if isinstance(part, Command)]


def text_of(parts: Iterable[str | Command]) -> str:
    """Return the text of a trace again."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Command):
            lines.append(f"> {part.line}")
            lines.extend(f"| {line}" for line in part.more)
            lines.extend(part.printed)
        else:
            lines.append(part)
    return "\n".join(lines).rstrip() + "\n"


@dataclass
class Words:
    """One command line: its verb, what follows it, and its options (``name=value``)."""

    line: str
    verb: str = ""
    given: list[str] = field(default_factory=list)
    _options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.verb, *words = self.line.split()
        self.given = [word for word in words if "=" not in word]
        self._options = dict(word.partition("=")[::2] for word in words if "=" in word)

    def text(self, name: str, default: str = "") -> str:
        return self._options.pop(name, default)

    def number(self, name: str, default: int) -> int:
        return int(self._options.pop(name, default))

    def maybe_number(self, name: str) -> int | None:
        value = self._options.pop(name, None)
        return None if value is None else int(value)

    def numbers(self) -> dict[str, int]:
        """Return all options that are left."""
        found = {name: int(value) for name, value in self._options.items()}
        self._options.clear()
        return found

    def has(self, word: str) -> bool:
        """Say whether ``word`` was given, and take it away."""
        is_given = word in self.given
        if is_given:
            self.given.remove(word)
        return is_given

    def finish(self) -> None:
        assert not self._options, f"{self.line}: not understood: {self._options}"


# --- what the tests of every runner check


def check(path: Path, found: str, request: pytest.FixtureRequest) -> None:
    """Compare with the file, or renew it when ``--rewrite`` is given."""
    if request.config.getoption("--rewrite"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == path.read_text(encoding="utf-8")


def check_head(path: Path) -> None:
    """The head comment of a trace names the scenario, and its source or its reason."""
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert head.startswith("# ")
    assert "# Source: " in head or "# Why: " in head


def rerun(runner: str, paths: Iterable[Path], hash_seed: int) -> str:
    """Run traces in another process, with this hash seed; return all their texts."""
    program = (
        f"import sys, pathlib; from {runner} import rewritten\n"
        "for name in sys.argv[1:]:\n"
        "    sys.stdout.write(rewritten(pathlib.Path(name).read_text(encoding='utf-8')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *(str(path) for path in paths)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
