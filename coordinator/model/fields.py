"""The kinds of fields: numbers with their bounds, texts with their lengths, words of a list.

A definition of the model names them instead of repeating a bound. ``Annotated[Count, Meta(...)]``
adds a description, which is what OpenAPI says of the field.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
"""Bodies carry integers of 64 bits with a sign, in JSON and in msgpack. What an answer says, a
request may name: so numbers that the cluster counts have this bound both ways."""
ANY_VERSION = -1
TEXT_CHARACTERS_MAX = 200

Count = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
ExpectedVersion = Annotated[
    int, Meta(ge=ANY_VERSION, le=INTEGER_MAX, description="-1 accepts any version")
]
ZnodePath = Annotated[str, Meta(examples=["/config/limits"])]
ShortText = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]

LEFT_OUT = Meta(extra={"is_left_out": True})
"""Marks a field of an answer that is not written while it has its default."""
OR_NULL = Meta(extra={"is_left_out": True, "is_null_said": True})
"""Marks a field of an answer that only some have, and which may be null there."""
INTERNAL = Meta(extra={"is_internal": True})
"""Marks a field that no body carries."""


def or_called(name: str, when: str) -> Meta:
    """Return what lets a field go by another ``name`` while the field ``when``, which no body
    carries, is true: ``lock``, or ``election`` of an election."""
    return Meta(extra={"or_called": name, "when": when})


def also_called(name: str, when: str) -> Meta:
    """Return what says a field under another ``name``, too, while the field ``when`` is true:
    ``fencing_token``, and ``epoch`` of an election."""
    return Meta(extra={"also_called": name, "when": when})


def unless(when: str) -> Meta:
    """Return what leaves a field out while the field ``when`` is true."""
    return Meta(extra={"is_unsaid": True, "when": when})


def one_of(*words: str) -> Meta:
    """Return what restricts a text to ``words``."""
    return Meta(extra={"one_of": words})


def described(text: str) -> Meta:
    """Return what says in the schema what a field is."""
    return Meta(description=text)
