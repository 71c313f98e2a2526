"""A write on a condition: refused with what is there now, and nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client.calling.calls import Call
from coordinator.client.verbs.znodes import ZnodeVerbs
from coordinator.errors import BadVersionError
from coordinator.model.fields import ANY_VERSION
from coordinator.model.operations import SetData
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding
from tests.client.memory_cluster import MemoryCluster, in_memory


@in_memory
async def test_a_stale_version_is_told_the_present_one_and_changes_nothing(
    world: MemoryCluster,
) -> None:
    """The conflict carries version and zxid, so that one can go on from there."""
    async with world.client() as client, world.client() as other:
        await client.create("/profile", b"one")
        seen = (await client.get("/profile")).stat.version
        theirs = await other.set("/profile", b"theirs")

        with pytest.raises(BadVersionError) as conflict:
            await client.set("/profile", b"mine", expected_version=seen)

        assert conflict.value.definite
        assert conflict.value.current_version == theirs.stat.version
        assert conflict.value.zxid == theirs.stat.mzxid
        znode = await client.get("/profile", at_least_zxid=conflict.value.zxid)
        assert (znode.data, znode.stat) == (b"theirs", theirs.stat)
        await client.set("/profile", b"mine", expected_version=conflict.value.current_version)


@pytest.mark.parametrize("expected_version", [ANY_VERSION, 0, 7])
async def test_the_body_of_a_set_is_what_its_definition_says(expected_version: int) -> None:
    """It is written by hand, for it is the most frequent write."""
    sent: list[Any] = []

    class Recording(ZnodeVerbs):
        async def _write(self, call: Call, parse: Any, timeout: float | None = None) -> Any:
            sent.append(call.body)

    await Recording().set("/a", b"data", expected_version=expected_version)

    defined = SetData(path="/a", data=b"data", expected_version=expected_version)
    assert sent == [to_body(defined, Encoding.MSGPACK, given=("path",))]
