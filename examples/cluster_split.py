"""The cluster itself is split, 1 + 2 and 2 + 3: the smaller side grants nothing.

It answers no read as true either. Who asks for a stale answer gets one, with its age on it.
"""

from __future__ import annotations

import urllib.request

from coordinator import connect
from coordinator.errors import NoLeaderError, OutcomeUnknownError, UnavailableError
from coordinator.recipes import Lock
from coordinator.testing import LocalCluster, local_cluster
from examples.stage import Stage, perform


def split(stage: Stage, cluster: LocalCluster) -> None:
    minority = (cluster.leader, *cluster.followers[: (len(cluster.members) - 3) // 2])
    majority = tuple(each for each in cluster.members if each not in minority)
    stage.say(f"{len(minority)} + {len(majority)}, the old leader with the smaller side:")
    with cluster.connect(timeout=5) as client:
        client.create("/config", b"v1")
        grant = Lock(client, "job").acquire()
        parted = cluster.partition(minority, majority)
        to_minority = ",".join(cluster.url(each) for each in minority)
        with connect(to_minority, timeout=1.5) as inside:
            try:
                Lock(inside, "other-job", timeout=1).acquire()
            except (UnavailableError, OutcomeUnknownError):
                stage.say("  the smaller side grants nothing")
            try:
                inside.get("/config")
            except NoLeaderError:
                stage.say("  it refuses to read: no quorum")
        url = f"{cluster.url(minority[0])}/v1/tree/config?stale"
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - a URL of ours
            age_ms = response.headers["Coordinator-Stale-Age-Ms"]
            assert age_ms is not None
            stage.say("  asked for a stale answer it gives one, and says how old it is")
        with cluster.cut_off(client, *minority):
            grant.verify()
            client.set("/config", b"v2", if_held=grant)
        stage.say("  the larger side goes on: the lock is held, the write is done")
        parted.end()
        stage.say(f"  healed: everybody reads {client.get('/config').data.decode()}")


def story(stage: Stage) -> None:
    split(stage, stage.cluster)
    with local_cluster(members=5) as five:
        split(stage, five)


if __name__ == "__main__":
    perform(story)
