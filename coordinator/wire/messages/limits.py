"""The limits of the cluster: how much there may be of everything, and who set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.wire.fields import Fields
from coordinator.wire.messages.acquire import TEXT_CHARACTERS_MAX
from coordinator.wire.messages.if_held import IF_HELD_FIELD
from coordinator.wire.messages.operations import ANY_VERSION, VERSION_MAX

LIMITS_NAMED_MAX = 100


def _read_limits(value: Any, where: str) -> dict[str, int]:
    if not isinstance(value, Mapping) or len(value) > LIMITS_NAMED_MAX:
        raise BadArgumentsError(
            f"{where}: expected an object of at most {LIMITS_NAMED_MAX} limits by name"
        )
    fields = Fields(value, where)
    return {name: fields.integer(name) for name in value}


@dataclass(frozen=True, slots=True)
class LimitsChange:
    """The body of PATCH /v1/limits; limits that are not named stay as they are."""

    limits: Mapping[str, int]
    by: str = ""
    expected_version: int = ANY_VERSION

    def to_body(self) -> dict[str, Any]:
        return {
            "limits": dict(self.limits),
            "by": self.by,
            "expected_version": self.expected_version,
        }

    @classmethod
    def from_body(cls, body: Any) -> LimitsChange:
        fields = Fields(body, "body", {"limits", "by", "expected_version", IF_HELD_FIELD})
        limits = _read_limits(fields.inner("limits"), fields.of("limits"))
        if not limits:
            raise BadArgumentsError("body.limits: expected a limit to set, found none")
        return cls(
            limits,
            fields.text("by", "", characters_max=TEXT_CHARACTERS_MAX),
            fields.integer(
                "expected_version", ANY_VERSION, minimum=ANY_VERSION, maximum=VERSION_MAX
            ),
        )


@dataclass(frozen=True, slots=True)
class LimitsView:
    """The limits that hold. ``version`` counts the changes, the first ones of the cluster included.

    ``changed_ms`` is the wall time of the last change, ``by`` says who made it; labels both."""

    limits: Mapping[str, int]
    version: int
    by: str
    changed_ms: int

    def to_body(self) -> dict[str, Any]:
        return {
            "limits": dict(self.limits),
            "version": self.version,
            "by": self.by,
            "changed_ms": self.changed_ms,
        }

    @classmethod
    def from_body(cls, body: Any) -> LimitsView:
        fields = Fields(body, "body")
        return cls(
            _read_limits(fields.inner("limits"), fields.of("limits")),
            fields.integer("version"),
            fields.text("by"),
            fields.integer("changed_ms"),
        )
