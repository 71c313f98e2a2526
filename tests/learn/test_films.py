"""Films: what is recorded, what is read back, and that hostile ones are refused. No cluster."""

from __future__ import annotations

import json

import pytest

from coordinator.clock import ManualClock
from coordinator.errors import BadArgumentsError
from coordinator.learn.film import (
    FILM_BYTES_MAX,
    FORMAT,
    STEPS_MAX,
    Film,
    Guess,
    Recorder,
    Step,
    parse_film,
)

QUESTION = Guess("Who holds?", answers=("A", "B"), right=1, why="A is frozen.")


def recorded() -> Recorder:
    clock = ManualClock()
    recorder = Recorder(clock, "a title", "a source")
    recorder.step("A", "A holds", {("lock", "holder"): "A", ("lock", "token"): 33}, zxid=33)
    clock.advance(200)
    recorder.sample({("lock", "left_ms"): 4_800})
    clock.advance(4_800)
    recorder.step("A", "its lease ends", {("lock", "holder"): None}, question=QUESTION)
    return recorder


def test_a_film_is_the_same_when_it_was_written_and_read() -> None:
    """Times, zxids, changes, samples and questions; one step to a line."""
    film = recorded().film()

    text = film.to_json()

    assert parse_film(text) == film
    assert len(text.splitlines()) == 2 + len(film.steps)


def test_one_step_back_is_one_change_less() -> None:
    """The state is that of all changes up to a step; None removes."""
    film = recorded().film()

    assert film.state(0) == {}
    assert film.state(1) == {"lock": {"holder": "A", "token": 33}}
    assert film.state(2)["lock"]["left_ms"] == 4_800
    assert film.state() == recorded().state == {"lock": {"token": 33, "left_ms": 4_800}}


def test_what_comes_later_does_not_change_what_a_step_says() -> None:
    """A step sets a whole object, a later one a part of it; back at the first it is as it was."""
    recorder = Recorder(ManualClock(), "", "")
    recorder.step("A", "one", {("lock",): {"holder": "A"}})
    recorder.step("B", "two", {("lock", "holder"): "B"})
    film = recorder.film()

    assert film.state() == {"lock": {"holder": "B"}}
    assert film.state(1) == {"lock": {"holder": "A"}}


def test_steps_are_ordered_by_their_time() -> None:
    """A step that took a question to word is where it happened, not where it was worded."""
    recorder = Recorder(ManualClock(), "", "")
    recorder.step("B", "later", at_ms=30)
    recorder.step("A", "earlier", at_ms=20)

    assert [step.text for step in recorder.film().steps] == ["earlier", "later"]


def test_listeners_hear_each_step() -> None:
    received: list[Step] = []
    recorder = Recorder(ManualClock(), "", "")
    recorder.on_step.append(received.append)

    recorder.step("A", "acquires")
    recorder.sample({("zxid",): 3})

    assert [step.text for step in received] == ["acquires", ""]


def test_a_film_is_bounded_and_says_so() -> None:
    """A recorder that runs for ever keeps the beginning, and says where it stopped."""
    recorder = Recorder(ManualClock(), "", "")
    for number in range(STEPS_MAX + 10):
        recorder.step("A", str(number))

    film = recorder.film()

    assert len(film.steps) == STEPS_MAX
    assert "ends here" in film.steps[-1].text
    assert recorder.is_full


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"format": 2, "steps": []}',
        '{"format": 1}',
        '{"format": 1, "steps": [1]}',
        '{"format": 1, "steps": [{"at_ms": "soon"}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": [["a", 1]]}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": [[[], 1]]}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": [[["__proto__", "x"], 1]]}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "ask": {"text": "?"}}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": 5}]}',
        "[" * 100_000,
        '{"format": 1, "title": "\\ud800", "steps": []}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": [[["a"], NaN]]}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": [[["a"], 1e999]]}]}',
        '{"format": 1, "steps": [{"at_ms": 1, "set": [[["a"], %s]]}]}' % ("[" * 500 + "]" * 500),
        '{"format": 1, "steps": [{"at_ms": true}]}',
        '{"format": 1, "steps": [{"at_ms": -1}]}',
        '{"format": 1, "steps": [{"at_ms": 1%s}]}' % ("0" * 400),
    ],
)
def test_what_is_no_film_is_refused(text: str) -> None:
    """In words that say what was expected; never by an error of another kind."""
    with pytest.raises(BadArgumentsError, match="expected"):
        parse_film(text)


def test_a_film_that_is_too_large_is_refused() -> None:
    many = json.dumps({"format": FORMAT, "steps": [{"at_ms": 1}] * (STEPS_MAX + 1)})

    with pytest.raises(BadArgumentsError, match="steps"):
        parse_film(many)
    with pytest.raises(BadArgumentsError, match="bytes"):
        parse_film(" " * (FILM_BYTES_MAX + 1))


def test_long_texts_are_cut() -> None:
    recorder = Recorder(ManualClock(), "", "")
    recorder.step("A", "x" * 10_000)

    assert len(Film("", source="", steps=recorder.film().steps).steps[0].text) == 2_000
