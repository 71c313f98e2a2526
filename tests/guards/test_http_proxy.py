"""The fencing proxy in front of a service that knows nothing of tokens, over real sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from coordinator.errors import (
    BadArgumentsError,
    ConfigError,
    NoAuthError,
    StaleTokenError,
    StaleWriteError,
    UnavailableError,
    from_problem,
)
from coordinator.guards import FencingProxy, HttpGuard
from coordinator.guards.conformance import NUMBER_TRIALS, TRIALS, Trial, try_guard
from coordinator.guards.fencing_header import PROOF_HEADER, TOKEN_HEADER, WRITE_HEADER
from coordinator.guards.http_proxy import ProxyOptions
from tests.guards.proxied import proxied
from tests.recipes.callable_kinds import Ran, async_kinds, never_kinds


@pytest.fixture
def ledger(memory_path: Path) -> Path:
    return memory_path / "fence.db"


async def test_a_write_needs_a_token_and_a_stale_one_is_refused(ledger: Path) -> None:
    """412 with both tokens; the service never saw the request."""
    async with proxied(ledger) as world:
        assert await world.put("/accounts/17", b"by 33", "33") == 201
        assert await world.put("/accounts/17", b"by 34", "34") == 201
        assert await world.put("/accounts/17", b"again", "34") == 201

        assert await world.put("/accounts/17", b"late", "33") == 412
        assert isinstance(world.problem, StaleTokenError)
        assert "token 33 is stale, 34 has been seen" in world.problem.message
        assert await world.put("/accounts/17", b"none") == 400
        assert await world.put("/accounts/18", b"another", "1") == 201

        assert world.service.documents == {"/accounts/17": b"again", "/accounts/18": b"another"}


@pytest.mark.parametrize(
    "token", [str(UUID(int=34)), "34.0", "+34", "034", "0", "-1", "3 4", "", "9223372036854775808"]
)
async def test_what_is_no_token_is_refused(ledger: Path, token: str) -> None:
    """A UUID, a float, a sign, a leading zero, out of range: 400, and nothing is forwarded."""
    async with proxied(ledger) as world:
        assert await world.put("/accounts/17", b"x", token) == 400
        assert await world.put("/accounts/17", b"x", "33", "34") == 400
        assert world.service.seen == []


async def test_a_compressed_body_arrives_as_it_was_sent(ledger: Path) -> None:
    """It is decoded by the service alone; a compressed form, which hides its fields, is refused."""
    async with proxied(ledger) as world:
        headers = {TOKEN_HEADER: "34"}
        url = world.url + "/accounts/17"
        async with world.client.put(url, data=b"a" * 99, headers=headers, compress="gzip") as found:
            assert found.status == 201
        assert world.service.seen[0].headers["Content-Encoding"] == "gzip"

        data = {"_method": "DELETE"}
        async with world.client.post(url, data=data, headers=headers, compress="gzip") as found:
            assert found.status == 400

        assert world.service.documents == {"/accounts/17": b"a" * 99}


async def test_a_write_that_is_sent_twice_is_forwarded_once(ledger: Path) -> None:
    """Its number is used up before it is forwarded, whatever became of it."""
    headers = [(TOKEN_HEADER, "34"), (WRITE_HEADER, "7")]
    async with proxied(ledger) as world:

        async def breaks(request: web.Request) -> None:
            assert request.transport is not None
            request.transport.abort()

        world.service.before_answer = breaks
        url = world.url + "/accounts/17"
        async with world.client.put(url, data=b"a", headers=headers) as answer:
            assert answer.status == 504
        world.service.before_answer = None
        async with world.client.put(url, data=b"a", headers=headers) as answer:
            assert answer.status == 412
            problem = from_problem(await answer.json(content_type=None))
        assert isinstance(problem, StaleWriteError)
        assert (problem.token, problem.write_number, problem.highest_write_number) == (34, 7, 7)
        assert len(world.service.seen) == 1
        assert await world.put("/accounts/17", b"without a number", "34") == 201


@pytest.mark.parametrize("numbers", [["0"], ["-1"], ["1.0"], ["07"], ["x"], ["1", "2"]])
async def test_what_is_no_write_number_is_refused(ledger: Path, numbers: list[str]) -> None:
    """400, and nothing is forwarded."""
    headers = [(TOKEN_HEADER, "34"), *[(WRITE_HEADER, number) for number in numbers]]
    async with proxied(ledger) as world:
        async with world.client.put(world.url + "/a", data=b"", headers=headers) as answer:
            assert answer.status == 400
        assert world.service.seen == []


async def test_reads_pass_as_they_are(ledger: Path) -> None:
    """No token is asked for, and statuses, headers and bodies come through."""
    async with proxied(ledger) as world:
        headers = {TOKEN_HEADER: "7", "X-Mine": "1"}
        async with world.client.put(world.url + "/a", data=b"body", headers=headers) as answer:
            assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
        url = URL(world.url + "/a?q=%2F", encoded=True)
        async with world.client.get(url, headers=headers) as answer:
            assert (answer.status, await answer.read()) == (200, b"body")
        async with world.client.get(world.url + "/none") as answer:
            assert answer.status == 404

        seen = world.service.seen[1]
        assert seen.headers["X-Mine"] == "1"
        assert seen.raw_path == "/a?q=%2F"


async def test_an_answer_that_breaks_off_is_cut_off_and_not_made_up(ledger: Path) -> None:
    """Half a document is not followed by the text of an error, nor ended as if it were whole."""
    async with proxied(ledger) as world:
        await world.put("/a", b"x" * 100_000, "7")

        async def break_off(request: web.Request) -> None:
            response = web.StreamResponse(headers={"Content-Length": "100000"})
            await response.prepare(request)
            await response.write(b"x" * 50_000)
            assert request.transport is not None
            request.transport.close()

        world.service.before_answer = break_off

        async with world.client.get(world.url + "/a") as answer:
            with pytest.raises(aiohttp.ClientError):
                await answer.read()


@pytest.mark.parametrize(
    "path",
    [
        "//a", "/a//b", "/./a", "/a/../b", "/a%2Fb", "/a%252Fb", "/%2e%2e/a", "/a\\b", "/%ff",
        "/accounts/17#a", "/accounts/17?x=1#a", "/accounts/17;x=1", "/accounts;x/17", "/a%23b",
        "/a%3Bb", "/a%3Fb", "/a.", "/a%20", "/a./b", "http://other/accounts/17", "*",
    ],
)  # fmt: skip
async def test_a_path_of_two_readings_is_refused(ledger: Path, path: str) -> None:
    """It would be one resource here and another one there."""
    async with proxied(ledger) as world:
        host, port = world.url.removeprefix("http://").split(":")

        def put() -> int:
            connection = http.client.HTTPConnection(host, int(port))
            connection.putrequest("PUT", path, skip_host=False)
            connection.putheader(TOKEN_HEADER, "7")
            connection.putheader("Content-Length", "0")
            connection.endheaders()
            status = connection.getresponse().status
            connection.close()
            return status

        assert await asyncio.to_thread(put) == 400
        assert world.service.seen == []


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("headers", "query", "body"),
    [
        ({"X-HTTP-Method-Override": "DELETE"}, "", b""),
        ({"X_HTTP_Method_Override": "DELETE"}, "", b""),
        ({"x-method-override": "PUT"}, "", b""),
        ({"X-Original-URL": "/accounts/18"}, "", b""),
        ({"x_rewrite_url": "/accounts/18"}, "", b""),
        ({}, "?_method=DELETE", b""),
        ({}, "?a=1&_METHOD=PUT", b""),
        ({}, "?%5Fmethod=DELETE", b""),
        ({}, "?a=1;_method=DELETE", b""),
        ({}, "?a;b;+_method=DELETE", b""),
        ({}, "?.method=DELETE", b""),
        ({}, "?[method=DELETE", b""),
        ({}, "?_method[]=DELETE", b""),
        ({}, "?x.http-method_override=PUT", b""),
        ({}, "?_method%00x=DELETE", b""),
        ({}, "?_method", b""),
        ({"Content-Type": FORM}, "", b"a=1&_method=DELETE"),
        ({"Content-Type": FORM}, "", b"a=1;_method=DELETE"),
        ({"Content-Type": FORM}, "", b"a=1&.method=DELETE"),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            "",
            b'--x\r\nContent-Disposition: form-data; name=".method"\r\n\r\nDELETE\r\n--x--\r\n',
        ),
        ({"Content-Type": FORM}, "", b"%5fmethod=DELETE"),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            "",
            b'--x\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--x--\r\n',
        ),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_that_names_another_method_or_path_is_refused(
    ledger: Path, method: str, headers: dict[str, str], query: str, body: bytes
) -> None:
    """Some services take it from there: a read would be a write, or one of another resource."""
    async with proxied(ledger) as world:
        token = {} if method == "GET" else {TOKEN_HEADER: "7"}
        url = URL(f"{world.url}/accounts/17{query}", encoded=True)
        async with world.client.request(
            method, url, headers={**token, **headers}, data=body or None
        ) as answer:
            assert (answer.status, (await answer.json(content_type=None))["code"]) == (
                400,
                "BadArguments",
            )
        assert world.service.seen == []


@pytest.mark.parametrize("query", ["?a=1;b=_method", "?my_method=x", "?method=PUT;x=_method=1"])
async def test_a_field_that_only_looks_alike_passes(ledger: Path, query: str) -> None:
    async with proxied(ledger) as world:
        url = URL(f"{world.url}/accounts/17{query}", encoded=True)
        async with world.client.put(url, data=b"x", headers={TOKEN_HEADER: "7"}) as answer:
            assert answer.status == 201


async def test_headers_of_two_names_are_not_forwarded(ledger: Path) -> None:
    """CGI makes Content_Length and Content-Length one; harmless ones come through as they are."""
    async with proxied(ledger) as world:
        headers = {TOKEN_HEADER: "7", "Content_Length": "9", "Fencing_Token": "8", "X-Trace": "t"}
        async with world.client.put(f"{world.url}/a", data=b"x", headers=headers) as answer:
            assert answer.status == 201

        (seen,) = world.service.seen
        assert not any("_" in name for name in seen.headers)
        assert seen.headers["X-Trace"] == "t"


async def test_a_token_that_no_grant_will_reach_is_refused(ledger: Path) -> None:
    """Raised to the end of all numbers, the resource would be shut for ever."""
    async with proxied(ledger) as world:
        assert await world.put("/a", b"first", str(2**53 + 1)) == 400
        assert await world.put("/a", b"first", "34") == 201
        assert await world.put("/a", b"high", str(2**63 - 1)) == 400
        with pytest.raises(BadArgumentsError, match="close the resource"):
            await asyncio.to_thread(HttpGuard(world.url, "/a").raise_to, 2**63 - 1)

        assert await world.put("/a", b"next", "35") == 201
        assert await world.put("/a", b"ages later", str(35 + 2**53)) == 201


async def test_with_a_secret_only_those_who_know_it_write_or_raise(ledger: Path) -> None:
    """A proof is of one resource, one token and one number, and of nothing else."""
    secret, other = b"k" * 64, b"l" * 64
    async with proxied(ledger, secret=secret) as world:

        async def put(headers: dict[str, str]) -> int:
            async with world.client.put(f"{world.url}/a", data=b"x", headers=headers) as answer:
                return answer.status

        guard = HttpGuard(world.url, "/a", secret=secret)
        await asyncio.to_thread(guard.raise_to, 34)
        assert await put(guard.headers(35)) == 201
        assert PROOF_HEADER not in world.service.seen[-1].headers
        assert await put(guard.headers(36, write_number=1)) == 201
        for forged in (
            {TOKEN_HEADER: "37"},
            HttpGuard(world.url, "/a", secret=other).headers(37),
            HttpGuard(world.url, "/b", secret=secret).headers(37),
            {**guard.headers(36), TOKEN_HEADER: "37"},
            {**guard.headers(37), WRITE_HEADER: "2"},
        ):
            assert await put(forged) == 403
        with pytest.raises(NoAuthError):
            await asyncio.to_thread(HttpGuard(world.url, "/a").raise_to, 99)
        assert await asyncio.to_thread(guard.highest_token) == 36
    with pytest.raises(BadArgumentsError, match="at least 32 bytes"):
        HttpGuard("http://127.0.0.1:9", "/a", secret=b"short")


async def test_two_spellings_of_a_path_are_one_resource(ledger: Path) -> None:
    """Percent-encoding and a slash at the end make no other resource."""
    async with proxied(ledger) as world:
        assert await world.put("/accounts/caf%C3%A9", b"by 34", "34") == 201

        assert await world.put("/accounts/café/", b"late", "33") == 412


async def test_check_and_write_do_not_interleave(ledger: Path) -> None:
    """While a request is under way the next for its resource waits, and others do not."""
    async with proxied(ledger) as world:
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def hold(request: web.Request) -> None:
            if request.path == "/a" and not arrived.is_set():
                arrived.set()
                await go_on.wait()

        world.service.before_answer = hold
        slow = asyncio.create_task(world.put("/a", b"by 33", "33"))
        await arrived.wait()
        next_one = asyncio.create_task(world.put("/a", b"by 34", "34"))
        assert await world.put("/b", b"other", "1") == 201
        assert not next_one.done()

        go_on.set()

        assert (await slow, await next_one) == (201, 201)
        assert world.service.documents["/a"] == b"by 34"


async def test_a_client_that_stops_sending_keeps_nobody_waiting(ledger: Path) -> None:
    """The body is read before the resource's turn: a ghost in mid-body is refused when it wakes."""
    async with proxied(ledger) as world:
        go_on = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b"half"
            await go_on.wait()
            yield b"rest"

        async def ghost() -> int:
            headers = {TOKEN_HEADER: "33"}
            async with world.client.put(world.url + "/a", data=body(), headers=headers) as answer:
                return answer.status

        late = asyncio.create_task(ghost())
        assert await world.put("/a", b"by 34", "34") == 201
        go_on.set()

        assert await late == 412
        assert world.service.documents["/a"] == b"by 34"


async def test_a_lost_answer_is_unknown_and_the_resource_rests(ledger: Path) -> None:
    """The service may still be at it: nobody else is let in before it has settled."""
    async with proxied(ledger, settle_s=0.3, turn_timeout_s=10.0) as world:
        finished: list[str] = []

        async def break_off(request: web.Request) -> None:
            if not finished:
                assert request.transport is not None
                request.transport.close()
                finished.append("first")

        world.service.before_answer = break_off
        began = asyncio.get_running_loop().time()

        assert await world.put("/a", b"by 33", "33") == 504
        assert not world.problem.definite
        assert len(world.service.seen) == 1, "the HTTP library did not send it again"
        assert await world.put("/a", b"by 34", "34") == 201

        assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_turn_that_does_not_come_is_definitely_not_forwarded(ledger: Path) -> None:
    """503: try again; and so when the service is not there at all."""
    async with proxied(ledger, turn_timeout_s=0.1) as world:
        go_on = asyncio.Event()
        arrived = asyncio.Event()

        async def hold(_: web.Request) -> None:
            arrived.set()
            await go_on.wait()

        world.service.before_answer = hold
        slow = asyncio.create_task(world.put("/a", b"by 33", "33"))
        await arrived.wait()

        assert await world.put("/a", b"by 34", "34") == 503
        assert isinstance(world.problem, UnavailableError)
        go_on.set()
        assert await slow == 201
    nowhere = FencingProxy("http://127.0.0.1:9", ledger, ProxyOptions(settle_s=0.0))
    async with TestServer(nowhere.application) as front, aiohttp.ClientSession() as client:
        answer = await client.put(front.make_url("/b"), headers={TOKEN_HEADER: "1"})
        assert answer.status == 503


async def test_tokens_outlive_the_proxy_and_a_ledger_has_one(ledger: Path) -> None:
    """After a restart the stale token is still refused; a second proxy does not start."""
    async with proxied(ledger) as world:
        assert await world.put("/a", b"by 34", "34") == 201
        with pytest.raises(ConfigError, match="in use"):
            async with proxied(ledger):
                pytest.fail("it started")
    async with proxied(ledger) as world:
        assert await world.put("/a", b"late", "33") == 412


async def test_a_lock_raises_a_resource_behind_the_proxy(ledger: Path) -> None:
    """HttpGuard is the guard of a lock; its header is checked before it is sent."""
    async with proxied(ledger) as world:
        guard = HttpGuard(world.url, "/accounts/17")
        assert await asyncio.to_thread(guard.highest_token) is None
        await asyncio.to_thread(guard.raise_to, 34)

        assert await asyncio.to_thread(guard.highest_token) == 34
        assert await world.put("/accounts/17", b"late", guard.headers(33)[TOKEN_HEADER]) == 412
        with pytest.raises(StaleTokenError, match="token 33 is stale, 34 has been seen"):
            await asyncio.to_thread(guard.raise_to, 33)
        with pytest.raises(TypeError):
            guard.headers(UUID(int=34))  # type: ignore[arg-type]
    with pytest.raises(UnavailableError):
        HttpGuard("http://127.0.0.1:9", "/a").raise_to(1)


class BehindProxy:
    """A document behind the proxy, as the conformance kit wants it."""

    def __init__(self, url: str, name: str) -> None:
        self.guard = HttpGuard(url, f"/{name}")
        self.path = f"/{name}"
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)

    def write(self, token: int, value: str) -> None:
        self._ask("PUT", value.encode(), self.guard.headers(token))

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self._ask("PUT", value.encode(), self.guard.headers(token, write_number=number))

    def read(self) -> bytes | None:
        return self._ask("GET", None, {})

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)

    def _ask(self, method: str, body: bytes | None, headers: dict[str, str]) -> bytes | None:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status == 404:
            return None
        if answer.status >= 400:
            raise from_problem(json.loads(content))
        return content


@pytest.mark.parametrize("trial", [*TRIALS, *NUMBER_TRIALS], ids=lambda trial: trial.name)
def test_the_proxy_passes_the_trials(trial: Trial, served: str) -> None:
    """The conformance kit, over HTTP."""
    finding = try_guard(partial(BehindProxy, served), trial, patience_s=15)
    assert finding is None, str(finding)


@pytest.mark.parametrize("kind", async_kinds(Ran()) | never_kinds(Ran()))
def test_a_resource_is_named_by_a_plain_function(kind: str) -> None:
    """Of a coroutine function each request would be another resource, and none of them fenced."""
    with pytest.raises(BadArgumentsError, match=r"expected a (plain )?function, found"):
        ProxyOptions((async_kinds(Ran()) | never_kinds(Ran()))[kind])
