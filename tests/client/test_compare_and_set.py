"""A write on a condition: refused with what is there now, and nothing else happens."""

from __future__ import annotations

import pytest

from coordinator.errors import BadVersionError
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
