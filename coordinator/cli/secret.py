"""``coordinator secret``: makes the secret by which the members of a cluster know each other."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from coordinator.cli.output import failing_well
from coordinator.errors import ConfigError

_SECRET_BYTES = 32


@click.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@failing_well
def secret(path: Path) -> None:
    """Write a new secret to PATH, unless there is one already.

    The file is readable by its owner only. Name it as secret_file in [cluster] of every member's
    configuration, and copy it to every machine with a member. Several may do this at once on a
    shared directory: one of them makes the secret, and all of them find the same.

    \b
    Example:
      coordinator secret /etc/coordinator/cluster-secret
    """
    click.echo(f"made {path}" if ensure_secret(path) else f"kept {path}", err=True)


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
                file.write(secrets.token_hex(_SECRET_BYTES) + "\n")
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
