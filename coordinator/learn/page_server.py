"""The page of the stories on this machine: its files, its deeds, and its stream of steps.

It listens on 127.0.0.1 alone, and a page of another site cannot use it:

1. A ``Host`` other than ours is refused, also for files: a page can make its own name point here
   (DNS rebinding), and only this header shows it. So is a foreign ``Origin``.
2. Everything below ``/learn/live`` needs the key in the header ``Learn-Key``, which a page of
   another site can neither know nor send without asking. The key is drawn for each run. It comes to
   the page in the fragment of the address, which browsers do not send, and which the page removes.
3. What a request may do is in the table of deeds; what can grow has a limit.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, Final

from aiohttp import web

from coordinator.console.pages import CONSOLE, HEADERS, INDEX, LEARN, content_type, read_pages
from coordinator.errors import BadArgumentsError, CoordinatorError, ThrottledError, to_problem
from coordinator.learn.film import Film
from coordinator.learn.playing import Playing
from coordinator.learn.stage import Venue

HOST: Final = "127.0.0.1"
KEY_HEADER: Final = "Learn-Key"
LIVE: Final = "/learn/live"
BODY_BYTES_MAX = 4_096
STREAMS_MAX = 16
_BLANK_S = 5.0
"""A blank line after so long without a step: who has gone is noticed."""


class PageServer:
    """Serves the page, until its ``async with`` is left.

    Args:
        place: where stories play; None: there is no cluster, a film is shown alone.
        film: what the page opens with.
    """

    def __init__(self, place: Venue | None, port: int = 0, film: Film | None = None) -> None:
        self.key = secrets.token_urlsafe(24)
        self._port = port
        self._film = film
        self._playing = None if place is None else Playing(place)
        self._files: dict[str, bytes] = {}
        self._streams = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The URL at which it listens."""
        return f"http://{HOST}:{self._port}"

    @property
    def address(self) -> str:
        """What to open in a browser, with the key in its fragment."""
        return f"{self.url}/learn#key={self.key}"

    async def __aenter__(self) -> PageServer:
        for site in (CONSOLE, LEARN):
            found = await asyncio.to_thread(read_pages, site)
            self._files |= {f"/{site}/{name}": body for name, body in found.items()}
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._guard])
        app.add_routes([
            web.get(f"{LIVE}/stage", self._stage),
            web.get(f"{LIVE}/steps", self._steps),
            web.get(f"{LIVE}/film", self._show_film),
            web.post(f"{LIVE}/deeds", self._deed),
            web.get("/", self._root),
            web.get("/{path:.*}", self._file),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        door = web.TCPSite(self._runner, HOST, self._port)
        await door.start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._playing is not None:
            await self._playing.stop()
        assert self._runner is not None, "entered before it is left"
        await self._runner.cleanup()

    # --- who may ask

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            if request.host not in (f"{HOST}:{self._port}", f"localhost:{self._port}"):
                raise web.HTTPForbidden(text=f"expected the host {HOST}:{self._port}\n")
            origin = request.headers.get("Origin")
            if origin is not None and origin != f"http://{request.host}":
                raise web.HTTPForbidden(text="expected a page of this server\n")
            if request.path.startswith(f"{LIVE}/"):
                key = request.headers.get(KEY_HEADER, "")
                if not secrets.compare_digest(key.encode(), self.key.encode()):
                    raise web.HTTPForbidden(text=f"expected the key in {KEY_HEADER}\n")
            response: web.StreamResponse = await handler(request)
        except CoordinatorError as error:
            response = web.json_response(to_problem(error), status=error.http_status)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=error.text)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    # --- files

    async def _root(self, _request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/learn"})

    async def _file(self, request: web.Request) -> web.Response:
        name = request.path.rstrip("/")
        if name == f"/{LEARN}":
            name = f"/{LEARN}/{INDEX}"
        body = self._files.get(name)
        if body is None:
            raise web.HTTPNotFound(text="no such file; the page is at /learn\n")
        return web.Response(body=body, headers={"Content-Type": content_type(name) or ""})

    # --- the stage

    async def _stage(self, _request: web.Request) -> web.Response:
        found: dict[str, Any] = {"has_film": self._film is not None, "has_stage": False}
        if self._playing is not None:
            found |= self._playing.description()
        return web.json_response(found)

    async def _show_film(self, _request: web.Request) -> web.Response:
        film = self._film
        if film is None and self._playing is not None:
            film = self._playing.film()
        if film is None:
            raise web.HTTPNotFound(text="no film\n")
        text = await asyncio.to_thread(film.to_json)
        return web.Response(text=text, content_type="application/json")

    async def _deed(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise BadArgumentsError(
                f"Content-Type: expected application/json, found {request.content_type!a:.80}"
            )
        try:
            body = json.loads(await request.text())
        except (ValueError, LookupError, RecursionError):  # no JSON, or in no such charset
            body = None
        if not isinstance(body, dict):
            raise BadArgumentsError("body: expected a JSON object, found none")
        await self._the_playing().do(body)
        return web.json_response({})

    async def _steps(self, request: web.Request) -> web.StreamResponse:
        playing = self._the_playing()
        if self._streams >= STREAMS_MAX:
            raise ThrottledError(f"expected at most {STREAMS_MAX} pages, found as many already")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "application/x-ndjson"})
        self._streams += 1
        try:
            await response.prepare(request)
            async for line in playing.lines(_BLANK_S):
                await response.write(line)
        except ConnectionError:
            pass  # the page was closed
        finally:
            self._streams -= 1
        return response

    def _the_playing(self) -> Playing:
        if self._playing is None:
            raise BadArgumentsError("expected a cluster to play on, found a film alone")
        return self._playing
