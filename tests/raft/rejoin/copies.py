"""Members that lose their disks, and start again on older ones."""

from __future__ import annotations

from tests.raft.simulated_cluster import Member, SimulatedCluster


async def lose_and_catch_up(cluster: SimulatedCluster, member: Member) -> None:
    """Its disk is replaced, and it is proven again, in a term or with an index it had not seen."""
    await member.lose_disk()
    await member.start()
    writer = next(each for each in cluster.members if each.is_leading)
    await writer.engine.propose(b"without the one that is away")
    await cluster.until(lambda: not member.is_unproven)
