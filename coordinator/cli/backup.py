"""``backup`` and ``restore``: everything that a cluster holds, in a file and out of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, failing_well, note, one_line
from coordinator.cli.serving import config_option
from coordinator.client import AsyncClient
from coordinator.errors import CompactedError, StorageError
from coordinator.model.sizes import in_bytes

if TYPE_CHECKING:
    from coordinator.node.backups import Draft, Header

STDOUT = "-"
_BEGUN_MAX = 3
"""How often a transfer begins again after its member has let go of the backup."""


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[verify] FILE")
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Read the data directory of a member that does not run, and ask none.",
)
@verb
def backup(settings: Settings, arguments: tuple[str, ...], data_dir: str | None) -> None:
    """Write everything that a cluster holds to FILE, or check such a file.

    Any member may be asked, also a follower: name it with --endpoints. FILE appears once it is
    whole, checked and on the disk, with mode 0600. A transfer that breaks leaves FILE.part; the
    same command goes on with it, if it is run within two minutes. FILE may be "-", for a pipe.

    `backup verify FILE` reads all of it, says what is in it, and refuses a file that was cut or
    changed at any byte.

    \b
    Examples:
      coordinator backup /var/backups/coordinator-$(date +%F)
      coordinator backup --data-dir /var/lib/coordinator/member-1 before-the-upgrade
      coordinator backup verify before-the-upgrade
      coordinator backup - | age -r "$KEY" > coordinator.age
    """
    is_check = len(arguments) == 2 and arguments[0] == "verify"
    if not is_check and len(arguments) > 1:
        raise click.UsageError(f"expected [verify] FILE, found {' '.join(arguments)}")
    path = arguments[-1]
    # Imported here: no other verb needs it, and each starts faster without it.
    from coordinator.node import backups

    if is_check:
        _show(settings, "", backups.checked(path))
    elif data_dir is not None:
        if path == STDOUT:
            raise click.UsageError("--data-dir needs a FILE")
        header, has_vote = backups.write_from_data(data_dir, path)
        _show(settings, f"wrote {path}: ", header)
        if not has_vote:
            note(
                "this member has no vote: its data may lack what was acknowledged; back up another"
                " member, if there is one"
            )
    elif path == STDOUT:
        settings.run(_to_stdout)
    else:
        with backups.Draft(path) as draft:
            settings.run(lambda client: _to_draft(client, draft))
            _show(settings, f"wrote {path}: ", draft.finish())


def _show(settings: Settings, what: str, header: Header) -> None:
    if settings.is_json:
        click.echo(document(asdict(header)))
    else:
        click.echo(one_line(what + header.in_words()))


async def _to_draft(client: AsyncClient, draft: Draft) -> None:
    """Transfer a backup, or the rest of one that was begun before."""
    if draft.begun_id() is None:
        draft.begin_again()
    for _ in range(_BEGUN_MAX):
        try:
            await _transfer(client, draft.write, draft.begun_id(), draft.size_bytes)
            return
        except CompactedError:
            draft.begin_again()
    raise CompactedError("the member let go of each backup that was begun; ask another member")


async def _to_stdout(client: AsyncClient) -> None:
    """Transfer a backup to standard output."""

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)

    await _transfer(client, write)
    sys.stdout.buffer.flush()


async def _transfer(
    client: AsyncClient,
    write: Callable[[bytes], None],
    backup_id: str | None = None,
    offset: int = 0,
) -> None:
    progress = ProgressLine()
    is_last = False
    while not is_last:
        piece = await client.backup_piece(backup_id, offset)
        write(piece.data)
        backup_id, offset, is_last = piece.backup_id, piece.next_offset, piece.is_last
        if not piece.data and not is_last:
            raise StorageError("the member answered with nothing of its backup")
        progress.show(offset, piece.size_bytes)
    progress.end()


class ProgressLine:
    """How far a transfer has come, on one line of a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._percent = -1

    def show(self, done: int, total: int) -> None:
        """Show it, if it has changed."""
        percent = 100 * done // max(1, total)
        if self._is_shown and percent != self._percent:
            self._percent = percent
            text = f"\r{percent:3d} %  {in_bytes(done)} of {in_bytes(total)}  "
            click.echo(text, err=True, nl=False)

    def end(self) -> None:
        """End the line."""
        if self._is_shown and self._percent >= 0:
            click.echo(err=True)


@click.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@config_option("The TOML file of the member that the new cluster begins with.")
@click.option("--data-dir", metavar="DIR", help="Instead of the data directory of the config.")
@click.option("--by", required=True, metavar="WHO", help="Who does it; kept with the data.")
@click.option("--reason", required=True, metavar="WHY", help="Why; kept with the data.")
@click.option("--access-off", is_flag=True, help="Turn access rights off, too.")
@failing_well
def restore(
    path: Path,
    config_path: Path | None,
    data_dir: str | None,
    by: str,
    reason: str,
    access_off: bool,
) -> None:
    """Begin a new cluster from a backup, in an empty data directory.

    The new cluster has a new id: members of the old one, and their data, are refused. All sessions
    end, with their locks. zxids, fencing tokens and sequence numbers continue far above all that
    were ever given out, so guards refuse what the old cluster granted. What was acknowledged after
    the backup is lost.

    \b
    1. Stop the old cluster, if it still runs.
    2. On one machine:
       coordinator restore FILE --config member-1.toml --by WHO --reason WHY
    3. Start all members, the others with empty data directories.

    \b
    Examples:
      coordinator restore /var/backups/coordinator-2026-11-29 --config member-1.toml \\
        --by ops --reason "a flood"
    """
    # Imported here: no other verb needs it, and each starts faster without it.
    from coordinator.node import backups, recovery
    from coordinator.node.config_file import load

    config = load(config_path)
    note(
        f"this machine's clock says {recovery.time_now()}. If that is wrong, set it and restore"
        " again: numbers continue by it"
    )
    said = backups.restore(
        config, str(path), by=by, reason=reason, data_dir=data_dir, turns_access_off=access_off
    )
    click.echo(said)
