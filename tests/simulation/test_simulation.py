"""Worlds by seed: they keep every promise, and the same seed makes the same world to the byte."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from coordinator.state.commands import EndHold, ExpireSession
from tests.simulation.campaign import COUNTED, Total, failure_text, verdicts
from tests.simulation.plan import STREAMS_FROM
from tests.simulation.planted import Planted, fails, holds_for_longer, safe_for_longer
from tests.simulation.world import Settings, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")

long = partial(pytest.param, marks=pytest.mark.check)
ROOT = Path(__file__).resolve().parent.parent.parent
JOBS = min(4, os.cpu_count() or 1)
"""Worlds at a time: they only work, and what runs beside them mostly waits."""

FOUND: dict[int, str] = {
    3: "those who waited for a leader were woken in the order of their addresses in memory",
    15168: "the judgement: a request was copied by the network, which TCP does not do",
    20050: "a snapshot stable before the term of its last entry: no start after a power cut",
    20096: "the judgement: what a snapshot holds is durable though the log begins behind it",
    50005: "the judgement: a bound was taken for late from the beginning of time",
    70117: "members that were replaced were accused by one that had been away; nobody could lead",
    70223: "the judgement: the word of a grant came after it was put out by force",
    80096: "the same, by another way",
}
"""Seeds that once broke a promise, and by what; each is run again for ever."""
SPEAKING = range(STREAMS_FROM + 1, STREAMS_FROM + 11)
"""Worlds whose clients speak the stream."""
SEEDS = sorted({*range(40), *SPEAKING, *FOUND})
MORE_SEEDS = range(40, 90)
HAPPENS = (
    "exclusive", "shared", "slot", "several", "released", "expired", "max_hold", "forced",
    "delays", "downgrades", "extensions", "resizes", "notes", "fenced writes", "fenced out",
)  # fmt: skip
"""What is done with locks in every fourth world at the least."""
DEEDS = {
    "contend_LockTimeout": 100, "contend_LockLost": 12, "contend_OutcomeUnknown": 20,
    "contend_SessionExpired": 12, "look_for_what_is_left": 180, "release": 300,
    "release_too_late": 50, "take_inside": 25, "downgrade": 25, "note": 50, "extend": 12,
    "outlived": 20,
    "proclaim": 50, "write_under": 60, "write_under_LockLost": 45, "look": 80, "revoke": 50,
    "resize": 35,
}  # fmt: skip
"""What clients do with locks, and what it comes to for them, in ten worlds at the least."""

DIGEST_OF_SEED = """
from tests.simulation.campaign import quiet
from tests.simulation.world import Settings, simulate
quiet()
print(simulate({seed}, {settings}).trace_digest)
"""


def total_of(seeds: list[int]) -> Total:
    """Simulate worlds of thirty seconds of faults each; every promise is kept in all of them."""
    settings = Settings(seconds=30.0)
    total = Total(len(seeds))
    failures = []
    for verdict in verdicts(seeds, settings, JOBS):
        total.add(verdict)
        if not verdict.is_fine:
            failures.append(failure_text(verdict, settings))

    assert not failures, "\n\n".join(failures)
    # Nothing can be broken where nothing happens.
    assert not [name for name in COUNTED if total.sums[name] < len(seeds)]
    total.deeds.check(**{name: least * len(seeds) // 10 for name, least in DEEDS.items()})
    return total


def test_a_short_world_keeps_every_promise() -> None:
    """Three seconds of the first world break nothing; all of it is among the fifty below."""
    verdict = simulate(1, Settings(seconds=3.0))

    assert verdict.is_fine, verdict.violations
    tally = verdict.tally
    assert tally.faults
    assert tally.operations
    assert tally.grants
    assert tally.events
    assert tally.locks["exclusive"]


@pytest.mark.check
@pytest.mark.timeout(3_000)
def test_every_world_keeps_every_promise() -> None:
    """Fifty worlds, and those that once found something, break nothing, and finish."""
    total = total_of(SEEDS)

    assert not [name for name in HAPPENS if total.locks[name] < len(SEEDS) / 4]
    assert total.locks["deadlocks"] >= 5
    assert total.sums["reached"] > len(SEEDS)
    total.deeds.check(stream_request=7_000, stream_request_at_the_leader=3_000, stream_break=300)


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_more_worlds_keep_every_promise() -> None:
    """Fifty more: what is met in each is asked of all, as above."""
    total = total_of(list(MORE_SEEDS))

    assert not [name for name in HAPPENS if total.locks[name] < len(MORE_SEEDS) / 4]


@pytest.mark.check
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [3, 5])
def test_the_same_seed_makes_the_same_trace(seed: int) -> None:
    """Twice in this process, after other work, the traces are equal line by line.

    That their digests are, here and in other processes, is the next test.
    """
    settings = Settings(seconds=8.0, keep_lines=None)

    one = simulate(seed, settings)
    simulate(seed + 1, Settings(seconds=1.0))
    other = simulate(seed, settings)

    assert one.log_length > 50
    assert one.lines == other.lines
    assert one.trace_digest == other.trace_digest


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("settings", "hash_seeds"),
    [
        pytest.param(Settings(seconds=0.3), ("4242",), id="a moment"),
        long(Settings(seconds=8.0), ("1", "4242"), id="anything"),
        long(
            Settings(seconds=4.0, only_faults=("rot_at_rest",)),
            ("1", "4242"),
            id="bytes of the log",
        ),
    ],
)
def test_the_trace_does_not_depend_on_the_hash_seed(
    settings: Settings, hash_seeds: tuple[str, ...]
) -> None:
    """Other processes, with other hash seeds, make the same world; damage tells of its bytes."""
    program = DIGEST_OF_SEED.format(seed=5, settings=settings)

    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in hash_seeds
    }

    assert digests == {simulate(5, settings).trace_digest + "\n"}


def test_two_seeds_make_two_worlds() -> None:
    """A seed decides something."""
    digests = {simulate(seed, Settings(seconds=0.3, settle_s=0.2)).trace_digest for seed in (1, 2)}

    assert len(digests) == 2


@pytest.mark.check
@pytest.mark.timeout(300)
def test_clocks_that_run_too_slow_are_found() -> None:
    """A client whose clock is far slower than promised believes too long, and that is noticed."""
    settings = Settings(seconds=20.0, client_clock_rates=(0.5, 0.6), stops_at_first=True)

    assert any(
        violation.promise == "no session ends early"
        for seed in range(6, 26)  # in a kind world no lease comes near its end
        for violation in simulate(seed, settings).violations
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("planted", "promise"),
    [
        long(Planted(refused=(EndHold,)), "ends by itself in time", id="never ended"),
        long(Planted(answer=holds_for_longer), "bounded holds", id="believed in for ever"),
        long(Planted(refused=(ExpireSession,)), "sessions end in time", id="kept for ever"),
        pytest.param(Planted(changes_kept=0), "watches", id="refused for nothing"),
        pytest.param(
            Planted(tell=safe_for_longer), "safe as long as the leader says", id="safe for longer"
        ),
    ],
)
def test_a_bound_that_is_not_kept_is_found(planted: Planted, promise: str) -> None:
    """A leader that ends nothing is noticed, and a client that believes beyond the end."""
    settings = Settings(seconds=20.0, stops_at_first=True, planted=planted)

    found = (simulate(seed, settings).violations for seed in range(10))

    assert next(filter(None, found))[0].promise == promise


@pytest.mark.check
def test_a_leader_without_room_is_not_blamed_for_sessions_that_it_tries_to_end() -> None:
    """Its disk refuses each proposal at once, so between two looks nothing is under way."""
    verdict = simulate(3, Settings(seconds=20.0, only_faults=("full_disk",)))

    assert verdict.is_fine, verdict.violations


def test_a_world_may_end_with_its_first_broken_promise() -> None:
    """For who looks for no more than one, the rest of the world is not run."""
    settings = Settings(seconds=5.0, stops_at_first=True, planted=Planted(answer=fails))

    verdict = simulate(1, settings)

    assert verdict.violations[0].promise == "no task fails"
    assert verdict.simulated_s < 1.0


def test_a_world_that_does_not_finish_is_found() -> None:
    """Without time to settle the promise of progress is broken."""
    verdict = simulate(1, Settings(seconds=3.0, settle_s=0.2))

    assert any(violation.promise == "progress" for violation in verdict.violations)


def test_a_door_that_fails_is_found() -> None:
    """A request that a member can not even refuse is no lost answer, but a mistake."""
    settings = Settings(seconds=1.0, settle_s=0.2, planted=Planted(answer=fails))

    verdict = simulate(1, settings)

    assert any(violation.promise == "no task fails" for violation in verdict.violations)


def test_a_failure_names_its_seed_and_how_to_see_it_again() -> None:
    """The text of a failure has the promise, the last events and the command that replays it."""
    settings = Settings(seconds=3.0, settle_s=0.2)

    text = failure_text(simulate(1, settings), settings)

    assert text.startswith("seed 1: ")
    assert "progress: " in text
    assert "python -m tests.simulation --seed 1 --seconds 3 --trace" in text
