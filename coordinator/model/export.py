"""A subtree in a file: a first line, a line for each znode, parents first, and a last line."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct, field

from coordinator.model.fields import Count, Positive, one_of
from coordinator.model.fields import ZnodePath as Path
from coordinator.model.znodes import CreateMode, Data

FORMAT = 1
MODES = (CreateMode.PERSISTENT, CreateMode.CONTAINER, CreateMode.TTL)
"""How an exported znode may live: none that belongs to a session. One that got a number has it in
its name, and gets no other."""


class ExportHead(Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: what was exported, and when it began, in UTC."""

    format: Count = field(name="coordinator_export")
    path: Path
    zxid: Count
    time: str


class ExportedZnode(Struct, frozen=True, forbid_unknown_fields=True):
    """A znode; ``ttl_ms`` is that of mode ttl."""

    path: Path
    data: Data = b""
    mode: Annotated[str, one_of(*MODES)] = "persistent"
    ttl_ms: Positive | None = None


class ExportEnd(Struct, frozen=True, forbid_unknown_fields=True):
    """The last line. If ``zxid`` is that of the first line, all is of one moment."""

    znodes: Count
    ephemerals_left_out: Count
    zxid: Count
