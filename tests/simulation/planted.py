"""Faults that are planted in a world, to show that its judgement finds them.

They are given to it by ``Settings``: nothing of the product is replaced, so that they can be
planted where it is compiled, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.transport import Request, Response
from coordinator.errors import ThrottledError
from coordinator.model.sessions import SessionLease, SessionLeases
from coordinator.node.config import Config
from coordinator.service.sessions import lease_remaining
from coordinator.state.commands import Operation
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import decode, encode

Answering = Callable[[Request, Response], Response]


@dataclass(frozen=True)
class Planted:
    """What goes wrong from the beginning of a world on."""

    refused: tuple[type, ...] = ()
    """Each member's engine refuses to propose these."""
    changes_kept: int | None = None
    """How many changes each member keeps for watches, whatever it should."""
    answer: Answering | None = None
    """What a client is answered instead of what its member answers."""
    tell: Callable[[str, bytes], bytes] | None = None
    """What a member is told instead of what another told it, asked for this kind of thing."""

    def refuse(self, operation: Operation) -> None:
        if isinstance(operation, self.refused):
            raise ThrottledError("refused by a planted fault")

    def config_of(self, config: Config) -> Config:
        if self.changes_kept is None:
            return config
        limits = replace(config.limits, watch_history_changes=self.changes_kept)
        return replace(config, limits=limits)

    def answered(self, request: Request, response: Response) -> Response:
        return response if self.answer is None else self.answer(request, response)

    def told(self, kind: str, reply: bytes) -> bytes:
        return reply if self.tell is None else self.tell(kind, reply)


def fails(_request: Request, _response: Response) -> Response:
    """A member that cannot answer."""
    raise ValueError("no answer")


def holds_for_longer(request: Request, response: Response) -> Response:
    """An answer to a heartbeat that says of each bounded hold that ten seconds of it are left."""
    is_heartbeat = request.target.partition("?")[0].endswith(("/heartbeat", "/heartbeats"))
    if response.status != 200 or not is_heartbeat:
        return response
    encoding = encoding_of(response.headers)
    body = decode(response.body, encoding)
    if request.target.endswith("s"):
        said = from_body(SessionLeases, body)
        longer = SessionLeases(tuple(map(_longer, said.sessions)), said.ended)
        return structs.replace(response, body=encode(to_body(longer), encoding))
    lease = _longer(from_body(SessionLease, body))
    return structs.replace(response, body=encode(to_body(lease), encoding))


def safe_for_longer(kind: str, reply: bytes) -> bytes:
    """A leader's answer about leases and bounds that leaves out 100 ms of the way it took."""
    if kind != lease_remaining.REQUEST_KIND:
        return reply
    said = json.loads(reply)
    for times in (said.get("leases", {}), said.get("bounds", {})):
        times.update({key: left_ms + 100 for key, left_ms in times.items()})
    return json.dumps(said).encode()


def _longer(lease: SessionLease) -> SessionLease:
    return structs.replace(lease, holds=dict.fromkeys(lease.holds, 10_000))
