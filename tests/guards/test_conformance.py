"""The conformance kit finds planted bugs, says so in plain words, and leaves sound guards alone."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from coordinator.guards.conformance import NUMBER_TRIALS, TRIALS, Trial, examine, try_guard
from tests.guards import planted
from tests.guards.planted import PLANTED, Awaited, Sound

ROOT = Path(__file__).resolve().parents[2]
ALL = (*TRIALS, *NUMBER_TRIALS)
BY_NAME = {trial.name: trial for trial in ALL}


@pytest.mark.parametrize("trial", ALL, ids=lambda trial: trial.name)
def test_a_sound_guard_passes(trial: Trial, tmp_path: Path) -> None:
    """No trial complains about a guard without a bug."""
    assert try_guard(partial(Sound, tmp_path), trial) is None


@pytest.mark.parametrize("broken", PLANTED, ids=lambda broken: broken.__name__)
def test_a_planted_bug_is_found_by_the_trial_made_for_it(
    broken: type[Sound], tmp_path: Path
) -> None:
    """Each bug breaks the rule that it was planted against."""
    finding = try_guard(partial(broken, tmp_path), BY_NAME[PLANTED[broken]], patience_s=0.5)

    assert finding is not None
    assert "expected" in str(finding)


def test_every_trial_but_the_first_ones_has_a_bug_that_only_it_or_few_find() -> None:
    """A trial for which nobody ever planted a bug may be blind."""
    tried = set(PLANTED.values()) | {
        "growing-tokens",  # nothing works at all
        "only-tokens-in-range",
        "another-handle",
        "paused-before-a-raise",
        "paused-raise",
        "concurrent-writers",
    }

    assert tried == set(BY_NAME)


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        (planted.CheckThenWrite, {"paused-writer", "paused-before-a-raise", "paused-raise"}),
        (planted.RemembersInMemory, {"another-handle", "restart", "paused-writer"}),
        (planted.TakesWords, {"only-integers", "only-tokens-in-range"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_other_trials_see_the_same_bug_from_their_side(
    broken: type[Sound], names: set[str], tmp_path: Path
) -> None:
    """The trials not named above are not blind either."""
    found = {
        name
        for name in names
        if try_guard(partial(broken, tmp_path), BY_NAME[name], patience_s=0.5) is not None
    }

    assert found == names


def test_concurrent_writers_find_a_check_apart_from_its_write(tmp_path: Path) -> None:
    """Without any pausing: many writers at once are enough, in some of a few runs."""
    trial = BY_NAME["concurrent-writers"]
    findings = [try_guard(partial(planted.CheckThenWrite, tmp_path), trial) for _ in range(10)]

    assert any(findings)


def test_guards_with_coroutines_are_examined_too(tmp_path: Path) -> None:
    """An awaited factory and awaited methods: the same trials."""

    async def open_value(name: str) -> Awaited:
        return Awaited(Sound(tmp_path, name))

    assert [str(finding) for _, finding in examine(open_value) if finding is not None] == []


def test_a_guard_without_numbers_is_not_asked_for_them(tmp_path: Path) -> None:
    """They are an offer of the guard, and no rule of fencing."""

    class Plain:
        def __init__(self, name: str) -> None:
            sound = Sound(tmp_path, name)
            self.write, self.read, self.raise_to = sound.write, sound.read, sound.raise_to

    assert [trial for trial, _ in examine(Plain)] == list(TRIALS)


def test_a_finding_says_what_was_done_expected_and_found(tmp_path: Path) -> None:
    """Plain words, with the danger, for whoever wrote the guard."""
    finding = try_guard(partial(planted.RefusesEqual, tmp_path), BY_NAME["equal-tokens"])

    assert str(finding) == (
        "equal-tokens\n"
        "  rule:   The holder may write again under its own token, from any of its connections.\n"
        "  found:  after a write under token 34, a write under token 34 was expected to pass; it "
        "was refused: StaleTokenError: token 34 is not higher than 34\n"
        "  danger: The rightful holder can write only once; its next write is refused (refuse "
        "what is lower, not what is lower or equal)."
    )


def test_the_shell_command_says_what_is_wrong_and_fails(tmp_path: Path) -> None:
    """Exit status 1 with findings, 0 without, 2 for a factory that is not there."""
    (tmp_path / "mine.py").write_text(
        "from functools import partial\nfrom pathlib import Path\n"
        "from tests.guards.planted import RefusesEqual, Sound\n"
        f"good = partial(Sound, Path({str(tmp_path)!r}))\n"
        f"bad = partial(RefusesEqual, Path({str(tmp_path)!r}))\n"
    )

    results = {name: _command(tmp_path, f"mine:{name}") for name in ("good", "bad", "ugly")}

    assert {name: result.returncode for name, result in results.items()} == {
        "good": 0,
        "bad": 1,
        "ugly": 2,
    }
    assert results["good"].stdout.count("ok ") == len(ALL)
    assert "WRONG  equal-tokens" in results["bad"].stdout


def _command(directory: Path, factory: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coordinator.guards.conformance", factory],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
