"""The way of one write and of one lock through the product, measured while it happens.

Three members and a client run in this process; the client asks a follower. A profiler sees each
call of a function of ours, and notes those that are given the write: one of their arguments holds
its path or its data, also encoded. So what merely runs at the same time does not count. The answer
has the path in it, so the way back counts, too.

Of a lock there is also the stack: who called whom from ``async with Lock(...)`` to the transport
that sends its request, over tasks that wait for each other.

``python tests/house/flow.py ROOT`` measures the product in ROOT and prints JSON: this file imports
nothing else of the repository, so that it can measure other revisions.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

MARK = "HouseMarker1"
"""Twelve letters, so that its base64 has no padding and is found inside a longer text."""
_ENCODED = base64.b64encode(MARK.encode()).decode()
_SENDER = "Transport.stream"
_DEPTH_MAX = 5
_ITEMS_MAX = 50


class Follower:
    """A profiler; notes functions in the order in which they are first given the write."""

    def __init__(self, root: Path) -> None:
        self._product = f"{root / 'coordinator'}/"
        self._test_kit = f"{root / 'coordinator' / 'testing'}/"
        self._root = root
        self._seen: set[Any] = set()
        self._steps: list[tuple[str, str]] | None = None
        self._stack: list[tuple[str, str]] | None = None

    @contextmanager
    def watching_the_sender(self) -> Iterator[list[tuple[str, str]]]:
        """Note, outermost first, who called the transport when the first stream was opened."""
        self._stack = stack = []
        try:
            yield stack
        finally:
            self._stack = None

    @contextmanager
    def following(self) -> Iterator[list[tuple[str, str]]]:
        """Note the steps while the ``with`` lasts."""
        self._seen.clear()
        steps: list[tuple[str, str]] = []
        self._steps = steps
        try:
            yield steps
        finally:
            self._steps = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        steps, code = self._steps, frame.f_code
        if self._stack == [] and event == "call" and code.co_qualname.endswith(_SENDER):
            self._stack += self._callers(frame.f_back)
        if steps is None or event != "call":
            return
        if code in self._seen or not code.co_filename.startswith(self._product):
            return
        if code.co_filename.startswith(self._test_kit):
            return
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        given = frame.f_locals
        if any(holds_mark(given.get(name)) for name in code.co_varnames[:count]):
            self._seen.add(code)
            steps.append(self._step(code))

    def _step(self, code: CodeType) -> tuple[str, str]:
        return str(Path(code.co_filename).relative_to(self._root)), code.co_qualname

    def _callers(self, frame: FrameType | None) -> list[tuple[str, str]]:
        """Return our functions that wait for ``frame``, also in other tasks; outermost first."""
        frames = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        task = asyncio.current_task()
        while task is not None:
            waiting = _waiting_for(task)
            task = next(iter(waiting), None)
            frames += waiting.get(task, []) if task is not None else []
        ours = [each.f_code for each in frames if each.f_code.co_filename.startswith(self._product)]
        return [self._step(code) for code in reversed(ours)]


def _waiting_for(awaited: asyncio.Task[Any]) -> dict[asyncio.Task[Any], list[FrameType]]:
    """Return who has the task ``awaited`` in a local variable; its frames, innermost first."""
    found = {}
    for task in asyncio.all_tasks() - {awaited}:
        frames: list[FrameType] = []
        coroutine: Any = task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            frames.insert(0, frame)
            coroutine = coroutine.cr_await
        if any(value is awaited for frame in frames for value in frame.f_locals.values()):
            found[task] = frames
    return found


def holds_mark(value: Any, depth: int = 0) -> bool:
    """Say whether a value holds the write: a text, bytes, or a value made of such."""
    if isinstance(value, str):
        return MARK in value or _ENCODED in value
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        return MARK.encode() in raw or _ENCODED.encode() in raw
    if depth == _DEPTH_MAX:
        return False
    return any(holds_mark(part, depth + 1) for part in _parts(value))


def _parts(value: Any) -> list[Any]:
    kind = type(value)
    if isinstance(value, tuple | list):
        return list(value[:_ITEMS_MAX])
    if kind is dict:
        return [each for pair in list(value.items())[:_ITEMS_MAX] for each in pair]
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return [getattr(value, field.name, None) for field in dataclasses.fields(kind)]
    if hasattr(kind, "__struct_fields__") and not isinstance(value, type):
        return [getattr(value, name, None) for name in kind.__struct_fields__]
    if kind.__module__ == "aiohttp.web_request":
        return [value.path]
    if "target" in getattr(kind, "__slots__", ()):  # a request, as the routes see it
        return [getattr(value, "target", None)]
    return []


def _follower_client(cluster: Any) -> Any:
    """Return a connector to a member that does not lead, so that the write is passed on."""
    from coordinator import connect

    return connect(cluster.url(cluster.followers[0]))


async def _sender_of_a_lock(follower: Follower, url: str) -> list[tuple[str, str]]:
    from coordinator import Lock, connect

    async with connect(url) as client:
        await client.session()
        with follower.watching_the_sender() as stack:
            async with Lock(client, "sent"):
                return stack


def import_from_source(root: Path) -> None:
    """Have the product of ``root`` run in Python also where it is compiled: no profiler sees a
    compiled function."""
    product = str(root / "coordinator")

    def find_source(folder: str) -> FileFinder:
        if not folder.startswith(product):
            raise ImportError("not of the product")
        return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, find_source)


def measure(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the steps of one write and of one lock: file and function, in order."""
    import_from_source(root)
    follower = Follower(root)
    threading.setprofile(follower)
    sys.setprofile(follower)
    import coordinator
    from coordinator.testing import local_cluster

    assert coordinator.__file__ == str(root / "coordinator" / "__init__.py"), coordinator.__file__
    found: dict[str, list[tuple[str, str]]] = {}
    with local_cluster() as cluster, _follower_client(cluster) as client:
        lock = coordinator.Lock(client, MARK)
        client.create("/before", b"")
        with coordinator.Lock(client, "before"):
            pass
        with follower.following() as found["write"]:
            client.create(f"/{MARK}", MARK.encode())
        with follower.following() as found["lock"], lock:
            pass
        found["with"] = asyncio.run(_sender_of_a_lock(follower, cluster.url(cluster.leader)))
    sys.setprofile(None)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]).resolve())))
