"""The list of stories: complete, each once in its place, and each runs something that is there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from click.testing import CliRunner

from coordinator.cli.main import cli
from coordinator.learn.catalog import stories
from coordinator.learn.playing import PLAYED
from coordinator.learn.side_by_side import films
from examples.__main__ import stories as examples

RUNS = [story.runs for story in stories()]
_SCRIPT = "coordinator learn --script "


def test_every_example_is_listed_once() -> None:
    listed = Counter(each.rpartition(" ")[2] for each in RUNS if each.startswith("python -m exa"))

    assert listed == Counter(examples())


def test_every_script_and_every_simulated_film_is_listed() -> None:
    listed = {each.removeprefix(_SCRIPT).split()[0] for each in RUNS if each.startswith(_SCRIPT)}

    assert listed == {*PLAYED, *films()}


def test_whatever_is_listed_is_there() -> None:
    """And every title is one of its own."""
    titles = [story.title for story in stories()]

    assert len(titles) == len(set(titles)) >= 50
    assert all(each.startswith((_SCRIPT, "python -m examples ", "coordinator learn"))
               for each in RUNS)  # fmt: skip


def test_a_person_at_a_shell_can_read_the_list() -> None:
    """In the order to read in, with what runs each."""
    result = CliRunner().invoke(cli, ["learn", "--list"])

    assert result.exit_code == 0
    assert result.output.startswith("The freeze ray, live\n")
    at = [result.output.index(story.title) for story in stories()]
    assert at == sorted(at)
    assert all(len(line) <= 100 for line in result.output.splitlines())


def test_a_script_that_is_not_there_is_named_with_those_that_are() -> None:
    result = CliRunner().invoke(cli, ["learn", "--script", "no-such"])

    assert result.exit_code != 0
    assert "freeze-ray" in result.output
    assert "redlock-clock-jump" in result.output


def test_a_simulated_film_is_told_and_recorded(tmp_path: Path) -> None:
    film = tmp_path / "film.json"
    result = CliRunner().invoke(
        cli, ["learn", "--script", "redlock-clock-jump", "--record", str(film)]
    )
    recorded = film.read_text(encoding="utf-8")

    assert result.exit_code == 0, result.output
    assert "B asks: 3 of 5 say yes" in result.output
    assert recorded == films()["redlock-clock-jump"].to_json()
