"""Arguments that cannot be: refused with a reason before anything is sent (found by tests/fuzz)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from coordinator.client import AsyncClient, connect
from coordinator.errors import BadArgumentsError

SURROGATE = "\udcff"  # what an argument of a command that is not UTF-8 becomes
NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "url",
    ["http://", "http://[", "http://127.0.0.1:99999", "http://h:x", f"http://{SURROGATE}", "h:x"],
)
def test_an_endpoint_that_is_no_url_is_named(url: str) -> None:
    """Before the first verb, and with what was expected."""
    with pytest.raises(BadArgumentsError, match="endpoints: expected URLs"):
        connect(url)


@pytest.mark.parametrize(
    "url", ["http://h:1/x", "http://h:1/v1", "http://h//x", "http://h:1?stale", "http://h/#a"]
)
def test_an_endpoint_has_no_path(url: str) -> None:
    """It would be asked for, and answered with 404, at the first verb; a slash alone is no path."""
    with pytest.raises(BadArgumentsError, match=r"end with the host or the port.*found '.+' in"):
        connect(("http://ok:1", url))
    connect("http://h:1/, https://[::1]:7071/")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0, 1e300])
def test_a_time_that_cannot_be_is_no_timeout(seconds: float) -> None:
    """Neither NaN nor the infinite, for both timeouts."""
    with pytest.raises(BadArgumentsError, match="timeouts"):
        connect(NOBODY, timeout=seconds)
    with pytest.raises(BadArgumentsError, match="timeouts"):
        connect(NOBODY, session_timeout=seconds)


@pytest.mark.parametrize(
    "verb",
    [
        lambda client: client.get("/" + SURROGATE),
        lambda client: client.create("/" + SURROGATE, b""),
        lambda client: client.lock(SURROGATE),
        lambda client: client.children("/a", after=SURROGATE),
    ],
)
async def test_text_that_utf_8_cannot_carry_is_refused(
    verb: Callable[[AsyncClient], Awaitable[object]],
) -> None:
    """A lone surrogate in a path or a name is a bad argument, not a failure of an encoder."""
    async with connect(NOBODY, timeout=0.2) as client:
        with pytest.raises(BadArgumentsError, match="UTF-8"):
            await verb(client)
