"""The file with the cluster's secret: how it is made, and which secrets are accepted.

1. A secret is at least 32 random bytes, as hex digits or base64 on one line: a secret that a person
   invents can be guessed from a recording of one handshake.
2. Only its owner can read the file (mode 0600). It is never half written and never replaced.
3. If all members are on this machine, the first to start makes it; between machines an operator
   copies it.
4. While it is replaced the file has two lines: members prove the first, and believe both.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from coordinator.errors import ConfigError
from coordinator.node.config import ClusterConfig
from coordinator.node.config_rules import is_loopback

SECRET_BYTES = 32
SECRETS_MAX = 2
FILE_BYTES_MAX = 4_096
_HEX = re.compile(rb"[0-9A-Fa-f]{64,}")
_BASE64 = re.compile(rb"[0-9A-Za-z+/_-]{43,}={0,2}")
_DIFFERENT_MIN = 8
"""The least number of different characters: fewer are not random bytes."""


def ensure_secret(path: Path) -> bool:
    """Make the secret if there is none; returns whether it was made now. Never half written."""
    if not path.name:
        raise ConfigError(f"{path}: expected the name of a file to write the secret to, found none")
    draft = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        if path.exists():
            return False
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(SECRET_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)  # unlike a rename it never replaces another one's secret
        finally:
            draft.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigError(
            f"{path}: expected a place to write the secret to, found: {error.strerror}"
        ) from error
    return True


def ensure_secret_on_one_machine(cluster: ClusterConfig) -> bool:
    """Make the configured secret if there is none and all members listen on loopback."""
    if cluster.secret_file is None or len(cluster.members) < 2:
        return False
    if not all(is_loopback(address.member_host) for address in cluster.members):
        return False
    return ensure_secret(Path(cluster.secret_file))


def read_secrets(cluster: ClusterConfig, *, is_needed: bool = True) -> tuple[bytes, ...]:
    """Return the cluster's secrets, the one to prove first; b"" for one member, or where
    certificates prove who it is.

    Raises ConfigError when there is none, it can be read by others, or it is none of ours."""
    if len(cluster.members) < 2:
        return (b"",)
    if cluster.secret_file is None and not is_needed:
        return (b"",)
    if cluster.secret_file is None:
        raise ConfigError(
            "cluster.secret_file: expected a file with the secret of the cluster's members,"
            f" found none; {how_to_make('cluster-secret')}"
        )
    path = Path(cluster.secret_file)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        found = [each.strip() for each in path.read_bytes()[: FILE_BYTES_MAX + 1].splitlines()]
    except OSError as error:
        raise ConfigError(
            f"cluster.secret_file: cannot read {path}: {error.strerror}; {how_to_make(str(path))}"
        ) from None
    if mode & 0o077:
        raise ConfigError(
            f"cluster.secret_file: expected mode 0600 of {path}, found {mode:04o};"
            f" run: chmod 0600 {path}"
        )
    found = [each for each in found if each]
    if len(found) > SECRETS_MAX:
        raise ConfigError(
            f"cluster.secret_file: expected one secret in {path}, or two while it is replaced,"
            f" found {len(found)}"
        )
    for secret in found or [b""]:
        if not is_strong(secret):
            raise ConfigError(
                f"cluster.secret_file: expected {SECRET_BYTES} random bytes or more as hex digits"
                f" or base64 in {path}, found {len(secret)} bytes that are not; move it away, then"
                f" {how_to_make(str(path))}"
            )
    return tuple(found)


def is_strong(secret: bytes) -> bool:
    """Whether it has the form of so many random bytes."""
    has_form = _HEX.fullmatch(secret) or _BASE64.fullmatch(secret)
    return bool(has_form) and len(secret) <= FILE_BYTES_MAX and len(set(secret)) >= _DIFFERENT_MIN


def how_to_make(path: str) -> str:
    """Return what to do where there is no good secret."""
    return (
        f"make one with `coordinator secret {path}` and copy it to every machine with a member"
        " (mode 0600)"
    )
