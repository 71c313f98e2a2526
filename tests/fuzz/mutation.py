"""How good input is made bad: of bytes, of text, and of values inside msgpack."""

from __future__ import annotations

import random
from typing import Any

import msgpack  # type: ignore[import-untyped]

INTEGERS = (0, 1, -1, 2, 7, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1)
ODD_INTEGERS = (*INTEGERS, -(2**31), -(2**63), 2**63, 2**64 - 1)
TEXTS = ("", "/", "a", "/a", "//", "/a/", "..", "\x00", "\x85", "é", "😀", "x" * 200, "-", "1")
VALUES: tuple[Any, ...] = (None, True, False, 0.5, float("nan"), b"", b"\x00" * 9, (), ((),), {})


def damaged(data: bytes, chance: random.Random, *, others: list[bytes] | None = None) -> bytes:
    """Return ``data`` with one to four small things done to it."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        out = _damage_once(out, chance, others or [data])
    return bytes(out)


def _damage_once(out: bytearray, chance: random.Random, others: list[bytes]) -> bytearray:
    at = chance.randrange(len(out) + 1)
    match chance.randrange(8):
        case 0 if out:
            out[at % len(out)] ^= 1 << chance.randrange(8)
        case 1 if out:
            out[at % len(out)] = chance.choice((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xFF))
        case 2:
            out[at:at] = chance.randbytes(chance.choice((1, 2, 4, 9)))
        case 3:
            del out[at : at + chance.choice((1, 2, 8, 64))]
        case 4:
            del out[at:]
        case 5:
            end = at + chance.choice((1, 4, 16, 64))
            out[at:at] = out[at:end]
        case 6:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            out[at : at + chance.choice((0, 8, 64))] = other[start : start + 64]
        case _:
            out[at : at + 8] = (chance.choice(INTEGERS) % 2**64).to_bytes(8, "big")
    return out


def changed(value: Any, chance: random.Random, donors: list[Any]) -> Any:
    """Return ``value`` (a tree of tuples) with one leaf or branch of it made another."""
    if isinstance(value, tuple) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        match chance.randrange(12):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return (*value[:at], value[at], *value[at:])
            case _:
                return (*value[:at], changed(value[at], chance, donors), *value[at + 1 :])
    return _another(value, chance, donors)


def _another(value: Any, chance: random.Random, donors: list[Any]) -> Any:
    if chance.random() < 0.1:
        return chance.choice(VALUES)
    if type(value) is bool:
        return not value
    if type(value) is int:
        near = value + chance.choice((-2, -1, 1, 2))
        return chance.choice((near, near, *chance.sample(ODD_INTEGERS, 2)))
    if type(value) is str:
        return chance.choice((value[:-1], value + value, *chance.sample(TEXTS, 2)))
    if type(value) is bytes:
        return damaged(value, chance)
    return chance.choice(donors) if donors else chance.choice(VALUES)


def repacked(data: bytes, chance: random.Random, donors: list[Any]) -> bytes:
    """Return msgpack that is well formed and says something else than ``data``."""
    value = msgpack.unpackb(data, use_list=False, strict_map_key=False)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        value = changed(value, chance, donors)
    try:
        packed: bytes = msgpack.packb(value)
    except (OverflowError, ValueError, TypeError):
        return damaged(data, chance)
    return packed
