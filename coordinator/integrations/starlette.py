"""The client and the locks of a FastAPI or Starlette application.

::

    app = FastAPI(lifespan=client_lifespan())

    account = holding(lambda request: f"accounts/{request.path_params['number']}", timeout=2)

    @app.post("/accounts/{number}/close")
    async def close(number: int, grant: Annotated[Grant, Depends(account, scope="function")]):
        return {"closed": number, "token": grant.fencing_token}

1. One asyncio client for each worker process, opened before the first request and closed after the
   last. ``client_of`` finds it, in a dependency or in a plain Starlette endpoint.
2. A request that does not get its lock in time is answered with 409 and its endpoint does not run.
3. With ``scope="function"`` the lock is released before the response is sent, so no client reads
   "200" of a request that lost its lock. With FastAPI's other scope it is released afterwards.
4. When the lock is lost, the endpoint's task is cancelled and LockLostError is raised: 500. A plain
   ``def`` endpoint runs in a thread that nothing can stop: it calls ``grant.check()``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Unpack

from coordinator.client import AsyncClient, Connector, connect
from coordinator.errors import BadArgumentsError, LockTimeoutError
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.base.names import name_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import LockOptions

try:
    from starlette.exceptions import HTTPException
    from starlette.requests import HTTPConnection
except ImportError as error:
    raise missing_extra("starlette", "fastapi") from error

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""What an application takes as ``lifespan``; it yields what requests find in their state."""

_STATE = "coordinator_client"


def client_lifespan(
    connector: Callable[[], Connector] = connect, *, around: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that opens a client, and closes it when the application ends.

    Args:
        connector: called once for each start: ``lambda: connect("http://10.0.0.7:7071")``. By
            default the client connects to ``COORDINATOR_ENDPOINTS``.
        around: the application's own lifespan; it runs while the client is open, and finds it in
            ``app.state.coordinator_client``.

    Raises:
        BadArgumentsError: ``connector`` cannot be called: it is the URL itself, perhaps.
    """
    if not callable(connector):
        url = connector if isinstance(connector, str) else "http://10.0.0.7:7071"
        raise BadArgumentsError(
            f"client_lifespan: expected what makes a client at each start, such as `lambda: "
            f"connect({url!r})`, found {connector!r}"
        )

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
        async with connector() as client:
            setattr(app.state, _STATE, client)
            if around is None:
                yield {_STATE: client}
                return
            async with around(app) as state:
                yield {**(state or {}), _STATE: client}

    return lifespan


def client_of(connection: HTTPConnection) -> AsyncClient:
    """Return the client of the application that serves ``connection``; for ``Depends``.

    Raises:
        BadArgumentsError: the application was made without ``client_lifespan``.
    """
    client = getattr(connection.state, _STATE, None)
    if not isinstance(client, AsyncClient):
        raise BadArgumentsError(
            "client_of: expected an application with lifespan=client_lifespan(), found one that "
            "has no client; a test client has to be entered with `with`"
        )
    return client


def holding(
    key: str | Callable[[HTTPConnection], str | int], **options: Unpack[LockOptions]
) -> Callable[[HTTPConnection], AsyncIterator[Grant[AsyncClient]]]:
    """Return a dependency that holds the lock ``key`` around an endpoint, and gives it the grant.

    Args:
        key: the lock's name, or a function that makes it of the request.
        options: those of ``Lock``; ``timeout`` is 10 seconds unless said otherwise.

    Raises:
        HTTPException: 409, for a request that did not get the lock in time.
        LockLostError: the lock was lost while the endpoint ran.
        All else that ``Lock.acquire`` raises.
    """

    async def dependency(connection: HTTPConnection) -> AsyncIterator[Grant[AsyncClient]]:
        name = name_of(key(connection) if callable(key) else key, "key")
        has_begun = False
        try:
            async with Lock(client_of(connection), name, **options) as grant:
                has_begun = True
                yield grant
        except LockTimeoutError:
            if has_begun:  # the endpoint waited for another lock
                raise
            raise HTTPException(
                409, "another request holds the lock", headers={"Retry-After": "1"}
            ) from None

    return dependency
