"""The members as one client asks them: one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.errors import BadArgumentsError


class Endpoints:
    """The members' URLs: one is current and kept while it serves."""

    def __init__(self, urls: Sequence[str], shuffle: Callable[[list[str]], None]) -> None:
        if not urls:
            raise BadArgumentsError("endpoints: expected the URL of one member or more, found none")
        self._urls = [url.rstrip("/") for url in urls]
        shuffle(self._urls)
        self._at = 0

    @property
    def urls(self) -> Sequence[str]:
        """All of them."""
        return self._urls

    @property
    def current(self) -> str:
        """The URL of the member that is asked now."""
        return self._urls[self._at]

    def avoid(self, url: str) -> None:
        """Go on with the next one, if ``url`` is still the current one."""
        if self.current == url:
            self._at = (self._at + 1) % len(self._urls)

    def __len__(self) -> int:
        return len(self._urls)
