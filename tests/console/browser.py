"""A real browser: Debian's chromium, driven by playwright; nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--no-sandbox",  # a container's root has none
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--force-device-scale-factor=1",
)
# The rules of WCAG 2.2, levels A and AA, and what axe-core calls best practice.
_AXE = """async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: tags, resultTypes: ["violations"] });
  return violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)}`));
}"""


def missing() -> str:
    """Return what the tests in a browser lack here; "" if nothing."""
    if chromium() is None:
        return "chromium is not installed: `tests/install browser` does it on Debian"
    try:
        import axe_playwright_python  # noqa: F401
        import playwright.sync_api  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed: it is in the extra `browser`"
    return ""


def accessibility_scripts() -> tuple[str, str, str]:
    """Return what a page runs in turn: axe-core itself, its rules, and what it does not look at.

    Each returns what is wrong, a sentence each.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    ours = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
    return f"{AXE_SCRIPT}\n;[]", _AXE, ours


def faults(page: Any) -> list[str]:
    """Return what is wrong with a page for who can not see it well, or not at all."""
    return [fault for script in accessibility_scripts() for fault in page.evaluate(script)]


def chromium() -> str | None:
    """Return where the browser is."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextmanager
def launched() -> Iterator[Any]:
    """Run a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One tab, with all that it complained of."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        options.setdefault("color_scheme", "light")
        self.url = url
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(8_000)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # An answer that is an error is logged by the browser as such; the page says it in words.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def open(self, screen: str, *, site: str = "/console") -> Any:
        """Go to a screen, and return its page once it is drawn."""
        self.page.goto(f"{self.url}{site}#/{screen}")
        self.page.wait_for_selector(f'main[data-screen="{screen.partition("/")[0]}"] h1')
        return self.page

    def close(self) -> None:
        """Close the tab, and fail if there was a complaint."""
        self.context.close()
        assert self.complaints == []
