"""Arguments that cannot be: refused with a reason before anything is sent (found by tests/fuzz)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

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


NO_SECONDS = [
    *(float("nan"), float("inf"), 0.0, 0, -1.0, 1e300, "10", None, True, timedelta(seconds=10)),
]


@pytest.mark.parametrize("argument", ["timeout", "session_timeout"])
@pytest.mark.parametrize("seconds", NO_SECONDS, ids=repr)
def test_a_time_that_cannot_be_is_refused_by_the_name_that_the_caller_wrote(
    argument: str, seconds: Any
) -> None:
    """Neither NaN nor the infinite, nor what is no number of seconds; with the first line."""
    if argument == "timeout" and seconds is None:
        return  # the usual one
    with pytest.raises(BadArgumentsError, match=rf"connect: expected {argument} in seconds"):
        connect(NOBODY, **{argument: seconds})


def test_a_session_that_no_cluster_keeps_so_long_is_refused_at_once() -> None:
    """And not at its first use, as a field of a body that the caller never wrote."""
    with pytest.raises(BadArgumentsError, match="session_timeout in seconds, above 0, up to"):
        connect(NOBODY, session_timeout=1e9)
    with pytest.raises(BadArgumentsError, match=r"lease_margin_ratio from 0 to 0\.5, found '1'"):
        connect(NOBODY, lease_margin_ratio="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, True, 1.5, b"lock"])
async def test_a_name_is_text_or_an_integer_for_every_verb(name: Any) -> None:
    """The verbs of a client take what the recipes take, and refuse the rest with words."""
    async with connect(NOBODY, timeout=0.2) as client:
        for verb in (
            lambda: client.lock(name),
            lambda: client.election(name),
            lambda: client.grant(name, "1-1"),
            lambda: client.revoke(name, by="ann", reason="a test"),
            lambda: client.resize(name, 2),
            lambda: client.observe(name),
        ):
            with pytest.raises(BadArgumentsError, match="a name of text or an integer, found"):
                await verb()  # type: ignore[no-untyped-call]


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
