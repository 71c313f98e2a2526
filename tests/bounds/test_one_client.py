"""What one client can take of each limit that all share: the table of docs/monitoring.md is whole.

A new limit needs a row there, or a reason here why it is nothing that clients share.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from coordinator.audit.folding import EACH_MAX
from coordinator.model.limits import NEW_CLUSTER, MachineLimits
from coordinator.node.config import SETTINGS, Config

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
FREE, OLDEST = "what is free", "oldest first"
WORDS = {
    FREE, OLDEST, "by address", f"{EACH_MAX + 1} a minute", "files of strangers", "turns",
    "first hundred met", "the same", "a tenth of it",
}  # fmt: skip
"""What a cell may say that is no limit of one client."""

SHARE = "a share of one client, or of one session"
ONE = "bounds one request, connection, stream, path or entry"
STEP = "bounds one step"
OWN = "of the member itself: timing, and what it keeps on disk"
PART = "a part of other limits"
BY_RIGHT = "of one znode: of whoever has rights there"
SHARED_BY_NOBODY = {
    "connections_per_address_max": SHARE, "sessions_per_address_max": SHARE,
    "sessions_per_client_max": SHARE, "sessions_per_identity_max": SHARE,
    "znodes_per_identity_max": SHARE, "bytes_per_identity_max": SHARE,
    "waiters_per_identity_max": SHARE, "requests_per_second_max": SHARE,
    "ephemerals_per_session_max": SHARE, "request_window": SHARE,
    "body_bytes_max": ONE, "json_depth_max": ONE, "watches_per_stream_max": ONE,
    "watch_buffer_changes": ONE, "data_bytes_max": ONE, "path_bytes_max": ONE,
    "path_depth_max": ONE, "operations_per_multi_max": ONE, "frame_bytes_max": ONE,
    "append_batch_bytes": ONE, "snapshot_piece_bytes": ONE,
    "recursive_delete_max": STEP, "grants_per_command_max": STEP, "deadlock_search_max": STEP,
    "snapshot_every_entries": OWN, "snapshot_every_bytes": OWN, "segment_bytes": OWN,
    "keep_entries_after_snapshot": OWN, "bind_port": OWN, "keep": OWN,
    "ordinary_percent_max": PART, "client_percent_max": PART,
    "children_max": BY_RIGHT, "remembered_percent_max": SHARE,
}  # fmt: skip
ROWS = [
    [cell.strip() for cell in row.split("|")[1:-1]]
    for row in PAGE.partition("### What one client can take")[2].partition("\n\n**")[0].splitlines()
    if row.startswith("|") and "---" not in row
][1:]


def limits() -> dict[str, str]:
    """Return all settings that are numbers and no times, each with its section."""
    config = Config()
    return {
        name: section
        for section, names in SETTINGS.items()
        for name in names
        if type(config.value(section, name)) is int and not re.search(r"_ms(_[a-z]+)?$", name)
    }


def shared_places() -> set[str]:
    """Return the settings of which the code lets a client have at most what is free."""
    found = set()
    for path in (ROOT / "coordinator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SharedPlaces":
                setting = node.args[2]
                assert isinstance(setting, ast.Constant)
                found.add(setting.value)
    return found


def named(cell: str) -> str | None:
    """Return the limit that a cell names."""
    found = re.fullmatch(r"`(?:\w+\.)?(\w+)`", cell)
    return found[1] if found else None


def test_every_limit_has_its_row_or_a_reason_why_it_needs_none() -> None:
    """And there is no row of what is no limit."""
    rows = {cells[0].strip("`") for cells in ROWS if cells[0]}
    shared = {f"{section}.{name}" for name, section in limits().items()
              if name not in SHARED_BY_NOBODY}  # fmt: skip

    assert rows == shared
    assert SHARED_BY_NOBODY.keys() <= limits().keys()


def test_every_cell_says_what_is_so() -> None:
    """A limit of one client, or how much it may have."""
    for limit, what, *shares in ROWS:
        assert what, limit
        for share in shares:
            name = named(share)
            assert share in WORDS or name in limits(), (limit, share)


def test_what_is_free_is_counted_by_client() -> None:
    """Each of those limits, and no other, by the one class that counts so."""
    said = {cells[0].strip("`") for cells in ROWS if FREE in cells}

    assert said == shared_places()
    assert all(cells[2] == cells[3] for cells in ROWS if FREE in cells)


@pytest.mark.parametrize("cells", [each for each in ROWS if each[0]], ids=lambda cells: cells[0])
def test_a_limit_of_one_client_leaves_half_to_the_others(cells: list[str]) -> None:
    """By the defaults of a new cluster."""
    section, _, name = cells[0].strip("`").partition(".")
    config = Config()
    for share in map(named, cells[2:]):
        if share is not None and share.endswith("_percent_max"):
            assert config.value(limits()[share], share) <= 50
        elif share is not None:
            assert 2 * config.value(limits()[share], share) <= config.value(section, name)


def test_the_limits_of_a_state_without_any_are_as_they_were() -> None:
    """Only a new cluster has a share for each identity."""
    unset = MachineLimits()
    for name in ("znodes_per_identity_max", "bytes_per_identity_max", "waiters_per_identity_max"):
        assert getattr(unset, name) >= 1_000_000_000 > getattr(NEW_CLUSTER, name)
