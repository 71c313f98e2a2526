"""``completion``: what a shell needs to complete verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "coordinator"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      coordinator completion bash > ~/.local/share/bash-completion/completions/coordinator
      coordinator completion zsh > "${fpath[1]}/_coordinator"
      coordinator completion fish > ~/.config/fish/completions/coordinator.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    root = context.find_root().command
    click.echo(kind(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
