"""The pages of the documentation, and the examples in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The answers of these are looked at, too, by tests of their own (tests/wire, tests/docs).
_OF_OWN_TESTS = ("access.md", "backup.md", "http-api.md", "http-locks.md", "install.md")
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.name not in _OF_OWN_TESTS
]

FENCE = re.compile(
    r"(?P<before><!--[^\n]*-->\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

EXAMPLE_URL = re.compile(r"http://127\.0\.0\.1:707\d")


@dataclass(frozen=True)
class Example:
    page: Path
    line: int
    language: str
    body: str
    not_run: str | None

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def examples(*languages: str) -> Iterator[Example]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["language"] not in languages:
                continue
            reason = re.search(r"not run: (.*?) *-->", match["before"] or "")
            line = text.count("\n", 0, match.start()) + 1
            body = match["body"]
            yield Example(page, line, match["language"], body, reason[1] if reason else None)


def lines_of(body: str) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", "", body).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line
