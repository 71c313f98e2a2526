"""etcd's gRPC calls: its Lock, puts, reads, leases and watches; threads and asyncio.

``.bench-peers/etcd_pb2.py`` is made from ``etcd/etcd.proto`` by ``bench/peers/install``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from bench.peers.systems import TOOLS
from bench.peers.work import IN_FLIGHT, VALUE, AsyncWorker, Spec, SyncWorker

sys.path.insert(0, str(TOOLS))
import etcd_pb2 as pb

PUT = ("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
RANGE = ("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN = ("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
LEASE = ("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = ("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
LOCK = ("/v3lockpb.Lock/Lock", pb.LockRequest, pb.LockResponse)
UNLOCK = ("/v3lockpb.Lock/Unlock", pb.UnlockRequest, pb.UnlockResponse)
STATUS = ("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)
LEASE_S = 600


def unary(channel: Any, call: tuple[str, Any, Any]) -> Callable[[Any], Any]:
    """Return the call as a function of its request."""
    path, request, response = call
    found: Callable[[Any], Any] = channel.unary_unary(
        path,
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    return found


def leads(endpoint: str) -> bool:
    """Whether this member leads; raises OSError when it cannot be asked."""
    said = _status(endpoint)
    return bool(said.leader and said.leader == said.header.member_id)


def term_at(endpoint: str) -> int:
    """Return the term of this member; raises OSError when it cannot be asked."""
    return int(_status(endpoint).raft_term)


def _status(endpoint: str) -> Any:
    with grpc.insecure_channel(endpoint) as channel:
        try:
            return unary(channel, STATUS)(pb.StatusRequest(), timeout=5.0)
        except grpc.RpcError as error:
            raise ConnectionError(str(error)) from error


class EtcdThreads:
    """Calls on one channel, from threads."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._channel = grpc.insecure_channel(spec.endpoints[spec.leader])
        self._leases: list[int] = []

    def worker(self, number: int) -> SyncWorker:
        put, read = (unary(self._channel, each) for each in (PUT, RANGE))
        key = b"bench-%d" % number
        put(pb.PutRequest(key=key, value=VALUE))
        if self._spec.kind == "write":
            return lambda _pause: put(pb.PutRequest(key=key, value=VALUE))
        if self._spec.kind in ("read", "stale"):
            request = pb.RangeRequest(key=key, serializable=self._spec.kind == "stale")
            return lambda _pause: read(request)
        lease = unary(self._channel, LEASE)(pb.LeaseGrantRequest(TTL=LEASE_S)).ID
        self._leases.append(lease)
        lock, unlock = (unary(self._channel, each) for each in (LOCK, UNLOCK))
        request = pb.LockRequest(name=self._spec.lock_name(number).encode(), lease=lease)

        def cycle(pause: Callable[[], None]) -> None:
            key = lock(request).key
            pause()
            unlock(pb.UnlockRequest(key=key))

        return cycle

    def close(self) -> None:
        for lease in self._leases:
            unary(self._channel, REVOKE)(pb.LeaseRevokeRequest(ID=lease))
        self._channel.close()


class EtcdAsync:
    """The same of asyncio tasks."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._channel = grpc.aio.insecure_channel(spec.endpoints[spec.leader])
        self._leases: list[int] = []

    async def worker(self, number: int) -> AsyncWorker:
        put, read = (unary(self._channel, each) for each in (PUT, RANGE))
        key = b"bench-%d" % number
        await put(pb.PutRequest(key=key, value=VALUE))

        def written() -> Awaitable[Any]:
            found: Awaitable[Any] = put(pb.PutRequest(key=key, value=VALUE))
            return found

        if self._spec.kind == "write":
            return lambda _pause: written()
        if self._spec.kind == "pipeline":
            return lambda _pause: asyncio.gather(*[written() for _ in range(IN_FLIGHT)])
        if self._spec.kind in ("read", "stale"):
            request = pb.RangeRequest(key=key, serializable=self._spec.kind == "stale")
            return lambda _pause: read(request)
        lease = (await unary(self._channel, LEASE)(pb.LeaseGrantRequest(TTL=LEASE_S))).ID
        self._leases.append(lease)
        lock, unlock = (unary(self._channel, each) for each in (LOCK, UNLOCK))
        wanted = pb.LockRequest(name=self._spec.lock_name(number).encode(), lease=lease)

        async def cycle(pause: Callable[[], Awaitable[None]]) -> None:
            key = (await lock(wanted)).key
            await pause()
            await unlock(pb.UnlockRequest(key=key))

        return cycle

    async def close(self) -> None:
        for lease in self._leases:
            await unary(self._channel, REVOKE)(pb.LeaseRevokeRequest(ID=lease))
        await self._channel.close()
