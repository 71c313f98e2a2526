"""The words for how a znode lives and for what a watch reports, as types."""

from __future__ import annotations

from typing import Literal

WatchKind = Literal["znode", "children", "subtree"]
EventWord = Literal["NodeCreated", "NodeDeleted", "NodeDataChanged"]
Mode = Literal[
    "persistent",
    "persistent_sequential",
    "ephemeral",
    "ephemeral_sequential",
    "container",
    "ttl",
    "ttl_sequential",
]
