"""``local_cluster``: a cluster for the body of a ``with``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from coordinator.testing.cluster import LocalCluster


class local_cluster:
    """``with local_cluster() as cluster``, or ``async with``: ready when the body begins.

    Args:
        members: how many, 1 to 9.
        directory: where their data is kept; None: a temporary directory that goes at the end.
        syncs_to_disk: True syncs every write, as a cluster in earnest does. False, the
            default, leaves it to the system: faster, and the same for all that this kit can do.
        tls: True makes a CA and certificates; members and clients then talk over TLS. It needs the
            extra ``certs``. Clients of ``cluster.connect`` trust the CA; others are given
            ``cluster.certificates.ca_file``.
        access: True turns access rights on. Clients of ``cluster.connect`` may do everything,
            unless they are given another ``token``: ``cluster.access.token`` makes one.

    Raises:
        BadArgumentsError: another number of members.
        UnavailableError: they are not ready within half a minute.
    """

    def __init__(
        self,
        *,
        members: int = 3,
        directory: Path | None = None,
        syncs_to_disk: bool = False,
        tls: bool = False,
        access: bool = False,
    ) -> None:
        self._cluster = LocalCluster(
            members, directory, is_synced=syncs_to_disk, tls=tls, access=access
        )

    def __enter__(self) -> LocalCluster:
        self._cluster.start()
        return self._cluster

    def __exit__(self, *_exception: object) -> Literal[None]:
        self._cluster.close()

    async def __aenter__(self) -> LocalCluster:
        await asyncio.to_thread(self._cluster.start)
        return self._cluster

    async def __aexit__(self, *_exception: object) -> Literal[None]:
        await asyncio.to_thread(self._cluster.close)
