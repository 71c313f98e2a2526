"""One write at one member on a new connection, with little time: did it answer?"""

from __future__ import annotations

import http.client
import json
from contextlib import closing

from bench.peers.systems import System
from bench.peers.work import VALUE
from bench.peers.zookeeper_wire import NODE_EXISTS, Connection

_PATH = "/attempt"


def attempt(system: System, number: int, timeout_s: float, *, is_first: bool = False) -> bool:
    """Write at the member of this number; whether it was acknowledged within ``timeout_s``."""
    endpoint = system.endpoints[number]
    try:
        return {"ours": _ours, "etcd": _etcd, "zookeeper": _zookeeper}[system.name](
            endpoint, timeout_s, is_first
        )
    except (OSError, http.client.HTTPException):
        return False


def _ours(endpoint: str, timeout_s: float, is_first: bool) -> bool:
    # Without the id of a request: it is sent once, and a cluster whose table of requests is full
    # knows no new client that does not say since when it is there.
    host = endpoint.removeprefix("http://")
    with closing(http.client.HTTPConnection(host, timeout=timeout_s + 0.2)) as connection:
        headers = {
            "Content-Type": "application/json",
            "Coordinator-Timeout-Ms": str(int(timeout_s * 1000)),
        }
        body = json.dumps({"data": VALUE.decode()})
        connection.request("POST" if is_first else "PUT", f"/v1/tree{_PATH}", body, headers)
        return connection.getresponse().status < 300


def _etcd(endpoint: str, timeout_s: float, _is_first: bool) -> bool:
    import grpc

    from bench.peers.etcd_client import PUT, pb

    path, request, response = PUT
    with grpc.insecure_channel(endpoint) as channel:
        put = channel.unary_unary(
            path,
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            put(pb.PutRequest(key=_PATH.encode(), value=VALUE), timeout=timeout_s)
        except grpc.RpcError:
            return False
    return True


def _zookeeper(endpoint: str, timeout_s: float, is_first: bool) -> bool:
    with closing(Connection(endpoint, timeout_s)) as connection:
        if is_first:
            return connection.create(_PATH) in (0, NODE_EXISTS)
        return connection.set(_PATH) == 0
