"""The preloaded shim: built where it is needed, told what to do while a member runs."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

from tests.cluster.faults.world import Skipped

_SOURCE = Path(__file__).with_name("shim.c")
_FIELDS = (
    "sync_failures", "sync_delay_ms", "write_failures", "rename_failures", "wall_offset_ms",
    "wall_rate_ppm", "syncs", "failed", "writes_after", "error",
)  # fmt: skip
_MAPPED_BYTES = 4096


def build(directory: Path) -> Path:
    """Compile the shim into ``directory``; Skipped without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Skipped("no C compiler to build the preloaded shim with (Debian: gcc libc6-dev)")
    library = directory / "shim.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
    command += ["-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"the preloaded shim does not compile here: {done.stderr[-300:]}")
    return library


class Shim:
    """What one member's shim does; its environment goes into ``ProcessCluster.start``."""

    def __init__(self, library: Path, control: Path, below: Path) -> None:
        control.write_bytes(bytes(_MAPPED_BYTES))
        self._file = control.open("r+b")
        self._fields = mmap.mmap(self._file.fileno(), _MAPPED_BYTES)
        self.environment = {
            "LD_PRELOAD": str(library),
            "COORDINATOR_TEST_SHIM": str(control),
            # With the slash, or the log of member-1, member-1.log, would be below it as well.
            "COORDINATOR_TEST_SHIM_BELOW": f"{below}/",
        }

    def set(self, **values: int) -> None:
        """Change fields of the shim; the member sees them at its next call."""
        for name, value in values.items():
            struct.pack_into("<q", self._fields, 8 * _FIELDS.index(name), value)

    def get(self, name: str) -> int:
        return int(struct.unpack_from("<q", self._fields, 8 * _FIELDS.index(name))[0])

    def calm(self) -> None:
        """Do no more harm."""
        self._fields[:] = bytes(_MAPPED_BYTES)

    def close(self) -> None:
        self._fields.close()
        self._file.close()
