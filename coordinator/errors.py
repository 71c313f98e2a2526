"""The exception tree, shared by the state machine, the server, the client and the recipes.

::

    CoordinatorError
    ├─ RequestError (definite: cannot succeed as sent)
    │    BadArgumentsError 400 · NoNodeError 404 · NodeExistsError 409 · NotEmptyError 409
    │    NoChildrenForEphemeralsError 409 · BadVersionError 412 · DataTooLargeError 413
    │    AuthFailedError 401 · NoAuthError 403 · QuotaExceededError 409 · CompactedError 410
    │    DeadlockError 409 · LockTimeoutError 409 · TooManyRetriesError 409
    │    StaleTokenError 412 · StaleWriteError 412
    │    UnknownRouteError 404 · MethodNotAllowedError 405 · SlowRequestError 408
    ├─ SessionError (definite)
    │    SessionExpiredError 410 · NotOwnerError 409 · LockLostError 410
    ├─ UnavailableError (definite: nothing was or will be proposed; try again)
    │    NoLeaderError 503 · ThrottledError 429 · ShuttingDownError 503 · ClientClosedError 503
    │    NoSpaceError 503 · UnhealthyError 503
    ├─ OutcomeUnknownError (indefinite: it may have happened)
    │    ProposalTimeoutError 504 · LeaderChangedError 504 · ConnectionLostError 504
    │    RequestForgottenError 504
    ├─ StorageError 500 (indefinite: the member stops) · DiskFullError 500
    └─ ConfigError   at start-up only; names the file and the key

Some are also what Python calls them, for callers that know Python's errors only: LockTimeoutError
is a TimeoutError, UnavailableError and ConnectionLostError are a ConnectionError, BadArgumentsError
is a ValueError. So a handler of one of those around code that raises ours names ours first.

Each class carries four facts: ``code`` (stable, for machines), ``http_status``, ``zk_code`` (the
code of the ZooKeeper protocol, ``zookeeper/KeeperException.Code``), and ``definite``: True when the
request certainly did not take effect and never will, False when nobody knows. In doubt an error is
indefinite, and unknown is never reported as failed.

``to_problem`` is the one place where an error becomes a response body (problem details, RFC 9457)
and ``from_problem`` the one where it becomes an error again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class CoordinatorError(Exception):
    """Anything this product reports; ``fields`` are the facts a program may want to read."""

    code: ClassVar[str] = "Error"
    http_status: ClassVar[int] = 500
    zk_code: ClassVar[int] = -1
    definite: ClassVar[bool] = False

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message or (type(self).__doc__ or self.code).splitlines()[0])
        self.message = str(self.args[0])
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        # The facts read as attributes: ``error.current_version``, ``error.holder``.
        fields = self.__dict__.get("fields")
        if fields is not None and name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fields))


class RequestError(CoordinatorError):
    """The request cannot succeed as it was sent; nothing changed."""

    code = "RequestError"
    http_status = 400
    definite = True


class BadArgumentsError(RequestError, ValueError):
    """An argument is not what the request needs."""

    code = "BadArguments"
    http_status = 400
    zk_code = -8


class NoNodeError(RequestError):
    """The znode does not exist."""

    code = "NoNode"
    http_status = 404
    zk_code = -101


class NodeExistsError(RequestError):
    """The znode exists already."""

    code = "NodeExists"
    http_status = 409
    zk_code = -110


class NotEmptyError(RequestError):
    """The znode has children."""

    code = "NotEmpty"
    http_status = 409
    zk_code = -111


class NoChildrenForEphemeralsError(RequestError):
    """An ephemeral znode cannot have children."""

    code = "NoChildrenForEphemerals"
    http_status = 409
    zk_code = -108


class BadVersionError(RequestError):
    """The expected version is not the current one."""

    code = "BadVersion"
    http_status = 412
    zk_code = -103


class DataTooLargeError(RequestError):
    """The data, or the whole request, is over its limit."""

    code = "DataTooLarge"
    http_status = 413
    zk_code = -8


GONE_FIELD = "gone_ms"
"""In an AuthFailed: for so many ms before the request came, the credential that was shown has
certainly been known nowhere. If it ever was, it was revoked."""


class AuthFailedError(RequestError):
    """The credentials were not accepted."""

    code = "AuthFailed"
    http_status = 401
    zk_code = -115


class NoAuthError(RequestError):
    """The identity may not do this."""

    code = "NoAuth"
    http_status = 403
    zk_code = -102


class QuotaExceededError(RequestError):
    """A limit on something that can grow is reached."""

    code = "QuotaExceeded"
    http_status = 409
    zk_code = -125


class CompactedError(RequestError):
    """The watch asked for a zxid no longer kept; read the tree again and watch from there."""

    code = "Compacted"
    http_status = 410


class DeadlockError(RequestError):
    """The wait would close a cycle of waiting owners."""

    code = "Deadlock"
    http_status = 409


class LockTimeoutError(RequestError, TimeoutError):
    """The lock was not granted in time; the attempt left nothing behind."""

    code = "LockTimeout"
    http_status = 409


class StaleTokenError(RequestError):
    """A higher fencing token has been seen; this holder has been replaced."""

    code = "StaleToken"
    http_status = 412


class StaleWriteError(RequestError):
    """This holder's write came late, or a second time: its number is not above all seen before."""

    code = "StaleWrite"
    http_status = 412


class TooManyRetriesError(RequestError):
    """Every try met a newer version; the znode was not changed by this call."""

    code = "TooManyRetries"
    http_status = 409


class UnknownRouteError(RequestError):
    """There is nothing at this URL; the routes are listed in /openapi.json."""

    code = "NoRoute"
    http_status = 404


class MethodNotAllowedError(RequestError):
    """This URL does not take this method."""

    code = "MethodNotAllowed"
    http_status = 405


class SlowRequestError(RequestError):
    """The request did not arrive whole within its deadline."""

    code = "SlowRequest"
    http_status = 408


class SessionError(CoordinatorError):
    """The session, or what it owned, is not there any more."""

    code = "SessionError"
    http_status = 409
    definite = True


class SessionExpiredError(SessionError):
    """The session has ended, and its ephemeral znodes with it."""

    code = "SessionExpired"
    http_status = 410
    zk_code = -112


class NotOwnerError(SessionError):
    """The grant is not, or no longer, this caller's; nothing was released."""

    code = "NotOwner"
    http_status = 409


class LockLostError(SessionError):
    """The grant, or the place in the queue, is gone, or can no longer be relied upon."""

    code = "LockLost"
    http_status = 410


class UnavailableError(CoordinatorError, ConnectionError):
    """The service cannot take the request now; nothing was or will be proposed."""

    code = "Unavailable"
    http_status = 503
    zk_code = -4
    definite = True


class NoLeaderError(UnavailableError):
    """No leader with a quorum is known."""

    code = "NoLeader"
    http_status = 503
    zk_code = -4


class ThrottledError(UnavailableError):
    """Too much is waiting already; try again later."""

    code = "Throttled"
    http_status = 429
    zk_code = -127


class ShuttingDownError(UnavailableError):
    """This member is stopping; try another one."""

    code = "ShuttingDown"
    http_status = 503
    zk_code = -4


class NoSpaceError(UnavailableError):
    """The disk of the leader, or of this member, is full; it goes on when there is room."""

    code = "NoSpace"
    http_status = 503
    zk_code = -4


class ClientClosedError(UnavailableError):
    """This client is closed, or belongs to the process this one was forked from."""

    code = "ClientClosed"
    http_status = 503
    zk_code = -4


class UnhealthyError(UnavailableError):
    """The health probe of this client fails; it gets no session while that is so."""

    code = "Unhealthy"
    http_status = 503
    zk_code = -4


class OutcomeUnknownError(CoordinatorError):
    """It is not known whether the request took effect."""

    code = "OutcomeUnknown"
    http_status = 504
    zk_code = -7
    definite = False


class ProposalTimeoutError(OutcomeUnknownError):
    """The deadline passed while the proposal was under way."""

    code = "ProposalTimeout"
    zk_code = -7


class LeaderChangedError(OutcomeUnknownError):
    """The leader changed while the proposal was under way."""

    code = "LeaderChanged"
    zk_code = -4


class ConnectionLostError(OutcomeUnknownError, ConnectionError):
    """The connection was lost before the answer came."""

    code = "ConnectionLost"
    zk_code = -4


class RequestForgottenError(OutcomeUnknownError):
    """The request is older than what the exactly-once table keeps; its outcome is not known."""

    code = "RequestForgotten"
    zk_code = -7


class StorageError(CoordinatorError):
    """The disk failed, or what is on it cannot be trusted; the member stops."""

    code = "Storage"
    http_status = 500
    definite = False


class DiskFullError(StorageError):
    """The disk has no room for what a start needs; in a running member it stops nothing."""

    code = "DiskFull"
    http_status = 500
    definite = False


class ConfigError(CoordinatorError):
    """The configuration cannot be used; names the file, the key, what was expected and found."""

    code = "Config"
    definite = True


def _walk(root: type[CoordinatorError]) -> list[type[CoordinatorError]]:
    found = [root]
    for child in root.__subclasses__():
        found.extend(_walk(child))
    return found


REGISTRY: dict[str, type[CoordinatorError]] = {kind.code: kind for kind in _walk(CoordinatorError)}

_PROBLEM_TYPE_PREFIX = "urn:coordinator:error:"
_OWN_NAMES = frozenset({"self", "message"})
_PROBLEM_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "definite"})


def to_problem(error: CoordinatorError) -> dict[str, Any]:
    """Return the problem details (RFC 9457) of ``error``; its fields are extension members."""
    problem: dict[str, Any] = {
        "type": _PROBLEM_TYPE_PREFIX + error.code,
        "title": (type(error).__doc__ or error.code).splitlines()[0],
        "status": error.http_status,
        "detail": error.message,
        "code": error.code,
        "definite": error.definite,
    }
    problem.update({k: v for k, v in error.fields.items() if k not in _PROBLEM_MEMBERS})
    return problem


def forget_frames(error: BaseException | None) -> None:
    """Break the reference cycles of an error that is answered: those of its tracebacks.

    An error holds the frames it came through, and often one of them the error. A server answers as
    many refused requests as clients like to send, and should not need the collector for them.
    """
    while error is not None:
        before = error.__context__
        error.__traceback__ = error.__context__ = error.__cause__ = None
        error = before


def from_problem(problem: Mapping[str, Any]) -> CoordinatorError:
    """Return the error that ``problem`` describes; an unknown code is an indefinite error."""
    if not isinstance(problem, Mapping):
        return OutcomeUnknownError("expected problem details, found something else")
    fields = {str(k): v for k, v in problem.items() if k not in _PROBLEM_MEMBERS}
    return from_code(str(problem.get("code", "")), str(problem.get("detail", "")), fields)


def from_code(code: str, message: str, fields: Mapping[str, Any]) -> CoordinatorError:
    """Return the error with this ``code``; used where a refusal leaves the state machine.

    An unknown code is an indefinite error. Fields come from afar: their names are not trusted."""
    named = {name: value for name, value in fields.items() if name not in _OWN_NAMES}
    return REGISTRY.get(code, OutcomeUnknownError)(message, **named)


def _rebuild(
    kind: type[CoordinatorError], message: str, fields: dict[str, Any]
) -> CoordinatorError:
    return kind(message, **fields)
