"""The cluster's secret, as it is read from its file."""

from __future__ import annotations

import stat
from pathlib import Path

from coordinator.config import ClusterConfig
from coordinator.errors import ConfigError

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096


def read_secret(cluster: ClusterConfig) -> bytes:
    """Return the cluster's secret, or b"" where none is configured.

    Raises ConfigError when the file can be read by others, or is too short to be a secret."""
    if cluster.secret_file is None:
        return b""
    path = Path(cluster.secret_file)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cluster.secret_file: cannot read {path}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"cluster.secret_file: expected mode 0600 of {path}, found {mode:04o}")
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"cluster.secret_file: expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
            f" in {path}, found {len(secret)}"
        )
    return secret
