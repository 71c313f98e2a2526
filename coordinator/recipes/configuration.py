"""Shared configuration: named values that change together, with versions to go back to.

::

    settings = Configuration(client, "web")
    settings.change({"db.host": "db-2", "db.pool": 20}, note="the new database")
    settings.get().values["db.pool"]               # 20
    settings.rollback(1)                           # version 3 has the values of version 1
    for snapshot in settings.watch(): ...          # now, and after each change: all or nothing

1. All values are one znode, so a reader or watcher sees a whole version. A change writes it,
   keeps a copy among the versions and takes the oldest away, in one command and only if nobody
   else has changed it since it was read.
2. ``check`` sees the whole of what would be, before it is written. It is this client's: let all
   programs that write use the same.
3. A watcher gets each change with its values, which costs no request. One that was away finds
   the newest version; those in between are in the history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic

from coordinator.client import ClientT, Conditions, answered, both, expect_function
from coordinator.errors import BadArgumentsError, BadVersionError, NoNodeError, TooManyRetriesError
from coordinator.recipes.base.names import checked_count, name_of, path_of
from coordinator.recipes.sharing.configuration_snapshot import (
    KeptVersions,
    Snapshot,
    is_same,
    written,
)
from coordinator.recipes.sharing.configuration_stream import Snapshots

ROOT = "/configurations"
VERSIONS_MAX = 100
_TRIES_MAX = 50

Values = Mapping[str, Any]


class Configuration(Generic[ClientT]):
    """The configuration ``name``, which keeps its last ``versions`` versions, 1 to 100.

    ``check`` is called with all values before they are written: what it raises reaches the caller,
    and False is an error, too. With a Client it runs in a thread of its own, with an AsyncClient it
    may be a coroutine function. ``by`` says in the history who wrote: the client's label by
    default.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        check: Callable[[dict[str, Any]], object] | None = None,
        versions: int = 20,
        by: str | None = None,
    ) -> None:
        checked_count("versions", versions, VERSIONS_MAX)
        if check is not None:
            expect_function(client, "Configuration(check=…)", check)
        self.client = client
        self.name = name_of(name)
        self._check = check
        self._by = client.core.settings.label if by is None else by
        self._kept = KeptVersions(client.core, path_of(ROOT, name), versions)

    @both
    async def get(self, version: int | None = None) -> Snapshot:
        """Return the current version, or the one asked for.

        Raises:
            NoNodeError: there is no such version, or it is not kept any more.
            BadArgumentsError: its znode is no configuration.
            UnavailableError: no member answered in time.
        """
        return (await self._kept.now())[0] if version is None else await self._kept.version(version)

    @both
    async def change(
        self,
        values: Values,
        *,
        remove: Iterable[str] = (),
        expected_version: int | None = None,
        note: str = "",
        if_held: Conditions = None,
    ) -> Snapshot:
        """Set some values and remove others, all at once; return what is there then.

        If nothing would change, nothing is written. Without ``expected_version`` the change is
        done to what others have written meanwhile; 0 expects that there is nothing yet.

        Raises:
            BadVersionError: another version is there than the expected one.
            BadArgumentsError: a name or value is not allowed, or ``check`` returned False.
            DataTooLargeError: all values together are too large.
            TooManyRetriesError: others changed it all the time.
            LockLostError: a grant of ``if_held`` does not hold; nothing was changed.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
            What ``check`` raises: nothing was changed.
        """
        new = _values_of(values)
        gone = {remove} if isinstance(remove, str) else set(remove)

        def merged(now: Values) -> Values:
            return {**{name: now[name] for name in now if name not in gone}, **new}

        return await self._commit(merged, expected_version, note, if_held)

    @both
    async def replace(
        self,
        values: Values,
        *,
        expected_version: int | None = None,
        note: str = "",
        if_held: Conditions = None,
    ) -> Snapshot:
        """Let ``values`` be all that there is; return it.

        Raises:
            All that ``change`` raises.
        """
        new = _values_of(values)
        return await self._commit(lambda _: new, expected_version, note, if_held)

    @both
    async def rollback(
        self,
        version: int,
        *,
        expected_version: int | None = None,
        note: str = "",
        if_held: Conditions = None,
    ) -> Snapshot:
        """Commit the values of ``version`` again, as a new version; return that.

        Raises:
            NoNodeError: there is no such version, or it is not kept any more.
            All that ``change`` raises.
        """
        values = (await self._kept.version(version)).values
        why = note or f"as version {version}"
        return await self._commit(lambda _: values, expected_version, why, if_held)

    @both
    async def history(self) -> tuple[Snapshot, ...]:
        """Return the versions that are kept, the newest first.

        Raises:
            BadArgumentsError: one of them is no configuration.
            UnavailableError: no member answered in time.
        """
        found = []
        for name in reversed(await self._kept.names()):
            try:
                found.append(await self._kept.version(int(name)))
            except NoNodeError:
                continue  # deleted since it was listed
        return tuple(found)

    def watch(self) -> Snapshots[ClientT]:
        """Return a stream of versions: the current one, then the newest after each change.

        Raises:
            Nothing: it begins when it is iterated.
        """
        return Snapshots(self.client, self._kept)

    async def _is_refused(self, values: dict[str, Any]) -> bool:
        assert self._check is not None, "there is a check"
        return await answered(self.client.core.own_loop, self._check, values) is False

    async def _commit(
        self,
        make: Callable[[Values], Values],
        expected_version: int | None,
        note: str,
        if_held: Conditions,
    ) -> Snapshot:
        for _ in range(_TRIES_MAX):
            now, is_unchanged = await self._kept.now()
            if expected_version not in (None, now.version):
                raise BadVersionError(
                    f"{self.name}: expected version {expected_version}, found {now.version}"
                )
            data = written(now.version + 1, make(now.values), note, self._by)
            values = json.loads(data)["values"]
            if now.version and is_same(values, now.values):
                return now
            if self._check is not None and await self._is_refused(values):
                raise BadArgumentsError(
                    f"{self.name}: expected values that this configuration's check accepts, found "
                    "that it returned False; nothing was written"
                )
            made = await self._kept.write(now.version, data, is_unchanged, if_held)
            if made is not None:
                return made
        raise TooManyRetriesError(
            f"{self.name}: expected no other writer, found one in each of {_TRIES_MAX} tries; "
            "nothing was written. Try again"
        )


def _values_of(values: Values) -> Values:
    if not isinstance(values, Mapping):
        raise BadArgumentsError(f"values: expected a mapping of names, found {values!r:.60}")
    return dict(values)
