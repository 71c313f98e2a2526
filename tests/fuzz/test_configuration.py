"""Configuration files and command lines nobody meant: a reason each time, never a traceback."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from coordinator.cli.main import SECTIONS, cli
from coordinator.errors import ConfigError
from coordinator.node.config import SETTINGS, MemberAddress
from coordinator.node.config_file import load
from coordinator.node.secret_file import ensure_secret
from coordinator.node.server import Server
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged
from tests.fuzz.watch import watching

ROOT = Path(__file__).resolve().parent.parent.parent
LITERALS = (
    "0", "1", "-1", "2", "70000", "65535", "4096", "99999999999999999999", "1.5", "nan", "inf",
    "true", "false", '""', '"1"', '"x"', '"127.0.0.1"', '"::1"', '"0.0.0.0"', '"localhost"',
    '"http://127.0.0.1:7071"', '"http://[::1"', '"http://x:y"', '"ftp://h"', '"a\\u0000b"', '"é"',
    '"\\ud800"', '"../.."', '"' + "x" * 300 + '"', "[]", "[1]", "{}", "{a=1}", "1979-05-27",
    "1979-05-27T07:32:00Z", "07:32:00", "0x10", "1e3", "'''a'''", "[[[[[]]]]]", "=", "",
)  # fmt: skip
LINES = (
    "[", "]", "[[", "[cluster", "[member]", "[[http]]", "[http.x]", "a.b.c = 1", "= 1", "x",
    "http = 1", "[cluster]", "members = 3", "members = [1]", "members = [{}]", "[raft", "\x00",
    '"" = 1', "[limit]", "[hhtp]", "member_idd = 1", "bind_port = 1", "# é", "\ufeff", "\r",
    "x = " + "[" * 2_000,
)  # fmt: skip


KEYS = [(section, key) for section, keys in SETTINGS.items() for key in keys if key != "members"]
MEMBER_KEYS = [each.name for each in dataclasses.fields(MemberAddress)]


def mutated_file(good: list[bytes], chance: random.Random) -> bytes:
    """Return a configuration file with something wrong in it, most often in one place."""
    data = chance.choice(good)
    if chance.random() < 0.25:
        return damaged(data, chance, others=good)
    lines = data.decode().splitlines()
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(lines) + 1)
        match chance.randrange(6):
            case 0:
                lines.insert(at, chance.choice(LINES))
            case 1 if at < len(lines):
                del lines[at]
            case 2 if at < len(lines):
                lines.insert(chance.randrange(len(lines) + 1), lines[at])
            case 3:
                chosen = [line for line in range(len(lines)) if " = " in lines[line]]
                if chosen:
                    line = chance.choice(chosen)
                    key = lines[line].partition(" = ")[0]
                    lines[line] = f"{key} = {chance.choice(LITERALS)}"
            case 4:
                name = chance.choice(MEMBER_KEYS)
                lines.append(f"{name} = {chance.choice(LITERALS)}")
            case _:
                section, key = chance.choice(KEYS)
                head = f"[{section}]"
                where = lines.index(head) + 1 if head in lines else len(lines)
                added = [f"{key} = {chance.choice(LITERALS)}"]
                lines[where:where] = added if head in lines else [head, *added]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def refusal_of(work: Callable[[], object]) -> str | None:
    """Return what ``work`` is refused for, None if it is not."""
    try:
        work()
    except ConfigError as error:
        return error.message
    return None


def test_a_wrong_file_is_refused_by_file_and_key(fuzz: Fuzz, tmp_path: Path) -> None:
    """Only ConfigError, which names the file and the key; what is accepted makes a member."""
    chance = fuzz.random("configuration")
    good = [path.read_bytes() for path in sorted((ROOT / "cluster-configs").rglob("*.toml"))]
    path = tmp_path / "member.toml"
    ensure_secret(tmp_path / "cluster-secret")
    names = {key for _, key in KEYS} | set(MEMBER_KEYS) | {"members"}
    done = fuzz.of("configuration")
    with watching(done) as watch:
        for _ in range(fuzz.count("configuration")):
            data = mutated_file(good, chance)
            path.write_bytes(data)
            with watch.each(f"seed {fuzz.seed}: {data!r}"):
                refusal = refusal_of(lambda: Server(load(path, {})))
                done.accepted += refusal is None
                if refusal is not None:
                    shown = f"seed {fuzz.seed}: {refusal!r} of\n{data!r}"
                    assert len(refusal) < 1_000, shown
                    is_of_file = str(path) in refusal
                    is_of_key = any(name in refusal for name in names) or "[" in refusal
                    is_of_syntax = "expected TOML" in refusal or "a known section" in refusal
                    assert is_of_file or refusal.startswith("cluster.secret_file"), shown
                    assert is_of_key or is_of_syntax, shown


def test_a_wrong_variable_is_refused_by_its_name(fuzz: Fuzz, tmp_path: Path) -> None:
    """The environment is judged as the file is."""
    chance = fuzz.random("variables")
    done = fuzz.of("configuration")
    with watching(done) as watch:
        for _ in range(fuzz.count("configuration") // 4):
            section, key = chance.choice(
                [*KEYS, ("cluster", "members"), ("hhtp", "x"), ("raft", "")]
            )
            variable = f"COORDINATOR_{section}_{key}".upper()
            value = chance.choice(LITERALS).strip('"') if chance.random() < 0.8 else "[" * 2_000
            with watch.each(f"seed {fuzz.seed}: {variable}={value}"):
                refusal = refusal_of(lambda: load(None, {variable: value}))  # noqa: B023 (called now)
                done.accepted += refusal is None
                if refusal is not None:
                    # A value may fit no other one, which is then the one that is named.
                    assert variable in refusal or key in refusal or "] " in refusal, refusal
                    assert len(refusal) < 1_000


ARGUMENTS = (
    "",
    "/",
    "/a",
    "a",
    "--",
    "-",
    "-1",
    "0",
    "1e308",
    "nan",
    "inf",
    "-inf",
    "x",
    "--json",
    "--x",
    "--timeout",
    "--timeout=",
    "--timeout=nan",
    "--timeout=0",
    "--endpoints",
    "--endpoints=",
    "--endpoints=http://",
    "--endpoints=http://[",
    "--endpoints=http://127.0.0.1:99999",
    "--endpoints=,,",
    "--endpoints=\x00",
    "--ttl=nan",
    "--ttl=-1",
    "--ttl=1e400",
    "--ttl-ms=0",
    "--expected-version=x",
    "--mode=weird",
    "--mode=ttl",
    "--kind=subtree",
    "--from-zxid=-1",
    "--file=absent",
    "--file=",
    "--config=absent",
    "--config=",
    "--config=.",
    "--held-longer-than=x",
    "--held-longer-than=-1",
    "--held-longer-than=nan",
    "--members=0",
    "--members=99",
    "true",
    "--client-port=99999999",
    "--shell",
    "--keep",
    "--value=\udcff",
    "\udcff",
    "x" * 3_000,
    "é",
    "\n",
)


ODD_VALUES = (
    "", "0", "1", "-1", "1.5", "1e308", "nan", "inf", "x", "/", "/a", "/a/", "//", "a b",
    "\udcff", "é", "x" * 3_000, "absent", ".", "true", "persistent", "ephemeral", "ttl", "subtree",
    "http://127.0.0.1:1", "http://[", "9" * 30, "[]", "{}", "create /a", "-", "--",
)  # fmt: skip


def plausible_arguments(command: click.Command, chance: random.Random) -> list[str]:
    """Return some of the options that ``command`` has, and as many words as it takes, all odd."""
    chosen: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            count = max(1, parameter.nargs) if chance.random() < 0.9 else chance.randrange(3)
            chosen += chance.choices(ODD_VALUES, k=count)
        elif isinstance(parameter, click.Option) and chance.random() < 0.25:
            name = chance.choice(parameter.opts)
            chosen += [name] if parameter.is_flag else [name, chance.choice(ODD_VALUES)]
    return chosen


def test_a_wrong_command_line_is_told_so(
    fuzz: Fuzz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every flag of every verb, with nobody to talk to: an exit code of the list, one reason."""
    monkeypatch.chdir(tmp_path)
    chance = fuzz.random("flags")
    verbs = {str(command.name): command for _, commands in SECTIONS for command in commands}
    environ = {"COORDINATOR_ENDPOINTS": "http://127.0.0.1:1"}
    done = fuzz.of("flags")
    with watching(done) as watch:
        while done.count < fuzz.count("flags"):
            verb = chance.choice(list(verbs))
            chosen = (
                chance.choices(ARGUMENTS, k=chance.randrange(5))
                if chance.random() < 0.4
                else plausible_arguments(verbs[verb], chance)
            )
            if verb in ("dev", "learn", "serve"):
                chosen.append("--nonsense")  # none may really begin
            chosen = [each for each in chosen if each != "--watch"]  # until Ctrl-C
            if verb == "secret":
                chosen = [each for each in chosen if not each.startswith("/")]
            # The two that would wait for somebody as long as it takes have a timeout of their own.
            waits = ["--timeout=0.05"] if verb in ("lock", "elect") else []
            arguments = ["--timeout", "0.05", verb, *waits, *chosen]
            shown = f"seed {fuzz.seed}: {arguments}"
            with watch.each(shown):
                result = CliRunner().invoke(cli, arguments, env=environ, input=b"")
            is_planned = result.exception is None or isinstance(result.exception, SystemExit)
            assert is_planned, f"{shown}: {result.exception!r}"
            assert "Traceback" not in result.output, shown
            assert result.exit_code in {0, 1, 2, 3, 4} | set(range(70, 80)), shown
            done.accepted += result.exit_code == 0
