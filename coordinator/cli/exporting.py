"""``export`` and ``import``: a subtree as lines of JSON, for another cluster or an editor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import click

from coordinator.cli.completing import paths
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, note, one_line
from coordinator.cli.subtrees import in_steps, moved, pages
from coordinator.client import AsyncClient
from coordinator.clock import SystemClock
from coordinator.errors import BadArgumentsError, NodeExistsError, NoNodeError
from coordinator.model.export import FORMAT, ExportedZnode, ExportEnd, ExportHead
from coordinator.model.operations import Create, SetData
from coordinator.model.znodes import CreateMode, Stat, Znode
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import decode
from coordinator.wording import moment

_AT_ONCE = 200
_AT_ONCE_BYTES = 256 * 1024
"""What goes into one multi: all of it happens, or nothing."""
_NAMED = 5


@click.command("export")
@click.argument("path", shell_complete=paths)
@click.argument("file", type=click.File("wb", lazy=True), metavar="FILE")
@verb
def export(settings: Settings, path: str, file: BinaryIO) -> None:
    """Write the znode at PATH and all below it to FILE, or to standard output if it is -.

    A line of JSON for each znode, parents first, with its path, its mode, and data or data_base64.
    Ephemerals belong to sessions: they are left out, and counted. A thousand znodes at a time are
    of one moment; for a copy of everything at one moment: coordinator backup. It is refused to whom
    may not read and watch all of it.

    \b
    Examples:
      coordinator export /app app.jsonl
      coordinator export / - | grep '"/app/'
    """

    async def work(client: AsyncClient) -> ExportEnd:
        zxid = written = left_out = 0
        async for page in pages(client, path):
            zxid = page.zxid
            if written == left_out == 0:
                if not page.znodes:
                    raise NoNodeError(f"no znode {path} at zxid {zxid}", path=path, zxid=zxid)
                began = moment(SystemClock().wall_ms())
                _write(file, ExportHead(FORMAT, path, zxid, began))
            for znode in page.znodes:
                if znode.stat.ephemeral_owner is not None:
                    left_out += 1
                else:
                    _write(file, _exported(znode))
                    written += 1
        end = ExportEnd(written, left_out, zxid)
        _write(file, end)
        return end

    end = settings.run(work)
    file.flush()
    note(f"exported {end.znodes} znodes, and left {end.ephemerals_left_out} ephemerals out")


def _write(file: BinaryIO, line: ExportHead | ExportedZnode | ExportEnd) -> None:
    file.write(document(to_body(line)).encode() + b"\n")


def _exported(znode: Znode) -> ExportedZnode:
    mode = CreateMode(znode.stat.mode)
    kept = CreateMode.TTL if mode.is_ttl else mode
    if mode.is_sequential and not mode.is_ttl:
        kept = CreateMode.PERSISTENT
    return ExportedZnode(znode.path, znode.data, kept.value, znode.stat.ttl_ms)


@click.command("import")
@click.argument("file", type=click.File("rb"), metavar="FILE")
@click.argument("path", required=False, shell_complete=paths)
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--overwrite", is_flag=True, help="Replace data that differ.")
@verb
def import_(
    settings: Settings, file: BinaryIO, path: str | None, is_dry: bool, overwrite: bool
) -> None:
    """Create the znodes of an export, at PATH instead of where they were, if it is given.

    What is there with the same data stays. If a znode is there with other data, nothing is done,
    unless --overwrite says to replace it. Nothing is deleted. A file without its last line was cut,
    and is refused. Znodes are created some at a time: an import that was interrupted is repeated.

    \b
    Examples:
      coordinator import app.jsonl --dry-run
      coordinator import app.jsonl /app-of-tuesday
      coordinator import app.jsonl --overwrite
    """

    async def work(client: AsyncClient) -> tuple[str, ImportPlan]:
        head, found = read_export(file)
        target = head.path if path is None else path
        wanted = [_moved(each, head.path, target) for each in found]
        plan = ImportPlan(wanted, await _there(client, target))
        if plan.different and not overwrite:
            named = ", ".join(each.path for each, _ in plan.different[:_NAMED])
            more = f" and {len(plan.different) - _NAMED} more" if plan.different[_NAMED:] else ""
            raise NodeExistsError(
                f"{len(plan.different)} znodes are there with other data: {named}{more}; nothing"
                " was done (--overwrite replaces them)",
                path=plan.different[0][0].path,
            )
        if not is_dry:
            for operations in in_steps(plan.operations(), _AT_ONCE, _AT_ONCE_BYTES):
                await client.multi(operations)
        return target, plan

    target, plan = settings.run(work)
    counts = {
        "created": len(plan.missing),
        "overwritten": len(plan.different),
        "unchanged": plan.unchanged,
    }
    if settings.is_json:
        click.echo(document({"is_dry_run": is_dry, **counts}))
        return
    would = "would be " if is_dry else ""
    said = ", ".join(f"{count} {would}{what}" for what, count in counts.items())
    click.echo(one_line(f"{target}: {said.replace('would be unchanged', 'unchanged')}"))


def read_export(file: BinaryIO) -> tuple[ExportHead, list[ExportedZnode]]:
    """Return what is in an export.

    Raises:
        BadArgumentsError: it is none, or was cut.
    """
    lines = [each for each in file.read().split(b"\n") if each.strip()]
    if not lines:
        raise BadArgumentsError("expected an export, found nothing")
    head = from_body(ExportHead, decode(lines[0]), "line 1")
    if head.format != FORMAT:
        raise BadArgumentsError(f"expected an export of format {FORMAT}, found {head.format}")
    found = [
        from_body(ExportedZnode, decode(line), f"line {number}")
        for number, line in enumerate(lines[1:-1], 2)
    ]
    last = decode(lines[-1])
    if not isinstance(last, dict) or "znodes" not in last:
        raise BadArgumentsError("expected a last line that counts the znodes: this export was cut")
    end = from_body(ExportEnd, last, f"line {len(lines)}")
    if end.znodes != len(found):
        raise BadArgumentsError(f"expected {end.znodes} znodes, found {len(found)}")
    return head, found


class ImportPlan:
    """What an import has to do: of the znodes that are wanted, those that are missing or differ."""

    def __init__(
        self, wanted: Iterable[ExportedZnode], there: Mapping[str, tuple[bytes, Stat]]
    ) -> None:
        self.missing: list[ExportedZnode] = []
        self.different: list[tuple[ExportedZnode, Stat]] = []
        self.unchanged = 0
        for each in wanted:
            found = there.get(each.path)
            if found is None:
                self.missing.append(each)
            elif found[0] != each.data:
                self.different.append((each, found[1]))
            else:
                self.unchanged += 1

    def operations(self) -> Iterator[Create | SetData]:
        """Yield what creates the missing ones, parents first, and replaces the data of others."""
        for number, each in enumerate(self.missing):
            parents = CreateMode.PERSISTENT if number == 0 else None
            mode = CreateMode(each.mode)
            yield Create(each.path, each.data, mode, ttl_ms=each.ttl_ms, parents=parents)
        for each, stat in self.different:
            yield SetData(each.path, each.data, stat.version)


async def _there(client: AsyncClient, target: str) -> dict[str, tuple[bytes, Stat]]:
    found: dict[str, tuple[bytes, Stat]] = {}
    page = await client.subtree(target)
    while True:
        found |= {each.path: (each.data, each.stat) for each in page.znodes}
        if page.next is None:
            return found
        page = await client.subtree(target, after=page.next)


def _moved(each: ExportedZnode, source: str, target: str) -> ExportedZnode:
    top = source.rstrip("/")
    if each.path != source and not each.path.startswith(top + "/"):
        raise BadArgumentsError(f"expected paths at and below {source}, found {each.path}")
    path = moved(each.path, source, target)
    return ExportedZnode(path, each.data, each.mode, each.ttl_ms)
