"""/console and /learn: static pages for people, which anybody may load; / leads to the first.

1. They hold no secret and no state: what they show, the browser asks of the HTTP API, with the
   rights of the person before it.
2. A name is looked up whole among those that exist (``console.pages``): no name leads elsewhere.
3. The headers let a page load from its own member alone, and be framed by nobody. There are no
   cookies: a page of another site can make a browser send a request, but not the Authorization
   header.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from coordinator.console.pages import CONSOLE, HEADERS, INDEX, LEARN, content_type, read_pages
from coordinator.errors import UnknownRouteError
from coordinator.wire.request import Answer, IncomingRequest, wants
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.etags import is_unchanged
from coordinator.wire.routes.paths import target_path
from coordinator.wire.routes.route import Route
from coordinator.wire.strict_json import shortened


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it is sent."""

    body: bytes
    content_type: str
    etag: str


class PageRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._pages: dict[str, dict[str, Page]] = {}
        """The pages of each site that was asked for: few members are."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of both sites."""
        return (
            Route("GET", "/", self.root, "root", is_open=True),
            Route("HEAD", "/", self.root, "root_head", is_open=True),
            *self._site(CONSOLE),
            *self._site(LEARN),
        )

    async def root(self, request: IncomingRequest) -> Answer:
        """Lead a browser to the console: the address that people know is that of the member."""
        if not wants(request, "text/html"):
            raise UnknownRouteError("/: no such route; the routes are in /openapi.json")
        _, zxid, index = self._door.member.labels()
        # Relative: a proxy may serve this below a path of its own.
        headers = {"Location": CONSOLE, "Cache-Control": "no-cache", "Vary": "Accept"}
        return Answer(None, None, zxid, index, status=303, headers=headers)

    def _site(self, site: str) -> tuple[Route, ...]:
        async def answer(request: IncomingRequest) -> Answer:
            return await self._answer(site, request)

        return (
            Route("GET", f"/{site}", answer, site, is_open=True),
            Route("HEAD", f"/{site}", answer, f"{site}_head", is_open=True),
            Route("GET", f"/{site}/{{path}}", answer, f"{site}_file", is_open=True),
            Route("HEAD", f"/{site}/{{path}}", answer, f"{site}_file_head", is_open=True),
        )

    async def _answer(self, site: str, request: IncomingRequest) -> Answer:
        """Return a file, or 304 to a client that has it."""
        pages = self._pages.get(site)
        if pages is None:
            pages = self._pages[site] = await asyncio.to_thread(_load, site)
        path = target_path(request.target)
        name = "/".join(path.split("/")[2:])
        page = pages.get(name or INDEX)
        if page is None:
            raise UnknownRouteError(
                f"{shortened(ascii(path)[1:-1])}: no such file; the page is at /{site}"
            )
        _, zxid, index = self._door.member.labels()
        headers = {**HEADERS, "ETag": page.etag}
        if is_unchanged(request, page.etag):
            return Answer(None, None, zxid, index, status=304, headers=headers)
        return Answer(page.body, page.content_type, zxid, index, headers=headers)


def _load(site: str) -> dict[str, Page]:
    return {name: _page(name, body) for name, body in read_pages(site).items()}


def _page(name: str, body: bytes) -> Page:
    kind = content_type(name)
    assert kind is not None, "only such are read"
    return Page(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
