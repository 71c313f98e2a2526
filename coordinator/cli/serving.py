"""``coordinator serve``: one member in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.output import failing_well, note
from coordinator.config_file import load
from coordinator.secret_file import ensure_secret_on_one_machine


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The member's TOML file; without it the defaults: one member, alone, on loopback.",
)
@failing_well
def serve(config_path: Path | None) -> None:
    """Run one member in the foreground until SIGTERM or Ctrl-C.

    Variables COORDINATOR_<SECTION>_<KEY> override the file, for example
    COORDINATOR_HTTP_BIND_PORT=8071.

    \b
    Examples:
      coordinator serve --config cluster-configs/three/member-1.toml
      coordinator serve --config cluster-configs/single/member-1.toml
    """
    config = load(config_path)
    if ensure_secret_on_one_machine(config.cluster):
        note(f"made the cluster's secret: {config.cluster.secret_file}")
    # Imported here: no other verb needs the server, and each starts faster without it.
    from coordinator import server

    server.run(config)
