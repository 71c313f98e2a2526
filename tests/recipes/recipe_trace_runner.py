"""Runs traces of recipes: what clients call, what they get, and which znodes that makes.

::

    > ann Counter("hits").add()        a call; what follows is its result and what changed
    > bob & gate.enter()               the same in the background: its end is printed when it comes
    > ann gate = DoubleBarrier("g", 2) a name for later
    > wait 5                           virtual seconds
    > kill ann                         its network is cut, for ever, without a goodbye
    > cut ann / mend ann

Time is virtual, and each command is given a second to have its effects. Session ids are printed as
the name of their client, zxids as they are.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from coordinator import recipes
from coordinator.client import AsyncClient
from coordinator.errors import BadArgumentsError, CoordinatorError, NoNodeError
from coordinator.recipes.once import Attempt
from tests.client.memory_cluster import MemoryCluster, Network, cluster
from tests.client.virtual_time import run
from tests.golden_traces import Command, commands_of, parsed, text_of

_HIDDEN = ("/locks", "/elections")
"""Queues that the server runs have traces of their own."""


class _Runner:
    """The clients of one trace, and the tree as it was printed last."""

    def __init__(self, world: MemoryCluster, stack: AsyncExitStack) -> None:
        self._world = world
        self._stack = stack
        self._networks: dict[str, Network] = {}
        self._clients: dict[str, AsyncClient] = {}
        self._scopes: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._tree: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._printed: list[str] = []

    async def run(self, command: Command) -> None:
        """Do it, and print what came of it."""
        self._printed = command.printed
        verb, _, rest = command.line.partition(" ")
        match verb:
            case "wait":
                await asyncio.sleep(float(rest))
            case "kill" | "cut" | "mend":
                self._networks[rest].is_cut = verb != "mend"
            case _:
                await self._call(verb, rest)
        await asyncio.sleep(1)
        await self._show_changes()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, who: str, said: str) -> None:
        scope = await self._scope(who)
        is_background = said.startswith("& ")
        called = said.removeprefix("& ")
        assigned = re.match(r"(\w+) = (.*)", called)
        name, expression = ("", called) if assigned is None else assigned.groups()

        async def work() -> None:
            try:
                value = eval(expression, scope)  # noqa: S307 - our own traces
                value = await value if inspect.isawaitable(value) else value
                scope[name or "_"] = value
                if not name:
                    self._print(f"{called.split('(')[0]} -> " if is_background else "", value)
            except CoordinatorError as error:
                self._print(f"{called.split('(')[0]} -> " if is_background else "", type(error))

        task = asyncio.create_task(work())
        self._tasks.append(task)
        if not is_background:
            await task

    def _print(self, before: str, value: object) -> None:
        shown = value.__name__ if isinstance(value, type) else repr(value)
        self._printed.append(f"    {before}{self._named(shown)}")

    async def _scope(self, who: str) -> dict[str, Any]:
        if who not in self._scopes:
            network = self._networks[who] = self._world.network()
            client = await self._stack.enter_async_context(
                self._world.client(network, session_timeout=4)
            )
            self._clients[who] = client
            scope: dict[str, Any] = {"client": client, **_WORK}
            for name in recipes.__all__:
                made = getattr(recipes, name)
                is_recipe = inspect.isclass(made) and name != "TokenChunk"  # a bucket makes those
                scope[name] = partial(made, client) if is_recipe else made
            self._scopes[who] = scope
        return self._scopes[who]

    async def _show_changes(self) -> None:
        for who, client in self._clients.items():
            session = client._session.open_now
            if session is not None:
                self._names[session.session_id] = who
        now = await self._read("/")
        for path in sorted({*self._tree, *now}):
            if path not in now:
                self._printed.append(f"    - {path}")
            elif self._tree.get(path) != now[path]:
                sign = "~" if path in self._tree else "+"
                self._printed.append(f"    {sign} {path}  {now[path]}")
        self._tree = now

    async def _read(self, path: str) -> dict[str, str]:
        observer = await self._observer()
        found: dict[str, str] = {}
        for name in (await observer.children(path)).names:
            child = f"{path.rstrip('/')}/{name}"
            if child in _HIDDEN:
                continue
            try:
                znode = await observer.get(child)
            except NoNodeError:
                continue
            stat = znode.stat
            data = self._named(znode.data.decode(errors="replace"))
            owner = "" if stat.ephemeral_owner is None else f" of {stat.ephemeral_owner}"
            data = data.replace("\n", "\\n")
            shown = f"{stat.mode}{self._named(owner)} v{stat.version} {data}".rstrip()
            found[self._named(child)] = shown
            found.update(await self._read(child))
        return found

    async def _observer(self) -> AsyncClient:
        await self._scope("(observer)")
        return self._clients["(observer)"]

    def _named(self, text: str) -> str:
        for session_id, who in self._names.items():
            text = text.replace(session_id, who)
        return text


async def _forever(_: object) -> None:
    """Work that ends when it is cancelled."""
    await asyncio.Event().wait()


async def _report(run: recipes.Run) -> str:
    """Work that says what it was done for."""
    return f"report of {run.interval}, attempt {run.attempt}"


async def _charge(attempt: Attempt) -> str:
    """Work that says how often it was begun."""
    return f"charged at attempt {attempt.number}"


async def _failing(_: object) -> None:
    """Work that cannot be done."""
    raise BadArgumentsError("no such table")


async def _agree(_: object) -> bool:
    """A vote of yes."""
    return True


async def _disagree(_: object) -> str:
    """A vote of no, with its reason."""
    return "no funds"


async def _nothing(_: object) -> None:
    """Work without an effect."""


_WORK = {
    "forever": _forever,
    "report": _report,
    "charge": _charge,
    "failing": _failing,
    "agree": _agree,
    "disagree": _disagree,
    "nothing": _nothing,
}


async def _rewritten(text: str) -> str:
    parts = parsed(text)
    async with cluster() as world, AsyncExitStack() as stack:
        runner = _Runner(world, stack)
        for command in commands_of(parts):
            await runner.run(command)
        await runner.end()
    return text_of(parts)


def rewritten(text: str) -> str:
    """Run the commands of a trace; return it with what they print now."""
    return run(_rewritten(text))
