"""The ports that tests are given: nobody else's, and nobody else's a moment later."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.ports import (
    DEFAULT_EPHEMERAL,
    Ports,
    allowed,
    ephemeral_range,
    free_ports,
    is_free,
    slice_of,
)


def test_no_outgoing_connection_is_given_one_of_them() -> None:
    """What the system picks for a connection, and what a test is given, never meet."""
    first, last = ephemeral_range()
    given = {port for _ in range(20) for port in free_ports(6)}
    if allowed((first, last)).start < first:
        assert max(given) < first
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(20):
            with socket.create_connection(server.getsockname()) as out:
                assert out.getsockname()[1] not in given


@pytest.mark.parametrize(
    ("ephemeral", "expected"),
    [
        ((32_768, 60_999), range(10_000, 32_768)),
        ((49_152, 65_535), range(10_000, 49_152)),
        ((12_000, 60_999), range(10_000, 12_000)),
        ((11_999, 60_999), range(61_000, 65_536)),
        ((1_024, 65_535), range(10_000, 65_536)),
        ((1_024, 9_000), range(10_000, 65_536)),
    ],
)
def test_they_lie_beside_the_ephemeral_range(ephemeral: tuple[int, int], expected: range) -> None:
    """Below it where there is room, else above it, and among it only where it is everything."""
    assert allowed(ephemeral) == expected


def test_the_range_is_the_systems_or_linuxs(tmp_path: Path) -> None:
    """The system's file where there is one, else what Linux begins with."""
    (tmp_path / "range").write_text("20000\t30000\n")

    assert ephemeral_range(tmp_path / "range") == (20_000, 30_000)
    assert ephemeral_range(tmp_path / "missing") == DEFAULT_EPHEMERAL


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_workers_have_different_ports(workers: int) -> None:
    """No two workers' slices share a port, and none is empty."""
    slices = [set(slice_of(range(10_000, 32_768), n, workers)) for n in range(workers)]

    assert all(slices)
    assert len(set.union(*slices)) == sum(len(each) for each in slices)


def test_none_is_given_twice_before_all_were() -> None:
    """A port that one test let go is not given to the next one."""
    ports = Ports(range(10_000, 32_768), start=22_700)
    given = [port for _ in range(100) for port in ports.take(6)]

    assert len(set(given)) == len(given)


def test_a_row_with_a_taken_port_is_passed_over() -> None:
    """A row is of ports that all are free, whoever bound the others and wherever."""
    (first,) = free_ports(1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        assert not is_free(first)
        row = Ports(range(first - 1, first + 40), start=0).take(3)

    assert first not in row
    assert row == list(range(row[0], row[0] + 3))
