"""ROOM 6: what programs import: one client core on asyncio, and a sync face over it.

``connect`` is the way in. Inside, from the network upwards: ``transport`` (one request, one
response), ``lanes`` (what makes a retry safe), ``delivery`` (one call answered, over any member,
before its deadline), ``lease``, ``probing`` and ``session`` (being alive, and well, in time),
``contest`` (one place in a queue that the server runs), ``watching`` (changes, never missed),
``async_client`` and ``sync_client``.
"""

from coordinator.client.async_client import AsyncClient
from coordinator.client.conditions import Conditions, HoldsLock, IfHeld
from coordinator.client.connecting import Connector, connect
from coordinator.client.in_process import InProcessTransport
from coordinator.client.observing import ElectionStream
from coordinator.client.probing import Probe
from coordinator.client.retry import RetryPolicy
from coordinator.client.session import Session, SessionState
from coordinator.client.sync_client import BlockingStream, Client
from coordinator.client.transport import HttpTransport, Request, Response, Transport
from coordinator.client.watching import ChangeStream
from coordinator.wire.messages.elections import Elected, ElectionView
from coordinator.wire.messages.history import GrantRecord, GrantStory, Previous
from coordinator.wire.messages.holding import RevokeReply, SizeReply
from coordinator.wire.messages.locks import Closed, Contender, LockSummary, LockView, Spread
from coordinator.wire.messages.operations import (
    Check,
    Create,
    Delete,
    MultiReply,
    Operation,
    Read,
    Result,
    SetData,
)
from coordinator.wire.messages.sessions import SessionInfo
from coordinator.wire.messages.status import MemberInfo, Status
from coordinator.wire.messages.watches import Change, Event
from coordinator.wire.messages.znodes import Children, Deleted, Stat, Written, Znode

__all__ = [
    "connect",
    "Connector",
    "Client",
    "AsyncClient",
    "RetryPolicy",
    "Probe",
    # what a program may ask for in one write
    "Operation",
    "Create",
    "SetData",
    "Delete",
    "Check",
    "Read",
    "IfHeld",
    "HoldsLock",
    "Conditions",
    # what it gets back
    "Stat",
    "Znode",
    "Written",
    "Deleted",
    "Children",
    "Result",
    "MultiReply",
    "Change",
    "Event",
    "Contender",
    "LockView",
    "LockSummary",
    "Closed",
    "Spread",
    "Previous",
    "GrantRecord",
    "GrantStory",
    "RevokeReply",
    "SizeReply",
    "Elected",
    "ElectionView",
    "SessionInfo",
    "Status",
    "MemberInfo",
    # being alive, and listening
    "Session",
    "SessionState",
    "ChangeStream",
    "ElectionStream",
    "BlockingStream",
    # how requests travel
    "Transport",
    "Request",
    "Response",
    "HttpTransport",
    "InProcessTransport",
]
