"""The limits of the cluster, as clients see and set them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.model.fields import ANY_VERSION, Count, ExpectedVersion, ShortText, Version

LIMITS_NAMED_MAX = 100

Limits = Annotated[
    dict[str, Count],
    Meta(
        max_length=LIMITS_NAMED_MAX,
        examples=[{"znodes_max": 2_000_000}],
        extra_json_schema={"minProperties": 1},
        description="whole numbers by the names of limits",
    ),
]


class LimitsChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PATCH /v1/limits; limits that are not named stay as they are."""

    limits: Limits
    by: ShortText = ""
    expected_version: ExpectedVersion = ANY_VERSION


class LimitsView(Struct, frozen=True):
    """The limits that hold. ``version`` counts the changes, the first ones of the cluster included.

    ``changed_ms`` is the wall time of the last change, ``by`` says who made it; labels both."""

    limits: Limits
    version: Version
    by: str
    changed_ms: Count
