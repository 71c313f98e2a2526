"""ROOM 6: what programs import: one client core on asyncio, and a sync face over it.

``connect`` is the way in. Inside, from the network upwards: ``transport`` (one request, one
response), ``lanes`` (what makes a retry safe), ``delivery`` (one call answered, over any member,
before its deadline), ``lease`` and ``session`` (being alive in time), ``contest`` (one place in a
queue that the server runs), ``watching`` (changes, never missed), ``async_client`` and
``sync_client``.
"""

from coordinator.client.async_client import AsyncClient
from coordinator.client.connecting import Connector, connect
from coordinator.client.in_process import InProcessTransport
from coordinator.client.retry import RetryPolicy
from coordinator.client.session import Session, SessionState
from coordinator.client.sync_client import Client
from coordinator.client.transport import HttpTransport, Request, Response, Transport

__all__ = [
    "connect",
    "Connector",
    "Client",
    "AsyncClient",
    "Session",
    "SessionState",
    "RetryPolicy",
    "Transport",
    "Request",
    "Response",
    "HttpTransport",
    "InProcessTransport",
]
