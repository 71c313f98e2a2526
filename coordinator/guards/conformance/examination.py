"""All trials in order, and what they found, in words for the author of the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from coordinator.guards.conformance import adversary, numbered, trials
from coordinator.guards.conformance.pausing import OwnCode
from coordinator.guards.conformance.subject import Factory
from coordinator.guards.conformance.trials import Bench, Trial, Wrong

PATIENCE_S = 5.0


def _trial(run: Callable[[Bench], None], danger: str) -> Trial:
    assert run.__doc__, "a trial says its rule"
    return Trial(run.__name__.replace("_", "-"), run.__doc__.strip(), danger, run)


TRIALS: Sequence[Trial] = (
    _trial(trials.growing_tokens, "Nobody can write, or a new holder cannot."),
    _trial(trials.lower_tokens, "A replaced holder overwrites its successor's data."),
    _trial(
        trials.equal_tokens,
        "The rightful holder can write only once; its next write is refused (refuse what is "
        "lower, not what is lower or equal).",
    ),
    _trial(
        trials.raised_guard,
        "A replaced holder that wakes before its successor's first write is let through.",
    ),
    _trial(trials.raising_lowers_nothing, "A late raise opens the door for replaced holders."),
    _trial(
        trials.numbers_not_words,
        "Compared as text, 9 is higher than 10; compared as floats, neighbours from 2**53 on are "
        "equal.",
    ),
    _trial(
        trials.only_integers,
        "A UUID or a word has no order: the guard lets through every writer that draws a high one.",
    ),
    _trial(trials.only_tokens_in_range, "What no cluster ever issued gets in, or blocks the rest."),
    _trial(
        trials.another_handle,
        "The highest token is remembered by each process for itself: the replaced holder asks its "
        "own memory, which knows of nobody higher.",
    ),
    _trial(trials.restart, "After a restart of the guard every replaced holder is let through."),
    _trial(trials.separate_values, "A holder of one lock shuts out the holders of all others."),
    _trial(
        adversary.paused_writer,
        "Check and write are two steps: a writer that is stopped between them overwrites.",
    ),
    _trial(
        adversary.paused_before_a_raise,
        "Check and write are two steps: the raise comes between them and does not help.",
    ),
    _trial(adversary.paused_raise, "A slow raise overwrites a higher token: the guard is lowered."),
    _trial(
        adversary.crash,
        "A killed writer leaves data without its token, a part of the data, or a guard that "
        "nobody can pass.",
    ),
    _trial(adversary.concurrent_writers, "Two writers at once get past the same check."),
)


NUMBER_TRIALS: Sequence[Trial] = (
    _trial(
        numbered.numbered_writes,
        "A write that was overtaken, or sent a second time, undoes the same holder's later one.",
    ),
    _trial(
        numbered.numbers_of_each_token,
        "A new holder, who counts from 1, is shut out; or its numbers mean nothing.",
    ),
    _trial(
        numbered.whole_numbers,
        "Compared as text, 9 is higher than 10: the holder's tenth write is refused.",
    ),
    _trial(
        numbered.numbers_elsewhere,
        "Each process, or each start, has numbers of its own: a repeated write is let through.",
    ),
    _trial(
        numbered.paused_numbered_writer,
        "Check and write are two steps: a late write that is stopped between them overwrites.",
    ),
)
"""Only for guards that know write numbers."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one trial found wrong."""

    trial: Trial
    fault: str

    def __str__(self) -> str:
        return (
            f"{self.trial.name}\n  rule:   {self.trial.rule}\n  found:  {self.fault}\n"
            f"  danger: {self.trial.danger}"
        )


def try_guard(
    factory: Factory, trial: Trial, *, pause_in: Sequence[str] = (), patience_s: float = PATIENCE_S
) -> Finding | None:
    """Run one trial on the guard that ``factory`` opens; None when there is nothing wrong.

    Args:
        factory: opens a handle on the value of the name it is given; see ``subject``.
        trial: one of ``TRIALS``.
        pause_in: modules and packages whose lines are the guard's own; by default all code that is
            neither of the standard library nor installed.
        patience_s: how long a call may take before it counts as stuck.
    """
    bench = Bench(factory, OwnCode(tuple(pause_in)), patience_s)
    try:
        trial.run(bench)
    except Wrong as wrong:
        return Finding(trial, str(wrong))
    except Exception as error:
        return Finding(trial, f"a call raised {type(error).__name__}: {error}")
    finally:
        bench.close()
    return None


def examine(
    factory: Factory, *, pause_in: Sequence[str] = (), patience_s: float = PATIENCE_S
) -> Iterator[tuple[Trial, Finding | None]]:
    """Run all trials, those of write numbers if it knows any; yield each with what it found."""
    bench = Bench(factory, OwnCode(tuple(pause_in)), patience_s)
    try:
        knows_numbers = bench.open().knows_numbers
    except Exception:  # the trials say what it was
        knows_numbers = False
    finally:
        bench.close()
    for trial in (*TRIALS, *(NUMBER_TRIALS if knows_numbers else ())):
        yield trial, try_guard(factory, trial, pause_in=pause_in, patience_s=patience_s)
