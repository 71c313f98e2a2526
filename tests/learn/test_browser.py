"""The page of the freeze ray in a real browser: it plays, steps back, asks, and fits the screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coordinator.learn.film import parse_film
from coordinator.learn.page_server import PageServer
from coordinator.learn.simulated import film_of_trace
from coordinator.learn.stage import Venue
from coordinator.testing import local_cluster
from tests.console.browser import accessibility_scripts, chromium, missing
from tests.learn.test_page import FILMS, LESSON_IDS
from tests.learn.test_visualize import TRACE

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
STEPS_MAX = 150


@asynccontextmanager
async def visiting(
    server: PageServer, width: int = 1280, scheme: str = "light"
) -> AsyncIterator[Any]:
    """Give a tab; fail if the page has complained, or asked for what is not there."""
    from playwright.async_api import async_playwright

    complaints: list[str] = []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        context.set_default_timeout(10_000)
        page = await context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else 0)
        yield page
        await browser.close()
    assert complaints == []


async def play_to_the_end(page: Any) -> None:
    """By the keyboard alone; each question is answered by its first answer."""
    forward = page.get_by_role("button", name="One step forward (right arrow)")
    for _ in range(STEPS_MAX):
        if await forward.is_disabled():
            return
        answers = page.locator(".answers button")
        if await answers.count():
            await answers.first.click()
        await page.keyboard.press("ArrowRight")
    raise AssertionError("the film has no end")


async def test_the_ghost_writer_is_blocked_and_can_be_taken_back() -> None:
    """Stepped to the end, one back, to the beginning; a guess is judged."""
    async with PageServer(None) as server, visiting(server) as page:
        await page.goto(f"{server.url}/learn#/ghost-writer")
        await page.wait_for_selector(".log li")
        await page.locator("h1").click()
        await play_to_the_end(page)

        assert await page.locator(".shield").inner_text() == "BLOCKED 33 < 34"
        assert "Not so: It refuses it" in await page.locator(".verdict").inner_text()
        for _ in range(3):
            await page.keyboard.press("ArrowLeft")
        assert await page.locator(".shield").count() == 0
        await page.keyboard.press("Home")
        assert await page.locator(".log li").count() == 0
        await page.get_by_text("Fencing off: the damage").click()
        await page.wait_for_selector(".log li")
        await page.locator("h1").click()
        await play_to_the_end(page)
        assert "its work is lost" in await page.locator(".damage").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (2_560, "dark")])
async def test_every_lesson_can_be_read_by_everybody(width: int, scheme: str) -> None:
    """None is wider than the screen or hard to read; each has its film, code and one sentence."""
    async with PageServer(None) as server, visiting(server, width, scheme) as page:
        for name in (*LESSON_IDS, "list", "glossary", "film"):
            await page.goto(f"{server.url}/learn#/{name}")
            await page.wait_for_selector("main h1")
            if name in LESSON_IDS:
                await page.wait_for_selector(".log li")
                assert await page.locator("pre").count() == 2
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, name
            for script in accessibility_scripts():
                assert await page.evaluate(script) == [], name


async def test_the_key_leaves_the_address_and_opens_the_film() -> None:
    """It is kept for the tab alone; the film of a failing seed is shown with what was broken."""
    film = film_of_trace(TRACE.splitlines())
    async with PageServer(None, film=film) as server, visiting(server) as page:
        await page.goto(server.address)
        await page.wait_for_selector(".log li")
        await page.locator("h1").click()
        await play_to_the_end(page)

        assert server.key not in page.url
        assert server.key not in await page.content()
        assert await page.evaluate("JSON.stringify(localStorage)") == "{}"
        assert "a lock has one holder" in await page.locator(".stage").inner_text()


async def test_it_opens_with_the_story_that_the_address_names() -> None:
    """As the button of the console on a development cluster does: it plays at once."""
    with local_cluster(members=1) as cluster:
        place = Venue(cluster.endpoints, urls={"1": cluster.url("1")}, dying=lambda: None)
        async with PageServer(place) as server, visiting(server) as page:
            await page.goto(f"{server.address}&play=double-booking")
            await page.get_by_text("Ann books, and has a ticket").first.wait_for()

            assert server.key not in page.url


async def test_the_page_folds_a_film_as_python_does() -> None:
    """The state after the last step, of every recorded film."""
    async with PageServer(None) as server, visiting(server) as page:
        await page.goto(f"{server.url}/learn")
        await page.wait_for_selector(".log li")
        for name, text in FILMS.items():
            shown = await page.evaluate(
                """async (name) => {
                    const { filmOf } = await import("/learn/film.js");
                    const film = filmOf(await (await fetch(`/learn/films/${name}.json`)).json());
                    return film.state(film.steps.length);
                }""",
                name,
            )
            assert shown == parse_film(text).state(), name
