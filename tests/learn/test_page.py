"""What the page is made of: films that are true to their format, lessons that run what is there."""

from __future__ import annotations

import re

import pytest

from coordinator.console.pages import read_pages
from coordinator.learn.catalog import stories
from coordinator.learn.film import parse_film
from coordinator.learn.playing import PLAYED
from coordinator.learn.side_by_side import films
from examples.__main__ import stories as examples

PAGES = read_pages("learn")
FILMS = {
    name.removeprefix("films/").removesuffix(".json"): body.decode()
    for name, body in PAGES.items()
    if name.startswith("films/")
}
LESSONS = PAGES["lessons.js"].decode()
LESSON_IDS = tuple(re.findall(r'id: "([a-z-]+)"', LESSONS))


@pytest.mark.parametrize("name", FILMS)
def test_a_film_of_the_page_can_be_read(name: str) -> None:
    """In order of time, with questions that have an answer; of the right story."""
    film = parse_film(FILMS[name])

    times = [step.at_ms for step in film.steps]
    assert times == sorted(times)
    assert film.title
    for step in film.steps:
        if step.question is not None:
            assert 0 <= step.question.right < len(step.question.answers)
    assert name in {*PLAYED, *films(), "freeze-ray-unfenced"}


@pytest.mark.parametrize("name", films())
def test_a_simulated_film_is_what_the_simulation_makes(name: str) -> None:
    """Renew it by ``coordinator learn --script NAME --record FILE``."""
    assert FILMS[name] == films()[name].to_json()


def test_the_recorded_freeze_ray_shows_both_ends() -> None:
    fenced = parse_film(FILMS["freeze-ray"]).state()
    unfenced = parse_film(FILMS["freeze-ray-unfenced"]).state()

    assert fenced["store"]["shield"] == "BLOCKED 33 < 34"
    assert fenced["store"]["value"] == "by B"
    assert unfenced["store"]["value"] == "by A"
    assert "lost" in unfenced["store"]["damage"]


def test_lessons_run_stories_and_show_films_that_are_there() -> None:
    runs = {name for line in re.findall(r"runs: \[([^\]]*)\]", LESSONS)
            for name in re.findall(r'"(\w+)"', line)}  # fmt: skip
    shown = set(re.findall(r'\["([a-z-]+)",\s+"', LESSONS))

    assert runs <= set(examples())
    assert shown == set(FILMS)
    assert {story.page for story in stories() if story.page} <= {*LESSON_IDS, "stage"}


def test_every_lesson_can_be_read_in_two_minutes() -> None:
    """At 200 words a minute, with the code, and time left for the film."""
    lessons = re.findall(r"id: \"([a-z-]+)\"(.*?)runs:", LESSONS, re.DOTALL)

    assert len(lessons) == 8
    for name, text in lessons:
        assert len(text.split()) < 260, name
