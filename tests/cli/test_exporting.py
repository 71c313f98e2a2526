"""``coordinator export`` and ``import``: what is written comes back, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator import connect
from tests.cli.conftest import CommandLine

DATA = {"": b"top", "/a": b"", "/a/text": "größer\n".encode(), "/a/bytes": bytes(range(256))}


@pytest.fixture
def top(coordinator: CommandLine, request: pytest.FixtureRequest) -> str:
    """The path of a small tree of its own for each test."""
    path = f"/export-{request.node.name[:60]}"
    with connect(coordinator.url) as client:
        for rest, data in DATA.items():
            client.create(path + rest, data)
        client.create(f"{path}/idle", mode="ttl", ttl_ms=3_600_000)
        client.create(f"{path}/box", mode="container")
    return path


def tree(coordinator: CommandLine, path: str) -> dict[str, tuple[bytes, str, int | None]]:
    """Return data, mode and time to live below ``path``."""
    with connect(coordinator.url) as client:
        page = client.subtree(path)
    return {
        each.path.removeprefix(path): (each.data, each.stat.mode, each.stat.ttl_ms)
        for each in page.znodes
    }


def test_what_is_imported_is_what_was_exported(
    coordinator: CommandLine, top: str, tmp_path: Path
) -> None:
    """Elsewhere, with parents that are not there yet; data, modes and times to live are the same;
    a second import finds all of it unchanged."""
    file, other = str(tmp_path / "file"), f"{top}-copy/below"
    coordinator.text("export", top, file)

    dry = coordinator.json("import", file, other, "--dry-run")
    assert (dry["created"], dry["is_dry_run"]) == (6, True)
    assert tree(coordinator, other) == {}
    said = coordinator.text("import", file, other)
    again = coordinator.json("import", file, other)

    assert said == f"{other}: 6 created, 0 overwritten, 0 unchanged\n"
    assert tree(coordinator, other) == tree(coordinator, top)
    assert tree(coordinator, other)["/idle"][1:] == ("ttl", 3_600_000)
    assert (again["created"], again["overwritten"], again["unchanged"]) == (0, 0, 6)


def test_a_line_is_a_znode(coordinator: CommandLine, top: str) -> None:
    """Of a person, a program or grep; the last line counts what was left out."""
    with connect(coordinator.url) as client:
        client.create(f"{top}/mine", mode="ephemeral")
        client.create(f"{top}/item-", b"1", mode="persistent_sequential")

        head, *lines, end = map(json.loads, coordinator.text("export", top, "-").splitlines())

    assert (head["coordinator_export"], head["path"]) == (1, top)
    (item,) = (each for each in lines if each["path"].startswith(f"{top}/item-"))
    assert (item["data"], "mode" in item) == ("1", False)
    assert {"path": f"{top}/a/text", "data": "größer\n"} in lines
    assert any("data_base64" in each for each in lines)
    assert (end["znodes"], end["ephemerals_left_out"]) == (len(lines), 1)
    assert end["zxid"] == head["zxid"]


def test_other_data_are_replaced_only_when_that_is_said(
    coordinator: CommandLine, top: str, tmp_path: Path
) -> None:
    """Else nothing is done at all; what is not in the file stays in any case."""
    file = str(tmp_path / "file")
    coordinator.text("export", top, file)
    with connect(coordinator.url) as client:
        client.set(f"{top}/a", b"changed")
        client.delete(f"{top}/a/text")
        client.create(f"{top}/new", b"later")

    refused = coordinator("import", file)
    assert refused.exit_code == 1
    assert f"1 znodes are there with other data: {top}/a; nothing was done" in refused.stderr
    assert "/a/text" not in tree(coordinator, top)
    dry = coordinator.json("import", file, "--dry-run", "--overwrite")
    assert tree(coordinator, top)["/a"][0] == b"changed"
    done = coordinator.json("import", file, "--overwrite")

    for found in (dry, done):
        assert (found["created"], found["overwritten"], found["unchanged"]) == (1, 1, 4)
    assert tree(coordinator, top)["/a"][0] == b""
    assert tree(coordinator, top)["/a/text"][0] == DATA["/a/text"]
    assert tree(coordinator, top)["/new"][0] == b"later"


def test_a_file_that_is_not_whole_is_refused(
    coordinator: CommandLine, top: str, tmp_path: Path
) -> None:
    """Cut at any line, with a line gone or one of another place: nothing is done."""
    lines = coordinator.text("export", top, "-").splitlines(keepends=True)
    odd = json.dumps({"path": "/elsewhere"}) + "\n"
    wrong = [
        *(lines[:count] for count in range(len(lines))),
        [*lines[:2], *lines[3:]],
        [*lines[:-1], odd, lines[-1].replace('"znodes":6', '"znodes":7')],
        [lines[0].replace(":1,", ":2,"), *lines[1:]],
        ["not json\n"],
    ]
    for each in wrong:
        (tmp_path / "file").write_text("".join(each))
        result = coordinator("import", str(tmp_path / "file"), f"{top}-never")
        assert result.exit_code == 1, result.output
    assert tree(coordinator, f"{top}-never") == {}


def test_many_znodes_are_exported_and_imported(coordinator: CommandLine, tmp_path: Path) -> None:
    """Of several pages, in several steps, and of more bytes than one request may have."""
    with connect(coordinator.url) as client:
        client.create("/many")
        for number in range(1_205):
            client.create(f"/many/{number}", bytes(40_000) if number < 10 else b"x")
    file = str(tmp_path / "file")

    coordinator.text("export", "/many", file)
    coordinator.text("import", file, "/many-more")

    with connect(coordinator.url) as client:
        assert client.get("/many-more").stat.num_children == 1_205
        assert client.get("/many-more/3").data == bytes(40_000)


def test_nothing_is_exported_of_a_path_that_is_not_there(coordinator: CommandLine) -> None:
    """It says so, and writes no line."""
    result = coordinator("export", "/no-such-path", "-")

    assert result.exit_code == 1
    assert result.stdout == ""
