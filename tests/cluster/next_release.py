"""The release after this one, made of this source by a few changes: it has one level more.

Its members speak protocol 2, in which a ping says more, and read level 2, which adds one operation:
``Append``, by ``POST /v1/append``. So whatever has to change for a new level stands here, and the
tests of upgrades run two releases that differ as two real ones would.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = "0.2.0+next"

_CHANGES: tuple[tuple[str, str, str], ...] = (
    # --- level 2: the level, an operation, how it is written, who may do it, what it comes to, by
    # which rule
    ("state/levels.py", "NEWEST: Final = 1\n", "NEWEST: Final = 2\n"),
    (
        "state/commands.py",
        "Logged = (\n",
        '''class Append(Struct, frozen=True, gc=False, array_like=True, tag=90):
    """Add to the data of a znode. Of level 2."""

    path: str
    data: bytes


Logged = (
    Append |
''',
    ),
    ("state/codec.py", "    NOBODY,\n", "    NOBODY,\n    Append,\n"),
    (
        "state/codec.py",
        "SINCE: Final[dict[type, int]] = {}",
        "SINCE: Final[dict[type, int]] = {Append: 2}",
    ),
    (
        "state/access/guard.py",
        "    Put: CommandGuard.put,\n",
        "    Put: CommandGuard.put,\n    Append: CommandGuard.put,\n",
    ),
    ("state/access/guard.py", "    Put,\n", "    Append,\n    Put,\n"),
    (
        "state/handlers.py",
        "            Put: operations.put,\n",
        "            Put: operations.put,\n            Append: operations.append,\n",
    ),
    ("state/handlers.py", "    Put,\n", "    Append,\n    Put,\n"),
    (
        "state/operations.py",
        "    def put(self, operation: Put)",
        '''    def append(self, operation: Any) -> DataSet:
        """Add to the data of a znode."""
        data = self._existing(operation.path, "append").data + operation.data
        return self.set_data(SetData(operation.path, data))

    def put(self, operation: Put)''',
    ),
    (
        "state/rules.py",
        "ADDED: Final[dict[str, int]] = {}",
        'ADDED: Final[dict[str, int]] = {"append.place": 2}',
    ),
    ("state/rules.py", "    found = {}\n", '    found = {"append.place": "behind the data"}\n'),
    # --- its route
    (
        "wire/routes/upgrade.py",
        '            Route("GET", "/v1/upgrade",',
        '            Route("POST", "/v1/append", self.append, "append"),\n'
        '            Route("GET", "/v1/upgrade",',
    ),
    (
        "wire/routes/upgrade.py",
        "    async def finish(",
        '''    async def append(self, request: IncomingRequest) -> Answer:
        from coordinator.state.commands import Append

        door, query = self._door, Query(request.query, frozenset({"path", "data"}))
        await door.body(request)
        context = RequestContext(None, door.deadline_ms(request), caller=request.caller)
        operation = Append(query.text("path"), query.text("data").encode())
        done = await door.member.proposer.submit(operation, context)
        done.outcome.unwrap()
        view = await door.member.upgrades.status(request.caller)
        return door.reply(request, view, zxid=done.outcome.zxid, index=done.index)

    async def finish(''',
    ),
    # --- protocol 2
    ("raft/network/messages.py", "PROTOCOL_NEWEST = 1\n", "PROTOCOL_NEWEST = 2\n"),
    (
        "raft/network/messages.py",
        '    """Nothing but: I am here."""\n',
        '    """I am here, and well."""\n\n    health: bytes = b"well"\n',
    ),
    (
        "raft/network/messages.py",
        "    MessageKind(0, Ping),\n",
        '    MessageKind(0, Ping, added=(("health", 2),)),\n',
    ),
    (
        "service/reporting/status.py",
        '        return metadata.version("raft-coordinator")\n',
        f'        return metadata.version("raft-coordinator") and "{RELEASE}"\n',
    ),
)


def make_next_release(directory: Path) -> dict[str, str]:
    """Write it below ``directory``; return the environment in which it runs, and not this one."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
    package = directory / "coordinator"
    shutil.copytree(ROOT / "coordinator", package, ignore=ignored)
    for name, before, after in _CHANGES:
        file = package / name
        text = file.read_text()
        assert text.count(before) >= 1, f"{name} has no {before!r}: change next_release.py with it"
        file.write_text(text.replace(before, after, 1))
    return {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}
