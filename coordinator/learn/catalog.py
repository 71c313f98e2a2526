"""The list of every story, in an order to read them in, each with the command that runs it.

The data is a file of the page (``coordinator/console/learn``), so that both show the same list.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Story:
    """One story: what it is about, what runs it, and the page that explains it ("" if none)."""

    part: str
    title: str
    runs: str
    page: str


@cache
def stories() -> tuple[Story, ...]:
    """Return every story, in the order to read them in."""
    text = resources.files("coordinator").joinpath("console/learn/catalog.json").read_text("utf-8")
    return tuple(
        Story(part["part"], each["title"], each["runs"], each.get("page", ""))
        for part in json.loads(text)
        for each in part["stories"]
    )


def in_words() -> str:
    """Return the list as a person at a terminal reads it."""
    lines: list[str] = []
    part = ""
    for number, story in enumerate(stories(), 1):
        if story.part != part:
            part = story.part
            lines += ["", part]
        lines += [f"{number:4}. {story.title}", f"        {story.runs}"]
    lines += [
        "",
        "Those of `python -m examples` are in the source of this product; each takes --pace 0.2",
        "to run five times as fast. The others run from here, and in the page of this verb.",
    ]
    return "\n".join(lines).lstrip("\n")
