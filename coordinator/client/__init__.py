"""ROOM 6: the client: one core on asyncio, and a sync client that runs it in a thread.

``connect`` (``connecting``) is the way in. Inside, from below:

- ``running``: processes, loops, threads and callbacks; ``calling``: one call answered, by any
  member, before its deadline; ``sessions``: alive and well, in time.
- ``watches``: changes, never missed; ``verbs``: what a client is asked for; ``locks``: places in
  queues that the server runs (public, for recipes).
- ``stream``, ``http`` and ``in_process``: the ways to a member.
- ``async_client``, ``loop_thread``, ``sync``, and ``sync_and_async``: one method for both clients.

The names below are loaded when they are first used: a verb of the command line needs a few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncClient as AsyncClient
    from coordinator.client.calling.deadline import LAST_MS as LAST_MS
    from coordinator.client.calling.deadline import TRY_MS as TRY_MS
    from coordinator.client.calling.deadline import limit_ms_of as limit_ms_of
    from coordinator.client.calling.deadline import within as within
    from coordinator.client.calling.retry import RetryPolicy as RetryPolicy
    from coordinator.client.calling.transport import Request as Request
    from coordinator.client.calling.transport import Response as Response
    from coordinator.client.calling.transport import Transport as Transport
    from coordinator.client.connecting import Connector as Connector
    from coordinator.client.connecting import connect as connect
    from coordinator.client.http import HttpTransport as HttpTransport
    from coordinator.client.in_process import InProcessTransport as InProcessTransport
    from coordinator.client.locks.observing import ElectionStream as ElectionStream
    from coordinator.client.running.callables import expect_result as expect_result
    from coordinator.client.running.callables import kind_of as kind_of
    from coordinator.client.running.callbacks import Callback as Callback
    from coordinator.client.running.callbacks import answered as answered
    from coordinator.client.running.callbacks import contained as contained
    from coordinator.client.running.process import OfOneProcess as OfOneProcess
    from coordinator.client.running.settling import StoppedIteration as StoppedIteration
    from coordinator.client.running.settling import settled as settled
    from coordinator.client.sessions.probing import HealthProbe as HealthProbe
    from coordinator.client.sessions.session import Session as Session
    from coordinator.client.sessions.session import SessionState as SessionState
    from coordinator.client.sync import BlockingStream as BlockingStream
    from coordinator.client.sync import Client as Client
    from coordinator.client.sync_and_async import AnyClientT as AnyClientT
    from coordinator.client.sync_and_async import ClientT as ClientT
    from coordinator.client.sync_and_async import both as both
    from coordinator.client.sync_and_async import entered as entered
    from coordinator.client.sync_and_async import expect_client as expect_client
    from coordinator.client.sync_and_async import expect_function as expect_function
    from coordinator.client.sync_and_async import returned as returned
    from coordinator.client.sync_and_async import run_either as run_either
    from coordinator.client.verbs.conditions import Conditions as Conditions
    from coordinator.client.verbs.conditions import HoldsLock as HoldsLock
    from coordinator.client.verbs.conditions import IfHeld as IfHeld
    from coordinator.client.watches.watching import ChangeStream as ChangeStream
    from coordinator.model.access import IdentityView as IdentityView
    from coordinator.model.access import RoleView as RoleView
    from coordinator.model.access import Rule as Rule
    from coordinator.model.access import Verb as Verb
    from coordinator.model.access_requests import Me as Me
    from coordinator.model.access_requests import TokenReply as TokenReply
    from coordinator.model.access_requests import Verdict as Verdict
    from coordinator.model.diagnosis import Diagnosis as Diagnosis
    from coordinator.model.diagnosis import LockDiagnosis as LockDiagnosis
    from coordinator.model.diagnosis import LockWhy as LockWhy
    from coordinator.model.events import Change as Change
    from coordinator.model.events import Event as Event
    from coordinator.model.grants import RevokeReply as RevokeReply
    from coordinator.model.grants import SizeReply as SizeReply
    from coordinator.model.history import GrantRecord as GrantRecord
    from coordinator.model.history import GrantStory as GrantStory
    from coordinator.model.history import Previous as Previous
    from coordinator.model.manual_holds import EndedManualHold as EndedManualHold
    from coordinator.model.manual_holds import ManualHold as ManualHold
    from coordinator.model.members import ClusterHealth as ClusterHealth
    from coordinator.model.members import HealthFinding as HealthFinding
    from coordinator.model.members import MemberFacts as MemberFacts
    from coordinator.model.members import MemberList as MemberList
    from coordinator.model.members import MemberReport as MemberReport
    from coordinator.model.operations import Check as Check
    from coordinator.model.operations import Create as Create
    from coordinator.model.operations import Delete as Delete
    from coordinator.model.operations import Deleted as Deleted
    from coordinator.model.operations import MultiReply as MultiReply
    from coordinator.model.operations import Operation as Operation
    from coordinator.model.operations import Read as Read
    from coordinator.model.operations import Result as Result
    from coordinator.model.operations import SetData as SetData
    from coordinator.model.sessions import SessionInfo as SessionInfo
    from coordinator.model.status import MemberInfo as MemberInfo
    from coordinator.model.status import Status as Status
    from coordinator.model.views import Candidate as Candidate
    from coordinator.model.views import Closed as Closed
    from coordinator.model.views import Contender as Contender
    from coordinator.model.views import Elected as Elected
    from coordinator.model.views import ElectionView as ElectionView
    from coordinator.model.views import LockSummary as LockSummary
    from coordinator.model.views import LockView as LockView
    from coordinator.model.views import Spread as Spread
    from coordinator.model.znodes import Children as Children
    from coordinator.model.znodes import CreateMode as CreateMode
    from coordinator.model.znodes import Stat as Stat
    from coordinator.model.znodes import Subtree as Subtree
    from coordinator.model.znodes import Written as Written
    from coordinator.model.znodes import Znode as Znode

_HOMES = {
    "coordinator.client.async_client": ("AsyncClient",),
    "coordinator.client.running.callables": ("expect_result", "kind_of"),
    "coordinator.client.running.callbacks": ("Callback", "answered", "contained"),
    "coordinator.client.verbs.conditions": ("Conditions", "HoldsLock", "IfHeld"),
    "coordinator.client.connecting": ("Connector", "connect"),
    "coordinator.client.calling.deadline": ("LAST_MS", "TRY_MS", "limit_ms_of", "within"),
    "coordinator.client.http": ("HttpTransport",),
    "coordinator.client.in_process": ("InProcessTransport",),
    "coordinator.client.locks.observing": ("ElectionStream",),
    "coordinator.client.sessions.probing": ("HealthProbe",),
    "coordinator.client.running.process": ("OfOneProcess",),
    "coordinator.client.calling.retry": ("RetryPolicy",),
    "coordinator.client.sessions.session": ("Session", "SessionState"),
    "coordinator.client.running.settling": ("StoppedIteration", "settled"),
    "coordinator.client.sync_and_async": (
        "AnyClientT",
        "ClientT",
        "both",
        "entered",
        "expect_client",
        "expect_function",
        "returned",
        "run_either",
    ),
    "coordinator.client.sync": ("BlockingStream", "Client"),
    "coordinator.client.calling.transport": ("Request", "Response", "Transport"),
    "coordinator.client.watches.watching": ("ChangeStream",),
    "coordinator.model.diagnosis": ("Diagnosis", "LockDiagnosis", "LockWhy"),
    "coordinator.model.history": ("GrantRecord", "GrantStory", "Previous"),
    "coordinator.model.grants": ("RevokeReply", "SizeReply"),
    "coordinator.model.manual_holds": ("EndedManualHold", "ManualHold"),
    "coordinator.model.views": (
        "Candidate",
        "Closed",
        "Contender",
        "Elected",
        "ElectionView",
        "LockSummary",
        "LockView",
        "Spread",
    ),
    "coordinator.model.operations": (
        "Check",
        "Create",
        "Delete",
        "Deleted",
        "MultiReply",
        "Operation",
        "Read",
        "Result",
        "SetData",
    ),
    "coordinator.model.access": ("IdentityView", "RoleView", "Rule", "Verb"),
    "coordinator.model.access_requests": ("Me", "TokenReply", "Verdict"),
    "coordinator.model.sessions": ("SessionInfo",),
    "coordinator.model.members": (
        "ClusterHealth",
        "HealthFinding",
        "MemberFacts",
        "MemberList",
        "MemberReport",
    ),
    "coordinator.model.status": ("MemberInfo", "Status"),
    "coordinator.model.events": ("Change", "Event"),
    "coordinator.model.znodes": ("Children", "CreateMode", "Stat", "Subtree", "Written", "Znode"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'coordinator.client' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
