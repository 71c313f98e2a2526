"""A coordination service: znodes, sessions, watches, fair locks and elections, replicated by Raft.

The rooms, and the way a request takes through them::

            request                                                              event
 client ──► wire ──► service ──► raft ──► (quorum on disk) ──► state ──► service.watches ──► wire
              door     who are you,  in what order               what is      who asked        door
                       still alive?                              true now     to be told         │
                                                                                                 ▼
                                                              recipes ◄── client ◄───────────────┘

A write crosses each room once and comes back as an outcome; what it changed leaves once as events.
Nothing calls back up.

====================  ============================================  ===============================
room                  the question it answers                       may import
====================  ============================================  ===============================
errors, clock         what can go wrong; what time is it            nothing of ours
waiting               who waits until a number is reached           nothing of ours
node                  one member, and what its machine gives it
  log_lines           what may a line of the log hold               nothing of ours
  build               is this compiled                              nothing of ours
  open_files          how many files are open                       nothing of ours
  service_manager     what systemd is notified of                   nothing of ours
  stable_files        is a file whole after a crash                 nothing of ours
  garbage             when is lost memory looked for                nothing of ours
  config              what did the operator say                     errors, model.limits
  config_file         where did the operator say it                 config, config_rules
  config_rules        do the settings fit each other                config, model, errors
  secret_file         what makes a member of this cluster           config, errors
  server              the only place that builds things             all rooms
  recovery            a cluster begun again from a member's data    all rooms
  preflight           could this member start                       all rooms
  backup_schedule     who makes a backup when                       all rooms
  backups             what does an operator keep of a cluster       all rooms
audit                 what was forced, changed or refused           errors, config, clock,
                                                                    model.tokens
oidc                  whose is a token of an issuer                 errors, config, clock
tls                   who is at the other end; certificates         config, errors, clock
model                 what several rooms speak of: values            errors
wording               how are times, numbers and clients called     model
1 state               what is true (pure, deterministic)            model, errors
2 raft                in which order, durably                       errors, config, clock,
                                                                    waiting, tls
3 service             is it one living member                       model, state, raft.engine,
                                                                    errors, config, clock,
                                                                    waiting, audit.event, wording
4 wire                how is it said (bodies; the HTTP door)        model, service, errors, config,
                                                                    clock, value types of state,
                                                                    console.pages
5 console             pages for people, static                      nothing: calls the HTTP API
6 client              how does a program say it and survive         model, wire.codec, tls,
                      what networks do                              wire.messages, errors, clock
  learn               stories about locks, played and recorded      client, recipes, model, errors,
                                                                    clock, console.pages
  cli                 verbs for a shell                             client, recipes, learn, server,
                                                                    recovery, backups
  testing             a cluster in the user's own tests             all rooms
recipes, guards       locks, elections; stores that check tokens    client, errors
integrations          the same for frameworks                       client, recipes, errors
coordinator           what programs import: this file               client, recipes, errors
====================  ============================================  ===============================

``tests/test_house.py`` holds this table as data and parses the source against it.

Reading order: ``errors`` → ``model`` → ``state/commands``, ``state/outcomes``, ``state/machine`` →
``raft/engine`` → ``service/member`` → ``wire/routes`` → ``client/calling/delivery``,
``client/sessions/session`` → ``model/queue_order``, ``recipes/lock``.

The names below are loaded when they are first used, so importing the package stays cheap for the
server and the command line, which import rooms by their full names.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as that of typing, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

    from coordinator.client import AsyncClient as AsyncClient
    from coordinator.client import Client as Client
    from coordinator.client import HealthProbe as HealthProbe
    from coordinator.client import RetryPolicy as RetryPolicy
    from coordinator.client import connect as connect
    from coordinator.errors import AuthFailedError as AuthFailedError
    from coordinator.errors import BadArgumentsError as BadArgumentsError
    from coordinator.errors import BadVersionError as BadVersionError
    from coordinator.errors import ClientClosedError as ClientClosedError
    from coordinator.errors import CompactedError as CompactedError
    from coordinator.errors import ConfigError as ConfigError
    from coordinator.errors import ConnectionLostError as ConnectionLostError
    from coordinator.errors import CoordinatorError as CoordinatorError
    from coordinator.errors import DataTooLargeError as DataTooLargeError
    from coordinator.errors import DeadlockError as DeadlockError
    from coordinator.errors import DiskFullError as DiskFullError
    from coordinator.errors import LeaderChangedError as LeaderChangedError
    from coordinator.errors import LockLostError as LockLostError
    from coordinator.errors import LockTimeoutError as LockTimeoutError
    from coordinator.errors import MethodNotAllowedError as MethodNotAllowedError
    from coordinator.errors import NoAuthError as NoAuthError
    from coordinator.errors import (
        NoChildrenForEphemeralsError as NoChildrenForEphemeralsError,
    )
    from coordinator.errors import NodeExistsError as NodeExistsError
    from coordinator.errors import NoLeaderError as NoLeaderError
    from coordinator.errors import NoNodeError as NoNodeError
    from coordinator.errors import NoSpaceError as NoSpaceError
    from coordinator.errors import NotEmptyError as NotEmptyError
    from coordinator.errors import NotOwnerError as NotOwnerError
    from coordinator.errors import OutcomeUnknownError as OutcomeUnknownError
    from coordinator.errors import ProposalTimeoutError as ProposalTimeoutError
    from coordinator.errors import QuotaExceededError as QuotaExceededError
    from coordinator.errors import RequestError as RequestError
    from coordinator.errors import RequestForgottenError as RequestForgottenError
    from coordinator.errors import SessionError as SessionError
    from coordinator.errors import SessionExpiredError as SessionExpiredError
    from coordinator.errors import ShuttingDownError as ShuttingDownError
    from coordinator.errors import SlowRequestError as SlowRequestError
    from coordinator.errors import StaleTokenError as StaleTokenError
    from coordinator.errors import StaleWriteError as StaleWriteError
    from coordinator.errors import StorageError as StorageError
    from coordinator.errors import ThrottledError as ThrottledError
    from coordinator.errors import TooManyRetriesError as TooManyRetriesError
    from coordinator.errors import UnavailableError as UnavailableError
    from coordinator.errors import UnhealthyError as UnhealthyError
    from coordinator.errors import UnknownRouteError as UnknownRouteError
    from coordinator.recipes import *  # noqa: F403 - those that __all__ names

    __version__: str

_CLIENT_NAMES = frozenset({"connect", "Client", "AsyncClient", "RetryPolicy", "HealthProbe"})

__all__ = [
    "connect",
    "Client",
    "AsyncClient",
    "RetryPolicy",
    "HealthProbe",
    # recipes (ruff cannot see them in the import above)
    # ruff: noqa: F405
    "Lock",
    "ReentrantLock",
    "RWLock",
    "Semaphore",
    "MultiLock",
    "TreeLock",
    "ManualLock",
    "Revoker",
    "RevokeAnswer",
    "RevokeRequest",
    "Election",
    "SuccessionRequest",
    "Grant",
    "Leadership",
    "Held",
    "FOREVER",
    "exclusive",
    "execute_exclusive",
    "run_exclusive",
    "Once",
    "Job",
    "once_per",
    "Run",
    "JobReply",
    "Jobs",
    "JobView",
    "JobRun",
    "TokenBucket",
    "TokenChunk",
    "Counter",
    "Flag",
    "Barrier",
    "DoubleBarrier",
    "Latch",
    "Condition",
    "Group",
    "GroupMember",
    "Membership",
    "Partitioner",
    "Owned",
    "WorkQueue",
    "Delivery",
    "Pool",
    "Borrowed",
    "CachedValue",
    "TreeCache",
    "CachedZnode",
    "CacheChange",
    "CacheUpdate",
    "Configuration",
    "Snapshot",
    "CommitLog",
    "CommitSite",
    "Transaction",
    # errors
    "CoordinatorError",
    "AuthFailedError",
    "BadArgumentsError",
    "BadVersionError",
    "ClientClosedError",
    "CompactedError",
    "ConfigError",
    "ConnectionLostError",
    "DataTooLargeError",
    "DeadlockError",
    "DiskFullError",
    "LeaderChangedError",
    "LockLostError",
    "LockTimeoutError",
    "MethodNotAllowedError",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoLeaderError",
    "NoNodeError",
    "NoSpaceError",
    "NodeExistsError",
    "NotEmptyError",
    "NotOwnerError",
    "OutcomeUnknownError",
    "ProposalTimeoutError",
    "QuotaExceededError",
    "RequestError",
    "RequestForgottenError",
    "SessionError",
    "SessionExpiredError",
    "ShuttingDownError",
    "SlowRequestError",
    "StaleTokenError",
    "StaleWriteError",
    "StorageError",
    "ThrottledError",
    "TooManyRetriesError",
    "UnavailableError",
    "UnhealthyError",
    "UnknownRouteError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise _not_here(name)
    if name == "__version__":
        value: Any = _version()
    elif name in _CLIENT_NAMES:
        value = getattr(import_module("coordinator.client"), name)
    elif name.endswith("Error"):
        value = getattr(import_module("coordinator.errors"), name)
    else:
        value = getattr(import_module("coordinator.recipes"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("raft-coordinator"))
    except metadata.PackageNotFoundError:
        return "0+checkout"


def _not_here(name: str) -> Exception:
    message = f"module 'coordinator' has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(message)
    line = import_module("coordinator.client.verbs.hints").line_to_import(name)
    if line is None:
        return AttributeError(message)
    # Of an AttributeError a ``from coordinator import`` keeps the name alone.
    return ImportError(f"{message}; here it is {line}", name="coordinator")
