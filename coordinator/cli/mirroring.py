"""``mirror``: a subtree of one cluster, kept as it is in another one.

1. The target says how far the mirror has come, in a znode of its own (the *mark*), which changes
   in the same multi as what it speaks of. So the mirror goes on after any interruption where it
   was, and a target that is whole is as the source was at the mark's zxid. (A change of more than
   900 znodes or a mebibyte is done in several steps.)
2. The first copy is read in pages, each of another zxid, and replaces what is in the target. Then
   the changes since the first page follow, some of which the copy has already: so a change says
   what a znode is, and not what to do. What it needs and the later page lacks is made (parents),
   what the later page has and it does not is removed (all below what is deleted); changes up to
   that page follow, and say how each of these is in the end. The mark is written when the copy is
   complete. It says from which zxid on the target is whole: that of the last page.
3. If the source no longer knows what was missed, or is another cluster than that of the mark, or
   has lost changes that the mirror has, all of it is read again.
4. One mirror writes a target: each step writes the mark, and its version shows another mirror,
   which ends this one. All steps but the last one write again what the mark said before; those
   of a copy, that nothing is there to go on from.
"""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import quote

import click

from coordinator.cli.completing import paths
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import note
from coordinator.cli.subtrees import in_steps, moved, page, pages
from coordinator.client import AsyncClient
from coordinator.errors import BadVersionError, CompactedError, NoAuthError, NoNodeError
from coordinator.model.events import Change, EventType
from coordinator.model.operations import Create, Delete, SetData
from coordinator.model.znodes import CreateMode, Znode

MARKS = "/coordinator-mirrors"
"""Below it the marks lie, in the target."""
_BOOKMARK_MS = 1_000
_AT_ONCE = 900
_AT_ONCE_BYTES = 1024 * 1024

Operation = Create | SetData | Delete


@click.command()
@click.argument("prefix", shell_complete=paths)
@click.option("--to", required=True, metavar="URLS", help="Members of the cluster to write to.")
@click.option("--into", metavar="PATH", help="Where in it; the same path, if it is not given.")
@click.option("--once", is_flag=True, help="End when it is as the source was at the start.")
@click.option("--to-token-file", metavar="FILE", help="The token that the other cluster knows.")
@click.option("--to-ca-file", metavar="FILE", help="The CA of the other cluster's members.")
@click.option("--to-cert-file", metavar="FILE", help="This client's certificate there.")
@click.option("--to-key-file", metavar="FILE", help="Its key.")
@verb
def mirror(
    settings: Settings,
    prefix: str,
    to: str,
    into: str | None,
    once: bool,
    to_token_file: str | None,
    to_ca_file: str | None,
    to_cert_file: str | None,
    to_key_file: str | None,
) -> None:
    """Keep a copy of PREFIX and all below it in another cluster, until Ctrl-C.

    What is at the other place is replaced by what is here: nobody else may write there. Ephemerals
    are left out; all others are persistent there. It goes on where it was interrupted, also if it
    is started again on another machine. Tokens and certificates for here are not shown there.

    \b
    Examples:
      coordinator mirror /app --to https://eu-1:7071,https://eu-2:7071
      coordinator mirror /app --to http://127.0.0.1:8071 --into /copy-of-app --once
    """
    other = replace(
        settings,
        endpoints=to,
        token_file=to_token_file or "",  # what proves who one is here is not shown there
        ca_file=to_ca_file or "",
        cert_file=to_cert_file or "",
        key_file=to_key_file or "",
    )

    async def work(source: AsyncClient) -> None:
        async with other.connector() as target:
            await Mirror(source, target, prefix, into or prefix).run(is_once=once)

    settings.run(work)


class Mirror:
    """One subtree on its way from ``source`` to ``target``."""

    def __init__(self, source: AsyncClient, target: AsyncClient, prefix: str, into: str) -> None:
        self._source = source
        self._target = target
        self._prefix = prefix
        self._into = into
        self._mark = f"{MARKS}/{quote(into, safe='')}"
        self._cluster_id = ""
        """That of the source."""
        self._mark_version = 0
        self._mark_data = b"{}"
        self._whole_from = 0
        self._there: dict[str, bytes] = {}
        """The paths in the target, with their data."""
        self._below: dict[str, set[str]] = {}
        """The paths of the children of each."""

    async def run(self, *, is_once: bool) -> None:
        """Mirror until it is cancelled; ``is_once``: until it has what is there now.

        Raises:
            BadVersionError: another mirror writes this target.
            NoAuthError: this client may not read and watch all of it.
        """
        newest_zxid = (await page(self._source, self._prefix, limit=0)).zxid
        self._cluster_id = (await self._source.status()).cluster_id
        zxid = await self._begun(newest_zxid)
        while True:
            if zxid is None:
                zxid = await self._copy()
            try:
                until_zxid = max(newest_zxid, self._whole_from) if is_once else None
                if await self._follow(zxid, until_zxid):
                    return
            except CompactedError:
                note("the source no longer knows what was missed: all of it is read again")
                zxid = None

    async def _begun(self, newest_zxid: int) -> int | None:
        """Return how far an earlier mirror came; None if there was none, or none of this source."""
        try:
            mark = await self._target.get(self._mark)
        except NoNodeError:
            await self._target.multi(
                [Create(self._mark, self._mark_data, parents=CreateMode.PERSISTENT)]
            )
            return None
        self._mark_version, self._mark_data = mark.stat.version, mark.data
        said = json.loads(mark.data or b"{}")
        if said.get("prefix") != self._prefix:
            return None  # it was made just now, or there was another mirror
        if said.get("cluster_id") != self._cluster_id or said["zxid"] > newest_zxid:
            note("the mirror is of another cluster, or of changes lost since: all is read again")
            return None
        await self._look()
        zxid, self._whole_from = said["zxid"], said["whole_from"]
        return int(zxid)

    async def _look(self) -> None:
        """See what is in the target."""
        znodes, _ = await _whole(self._target, self._into)
        self._there, self._below = {}, {}
        for each in znodes:
            self._note(each.path, each.data)

    async def _copy(self) -> int:
        """Make the target as the source is; return from which zxid on to follow."""
        zxid = (await page(self._source, self._prefix, limit=0)).zxid
        znodes, self._whole_from = await _whole(self._source, self._prefix)
        wanted = {
            self._moved(each.path): each.data
            for each in znodes
            if each.stat.ephemeral_owner is None
        }
        await self._look()
        operations: list[Operation] = []
        for path in [each for each in self._there if each not in wanted]:
            operations += self._removals(path)
        for path, data in wanted.items():
            operations += self._puts(path, data)
        self._mark_data = b"{}"  # between the steps the target is as no source ever was
        await self._commit(operations, zxid)
        return zxid

    async def _follow(self, zxid: int, until_zxid: int | None) -> bool:
        """Do each change after ``zxid``; return True once ``until_zxid`` is reached."""
        if until_zxid is not None and zxid >= until_zxid:
            return True
        watch = self._source.watch(
            self._prefix, kind="subtree", from_zxid=zxid, values=True, bookmark_ms=_BOOKMARK_MS
        )
        async with watch as changes:
            async for change in changes:
                operations = self._operations(change)
                if operations or (until_zxid is not None and change.zxid >= until_zxid):
                    await self._commit(operations, change.zxid)
                if until_zxid is not None and change.zxid >= until_zxid:
                    return True
        return False

    def _operations(self, change: Change) -> list[Operation]:
        """Return what makes the target as the source is after a change."""
        found: list[Operation] = []
        for event in change.events:
            path = self._moved(event.path)
            if event.is_withheld:
                raise NoAuthError(f"this client may not read {event.path}, which is mirrored")
            if event.ephemeral_owner is not None or _is_mark(event.path):
                continue
            if event.type is EventType.DELETED:
                found += self._removals(path)
            else:
                found += self._puts(path, event.data or b"")
        return found

    def _puts(self, path: str, data: bytes) -> list[Operation]:
        """Note that a znode is to have these data; return what does it, nothing if it has."""
        before = self._there.get(path)
        self._note(path, data)
        if before is None:
            return [Create(path, data, parents=CreateMode.PERSISTENT)]
        return [] if before == data else [SetData(path, data)]

    def _note(self, path: str, data: bytes) -> None:
        """Note that a znode has these data, and that its parents are there."""
        self._there[path] = data
        while path != self._into:
            parent = path.rpartition("/")[0] or "/"
            self._below.setdefault(parent, set()).add(path)
            if parent in self._there:
                return
            self._there[parent] = b""
            path = parent

    def _removals(self, path: str) -> list[Operation]:
        """Note that a znode and all below it are gone; return what removes them, children first."""
        if path not in self._there:
            return []
        gone = [path]
        for each in gone:  # it grows
            gone += sorted(self._below.pop(each, ()))
            del self._there[each]
        self._below.get(path.rpartition("/")[0] or "/", set()).discard(path)
        return [Delete(each) for each in reversed(gone)]

    async def _commit(self, operations: list[Operation], zxid: int) -> None:
        """Do these, in steps if there are many, and say in the mark how far it is."""
        said = {
            "cluster_id": self._cluster_id,
            "prefix": self._prefix,
            "zxid": zxid,
            "whole_from": self._whole_from,
        }
        *first, last = list(in_steps(operations, _AT_ONCE, _AT_ONCE_BYTES)) or [[]]
        try:
            for step in first:
                await self._do(step, self._mark_data)
            await self._do(last, json.dumps(said).encode())
        except BadVersionError as error:
            raise BadVersionError(
                f"another mirror writes {self._into}: its mark {self._mark} has changed"
            ) from error

    async def _do(self, step: list[Operation], mark_data: bytes) -> None:
        """Do a step if no other mirror has written the mark, which is written in any case."""
        await self._target.multi([SetData(self._mark, mark_data, self._mark_version), *step])
        self._mark_version += 1
        self._mark_data = mark_data

    def _moved(self, path: str) -> str:
        return moved(path, self._prefix, self._into)


async def _whole(client: AsyncClient, top: str) -> tuple[list[Znode], int]:
    """Return all znodes at and below ``top``, parents first, without marks; and the zxid of the
    last page."""
    found: list[Znode] = []
    zxid = 0
    async for each in pages(client, top):
        found += [znode for znode in each.znodes if not _is_mark(znode.path)]
        zxid = each.zxid
    return found, zxid


def _is_mark(path: str) -> bool:
    return path == MARKS or path.startswith(f"{MARKS}/")
