"""Guards: the storage half of fencing. A store refuses late writes of a former holder.

::

    guard = SqliteGuard("accounts.db", "accounts/17")
    with Lock(client, "accounts/17", guards=[guard]) as grant:
        guard.write(grant.fencing_token, "UPDATE accounts SET cents = 500 WHERE id = 17")

There is one file per store. In each, the check of the token and the write are one atomic statement
or transaction of that store. All guards refuse a lower token with StaleTokenError, accept an equal
one, and have ``raise_to``, which a lock calls before it returns a grant.

``postgresql``, ``mysql``, ``redis`` and ``s3`` need the client library of their store, an optional
extra (``pip install 'raft-coordinator[postgresql]'``); the names below are loaded when first used.
``conformance`` tests guards, your own too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.guards.fencing_header import HttpGuard as HttpGuard
    from coordinator.guards.file import FileGuard as FileGuard
    from coordinator.guards.http_proxy import FencingProxy as FencingProxy
    from coordinator.guards.mysql import MysqlGuard as MysqlGuard
    from coordinator.guards.postgresql import AsyncPostgresGuard as AsyncPostgresGuard
    from coordinator.guards.postgresql import PostgresGuard as PostgresGuard
    from coordinator.guards.redis import AsyncRedisGuard as AsyncRedisGuard
    from coordinator.guards.redis import RedisGuard as RedisGuard
    from coordinator.guards.s3 import S3Guard as S3Guard
    from coordinator.guards.sqlite import SqliteGuard as SqliteGuard
    from coordinator.recipes.locks.raising import Guard as Guard

_HOMES = {
    "AsyncPostgresGuard": "coordinator.guards.postgresql",
    "AsyncRedisGuard": "coordinator.guards.redis",
    "FencingProxy": "coordinator.guards.http_proxy",
    "FileGuard": "coordinator.guards.file",
    "Guard": "coordinator.recipes.locks.raising",
    "HttpGuard": "coordinator.guards.fencing_header",
    "MysqlGuard": "coordinator.guards.mysql",
    "PostgresGuard": "coordinator.guards.postgresql",
    "RedisGuard": "coordinator.guards.redis",
    "S3Guard": "coordinator.guards.s3",
    "SqliteGuard": "coordinator.guards.sqlite",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'coordinator.guards' has no attribute {name!r}")
    return getattr(import_module(home), name)
