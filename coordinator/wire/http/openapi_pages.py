"""The static pages as OpenAPI describes them: each a page and its files."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.console.pages import TYPES

PAGE_TYPES = tuple(each.partition(";")[0] for each in TYPES.values())
_WITHOUT = "The same without a body."


class PageOperation(NamedTuple):
    """One operation of a page."""

    operation_id: str
    method: str
    template: str
    summary: str


def _of(site: str, page: str, file: str) -> tuple[PageOperation, ...]:
    return (
        PageOperation(site, "GET", f"/{site}", page),
        PageOperation(f"{site}_head", "HEAD", f"/{site}", _WITHOUT),
        PageOperation(f"{site}_file", "GET", f"/{site}/{{path}}", file),
        PageOperation(f"{site}_file_head", "HEAD", f"/{site}/{{path}}", _WITHOUT),
    )


PAGES = (
    *_of(
        "console",
        "The console: the cluster, its locks, sessions and tree.",
        "A file that the console is made of.",
    ),
    *_of(
        "learn",
        "Lessons to play, on a cluster that may be broken.",
        "A file that the lessons are made of.",
    ),
)
