"""An HTTP reverse proxy that keeps stale writers from a service that cannot check tokens itself.

::

    python -m coordinator.guards.http_proxy --upstream http://127.0.0.1:8000 --ledger fence.db

    guard = HttpGuard("http://127.0.0.1:8080", "/accounts/17")
    with Lock(client, "accounts/17", guards=[guard]) as grant:
        requests.put("http://127.0.0.1:8080/accounts/17", data=...,
                     headers=guard.headers(grant.fencing_token))

1. GET, HEAD and OPTIONS pass. Every other request needs one header ``Fencing-Token`` and belongs to
   one resource, by default its path; ``resource_of`` may say otherwise.
2. For each resource one request at a time is checked and forwarded, and the next one waits for the
   upstream's answer: check and write do not interleave. The body is read before that turn
   begins, so a client that stops in the middle of sending keeps no other waiting.
3. The highest tokens lie in a SQLite file, synced before the request is forwarded, and that file
   belongs to one running proxy. All writers must come through that one.
4. If the answer of the upstream is lost the outcome is unknown (504), and the upstream may still be
   at it. So the resource rests for ``settle_s``, and all of them do when the proxy is started
   again: by then the upstream must have finished or dropped a request whose connection broke.
5. A write may carry its number in a header ``Fencing-Write``. It is used up before the request is
   forwarded, so one that is sent twice is forwarded once, whatever the outcome of the first.
6. A request that a service could read in two ways (``one_reading``) is refused: it would lead
   around 1.
7. Every client that reaches the proxy could raise a resource to a token that no grant has for
   years, and so close it to all. With a secret each token needs a proof made with it
   (``Fencing-Proof``); without one a token may be higher than the one before by
   ``token_jump_max`` at most.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from coordinator.client import kind_of
from coordinator.errors import (
    BadArgumentsError,
    ConfigError,
    CoordinatorError,
    DataTooLargeError,
    MethodNotAllowedError,
    OutcomeUnknownError,
    SlowRequestError,
    UnavailableError,
    to_problem,
)
from coordinator.guards.fencing_header import (
    FENCE_PATH,
    PROOF_HEADER,
    TOKEN_HEADER,
    WRITE_HEADER,
    checked_secret,
    refuse_unproven,
    token_of,
    write_number_of,
)
from coordinator.guards.one_reading import (
    forwarded,
    plain_path,
    refuse_form_overrides,
    refuse_overrides,
)
from coordinator.guards.sqlite import SqliteGuard

ResourceOf = Callable[[str, str], str | None]

_PASSING = {hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS}
_REFUSED = {hdrs.METH_TRACE, hdrs.METH_CONNECT}
_NOT_FORWARDED = {
    "host", "connection", "keep-alive", "proxy-connection", "proxy-authenticate",
    "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "expect",
    "content-length", PROOF_HEADER.lower(),
}  # fmt: skip
"""Of one connection only (RFC 9110 §7.6.1), made again, or for the proxy alone."""


def path_of_writes(method: str, path: str) -> str | None:
    """Return the resource of a request: its path, None if it only reads."""
    return None if method in _PASSING else path.rstrip("/") or "/"


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What may take how long, and how much.

    ``resource_of(method, path)`` gets the decoded path and returns the name of what a request
    writes, None for what needs no token.
    """

    resource_of: ResourceOf = path_of_writes
    upstream_timeout_s: float = 60.0
    body_timeout_s: float = 30.0
    turn_timeout_s: float = 30.0
    """How long a request waits for its turn at its resource."""
    settle_s: float = 10.0
    body_bytes_max: int = 16 * 1024 * 1024
    secret: bytes | None = None
    """Shared with those who may write or raise; None: every client that reaches the proxy may."""
    token_jump_max: int = 2**53
    """How much higher than the one before a token may be without a secret; ages of grants."""

    def __post_init__(self) -> None:
        if kind_of(self.resource_of) != "function":
            raise BadArgumentsError(
                f"resource_of: expected a plain function, found a {kind_of(self.resource_of)}"
            )
        if self.secret is not None:
            checked_secret(self.secret)


class FencingProxy:
    """Checks and forwards; ``application`` is what a web server runs."""

    def __init__(
        self, upstream: str, ledger: str | os.PathLike[str], options: ProxyOptions | None = None
    ) -> None:
        self._upstream = upstream.rstrip("/")
        self._ledger = Path(ledger)
        self._options = options or ProxyOptions()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._settling: set[asyncio.Task[None]] = set()
        self._settled_at = 0.0
        self._session: aiohttp.ClientSession

    @property
    def application(self) -> web.Application:
        """Return the application; it owns the ledger for as long as it runs."""
        application = web.Application(
            middlewares=[_problems],
            client_max_size=self._options.body_bytes_max,
            handler_args={"auto_decompress": False},  # the service does, as its headers say
        )
        application.cleanup_ctx.append(self._running)
        application.router.add_put(FENCE_PATH, self._raise)
        application.router.add_get(FENCE_PATH, self._highest)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    @asynccontextmanager
    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        is_new = not self._ledger.exists()
        lock = _own(self._ledger)
        try:
            SqliteGuard(self._ledger, "any").create_table()
            now = asyncio.get_running_loop().time()
            self._settled_at = now if is_new else now + self._options.settle_s
            async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._options.upstream_timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                # A connection of its own for each: one kept open may be gone when it is used again.
                connector=aiohttp.TCPConnector(force_close=True),
                middlewares=[_sent_once],
            ) as self._session:
                yield
            for task in self._settling:
                task.cancel()
        finally:
            os.close(lock)

    # --- what clients ask

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = plain_path(request.raw_path)
        refuse_overrides(request.headers, request.raw_path)
        if request.method in _REFUSED or path.startswith(FENCE_PATH):
            raise MethodNotAllowedError(f"{request.method} {path} is not forwarded")
        resource = self._options.resource_of(request.method, path)
        if resource is None:
            return await self._pass_on(request)
        if not isinstance(resource, str):  # it would be another resource for each request
            raise TypeError(f"resource_of: expected text or None, found {resource!r:.100}")
        number = write_number_of(request.headers.getall(WRITE_HEADER, []))
        token = self._token(request, resource, number)
        body = await self._body(request)
        turn = self._turns.setdefault(resource, asyncio.Lock())
        await self._take(turn, resource)
        is_at_rest = True
        try:
            await self._check(resource, token, number)
            is_at_rest = False
            answer = await self._forward(request, body)
            is_at_rest = True
            return answer
        except UnavailableError:
            is_at_rest = True
            raise
        finally:
            if is_at_rest:
                turn.release()
            else:
                self._rest(turn)

    async def _raise(self, request: web.Request) -> web.Response:
        resource = _named_resource(request)
        token = self._token(request, resource, None)
        turn = self._turns.setdefault(resource, asyncio.Lock())
        await self._take(turn, resource)
        try:
            await self._check(resource, token)
        finally:
            turn.release()
        return web.json_response({"resource": resource, "highest_token": token})

    async def _highest(self, request: web.Request) -> web.Response:
        resource = _named_resource(request)
        highest = await asyncio.to_thread(SqliteGuard(self._ledger, resource).highest_token)
        return web.json_response({"resource": resource, "highest_token": highest})

    def _token(self, request: web.Request, resource: str, number: int | None) -> int:
        """Return the request's token, once it is proven that its sender may use it."""
        token = token_of(request.headers.getall(TOKEN_HEADER, []))
        if self._options.secret is not None:
            proofs = request.headers.getall(PROOF_HEADER, [])
            refuse_unproven(self._options.secret, resource, token, number, proofs)
        return token

    # --- one resource, one request at a time

    async def _take(self, turn: asyncio.Lock, resource: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._options.turn_timeout_s):
                await asyncio.sleep(max(0.0, self._settled_at - loop.time()))
                await turn.acquire()
        except TimeoutError:
            raise UnavailableError(
                f"{resource}: another request is under way, or may be, for longer than "
                f"{self._options.turn_timeout_s} s; this one was not forwarded"
            ) from None

    async def _check(self, resource: str, token: int, number: int | None = None) -> None:
        guard = SqliteGuard(self._ledger, resource)

        def check() -> None:
            highest = guard.highest_token()
            if number is None and highest == token:
                return  # it is there already, and on disk
            self._refuse_jump(token, highest)
            with guard.transaction(token, write_number=number):
                pass

        # Not given up half way: what a thread has begun it ends, and the turn waits for it.
        work = asyncio.ensure_future(asyncio.to_thread(check))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def _refuse_jump(self, token: int, highest: int | None) -> None:
        """Refuse a token that no cluster can have reached since the one before."""
        most = (highest or 0) + self._options.token_jump_max
        if self._options.secret is None and token > most:
            raise BadArgumentsError(
                f"fencing token: expected at most {most} after {highest or 'none'}, found {token}; "
                "a higher one would close the resource to all later grants"
            )

    def _rest(self, turn: asyncio.Lock) -> None:
        async def settle() -> None:
            try:
                await asyncio.sleep(self._options.settle_s)
            finally:
                turn.release()

        task = asyncio.create_task(settle())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    # --- to the upstream and back

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._options.body_timeout_s):
                body = await request.read()
        except TimeoutError:
            raise SlowRequestError(
                f"expected the whole body within {self._options.body_timeout_s} s"
            ) from None
        refuse_form_overrides(request.headers, body)
        return body

    def _sending(self, request: web.Request, body: bytes | None) -> Any:
        return self._session.request(
            request.method,
            # As it came: nothing is decoded and encoded again on the way.
            URL(self._upstream + request.raw_path, encoded=True),
            headers=_forwarded(request.headers),
            data=body,
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        limit = self._options.body_bytes_max
        try:
            async with self._sending(request, body) as answer:
                content = await answer.content.read(limit + 1)
                while len(content) <= limit and (more := await answer.content.read(limit + 1)):
                    content += more
        except aiohttp.ClientConnectorError as error:
            raise UnavailableError(f"the upstream accepts no connection: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknownError(
                f"the upstream's answer was lost: {type(error).__name__}: {error}"
            ) from error
        if len(content) > limit:
            raise OutcomeUnknownError(f"the upstream's answer is longer than {limit} bytes")
        return web.Response(
            status=answer.status, reason=answer.reason, body=content,
            headers=_forwarded(answer.headers),
        )  # fmt: skip

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request) if request.can_read_body else None
        response: web.StreamResponse | None = None
        try:
            async with self._sending(request, body) as answer:
                response = web.StreamResponse(
                    status=answer.status, reason=answer.reason, headers=_forwarded(answer.headers)
                )
                if (length := answer.headers.get(hdrs.CONTENT_LENGTH)) is not None:
                    response.headers[hdrs.CONTENT_LENGTH] = length
                await response.prepare(request)
                if request.method != hdrs.METH_HEAD:
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OutcomeUnknownError, TimeoutError) as error:
            if response is None or not response.prepared:
                raise UnavailableError(f"the upstream does not answer: {error}") from error
            # Half of it is sent, so it can only be cut off: no status can be sent any more.
            if request.transport is not None:
                request.transport.abort()
            return response


async def _sent_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a PUT or DELETE again when its answer was lost."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise  # certainly not sent
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise OutcomeUnknownError(
            f"the upstream's answer was lost: {type(error).__name__}: {error}"
        ) from error


def _forwarded(headers: Mapping[str, str]) -> CIMultiDict[str]:
    named = {each.strip().lower() for each in headers.get(hdrs.CONNECTION, "").split(",")}
    return CIMultiDict(forwarded(headers, _NOT_FORWARDED | named))


def _named_resource(request: web.Request) -> str:
    names = request.query.getall("resource", [])
    if len(names) != 1:
        raise BadArgumentsError(f"query: expected one parameter 'resource', found {len(names)}")
    return names[0]


def _own(ledger: Path) -> int:
    """Return the lock that says whose ledger this is, for as long as it is open."""
    lock = os.open(f"{ledger}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(
            f"{ledger}: expected a ledger of our own, found it in use; two proxies would each "
            f"check and forward for themselves"
        ) from None
    return lock


@web.middleware
async def _problems(
    request: web.Request, handler: Callable[[web.Request], Any]
) -> web.StreamResponse:
    """Turn an error into its status; the one place."""
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except web.HTTPRequestEntityTooLarge:
        error: CoordinatorError = DataTooLargeError("the request's body is too large")
    except CoordinatorError as found:
        error = found
    return web.json_response(
        to_problem(error), status=error.http_status, content_type="application/problem+json"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run a proxy until it is interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m coordinator.guards.http_proxy",
        description="Forward requests, and refuse writes that carry a stale fencing token.",
    )
    parser.add_argument("--upstream", required=True, metavar="URL", help="the guarded service")
    parser.add_argument("--ledger", required=True, metavar="FILE", help="where tokens are kept")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument(
        "--settle",
        type=float,
        default=ProxyOptions().settle_s,
        metavar="SECONDS",
        help="how long the service may work at a request whose connection broke",
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="file with the secret that writers must prove to know (HttpGuard(..., secret=...))",
    )
    options = parser.parse_args(arguments)
    secret = None if options.secret_file is None else options.secret_file.read_bytes().strip()
    wanted = ProxyOptions(settle_s=options.settle, secret=secret)
    proxy = FencingProxy(options.upstream, options.ledger, wanted)
    web.run_app(proxy.application, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
