"""Two teams, each with its token and its rights."""

from __future__ import annotations

from tests.wire.guarded import Cluster

PAY = ("/teams/pay", ("read", "write", "watch"))


async def make_teams(cluster: Cluster) -> None:
    for path in ("teams", "teams/pay", "teams/pay/a", "teams/web", "teams/web/b", "own"):
        await cluster.admin("POST", f"/v1/tree/{path}", {"data": path})
