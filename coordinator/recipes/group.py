"""A group of programs that know of each other: registered while they live, listed and watched.

::

    web = Group(client, "web")
    me = web.join(metadata={"url": "http://10.0.0.7:8080"})
    [each.metadata["url"] for each in web.members() if each.state == "up"]
    me.drain(linger=5)                     # no new requests for 5 s, then gone

1. A member is an ephemeral znode, ``/groups/<group>/<member>``, with a JSON object in it; any
   program lists and reads it with two requests of the plain tree.
2. It goes with its session: when its program dies, or its health probe fails. If the session is
   lost while the program lives, the member registers itself again with the next one, under the
   same name and with a higher token, for as long as it has not left.
3. The listing is the past: a member may have died a session's timeout ago, and may be paused now.
   What it writes must carry its ``fencing_token`` where that matters.
4. A name belongs to one member at a time. ``join`` waits until another one of the same name has
   gone, which is how a program that was restarted takes its place again.
5. A znode that an operator deletes stays away until the session of its member ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, overload

from coordinator.client import AsyncClient, BlockingStream, Client, ClientT, both
from coordinator.recipes.base.ephemeral import unique_name
from coordinator.recipes.base.names import name_of, path_of, segment_of
from coordinator.recipes.groups.members import GroupMember, GroupStream, MemberState, read_members
from coordinator.recipes.groups.membership import Membership
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, wait_ms_of

ROOT = "/groups"


class Group(Generic[ClientT]):
    """The group ``name``; it needs no member to be asked."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        self.client = client
        self.name = name_of(name)
        self.path = path_of(ROOT, name)

    async def _undo_join(self, joined: Membership[Any]) -> None:
        await joined._leave()

    async def _join(
        self,
        member: str | int | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        state: MemberState = "up",
        timeout: Timeout = DEFAULT_TIMEOUT_S,
    ) -> Membership[ClientT]:
        """Register, and stay registered until ``leave``; ``member`` None draws a name.

        Raises:
            NodeExistsError: another member of this name was there for all of ``timeout``.
            SessionExpiredError, UnhealthyError: this client has no session.
            UnavailableError, OutcomeUnknownError: no member of the cluster answered in time;
                nothing is registered, or is so for long.
            BadArgumentsError, DataTooLargeError: what is to be registered cannot be.
        """
        core = self.client.core
        if member is None:
            member = unique_name(core, await core.session(core.time_left_ms() / 1000))
        path = f"{self.path}/{segment_of(member, 'member')}"
        joined = Membership(self.client, path, dict(metadata or {}), state)
        try:
            await joined.register(wait_ms_of(timeout))
        except BaseException:
            core.background.start(joined._leave(), f"leave {path}")
            raise
        return joined

    join = both(_join, undo=_undo_join)

    @both
    async def members(self) -> tuple[GroupMember, ...]:
        """Return who is registered, by name: the past when it is read.

        Raises:
            UnavailableError: no member of the cluster answered in time.
        """
        found = await read_members(self.client.core, self.path)
        return tuple(found[name] for name in sorted(found))

    @overload
    def watch(self: Group[Client]) -> BlockingStream[tuple[GroupMember, ...]]: ...
    @overload
    def watch(self: Group[AsyncClient]) -> GroupStream: ...

    def watch(self: Group[Any]) -> BlockingStream[tuple[GroupMember, ...]] | GroupStream:
        """Return a stream of the members: the present ones, then after each change.

        Raises:
            ClientClosedError: here, or while iterating, when the client is closed.
        """
        stream = GroupStream(self.client.core, self.path)
        return BlockingStream(self.client, stream) if isinstance(self.client, Client) else stream
