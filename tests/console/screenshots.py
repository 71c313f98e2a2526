"""The pictures of docs/console.md: ``python -m tests.console.screenshots`` takes them again."""

from __future__ import annotations

import sys
from pathlib import Path

from coordinator.testing import local_cluster
from tests.console.browser import Visitor, launched, missing
from tests.console.scene import Scene

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "console"
BYTES_MAX = 150 * 1024
PICTURES = (
    # file, screen, width, height, scheme
    ("cluster.png", "cluster", 1_280, 830, "light"),
    ("locks.png", "locks", 1_280, 460, "dark"),
    ("lock.png", "locks/daily-report", 1_280, 1_000, "light"),
    ("waits.png", "waits", 1_280, 880, "dark"),
    ("tree.png", "tree/%2Fapp", 1_280, 760, "light"),
    ("phone.png", "locks/daily-report", 360, 760, "dark"),
)


def main() -> None:
    """Take all of them."""
    if lack := missing():
        sys.exit(lack)
    FOLDER.mkdir(exist_ok=True)
    with local_cluster(members=3) as cluster, launched() as browser:
        scene = Scene(cluster)
        scene.begin()
        for name, screen, width, height, scheme in PICTURES:
            size = {"width": width, "height": height}
            tab = Visitor(browser, scene.url, viewport=size, color_scheme=scheme)
            page = tab.open(screen)
            page.wait_for_timeout(800)
            page.screenshot(path=FOLDER / name)
            tab.close()
            length = (FOLDER / name).stat().st_size
            print(f"{name}: {length // 1024} KiB")
            if length > BYTES_MAX:
                sys.exit(f"{name}: expected at most {BYTES_MAX // 1024} KiB")
        page_of_dialog(browser, scene)
        scene.end()


def page_of_dialog(browser: object, scene: Scene) -> None:
    """Take the picture of what is asked before a deed."""
    tab = Visitor(browser, scene.url, viewport={"width": 1_280, "height": 760})
    page = tab.open("locks/daily-report")
    page.get_by_role("button", name="Revoke…").click()
    page.wait_for_timeout(300)
    page.screenshot(path=FOLDER / "revoke.png")
    tab.close()


if __name__ == "__main__":
    main()
