"""docs/http-api.md is executed: every ``sh`` block runs, and says what the block below it says.

A ``json`` block holds one value for each line of output, which must contain what the value names
(``"..."`` stands for any text). A ``text`` block holds the output itself.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import REGISTRY
from coordinator.wire.http.openapi_operations import OPERATIONS
from tests.wire.serving import serving

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http-api.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLE = re.compile(r"```sh\n(.*?)```\n```(json|text)\n(.*?)```", re.DOTALL)


def values_of(block: str) -> list[Any]:
    """Return the JSON values that stand one after the other in ``block``."""
    decoder, found, rest = json.JSONDecoder(), [], block.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    return found


def refuse_unless_contained(expected: Any, found: Any) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict), found
        for name, value in expected.items():
            assert name in found, f"{name} is not in {found}"
            refuse_unless_contained(value, found[name])
    elif isinstance(expected, list):
        assert len(expected) == len(found), (expected, found)
        for one, other in zip(expected, found, strict=True):
            refuse_unless_contained(one, other)
    elif expected != "...":
        assert expected == found


async def shell(script: str, variables: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-euc", script, stdout=asyncio.subprocess.PIPE, env=variables
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0, f"{script}\n{output.decode()}"
    return output.decode()


def has_tools() -> bool:
    """Return whether bash is here, and a curl that knows --json (7.82)."""
    if shutil.which("curl") is None or shutil.which("bash") is None:
        return False
    asked = subprocess.run(["curl", "--json", "{}", "--version"], capture_output=True, check=False)
    return asked.returncode == 0


@pytest.mark.skipif(not has_tools(), reason="needs bash and curl 7.82 or later")
async def test_every_example_does_what_the_page_says() -> None:
    """From the first line to the last, against a member that starts empty."""
    blocks = EXAMPLE.findall(TEXT)
    assert len(blocks) == TEXT.count("```sh\n"), "an example has no output below it"
    async with serving() as api:
        variables = {"COORDINATOR": api.server.url, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        for script, kind, expected in blocks:
            output = await shell(script, variables)
            if kind == "text":
                assert output.strip() == expected.strip(), script
                continue
            found = values_of(output)
            assert len(found) == len(values_of(expected)), f"{script}\n{output}"
            for one, other in zip(values_of(expected), found, strict=True):
                refuse_unless_contained(one, other)


def test_the_page_names_every_error_and_every_route() -> None:
    """A new error or route without a word about it fails here."""
    items = re.sub(r"\n {2,}", " ", TEXT)  # each item of a list on one line
    for kind in REGISTRY.values():
        assert f"`{kind.code}`" in TEXT, kind.code
        row = re.search(rf"^- \*\*([0-9, ]+)\*\*.*`{kind.code}`", items, re.MULTILINE)
        if row is not None:  # Config never goes over HTTP
            assert str(kind.http_status) in row.group(1).split(", "), kind.code
    for described in OPERATIONS.values():
        template = described.template.replace("{session_id}", "{id}")
        stem = template.split("/{", 1)[0]
        assert stem in TEXT, described
