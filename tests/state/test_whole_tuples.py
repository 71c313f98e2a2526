"""What is made by ``tuple.__new__`` has all fields of its class: nothing else would say so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import msgpack
import pytest

import coordinator
from coordinator.raft.network import messages
from coordinator.raft.network.frames import FrameError
from tests.raft.network.message_table import EXAMPLES

ROOT = Path(coordinator.__file__).parent
SHAPES = {"_request_shape": 3, "_caller_shape": 3}
"""What rows have been checked to be, by their check."""
DECODED = ("coordinator.raft.network.messages", "values + missing if missing else values")
"""Messages of members: the decoder of each kind has counted the fields."""


def made() -> Iterator[tuple[str, str, int, ast.expr]]:
    """Iterate over the module, class, line and values of each tuple that is made so."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "tuple.__new__" not in text:
            continue
        module = ".".join(["coordinator", *path.relative_to(ROOT).with_suffix("").parts])
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tuple.__new__":
                kind, values = node.args
                if (module, ast.unparse(values)) == DECODED:
                    continue
                yield module, ast.unparse(kind), node.lineno, values


MADE = list(made())


def count_of(values: ast.expr) -> int:
    if isinstance(values, ast.Call):
        return SHAPES[ast.unparse(values.func)]
    assert isinstance(values, ast.Tuple), "the values are written out where it is made"
    assert not any(isinstance(each, ast.Starred) for each in values.elts)
    return len(values.elts)


@pytest.mark.parametrize(
    ("module", "kind", "line", "values"), MADE, ids=[f"{each[0]}:{each[2]}" for each in MADE]
)
def test_a_tuple_is_made_whole(module: str, kind: str, line: int, values: ast.expr) -> None:
    fields = getattr(import_module(module), kind)._fields
    assert count_of(values) == len(fields), f"{module}:{line}: expected all of {fields}"


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda each: type(each).__name__)
def test_a_message_with_a_field_more_or_less_is_refused(message: messages.Message) -> None:
    """So what is decoded has all fields of its class."""
    codec = messages.PROTOCOLS[messages.PROTOCOL_NEWEST]
    row = msgpack.unpackb(codec.encode(message))

    assert codec.decode(msgpack.packb(row)) == message
    for wrong in ([*row, 0], row[:-1]):
        with pytest.raises(FrameError):
            codec.decode(msgpack.packb(wrong))
