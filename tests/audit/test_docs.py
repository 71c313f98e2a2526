"""docs/audit.md: its settings start a member, its line is a real one, its commands work."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from coordinator.cli.main import cli
from coordinator.node.config_file import load
from tests.audit.audited import lines, verdict
from tests.audit.test_member import Audited, lose_a_lock

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
NAMED = "/var/log/coordinator/audit.jsonl"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_page_tells_the_truth(tmp_path: Path) -> None:
    """Its configuration, its line, and each of its commands."""
    file = tmp_path / "log" / "audit.jsonl"
    (settings,) = blocks("toml")
    (tmp_path / "member.toml").write_text(settings.replace(NAMED, str(file)))
    member = Audited(tmp_path)
    member.log = file
    member.config = replace(member.config, audit=load(tmp_path / "member.toml").audit)
    async with member:
        await lose_a_lock(member)

    (shown,) = blocks("json")
    answer = json.loads(shown)
    (real,) = [each for each in lines(file) if each["event"] == answer["event"]]
    assert list(answer) == list(real)
    assert list(answer["detail"]) == list(real["detail"])
    assert all(type(answer[name]) is type(real[name]) for name in real)
    head = str(verdict(file).head)
    for block in blocks("sh"):
        for line in block.splitlines():
            words = line.replace(NAMED, str(file)).replace("NUMBER:SHA256", head).split()
            done = CliRunner().invoke(cli, words[1:])
            assert done.exit_code == 0, done.output
            assert f"head {head}" in done.output


def test_every_event_is_in_the_table() -> None:
    """And none that no member writes."""
    listed = {
        name
        for row in re.findall(r"^\| (`.*?) \| (?:applied|request|member) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`([a-z_.]+)`", row)
    }
    nouns = {name.partition(".")[0] for name in listed}
    named = {
        node.value
        for path in (ROOT / "coordinator").rglob("*.py")
        if "audit" in path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(rf"(?:{'|'.join(nouns)})\.[a-z_]+", node.value)
    }

    assert listed - named == set()
    assert {name for name in named - listed if not name.endswith((".jsonl", ".file"))} == set()
