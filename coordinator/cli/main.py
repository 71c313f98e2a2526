"""The ``coordinator`` command."""

from __future__ import annotations

import click

from coordinator.cli.serving import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="coordinator", prog_name="coordinator")
def cli() -> None:
    """Locks, elections, watches and a small tree of znodes, replicated by Raft."""


cli.add_command(serve)


def main() -> None:
    """Run the command line of this process."""
    cli(prog_name="coordinator")
