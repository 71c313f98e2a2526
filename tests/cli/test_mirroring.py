"""``coordinator mirror``: a subtree in another cluster is as it is here, whatever interrupts it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from coordinator import connect
from coordinator.cli.main import cli
from coordinator.cli.mirroring import MARKS, Mirror
from coordinator.client import AsyncClient
from coordinator.errors import BadVersionError, CoordinatorError, UnavailableError
from coordinator.model.access import Rule, Verb
from coordinator.model.operations import Create, Delete, SetData
from coordinator.model.znodes import Subtree
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember

MARK = f"{MARKS}/%2Fcopy"


def cluster() -> Iterator[str]:
    """The URL of another cluster."""
    served = ServedMember()
    served.start()
    yield served.url
    served.stop()


other, third = pytest.fixture(cluster, name="other"), pytest.fixture(cluster, name="third")


def tree(url: str, top: str) -> dict[str, bytes]:
    """Return the data below ``top``, of what belongs to no session."""
    with connect(url) as client:
        page = client.subtree(top)
        found = list(page.znodes)
        while page.next is not None:
            page = client.subtree(top, after=page.next)
            found += page.znodes
    return {
        each.path.removeprefix(top): each.data
        for each in found
        if each.stat.ephemeral_owner is None
    }


def once(coordinator: CommandLine, other: str, path: str) -> None:
    coordinator.text("mirror", path, "--to", other, "--into", "/copy", "--once")


def test_a_mirror_is_as_the_source_is(coordinator: CommandLine, other: str) -> None:
    """What is missing is made, what differs replaced, what is too much removed; ephemerals stay
    where their sessions are. The second time it goes on from where it was."""
    path = "/mirrored"
    with connect(coordinator.url) as client:
        for rest, data in {"": b"top", "/a": b"1", "/a/b": bytes(range(256)), "/c": b""}.items():
            client.create(path + rest, data)
        client.create(f"{path}/mine", mode="ephemeral")
        with connect(other) as target:
            for rest in ("", "/a", "/too", "/too/much"):
                target.create("/copy" + rest, b"before")

        once(coordinator, other, path)

        assert tree(other, "/copy") == tree(coordinator.url, path)
        client.delete(f"{path}/a", recursive=True)
        client.set(f"{path}/c", b"later")
        client.create(f"{path}/item-", b"1", mode="persistent_sequential")
        with connect(other) as target:
            before = target.get(MARK)
            target.create("/copy/foreign", b"it is not looked at again")

        once(coordinator, other, path)

    with connect(other) as target:
        target.delete("/copy/foreign")
        after = target.get(MARK)
    assert tree(other, "/copy") == tree(coordinator.url, path)
    assert json.loads(after.data)["zxid"] > json.loads(before.data)["zxid"]


def test_many_znodes_are_mirrored(coordinator: CommandLine, other: str) -> None:
    """Of several pages and steps; one delete of all of them is one change."""
    path = "/mirrored-many"
    with connect(coordinator.url) as client:
        client.create(path)
        for first in range(0, 1_300, 100):
            client.multi([Create(f"{path}/{each}", b"x") for each in range(first, first + 100)])
        once(coordinator, other, path)
        assert tree(other, "/copy") == tree(coordinator.url, path)

        client.delete(path, recursive=True)
        once(coordinator, other, path)

    assert tree(other, "/copy") == {}


def test_what_is_not_there_has_an_empty_mirror(coordinator: CommandLine, other: str) -> None:
    """And gets one as soon as it is there."""
    once(coordinator, other, "/mirrored-later")
    assert tree(other, "/copy") == {}
    with connect(coordinator.url) as client:
        client.create("/mirrored-later", b"x")

    once(coordinator, other, "/mirrored-later")

    assert tree(other, "/copy") == {"": b"x"}


async def changed(client: AsyncClient, path: str, chance: random.Random) -> None:
    """Do something that may be refused."""
    one, two = (f"{path}/{chance.randrange(6)}" for _ in range(2))
    data = bytes([chance.randrange(256)]) * 10
    with suppress(CoordinatorError):
        await chance.choice(
            [
                lambda: client.create(one, data),
                lambda: client.create(f"{one}/below", data),
                lambda: client.set(one, data),
                lambda: client.delete(one, recursive=True),
                lambda: client.multi([Delete(one), Create(two, data)]),
                lambda: client.multi([SetData(one, data), SetData(two, data)]),
            ]
        )()


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_mirror_goes_on(coordinator: CommandLine, other: str, seed: int) -> None:
    """Cut off at any moment, again and again, while the source changes: in the end it is the same,
    and at each moment the mark says from where to go on."""
    chance = random.Random(seed)
    path = f"/mirrored-{seed}"

    async def scenario() -> None:
        async with connect(coordinator.url) as source, connect(other) as target:
            await source.create(path)
            for _ in range(12):
                mirror = Mirror(source, target, path, "/copy")
                running = asyncio.create_task(mirror.run(is_once=False))
                for _ in range(chance.randrange(30)):
                    await changed(source, path, chance)
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
            await Mirror(source, target, path, "/copy").run(is_once=True)

    asyncio.run(scenario())

    assert tree(other, "/copy") == tree(coordinator.url, path)


@pytest.mark.parametrize(
    ("there", "meanwhile"),
    [
        (["/q"], [Create("/q/x"), Delete("/q", is_recursive=True)]),
        (["/r", "/r/old"], [Delete("/r", is_recursive=True), Create("/r"), Create("/r/new")]),
        (["/s"], [Create("/s/x"), Create("/s/x/y", b"1"), Delete("/s/x", is_recursive=True)]),
        ([], [Create("/t"), Create("/t/x"), Delete("/t/x"), SetData("/t", b"2")]),
    ],
)
def test_a_copy_is_newer_than_the_changes_that_follow_it(
    coordinator: CommandLine,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
    there: list[str],
    meanwhile: list[Create | Delete | SetData],
) -> None:
    """The pages may lack what a change needs, and have what it does not know: it is done."""
    path = f"/mirrored-newer-{len(there)}-{len(meanwhile)}-{meanwhile[0].path[1]}"

    async def scenario() -> None:
        async with connect(coordinator.url) as source, connect(other) as target:
            await source.create(path)
            for each in there:
                await source.create(path + each)
            read, left = source.subtree, list(meanwhile)

            async def late(top: str, *, after: str | None = None, limit: int = 1_000) -> Subtree:
                while limit and left:
                    step = left.pop(0)
                    await source.multi([replace(step, path=path + step.path)])
                return await read(top, after=after, limit=limit)

            monkeypatch.setattr(source, "subtree", late)
            await Mirror(source, target, path, "/copy").run(is_once=True)
            assert not left

    asyncio.run(scenario())

    assert tree(other, "/copy") == tree(coordinator.url, path)


@pytest.mark.parametrize("is_newer_first", [True, False])
def test_a_mirror_of_another_cluster_is_a_copy_of_it(
    coordinator: CommandLine, other: str, third: str, is_newer_first: bool
) -> None:
    """Whichever of them is at the higher zxid: what is there is not taken for the other's."""
    path = f"/mirrored-other-{is_newer_first}"
    for number, url in enumerate((coordinator.url, third)):
        with connect(url) as client:
            client.create(path)
            client.create(f"{path}/of-{number}")
    with connect(coordinator.url) as client:
        for _ in range(9):
            client.set(path, b"newer")
    first, second = (coordinator.url, third) if is_newer_first else (third, coordinator.url)

    once(CommandLine(first), other, path)
    assert tree(other, "/copy") == tree(first, path)
    once(CommandLine(second), other, path)
    assert tree(other, "/copy") == tree(second, path)


def test_a_mirror_of_lost_changes_is_read_again(coordinator: CommandLine, other: str) -> None:
    """A mark beyond what the source has is one of changes that it has lost."""
    path = "/mirrored-lost"
    with connect(coordinator.url) as client:
        client.create(path)
        once(coordinator, other, path)
        with connect(other) as target:
            mark = json.loads(target.get(MARK).data)
            target.set(MARK, json.dumps({**mark, "zxid": mark["zxid"] + 1_000}))
            target.create("/copy/lost-in-the-source")

        once(coordinator, other, path)

    assert tree(other, "/copy") == tree(coordinator.url, path)


def test_who_may_not_read_all_copies_nothing(
    coordinator: CommandLine, other: str, third: str, tmp_path: Path
) -> None:
    """What is left out of the pages is not deleted from the mirror, nor missing in an export."""
    path, token = "/mirrored-partly", tmp_path / "token"
    with connect(third) as client:
        for each in ("", "/seen", "/hidden"):
            client.create(path + each)
        once(CommandLine(third), other, path)
        admin = client.init_access().token
    with connect(third, token=admin) as client:
        client.put_role("part", [Rule(f"{path}/seen", (Verb.READ, Verb.WATCH))])
        client.put_identity("reader", ["part"])
        token.write_text(client.add_token("reader").token)
    token.chmod(0o600)
    shell = CommandLine(third)

    mirror = ("mirror", path, "--to", other, "--into", "/copy", "--once")
    mirrored = shell(*mirror, "--token-file", str(token))
    exported = shell("export", path, str(tmp_path / "export"), "--token-file", str(token))

    assert "read or watch" in mirrored.stderr
    assert "read or watch" in exported.stderr
    assert (mirrored.exit_code, exported.exit_code) == (1, 1)
    assert set(tree(other, "/copy")) == {"", "/seen", "/hidden"}


def test_the_other_cluster_gets_no_token_of_this_one(
    other: str, third: str, tmp_path: Path
) -> None:
    """Neither from the option nor from the environment: it would refuse it, and accepts who shows
    none. A token that is for it is shown to it."""
    token = tmp_path / "token"
    with connect(third) as client:
        client.create("/secret")
        token.write_text(client.init_access().token)
    token.chmod(0o600)
    with connect(other) as client:
        admin = client.init_access().token
    with connect(other, token=admin) as client:
        client.put_role("all", [Rule("/", tuple(Verb)), Rule("@", tuple(Verb))])
        client.put_identity("anonymous", ["all"])
    mirror = ["mirror", "/secret", "--endpoints", third, "--to", other, "--once"]
    option, variable = ["--token-file", str(token)], {"COORDINATOR_TOKEN_FILE": str(token)}

    by_option = CliRunner().invoke(cli, [*mirror, *option])
    by_variable = CliRunner().invoke(cli, mirror, env=variable)
    shown = CliRunner().invoke(cli, [*mirror, *option, "--to-token-file", str(token)])

    assert (by_option.exit_code, by_variable.exit_code) == (0, 0), by_option.output
    assert shown.exit_code != 0
    assert "token" in shown.output


def test_a_mark_calls_no_half_of_a_copy_whole(
    coordinator: CommandLine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy over an older one that is cut off between its steps is made again."""
    path, number = "/mirrored-half", 950

    async def scenario() -> None:
        async with connect(coordinator.url) as source, connect(other) as target:
            await source.create(path)
            await Mirror(source, target, path, "/copy").run(is_once=True)
            said = json.loads((await target.get(MARK)).data)
            await target.set(MARK, json.dumps({**said, "cluster_id": "of another"}))
            for first in range(0, number, 190):
                numbers = range(first, min(first + 190, number))
                await source.multi([Create(f"{path}/{each}") for each in numbers])
            do, steps = target.multi, list[int]()

            async def cut(operations: list[Create | Delete | SetData]) -> object:
                steps.append(len(operations))
                if len(steps) == 2:
                    raise UnavailableError("cut off")
                return await do(operations)

            monkeypatch.setattr(target, "multi", cut)
            with pytest.raises(UnavailableError):
                await Mirror(source, target, path, "/copy").run(is_once=True)
            assert json.loads((await target.get(MARK)).data) == {}
            await Mirror(source, target, path, "/copy").run(is_once=True)

    asyncio.run(scenario())

    assert tree(other, "/copy") == tree(coordinator.url, path)


@pytest.mark.parametrize("count", [1, 950])
def test_two_mirrors_do_not_write_one_target(
    coordinator: CommandLine, other: str, count: int
) -> None:
    """The one whose mark has changed ends, and has changed nothing, whatever the number of steps
    that a change needs."""
    path = f"/mirrored-twice-{count}"

    async def scenario() -> None:
        async with connect(coordinator.url) as source, connect(other) as target:
            await source.create(path)
            for first in range(0, count, 190):
                numbers = range(first, min(first + 190, count))
                await source.multi([Create(f"{path}/{each}") for each in numbers])
            running = asyncio.create_task(
                Mirror(source, target, path, "/copy").run(is_once=False)
            )
            while not await has_mark(target):
                assert not running.done(), running
            version = (await target.get(MARK)).stat.version
            await target.set(MARK, b"{}", expected_version=version)
            await source.delete(path, recursive=True)
            with pytest.raises(BadVersionError, match="another mirror"):
                await asyncio.wait_for(running, 20)
            assert len(await whole(target)) == count + 1

    asyncio.run(scenario())


async def has_mark(client: AsyncClient) -> bool:
    with suppress(CoordinatorError):
        return b"zxid" in (await client.get(MARK)).data
    return False


async def whole(client: AsyncClient) -> list[str]:
    return [each.path for each in (await client.subtree("/copy")).znodes]
