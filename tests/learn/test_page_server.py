"""The page on this machine: a page of another site can neither read nor do anything here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from coordinator.clock import ManualClock
from coordinator.console.pages import read_pages
from coordinator.learn.film import Recorder, parse_film
from coordinator.learn.page_server import KEY_HEADER, LIVE, PageServer

ASKED = ("/learn", f"{LIVE}/stage", f"{LIVE}/film")


def film_of_one_step() -> Recorder:
    recorder = Recorder(ManualClock(), "a title", "a source")
    recorder.step("A", "A holds", {("lock", "holder"): "A"}, zxid=33)
    return recorder


@pytest.fixture
async def server() -> AsyncIterator[PageServer]:
    async with PageServer(None, film=film_of_one_step().film()) as running:
        yield running


async def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, server.url + path, headers=headers) as reply,
    ):
        return reply.status, await reply.text()


async def test_the_page_and_what_it_loads_are_served(server: PageServer) -> None:
    """Under the headers that every page has; the key is not in them."""
    async with aiohttp.ClientSession() as session:
        for path in ("/learn", "/learn/", *(f"/learn/{name}" for name in read_pages("learn")),
                     "/console/shared/base.css"):  # fmt: skip
            async with session.get(server.url + path) as reply:
                assert reply.status == 200, path
                assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
                assert reply.headers["Cache-Control"] == "no-cache"
                assert server.key not in await reply.text()
    assert (await ask(server, "/learn/../pyproject.toml"))[0] == 404
    assert (await ask(server, "/learn/%2e%2e/%2e%2e/pyproject.toml"))[0] == 404
    assert (await ask(server, "/"))[0] == 200  # led to the page


async def test_the_key_is_needed_for_all_that_lives(server: PageServer) -> None:
    """It is in the fragment of the address, which no browser sends."""
    assert server.address == f"{server.url}/learn#key={server.key}"
    for path in (f"{LIVE}/stage", f"{LIVE}/film", f"{LIVE}/steps"):
        assert (await ask(server, path))[0] == 403
        assert (await ask(server, path, **{KEY_HEADER: server.key[:-1]}))[0] == 403
        assert (await ask(server, f"{path}?key={server.key}"))[0] == 403
    assert (await ask(server, f"{LIVE}/deeds", "POST"))[0] == 403


async def test_the_film_is_given_to_who_has_the_key(server: PageServer) -> None:
    status, text = await ask(server, f"{LIVE}/film", **{KEY_HEADER: server.key})

    assert status == 200
    assert parse_film(text) == film_of_one_step().film()


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost", "127.0.0.1:1"])
async def test_a_name_that_was_made_to_point_here_is_refused(
    server: PageServer, path: str, host: str
) -> None:
    """DNS rebinding: the page of another site would be of our origin for its browser."""
    assert (await ask(server, path, Host=host, **{KEY_HEADER: server.key}))[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", ""])
async def test_a_foreign_origin_is_refused(server: PageServer, origin: str) -> None:
    headers = {"Origin": origin, KEY_HEADER: server.key}

    assert (await ask(server, f"{LIVE}/stage", **headers))[0] == 403
    assert (await ask(server, f"{LIVE}/deeds", "POST", **headers))[0] == 403


async def test_without_a_cluster_there_are_no_deeds(server: PageServer) -> None:
    """A film is watched; what cannot be done is answered with what was expected."""
    headers = {KEY_HEADER: server.key, "Content-Type": "application/json"}
    status, text = await ask(server, f"{LIVE}/deeds", "POST", **headers)

    assert status == 400
    assert "expected" in text
    assert (await ask(server, f"{LIVE}/steps", **headers))[0] == 400


async def test_a_deed_says_what_it_is(server: PageServer) -> None:
    """As JSON: a form of another site cannot."""
    status, text = await ask(server, f"{LIVE}/deeds", "POST", **{KEY_HEADER: server.key})

    assert status == 400
    assert "Content-Type" in text
    headers = {KEY_HEADER: server.key, "Content-Type": "application/json; charset=unheard-of"}
    assert (await ask(server, f"{LIVE}/deeds", "POST", **headers))[0] == 400


async def test_two_runs_have_two_keys() -> None:
    async with PageServer(None) as one, PageServer(None) as other:
        assert one.key != other.key
        assert len(one.key) >= 32
