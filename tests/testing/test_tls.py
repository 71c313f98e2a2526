"""A local cluster with TLS: its clients, its faults, and a client with a certificate."""

from __future__ import annotations

import pytest

from coordinator import Lock, connect
from coordinator.errors import LockLostError
from coordinator.testing import local_cluster


@pytest.mark.check
def test_a_cluster_with_tls_has_the_same_faults() -> None:
    """Members and clients talk over TLS; a lock is lost and a leader killed as without."""
    with local_cluster(tls=True) as cluster, cluster.connect() as client:
        assert cluster.url("1").startswith("https://")
        grant = Lock(client, "report").acquire()
        cluster.kill(cluster.leader)
        client.create("/a", b"1")
        grant.verify()
        cluster.expire(client)
        with pytest.raises(LockLostError):
            grant.verify()
        cluster.heal()
        assert cluster.certificates is not None
        with connect(cluster.urls, ca_file=cluster.certificates.ca_file) as other:
            assert other.get("/a").data == b"1"
