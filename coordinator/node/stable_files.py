"""Files that survive a crash: a name that stays, and a content that replaces another as a whole."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def sync_directory(path: str | Path) -> None:
    """Return when the names in a directory are on the disk (Pillai et al., OSDI 2014).

    Raises:
        OSError: it cannot be opened, or the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write ``data`` beside ``path``, then rename it: readers find the old file or the new one.

    Args:
        mode: permissions, less the umask; None keeps those of the old file.

    Raises:
        OSError: it could not be written; the old file is as it was, and nothing lies beside it.
    """
    kept = stat.S_IMODE(path.stat().st_mode) if mode is None and path.exists() else None
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o666 if mode is None else mode), "wb") as file:
            if kept is not None:
                os.fchmod(file.fileno(), kept)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
