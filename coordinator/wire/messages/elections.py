"""What only elections say: who is elected, with what value, and what is proclaimed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.errors import BadArgumentsError, from_problem
from coordinator.model.events import StreamError
from coordinator.model.views import Elected
from coordinator.wire.codec import from_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.fields import Fields
from coordinator.wire.messages.acquire import (
    VALUE_FIELDS,
    read_value,
    value_fields,
)
from coordinator.wire.messages.if_held import IF_HELD_FIELD


def read_observe_line(body: Any) -> Elected | StreamError:
    """Return what one line of an observed election says."""
    fields = Fields(body, "line")
    kind = fields.text("type")
    if kind == "elected":
        return from_body(Elected, body, "line")
    if kind == "error":
        return StreamError(from_problem(fields.inner("problem") or {}))
    raise BadArgumentsError(f"line.type: expected elected or error, found {kind!r}")


@dataclass(frozen=True, slots=True)
class Proclaimed:
    """The reply of a proclamation; ``zxid`` is its own, or a later one."""

    grant_id: str
    epoch: int
    zxid: int

    def to_body(self) -> dict[str, Any]:
        return {"grant_id": self.grant_id, "epoch": self.epoch, "zxid": self.zxid}

    @classmethod
    def from_body(cls, body: Any) -> Proclaimed:
        fields = Fields(body, "body")
        return cls(fields.text("grant_id"), fields.integer("epoch"), fields.integer("zxid"))


def proclaim_body(value: bytes, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
    """Return the body of PUT /v1/elections/{name}/grants/{grant_id}."""
    return value_fields(value, encoding)


def read_proclaim(body: Any) -> bytes:
    """Return the value in the body of PUT /v1/elections/{name}/grants/{grant_id}."""
    Fields(body, "body", VALUE_FIELDS | {IF_HELD_FIELD})
    return read_value(body)
