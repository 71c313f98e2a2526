"""``audit verify``: whether an audit log is as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from coordinator.audit.chain import ChainHead, ChainVerdict, LinePlace, lines_of
from coordinator.audit.chain import verify as verify_chain
from coordinator.audit.targets import chunks_of, rotated
from coordinator.cli.output import failing_well

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


class HeadOption(click.ParamType[ChainHead]):
    """A line that was noted elsewhere: NUMBER:SHA256."""

    name = "NUMBER:SHA256"

    def convert(self, value: object, param: object, ctx: object) -> ChainHead:
        """Return the number and the hash."""
        found = _HEAD.fullmatch(str(value))
        if found is None:
            raise click.BadParameter(
                "expected the number of a line, a colon and its SHA-256, as this verb and a "
                f"member's log say them, found {value!r}"
            )
        return ChainHead(int(found[1]), found[2])


@click.group()
def audit() -> None:
    """Check an audit log (`[audit]` of a member's configuration).

    \b
    Example:
      coordinator audit verify /var/log/coordinator/audit.jsonl
    """


@audit.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--head",
    "known",
    type=HeadOption(),
    help="A line that was noted elsewhere; it must be in the log. Without it, lines that were cut "
    "off at the end, or a log that was written again as a whole, are not found.",
)
@failing_well
def verify(file: Path, known: ChainHead | None) -> None:
    """Say whether an audit log is as its member wrote it.

    It checks FILE, and the files it was rotated into.

    Each line has the SHA-256 of the line before. The first one that does not is named, and the exit
    code is 1.

    \b
    Examples:
      coordinator audit verify audit.jsonl
      coordinator audit verify audit.jsonl --head 4711:9f86d081884c7d659a2f...
    """
    files = [*rotated(file), file]
    verdict = verify_chain(_lines(files), known)
    if verdict.broken:
        where = "the log" if verdict.where is None else f"{verdict.where}: this line"
        click.echo(f"BROKEN: {where} {verdict.broken}")
    for line in _told(verdict, len(files)):
        click.echo(line)
    if verdict.broken:
        raise click.exceptions.Exit(1)


def _lines(files: list[Path]) -> Iterator[tuple[LinePlace, bytes]]:
    for file in files:
        yield from lines_of(str(file), chunks_of(file))


def _told(verdict: ChainVerdict, files: int) -> Iterator[str]:
    whole = "lines before that" if verdict.broken else "lines"
    yield f"{verdict.lines} {whole} are chained, in {files} file{'s' if files > 1 else ''}"
    if verdict.begins_at > 1:
        yield f"the log begins with line {verdict.begins_at}: older files are not here"
    if verdict.torn:
        yield f"{verdict.torn} lines were left torn by a crash; the lines behind them say so"
    if verdict.ends_torn:
        yield "the end is a part of a line: a member writes it now, or crashed"
    if verdict.lines:
        yield f"head {verdict.head}"
