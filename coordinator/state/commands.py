"""Commands of the state machine, and the operations inside them: values only.

A command is one operation, and everything uncertain as its proposer decided it: wall time for
``ctime``/``mtime``, session ids, who the caller is, the request number that makes a retry safe.

The operations on znodes are those of ``coordinator.model.operations``, as clients send them, and
the codec says how a log holds them. Any other is written as the array of its tag and its fields, in
order: a tag is never reused, and a new field needs a new format number.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

import coordinator.model.operations as znode_operations
from coordinator.model.access import NOBODY as NOBODY
from coordinator.model.access import Caller as Caller
from coordinator.model.access import Rule as Rule
from coordinator.model.fields import ANY_VERSION as ANY_VERSION
from coordinator.model.operations import Check as Check
from coordinator.model.operations import Create as Create
from coordinator.model.operations import Delete as Delete
from coordinator.model.operations import Guarded as Guarded
from coordinator.model.operations import Multi as Multi
from coordinator.model.operations import Read as Read
from coordinator.model.operations import SetData as SetData
from coordinator.model.znodes import CreateMode as CreateMode

ZnodeOperation = znode_operations.Operation
"""Operations allowed alone, in a multi, and in the branches of a guarded write."""


class Put(Struct, frozen=True, gc=False, array_like=True, tag=39):
    """Create a persistent znode, or replace its data where there is one.

    It comes to what a guarded write does with a create and a set, and carries the data once."""

    path: str
    data: bytes


# --- operations on sessions


class OpenSession(Struct, frozen=True, gc=False, array_like=True, tag=8):
    """Open a session under an id that the proposer drew at random, and not its client.

    ``timeout_ms`` must lie within the machine's limits; ``label`` is for people. ``address`` is
    the client's (of IPv6 a /64), ``client_id`` the id of its requests. Each address and each client
    id may have only a share of the sessions; "" is unknown and not counted. ``by`` is the operator
    who opens it, "" for other clients; only operators may use the reserve.
    """

    session_id: str
    timeout_ms: int
    label: str = ""
    address: str = ""
    client_id: str = ""
    by: str = ""


class CloseSession(Struct, frozen=True, gc=False, array_like=True, tag=9):
    """End a session at its client's request; its ephemerals are deleted. Idempotent.

    ``failure`` says what is wrong with the client, if that is the reason; empty otherwise. The
    locks of a failed client stay closed for their lock-delay, as after an expiry.

    This command deletes about ``at_once`` ephemerals (0: all); ``FinishSession`` deletes the rest.
    The session is over in either case: nothing is written in its name, and none of its grants
    counts as held.
    """

    session_id: str
    failure: str = ""
    at_once: int = 0


class ExpireSession(Struct, frozen=True, gc=False, array_like=True, tag=10):
    """End a session whose lease ran out. Void unless ``term`` is the term of its own log entry.

    ``silent_ms``: how long the leader had received no heartbeat; kept in the history of grants.
    ``at_once`` is as in ``CloseSession``.
    """

    session_id: str
    term: int
    silent_ms: int = 0
    at_once: int = 0


class FinishSession(Struct, frozen=True, gc=False, array_like=True, tag=22):
    """Delete about ``at_once`` more ephemerals of a session that has ended; void if none is left.

    The leader of any term proposes it until ``SessionFinished.left`` is 0.
    """

    session_id: str
    at_once: int


class RenewCredential(Struct, frozen=True, gc=False, array_like=True, tag=26):
    """Let a session of the caller's identity go on under the credential of this command.

    So a token can be replaced by another without the end of what its holder has open.
    """

    session_id: str


# --- operations on the queues of locks and elections


class Kind(StrEnum):
    """What a contender requests of its queue."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    SLOT = "slot"


EXCLUSIVE: Final = Kind.EXCLUSIVE
SHARED: Final = Kind.SHARED
SLOT: Final = Kind.SLOT
"""The same, for compiled code: it finds a constant at once, and a member of a class by its name."""


class Enter(Struct, frozen=True, gc=False, array_like=True, tag=14):
    """Take a place in one queue, or in several as one (a multi-lock): all or nothing.

    ``directories`` are the queues (``/locks/<segment>``, ``/elections/<segment>``), sorted, without
    duplicates; several only for EXCLUSIVE. All places share one zxid and so one fencing token. Each
    is an ephemeral sequential znode with ``data``, named ``prefix`` and its number; the prefix must
    fit ``kind`` (``queues.kind_of``). Missing directories become containers. The directory of a
    semaphore (SLOT) stays and keeps its ``size`` (required if the semaphore is new).

    ``owner`` names who contends inside the session (a task, a thread); "" is anonymous: an owner
    of its own. ``is_try`` enters only if this command grants it at once. ``lock_delay_ms`` closes
    the queue for that time if the holder's session expires; ``max_hold_ms`` bounds the hold. 0: no.

    With ``opening`` the session does not exist yet: it is opened in this command, if a place is
    taken. Its id is ``session_id``, drawn by the proposer or its client. A retry draws another id
    and gets the first outcome again, in which the contenders are those of the session that was
    opened first.
    """

    directories: tuple[str, ...]
    prefix: str
    kind: Kind
    session_id: str
    data: bytes
    owner: str = ""
    is_try: bool = False
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    size: int | None = None
    opening: OpenSession | None = None


class Downgrade(Struct, frozen=True, gc=False, array_like=True, tag=15):
    """Turn an EXCLUSIVE holder into a SHARED one, in place: same znode, number and token.

    Idempotent; refused with NotOwner unless the contender ``path`` of ``czxid`` holds.
    """

    path: str
    czxid: int


class Resize(Struct, frozen=True, gc=False, array_like=True, tag=16):
    """Change the size of the semaphore ``directory``; no holder loses its slot."""

    directory: str
    size: int


class Note(Struct, frozen=True, gc=False, array_like=True, tag=17):
    """Keep a holder's checkpoint ``note`` with its grant, for the next holder."""

    path: str
    czxid: int
    note: bytes


class ExtendHold(Struct, frozen=True, gc=False, array_like=True, tag=37):
    """Move the end of a bounded hold: ``by_ms`` later, or not before ``to_ms`` from now.

    One of the two is 0. The end never moves nearer. Refused with NotOwner unless the contender
    ``path`` of ``czxid`` holds, and with BadArguments if its hold has no bound.
    """

    path: str
    czxid: int
    by_ms: int
    to_ms: int


class Revoke(Struct, frozen=True, gc=False, array_like=True, tag=18):
    """Force a contender out of its queue (or queues); ``by`` and ``reason`` are kept."""

    path: str
    czxid: int
    by: str
    reason: str


class EndHold(Struct, frozen=True, gc=False, array_like=True, tag=19):
    """End a hold whose ``max_hold_ms`` is over.

    Void unless it holds and has a bound, was extended ``extensions`` times and not once more since
    its leader looked, and ``term`` is the term of its own log entry.
    """

    path: str
    czxid: int
    term: int
    extensions: int = 0


class Reopen(Struct, frozen=True, gc=False, array_like=True, tag=20):
    """Delete the ``delay-`` znode ``path``: its lock-delay is over. Void as ``EndHold`` is."""

    path: str
    czxid: int
    term: int


class FinishGrants(Struct, frozen=True, gc=False, array_like=True, tag=23):
    """Grant to more contenders, if there were too many for one command; void if none is left.

    The leader of any term proposes it until ``GrantsFinished.left`` is 0.
    """


class TakeOut(Struct, frozen=True, gc=False, array_like=True, tag=35):
    """Delete the contenders that wait at ``paths`` and have lost the right to be granted.

    A contender that holds, or may be granted, stays. The leader of any term proposes it, for not
    more places than one command deletes (``locks.queues.LOOKED_AT_ONCE``); the others stay, too.
    """

    paths: tuple[str, ...]


# --- operations of the service itself


class Release(Struct, frozen=True, gc=False, array_like=True, tag=11):
    """Delete the contender ``path`` if it is still the incarnation ``czxid``.

    A multi-lock is released as a whole, whichever of its paths is named. A repeated release of the
    same contender succeeds again (a bounded table remembers them); if the contender expired or
    never existed, it is refused with NotOwner. With ``spares_repeated`` it is refused with
    BadArguments if the contender holds and its request was retried: the client may know of the
    grant.
    """

    path: str
    czxid: int
    spares_repeated: bool = False


class Abandon(Struct, frozen=True, gc=False, array_like=True, tag=12):
    """Undo an attempt whose answer never came: the request (client_id, number).

    The ephemeral znodes that it created are deleted. If it was never applied, its number is used
    up, so that the request is refused if it arrives late. Idempotent. With a ``directory`` it is
    refused with NotOwner if the request created contenders, but none there; with ``spares_holder``
    it is refused with BadArguments if one of its contenders holds.
    """

    client_id: str
    number: int
    floor_index: int = 0
    directory: str = ""
    spares_holder: bool = False


class Reap(Struct, frozen=True, gc=False, array_like=True, tag=13):
    """Delete an idle container or ttl znode that is unchanged since the leader saw it.

    Void (nothing happens, no error) unless the znode has no children, still has this ``mzxid``
    and ``pzxid``, and ``term`` is the term of its own log entry.
    """

    path: str
    mzxid: int
    pzxid: int
    term: int


class SetLimits(Struct, frozen=True, gc=False, array_like=True, tag=21):
    """Set limits of the state by name (``limits.MachineLimits``); those not named stay.

    Refused with BadVersion unless the limits have been changed ``expected_version`` times. A new
    cluster's first command expects 0; it alone stamps ``rules``, those of the release that begins
    this state. ``by`` names who sets them, for people.
    """

    values: tuple[tuple[str, int], ...]
    expected_version: int = ANY_VERSION
    rules: tuple[tuple[str, str], ...] = ()
    by: str = ""


class SetLevel(Struct, frozen=True, gc=False, array_like=True, tag=40):
    """Raise the level of the state (``levels``), by one; ``by`` names who does, for people.

    Idempotent. Proposed only once every member runs a release that reads this level.
    """

    level: int
    by: str = ""


# --- operations on access rights


class InitAccess(Struct, frozen=True, gc=False, array_like=True, tag=27):
    """Turn access rights on, with a first identity that may do everything (the role ``admin``).

    ``digest`` is the SHA-256 of its token. Refused with NodeExists while they are on. Roles and
    identities that were prepared stay.
    """

    identity: str
    token_id: str
    digest: bytes
    expires_ms: int = 0


class SetAccess(Struct, frozen=True, gc=False, array_like=True, tag=28):
    """Turn access rights on again, or off: then everybody may do everything."""

    is_on: bool


class PutRole(Struct, frozen=True, gc=False):
    """Make a role, or put these rules in place of its own."""

    name: str
    rules: tuple[Rule, ...]


class DropRole(Struct, frozen=True, gc=False, array_like=True, tag=30):
    """Forget a role; refused with NotEmpty while an identity has it."""

    name: str


QuotaChanges = tuple[tuple[str, int | None], ...]
"""What a quota is of, and how much of it; None: as much as the limit for all identities says."""


class PutIdentity(Struct, frozen=True, gc=False, array_like=True, tag=31):
    """Make an identity, or change its roles, ``subjects`` and ``quota``; its tokens stay.

    None: the roles, or the subjects, stay as they are, of an identity that is there. Of the quota
    what is not named stays.

    A subject is a name that others vouch for: ``cert:`` and a name in a certificate, or ``oidc:``,
    an issuer, ``#`` and the subject of its tokens.
    """

    name: str
    roles: tuple[str, ...] | None
    subjects: tuple[str, ...] | None = ()
    quota: QuotaChanges = ()


class DropIdentity(Struct, frozen=True, gc=False, array_like=True, tag=32):
    """Forget an identity with all its credentials; their sessions have ended."""

    name: str


class AddToken(Struct, frozen=True, gc=False, array_like=True, tag=33):
    """Give an identity one more token; only the SHA-256 of it is known here.

    ``expires_ms`` is a wall time, 0 for a token that does not expire; members judge it.
    """

    identity: str
    token_id: str
    digest: bytes
    expires_ms: int = 0
    label: str = ""


class DropToken(Struct, frozen=True, gc=False, array_like=True, tag=34):
    """Revoke a token; the sessions opened with it have ended."""

    token_id: str


Logged = (
    Put | OpenSession | CloseSession | ExpireSession | FinishSession | Release | Abandon | Reap
    | Enter | Downgrade | Resize | Note | ExtendHold | Revoke | EndHold | Reopen | FinishGrants
    | TakeOut | SetLimits | RenewCredential | InitAccess | SetAccess | DropRole | PutIdentity
    | DropIdentity | AddToken | DropToken | SetLevel
)  # fmt: skip
"""Operations that a log holds as they are."""

Operation = Create | SetData | Delete | Check | Multi | Guarded | PutRole | Logged


class RequestId(Struct, frozen=True, gc=False, array_like=True):
    """The id that makes a retry safe: the same id and number gets the first outcome again.

    ``client_id`` (1..64 printable ASCII) is drawn at random by the client; ``number`` grows from 1.
    ``floor_index`` is an applied index the client knew before it drew its id (0 if none): with
    it the machine can tell a client it has never seen from one it has forgotten.
    """

    client_id: str
    number: int
    floor_index: int = 0


class HeldCondition(Struct, frozen=True, gc=False, array_like=True):
    """The condition that a contender created at ``fencing_token`` holds the queue now."""

    directory: str
    fencing_token: int


class Command(Struct, frozen=True, gc=False):
    """One operation with all that was decided before it was proposed.

    ``wall_ms`` is the wall clock of the leader that proposed it; ``request`` is None for commands
    of the service itself; ``caller`` is who asks, as a member found proved. Unless all of
    ``if_held`` hold, the command is refused with LockLost and does nothing (a fenced write).
    """

    operation: Operation
    wall_ms: int
    request: RequestId | None = None
    caller: Caller = NOBODY
    if_held: tuple[HeldCondition, ...] = ()
