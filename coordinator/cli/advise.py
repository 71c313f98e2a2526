"""``advise``: the questions to ask before a distributed lock is taken."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click

from coordinator.cli.connection import Settings, endpoint_options, pass_settings
from coordinator.cli.output import document


@dataclass(frozen=True, slots=True)
class Question:
    """A question whose yes is a reason to do without; ``alternative`` is what to do instead."""

    name: str
    text: str
    alternative: str
    page: str

    @property
    def flag(self) -> str:
        """The option that answers the question."""
        return "--" + self.name.replace("_", "-")


QUESTIONS = (
    Question(
        "single_node",
        "Does everything that contends run on one machine?",
        "Use a mutex of the process, or a lock on a local file (flock). It "
        "costs nanoseconds to microseconds, and the kernel frees it when its holder dies.",
        "docs/locks.md#do-you-need-a-lock",
    ),
    Question(
        "native_cas",
        "Does the store that you write to have a conditional write of its own (a version column, "
        "compare-and-set, a unique key, SELECT FOR UPDATE)?",
        "Let the store decide: read, compute, write if nothing has changed, else try again. The "
        "check and the write are one step, so no pause can come in between.",
        "docs/locks.md#what-to-do-instead",
    ),
    Question(
        "eventual_consistency",
        "Is it enough if the result is right in the end (work that may be done twice, counters "
        "that are merged, one queue for each partition)?",
        "Make the work idempotent, or give each partition one worker, or append to a log and let "
        "one reader decide the order. Then nobody waits.",
        "docs/locks.md#what-to-do-instead",
    ),
    Question(
        "bottleneck",
        "Would the lock service be the bottleneck (thousands of acquisitions in a second, or one "
        "lock that everybody needs for long)?",
        "Lock less: partition the work, lock by record and not by table, take a lock for a batch "
        "and not for an item. `coordinator diagnose` says whether a lock is the bottleneck.",
        "docs/locks.md#do-you-need-a-lock",
    ),
)

_LOCK = (
    "Use a lock, and pass its fencing token with every write: let the store refuse a token lower "
    "than the highest it has seen (coordinator.guards). Without that the lock saves work, but does "
    "not make it correct."
)
_LOCK_PAGE = "docs/locks.md#efficiency-or-correctness"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, where to read on, and the answers that it follows from."""

    use_lock: bool
    recommendation: str
    page: str
    answers: dict[str, bool]
    also: tuple[str, ...] = ()


def advice_for(answers: dict[str, bool]) -> Advice:
    """Return the recommendation: the first yes decides, further ones are named as well.

    A bottleneck alone still needs a lock, only a smaller one.
    """
    reasons = [each for each in QUESTIONS if answers[each.name]]
    if not reasons:
        return Advice(True, _LOCK, _LOCK_PAGE, answers)
    first, *others = reasons
    return Advice(
        use_lock=first.name == "bottleneck",
        recommendation=first.alternative,
        page=first.page,
        answers=answers,
        also=tuple(f"{each.alternative} ({each.page})" for each in others),
    )


def _answer_options(function: Any) -> Any:
    for question in reversed(QUESTIONS):
        name = question.name.replace("_", "-")
        option = click.option(f"--{name}/--no-{name}", default=None, help=question.text)
        function = option(function)
    return function


@click.command()
@_answer_options
@endpoint_options
@pass_settings
def advise(settings: Settings, /, **given: bool | None) -> None:
    """Ask four questions, and say whether a distributed lock is what you need.

    Options answer questions in advance; with --json all four are needed. No cluster is needed.

    \b
    Examples:
      coordinator advise
      coordinator advise --no-single-node --native-cas --no-eventual-consistency --no-bottleneck
    """
    answers = {name: answer for name, answer in given.items() if answer is not None}
    missing = [each for each in QUESTIONS if each.name not in answers]
    if missing and settings.is_json:
        raise _unanswered(missing)
    for question in missing:
        try:
            answers[question.name] = click.confirm(question.text)
        except click.Abort:  # nobody is there to be asked
            raise _unanswered(missing) from None
    advice = advice_for(answers)
    if settings.is_json:
        click.echo(document(asdict(advice)))
        return
    click.echo(advice.recommendation)
    for other in advice.also:
        click.echo(f"Also: {other}")
    if not advice.use_lock:
        click.echo("You do not need a distributed lock for this.")
    click.echo(f"Read {advice.page}.")


def _unanswered(missing: list[Question]) -> click.UsageError:
    flags = ", ".join(f"{each.flag} or --no-{each.flag[2:]}" for each in missing)
    return click.UsageError(f"expected {flags}; found nobody to ask")
