"""A film: what happened, step by step, so that a page can play it, pause, step back and replay it.

1. A step has a time (ms since the film began), who acted, a sentence, the zxid if it was a change
   of the cluster, and the changes of the state it shows: ``[path, value]``; None removes.
2. The state after a step is that of all changes up to it. So one step back is one change less.
3. A step without a sentence is a sample (a lease that runs down): shown, but no stop of its own.
4. A step may ask the reader to guess what comes next before it is shown.
5. A film is one JSON document with a format number. It never holds code or markup: pages show it as
   text. It is bounded: STEPS_MAX steps, FILM_BYTES_MAX bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from coordinator.clock import Clock
from coordinator.errors import BadArgumentsError

FORMAT = 1
STEPS_MAX = 20_000
FILM_BYTES_MAX = 16 * 1024 * 1024
TEXT_CHARACTERS_MAX = 2_000
TIME_MS_MAX = 2**53 - 1
"""The largest integer that every reader of JSON reads as it is."""
PATH_NAMES_MAX = 8
_LEVELS_MAX = 20
"""The levels of lists and objects within a value."""
_RESERVED_NAMES = frozenset({"__proto__", "constructor", "prototype"})
"""Names that mean something else in the language of the page."""

Value = str | int | float | bool | None | list[Any] | dict[str, Any]
Changes = Mapping[tuple[str, ...], Value]


@dataclass(frozen=True, slots=True)
class Guess:
    """What the reader guesses before the step is shown; ``right`` is the index of the answer."""

    text: str
    answers: tuple[str, ...]
    right: int
    why: str


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, ``at_ms`` after the film began; without ``text`` it is a sample."""

    at_ms: int
    who: str = ""
    text: str = ""
    zxid: int | None = None
    changes: Changes = field(default_factory=dict)
    question: Guess | None = None

    def document(self) -> dict[str, Any]:
        """Return the step as JSON has it; what is empty is left out."""
        found: dict[str, Any] = {"at_ms": self.at_ms}
        if self.text:
            found |= {"who": self.who, "text": self.text}
        if self.zxid is not None:
            found["zxid"] = self.zxid
        if self.changes:
            found["set"] = [[list(path), value] for path, value in self.changes.items()]
        if self.question is not None:
            found["ask"] = {
                "text": self.question.text,
                "answers": list(self.question.answers),
                "right": self.question.right,
                "why": self.question.why,
            }
        return found


@dataclass(frozen=True, slots=True)
class Film:
    """A recorded story; ``source`` says what was recorded, in words."""

    title: str
    source: str
    steps: tuple[Step, ...]

    def document(self) -> dict[str, Any]:
        """Return the film as JSON has it."""
        return {
            "format": FORMAT,
            "title": self.title,
            "source": self.source,
            "steps": [step.document() for step in self.steps],
        }

    def to_json(self) -> str:
        """Return the film as one JSON document, a line for each step."""
        whole = self.document()
        steps = ",\n".join(_json(each) for each in whole.pop("steps"))
        return f'{_json(whole)[:-1]}, "steps": [\n{steps}\n]}}\n'

    def state(self, count: int | None = None) -> dict[str, Any]:
        """Return the state after the first ``count`` steps, or after all."""
        found: dict[str, Any] = {}
        for step in self.steps[:count]:
            change_state(found, step.changes)
        return found


def change_state(state: dict[str, Any], changes: Changes) -> None:
    """Make ``changes`` in ``state``, as the page does."""
    for path, value in changes.items():
        place = state
        for name in path[:-1]:
            below = place.get(name)
            if not isinstance(below, dict):
                below = place[name] = {}
            place = below
        if value is None:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = deepcopy(value)  # later changes are not made in the step


class Recorder:
    """Records steps as they happen, and hands each to those that listen."""

    def __init__(self, clock: Clock, title: str, source: str) -> None:
        self.title = title
        self.source = source
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._steps: list[Step] = []
        self.state: dict[str, Any] = {}
        """The state after the last step."""
        self.on_step: list[Callable[[Step], None]] = []

    @property
    def at_ms(self) -> int:
        """How long ago the film began, in ms."""
        return self._clock.monotonic_ms() - self._began_ms

    @property
    def steps(self) -> Sequence[Step]:
        """What was recorded so far."""
        return self._steps

    @property
    def is_full(self) -> bool:
        """Whether the film has as many steps as a film may have."""
        return len(self._steps) >= STEPS_MAX

    def step(
        self,
        who: str,
        text: str,
        changes: Changes | None = None,
        *,
        zxid: int | None = None,
        question: Guess | None = None,
        at_ms: int | None = None,
    ) -> None:
        """Record one step, now or at ``at_ms``; a full film takes no more."""
        if self.is_full:
            return
        if len(self._steps) == STEPS_MAX - 1:
            who, text, changes = "film", f"The film ends here: it has {STEPS_MAX} steps.", {}
        at_ms = self.at_ms if at_ms is None else at_ms
        text = text[:TEXT_CHARACTERS_MAX]
        step = Step(at_ms, who, text, zxid, dict(changes or {}), question)
        self._steps.append(step)
        change_state(self.state, step.changes)
        for listener in tuple(self.on_step):
            listener(step)

    def sample(self, changes: Changes) -> None:
        """Record changes that are no stop of their own: a lease that runs down."""
        self.step("", "", changes)

    def film(self) -> Film:
        """Return what was recorded so far, in the order of time."""
        ordered = sorted(self._steps, key=lambda step: step.at_ms)
        return Film(self.title, self.source, tuple(ordered))


def parse_film(text: str) -> Film:
    """Return the film in ``text``.

    Raises:
        BadArgumentsError: it is no film of this format, or larger than a film may be.
    """
    if len(text) > FILM_BYTES_MAX or len(text.encode(errors="replace")) > FILM_BYTES_MAX:
        raise BadArgumentsError(f"film: expected at most {FILM_BYTES_MAX} bytes, found more")
    try:
        whole = json.loads(text)
        # What Python reads and a browser does not: NaN, half of a character.
        json.dumps(whole, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadArgumentsError(f"film: expected JSON, found: {error}") from None
    found = whole.get("format") if isinstance(whole, dict) else None
    if found != FORMAT:
        raise BadArgumentsError(f"film: expected format {FORMAT}, found {found!r}")
    steps = whole.get("steps")
    if not isinstance(steps, list) or len(steps) > STEPS_MAX:
        found = f"{len(steps)} of them" if isinstance(steps, list) else _shown(steps)
        raise BadArgumentsError(f"film: expected up to {STEPS_MAX} steps in a list, found {found}")
    return Film(
        _text(whole.get("title")),
        _text(whole.get("source")),
        tuple(_step(number, each) for number, each in enumerate(steps)),
    )


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else f"{value!r:.40}"


def _step(number: int, document: Any) -> Step:
    at_ms = document.get("at_ms") if isinstance(document, dict) else None
    if type(at_ms) is not int or not 0 <= at_ms <= TIME_MS_MAX:
        raise BadArgumentsError(
            f"film: step {number}: expected an object with at_ms, 0 to {TIME_MS_MAX}, "
            f"found {_shown(at_ms)}"
        )
    changes: dict[tuple[str, ...], Value] = {}
    sets = document.get("set", [])
    if not isinstance(sets, list):
        raise BadArgumentsError(
            f"film: step {number}: expected a list in set, found {_shown(sets)}"
        )
    for each in sets:
        is_pair = isinstance(each, list) and len(each) == 2 and isinstance(each[0], list)
        if not is_pair or not 0 < len(each[0]) <= PATH_NAMES_MAX:
            raise BadArgumentsError(
                f"film: step {number}: expected [path, value] in set, found {_shown(each)}"
            )
        path = tuple(map(str, each[0]))
        if _RESERVED_NAMES.intersection(path):
            raise BadArgumentsError(
                f"film: step {number}: expected no name of {sorted(_RESERVED_NAMES)}, found {path}"
            )
        if not _is_shallow(each[1], _LEVELS_MAX):
            raise BadArgumentsError(
                f"film: step {number}: expected at most {_LEVELS_MAX} levels in {path}, found more"
            )
        changes[path] = each[1]
    ask = document.get("ask")
    question = None
    if ask is not None:
        try:
            answers = tuple(map(_text, ask["answers"]))
            question = Guess(
                _text(ask["text"]), answers, int(ask["right"]), _text(ask["why"])
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadArgumentsError(
                f"film: step {number}: expected a question in ask, found {_shown(ask)}"
            ) from None
    zxid = document.get("zxid")
    return Step(
        at_ms,
        _text(document.get("who", "")),
        _text(document.get("text", "")),
        zxid if type(zxid) is int else None,
        changes,
        question,
    )


def _is_shallow(value: Any, levels: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(each, levels - 1) for each in below)


def _text(value: Any) -> str:
    return str(value)[:TEXT_CHARACTERS_MAX]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
