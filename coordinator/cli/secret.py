"""``coordinator secret``: makes the secret by which the members of a cluster know each other."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.output import failing_well
from coordinator.secret_file import ensure_secret


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
