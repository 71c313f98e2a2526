"""The leader, as far as a client knows: where writes and linearizable reads go first.

A client goes nowhere but to its own endpoints. A member announces the leader by the URL that the
cluster's configuration has for it; that is where requests go only if it is an endpoint, too. A
client that reaches the members by a proxy, a forwarded port or TLS lists other URLs, and is not led
around them; the member that is asked passes on to the leader what the leader has to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from coordinator.client.calling.endpoints import address_of


class KnownLeader:
    """``url`` is None while no leader is known, or none that can be reached at once.

    A transport that hears of the leader sets it; who is answered badly there says so with
    ``leave``, and goes on with any other member. ``endpoints`` are those of the client.
    """

    def __init__(self, endpoints: Iterable[str] = ()) -> None:
        self.url: str | None = None
        self.on_left: Callable[[str], None] | None = None
        self._endpoints: dict[str, str] = {}
        self.stay_within(endpoints)

    def stay_within(self, endpoints: Iterable[str]) -> None:
        """Prefer a leader only if it is one of these."""
        self._endpoints = {_normal(each): each for each in endpoints}

    def endpoint_of(self, announced: str | None) -> str | None:
        """Return the endpoint that is announced by this URL, None if it is none of the client's."""
        return None if announced is None else self._endpoints.get(_normal(announced))

    def endpoint_after(self, url: str) -> str:
        """Return the endpoint that follows ``url`` in their order; itself if there is no other."""
        urls = list(self._endpoints.values())
        return urls[(urls.index(url) + 1) % len(urls)] if url in urls else url

    def leave(self, url: str) -> None:
        """Prefer it no more, if ``url`` is the one that was preferred."""
        if self.url == url:
            self.url = None
            if self.on_left is not None:
                self.on_left(url)


@lru_cache(maxsize=256)
def _normal(url: str) -> str:
    """Return ``url`` as all its spellings are: the host in lower case, with its port."""
    try:
        host, port = address_of(url)
    except ValueError:
        return url
    return f"{urlsplit(url).scheme}://{host}:{port}"
