"""A failing seed becomes a film, and so does a cluster: what is made of a trace, and of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.main import cli
from coordinator.cli.output import EXIT_REFUSED
from coordinator.errors import BadArgumentsError
from coordinator.learn.film import STEPS_MAX, Film, parse_film
from coordinator.learn.simulated import film_of_trace
from coordinator.recipes import Lock
from coordinator.testing import local_cluster
from tests.simulation.world import Settings, simulate

TRACE = """\
 1000.0000 world    seed 7: 3 members, 7 clients
 1000.0000 m2.1     boots
 1000.1305 m2.1     leader in term 1
 1000.1670 m2.1     log 4.0 OpenSession zxid 1
 1000.1892 c2       granted /locks/a/lock-0000000000 at 4
 1001.1975 c2       release locks/a 1-38 True
 1002.0000 c3       granted /locks/b/lock-0000000001 at 9
 1003.8315 fault    lose_disk
 1004.0000 m2.1     power cut
seed 7: trace 16c4, 9 lines
[ 1003.9000] a lock has one holder: c2 and c3 hold a
PROMISES WERE BROKEN
"""


def test_a_trace_becomes_a_film() -> None:
    """Times count from the beginning; roles, grants and faults are in the picture."""
    film = film_of_trace(TRACE.splitlines())

    assert film.title == "Seed 7"
    assert [step.at_ms for step in film.steps][:4] == [0, 0, 130, 167]
    assert film.steps[3].zxid == 1
    assert film.state(5)["members"]["2"] == {
        "is_up": True, "role": "leader", "term": 1, "life": 1
    }  # fmt: skip
    assert film.state(5)["locks"] == {"a": {"holder": "c2", "token": 4}}
    end = film.state()
    assert end["locks"] == {"a": {"token": 4}, "b": {"holder": "c3", "token": 9}}
    assert end["members"]["2"]["is_up"] is False


def test_the_broken_promise_is_a_step_of_its_own() -> None:
    film = film_of_trace(TRACE.splitlines())

    (step,) = [each for each in film.steps if "BROKEN PROMISE" in each.text]
    assert step.at_ms == 3_900
    assert film.state()["world"]["broken"] == "a lock has one holder: c2 and c3 hold a"


def test_a_simulated_world_can_be_seen() -> None:
    """What the simulation prints today is what is read: a leader, grants, zxids that grow."""
    verdict = simulate(7, Settings(seconds=1.0, keep_lines=None))

    film = film_of_trace(verdict.lines)

    zxids = [step.zxid for step in film.steps if step.zxid is not None]
    assert zxids == sorted(zxids)
    assert len(zxids) > 20
    roles = [step.changes.get(("members", "2", "role")) for step in film.steps]
    assert any("leader" in str(step.changes) for step in film.steps), roles
    assert film.state()["locks"]
    assert parse_film(film.to_json()) == film


def test_a_long_trace_keeps_its_broken_promises() -> None:
    lines = [f" 1000.{number % 10_000:04} c1       read /a" for number in range(STEPS_MAX + 50)]

    film = film_of_trace([*lines, "[ 1001.0000] a promise: broken"])

    assert len(film.steps) < STEPS_MAX
    assert "BROKEN PROMISE" in film.steps[-1].text


@pytest.mark.parametrize("text", ["", "no trace\n", "{", '{"format": 1}'])
def test_what_is_neither_film_nor_trace_is_refused(text: str) -> None:
    result = CliRunner().invoke(cli, ["visualize", "-", "-o", "/dev/null"], input=text)

    assert result.exit_code != 0
    assert "expected" in result.output


def test_no_line_of_a_trace_is_an_error() -> None:
    with pytest.raises(BadArgumentsError, match=r"tests\.simulation"):
        film_of_trace(["hello"])


def test_a_trace_is_written_as_a_film(tmp_path: Path) -> None:
    """By the verb, from standard input; somewhere it has to go."""
    film = tmp_path / "film.json"
    nowhere = CliRunner().invoke(cli, ["visualize", "-"], input=TRACE)
    result = CliRunner().invoke(cli, ["visualize", "-", "-o", str(film)], input=TRACE)

    assert nowhere.exit_code != 0
    assert "--show" in nowhere.output
    assert result.exit_code == 0, result.output
    assert parse_film(film.read_text(encoding="utf-8")).title == "Seed 7"


def test_a_cluster_with_tls_and_rights_is_filmed_with_them(tmp_path: Path) -> None:
    """By the variables that all verbs read; what one may not see is said, and the rest is shown."""
    out, token_file = tmp_path / "film.json", tmp_path / "token"

    def filmed(token: str, path: str) -> Film:
        token_file.write_text(token)
        token_file.chmod(0o600)
        env = {"COORDINATOR_ENDPOINTS": cluster.endpoints, "COORDINATOR_CA_FILE": ca_file,
               "COORDINATOR_TOKEN_FILE": str(token_file)}  # fmt: skip
        result = CliRunner().invoke(cli, ["visualize", "--seconds", "0.5", "--path", path,
                                       "-o", str(out)], env=env)  # fmt: skip
        assert result.exit_code == 0, result.output
        return parse_film(out.read_text(encoding="utf-8"))

    with local_cluster(members=1, tls=True, access=True) as cluster, cluster.connect() as admin:
        assert cluster.access is not None
        assert cluster.certificates is not None
        ca_file = cluster.certificates.ca_file
        reader = cluster.access.token(admin, "reader", {"/app": "read,watch"})
        with Lock(admin, "held"):
            whole = filmed(cluster.access.admin_token, "/")
            part = filmed(reader, "/locks")
        refused = CliRunner().invoke(
            cli, ["visualize", "--seconds", "0.5", "-o", str(out), "--endpoints",
                  cluster.endpoints, "--ca-file", ca_file])  # fmt: skip

    for film in (whole, part):
        assert film.state()["members"]["1"]["role"] == "leader"
    assert set(whole.state()["locks"]) == {"held"}
    assert len(whole.state()["sessions"]) == 1
    assert [step.text for step in part.steps if "Events are not shown: " in step.text]
    assert "held" not in part.to_json()
    assert refused.exit_code != 0
    assert "token" in refused.output


@pytest.mark.parametrize("data", [b"\xff\xfe{}", b"\0" * 100, b'{"format": 1}'])
def test_a_file_that_is_neither_is_refused_in_words(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "film.json"
    file.write_bytes(data)

    done = CliRunner().invoke(cli, ["visualize", str(file), "-o", str(tmp_path / "out.json")])

    assert done.exit_code == EXIT_REFUSED
    assert "expected" in done.stderr


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5_000])
def test_a_number_that_no_world_has_is_shown_as_it_is(number: str) -> None:
    lines = [f"1.0000 m1.1     {what} {number}" for what in
             ("leader in term", "log 1.0 Create zxid", "granted /locks/a/b at")]  # fmt: skip
    film = film_of_trace([f"{number}.0000 m1.1     boots", *lines])

    assert len(film.steps) == 3
    assert parse_film(film.to_json()) == film
