"""The verbs of the tree: create, read, set, delete, several at once."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Literal

from coordinator.client.calling.calls import PACKED, packed, read_mode, tree_target
from coordinator.client.sessions.session import Session
from coordinator.client.verbs.conditions import Conditions, conditions_of
from coordinator.client.verbs.hints import answering
from coordinator.client.verbs.verb_group import VerbGroup
from coordinator.errors import NoNodeError, SessionExpiredError
from coordinator.model.fields import ANY_VERSION
from coordinator.model.operations import (
    Check,
    Create,
    Deleted,
    Guarded,
    Multi,
    MultiReply,
    Operation,
)
from coordinator.model.znodes import Children, Stat, Subtree, Written, Znode
from coordinator.wire.codec import reader, to_body
from coordinator.wire.if_held import if_held_body, if_held_query

WatchKind = Literal["znode", "children", "subtree"]
EventWord = Literal["NodeCreated", "NodeDeleted", "NodeDataChanged"]
Mode = Literal[
    "persistent",
    "persistent_sequential",
    "ephemeral",
    "ephemeral_sequential",
    "container",
    "ttl",
    "ttl_sequential",
]


_WRITTEN = reader(Written)
_ZNODE = reader(Znode)


class ZnodeVerbs(VerbGroup):
    """What a client may ask of znodes; the core brings its session, which owns ephemerals."""

    async def session(self, timeout: float | None = None) -> Session:
        """Return the client's session."""
        raise NotImplementedError

    @answering
    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        mode: Mode = "persistent",
        parents: Literal["persistent", "container"] | None = None,
        ttl_ms: int | None = None,
        if_held: Conditions = None,
    ) -> Written:
        """Create a znode; the reply has its full path (with its number if sequential) and Stat.

        An ephemeral znode belongs to this client's session, which is opened if need be. Missing
        ancestors are made as ``parents`` says; None refuses with NoNodeError. ``if_held``, here and
        in every other write: only while this grant holds.

        Raises:
            NodeExistsError: the path exists.
            NoNodeError: its parent does not.
            NoChildrenForEphemeralsError: its parent is ephemeral.
            DataTooLargeError, QuotaExceededError: beyond a limit of the cluster.
            SessionExpiredError: the session of an ephemeral has ended.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        held = if_held_body(conditions_of(if_held))
        if not mode.startswith("ephemeral"):
            return await self._create(Create(path, data, mode, None, ttl_ms, parents), held)
        with self._in_time():
            session = await self.session()
            create = Create(path, data, mode, session.session_id, ttl_ms, parents)
            try:
                return await self._create(create, held)
            except SessionExpiredError as error:
                session.note_end(error)
                raise

    def _create(self, create: Create, held: dict[str, Any]) -> Coroutine[Any, Any, Written]:
        body = {**to_body(create, PACKED, given=("path",)), **held}
        return self._write(packed("POST", tree_target(create.path), body), _WRITTEN)

    @answering
    async def get(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Znode:
        """Return data and Stat. The default sees every write acknowledged before, on any member.

        ``stale`` answers at once from whichever member is asked, maybe with the past;
        ``at_least_zxid`` waits until that member has seen so much.

        Raises:
            NoNodeError: the path does not exist.
            UnavailableError: no member answered in time.
        """
        query = read_mode(stale, at_least_zxid)
        call = packed("GET", tree_target(path, query), is_for_any=bool(query))
        return await self._read(call, _ZNODE)

    @answering
    async def set(
        self,
        path: str,
        data: bytes,
        *,
        expected_version: int = ANY_VERSION,
        if_held: Conditions = None,
    ) -> Written:
        """Replace the data, if its version is the expected one.

        Raises:
            NoNodeError, BadVersionError: the path does not exist, or has another version.
            DataTooLargeError: beyond a limit of the cluster.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        body: dict[str, Any] = {"data": data}  # as ``SetData`` is written: a test compares them
        if expected_version != ANY_VERSION:
            body["expected_version"] = expected_version
        if if_held is not None:
            body.update(if_held_body(conditions_of(if_held)))
        return await self._write(packed("PUT", tree_target(path), body), _WRITTEN)

    @answering
    async def delete(
        self,
        path: str,
        *,
        expected_version: int = ANY_VERSION,
        recursive: bool = False,
        if_held: Conditions = None,
    ) -> Deleted:
        """Delete a znode, with everything below it if ``recursive``.

        Raises:
            NoNodeError, BadVersionError: the path does not exist, or has another version.
            NotEmptyError: it has children.
            QuotaExceededError: it has more below it than one command deletes; delete it in parts.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        query = [if_held_query(each) for each in conditions_of(if_held)]
        if recursive:
            query.append(("recursive", ""))
        if expected_version != ANY_VERSION:
            query.append(("expected_version", str(expected_version)))
        return await self._write(packed("DELETE", tree_target(path, query)), reader(Deleted))

    @answering
    async def exists(
        self, path: str, *, stale: bool = False, at_least_zxid: int | None = None
    ) -> Stat | None:
        """Return the Stat, None when there is no such znode.

        Raises:
            UnavailableError: no member answered in time.
        """
        try:
            return (await self.get(path, stale=stale, at_least_zxid=at_least_zxid)).stat
        except NoNodeError:
            return None

    @answering
    async def children(
        self,
        path: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        with_stat: bool = False,
        stale: bool = False,
    ) -> Children:
        """Return the names of the children in order, ``limit`` of them ``after`` a name.

        Raises:
            NoNodeError: the path does not exist.
            UnavailableError: no member answered in time.
        """
        query = [("children", ""), *read_mode(stale, None)]
        if after is not None:
            query.append(("after", after))
        if limit is not None:
            query.append(("limit", str(limit)))
        if with_stat:
            query.append(("stat", ""))
        call = packed("GET", tree_target(path, query), is_for_any=stale)
        return await self._read(call, reader(Children))

    @answering
    async def subtree(
        self, path: str, *, after: str | None = None, limit: int = 1_000, stale: bool = False
    ) -> Subtree:
        """Return a page of all znodes at and below ``path`` that this client may read and watch.

        ``limit`` 0 to 1000; a page may be shorter. Go on with ``after=page.next`` until it is None;
        each page has its own zxid. A path that does not exist has an empty page. ``is_partial``
        says that some may be left out.

        Raises:
            NoAuthError: this client may read nothing there.
            UnavailableError: no member answered in time.
        """
        query = [("subtree", ""), ("limit", str(limit)), *read_mode(stale, None)]
        if after is not None:
            query.append(("after", after))
        call = packed("GET", tree_target(path, query), is_for_any=stale)
        return await self._read(call, reader(Subtree))

    async def multi(
        self,
        operations: Sequence[Operation],
        *,
        if_held: Conditions = None,
        timeout: float | None = None,
        by: str = "",
        reason: str = "",
    ) -> MultiReply:
        """Do all of these, in order, under one zxid, or none of them.

        ``timeout``: for how many seconds to try, however few tries the policy allows. ``by`` and
        ``reason``, up to 200 characters each, are recorded with the grants that deletions end.

        Raises:
            RequestError: what the first operation that fails would raise alone; nothing was done.
            LockLostError: a grant of ``if_held`` does not hold; nothing was done.
            UnavailableError, OutcomeUnknownError: nothing was done; it may have been.
        """
        held = if_held_body(conditions_of(if_held))
        body = {**to_body(Multi(tuple(operations), by, reason), PACKED), **held}
        return await self._write(packed("POST", "/v1/multi", body), reader(MultiReply), timeout)

    async def guarded(
        self,
        conditions: Sequence[Check],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        if_held: Conditions = None,
        timeout: float | None = None,
    ) -> MultiReply:
        """Do ``then`` if all conditions hold, else ``otherwise``; ``branch`` says which.

        Raises:
            RequestError, and all else that ``multi`` raises: an operation of that branch failed.
        """
        held = if_held_body(conditions_of(if_held))
        guarded = Guarded(tuple(conditions), tuple(then), tuple(otherwise))
        body = {**to_body(guarded, PACKED), **held}
        return await self._write(packed("POST", "/v1/multi", body), reader(MultiReply), timeout)
