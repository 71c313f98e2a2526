"""What a contender says of itself: who it is, where it runs, what it means to do."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from coordinator.errors import BadArgumentsError

_HOLDER_BYTES_MAX = 4_096
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """What a contender says of itself, for people; kept as JSON in its znode's data.

    ``when_unsure``, ``purpose`` and ``guard`` are what the holder has declared; nothing here acts
    on them.
    """

    label: str = ""
    host: str = ""
    pid: int | None = None
    trace_id: str = ""
    when_unsure: str = ""
    purpose: str = ""
    guard: str = ""

    def to_bytes(self) -> bytes:
        """Return the JSON of what is set."""
        said = {name: value for name in _NAMES if (value := getattr(self, name)) not in ("", None)}
        try:
            data = _ENCODER.encode(said).encode()
        except UnicodeEncodeError:
            raise BadArgumentsError("holder: expected text without lone surrogates") from None
        if len(data) > _HOLDER_BYTES_MAX:
            raise BadArgumentsError(
                f"holder: expected at most {_HOLDER_BYTES_MAX} bytes, found {len(data)}"
            )
        return data

    @classmethod
    def of(cls, data: bytes) -> HolderInfo:
        """Read a znode's data; what another program wrote in another form is left out."""
        try:
            said = json.loads(data)
        except ValueError:
            return cls()
        if not isinstance(said, dict):
            return cls()
        texts = {
            name: said[name] for name in _NAMES if name != "pid" and isinstance(said.get(name), str)
        }
        pid = said.get("pid")
        return cls(**texts, pid=pid if type(pid) is int else None)


_NAMES = tuple([each.name for each in fields(HolderInfo)])
