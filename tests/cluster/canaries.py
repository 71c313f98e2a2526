"""Planted secrets, and all places where what members and clients say can be found."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Canary:
    """A secret that must not be said; ``what`` it is."""

    what: str
    secret: bytes

    def forms(self) -> Iterator[bytes]:
        """Iterate over the ways in which it could be written without anybody seeing it at once."""
        yield self.secret
        yield base64.b64encode(self.secret).rstrip(b"=")
        yield base64.urlsafe_b64encode(self.secret).rstrip(b"=")
        yield quote(self.secret, safe="").encode()
        yield self.secret.hex().encode()
        yield repr(self.secret)[2:-1].encode()

    def is_in(self, said: bytes) -> bool:
        """Whether ``said`` holds it, in one of its forms."""
        return any(form in said for form in self.forms())


def found(canaries: list[Canary], said: dict[str, bytes]) -> list[str]:
    """Return which canary is where."""
    return [
        f"{each.what} is in {where}"
        for where, text in said.items()
        for each in canaries
        if each.is_in(text)
    ]


def of_process(pid: int) -> dict[str, bytes]:
    """Return what everybody on a machine can read of a process, and its environment."""
    shown = subprocess.run(
        ["ps", "-o", "args=", "-ww", "-p", str(pid)], capture_output=True, check=False
    )
    said = {f"ps of {pid}": shown.stdout}
    for name in ("cmdline", "environ", "status", "limits"):
        said[f"/proc/{pid}/{name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
    return said


def of_files(directory: Path, *patterns: str) -> dict[str, bytes]:
    """Return what the files are that fit one of ``patterns``."""
    return {
        os.fspath(path): path.read_bytes()
        for pattern in patterns
        for path in directory.glob(pattern)
        if path.is_file()
    }
