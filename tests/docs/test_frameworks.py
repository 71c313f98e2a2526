"""The page of frameworks: each program is short, and is read by Python as it stands.

``test_framework_programs`` runs them with the real frameworks.
"""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES_MAX = 20


def test_every_program_is_short_and_sound() -> None:
    """Under twenty lines that are not empty; and it uses what the package exports."""
    import coordinator

    assert len(BLOCKS) >= 6
    for block in BLOCKS:
        assert len([line for line in block.splitlines() if line.strip()]) < LINES_MAX, block
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "coordinator":
                assert all(hasattr(coordinator, each.name) for each in node.names), block


def test_every_framework_has_its_program() -> None:
    """The six that people ask for."""
    for name in ("FastAPI", "Django", "Celery", "Dramatiq", "APScheduler", "cron"):
        assert f"## {name}\n" in PAGE
