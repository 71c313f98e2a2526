"""A fair read/write lock: many readers or one writer, in the order in which they came.

::

    accounts = RWLock(client, "accounts")
    with accounts.read() as grant:
        total = add_up()

    with accounts.write() as grant:
        book(token=grant.fencing_token)
        grant.downgrade()                     # keep reading; no writer comes in between
        check(add_up())

1. Readers next to each other in the queue hold together. A writer waits for all before it, and all
   after it wait for the writer: neither side starves.
2. Each ``read()`` and ``write()`` is a contender of its own, and a ``Lock`` in all it can do.
3. A reader cannot become a writer but by releasing and queueing again: two readers that both wanted
   it would wait for each other. A reader that asks to write gets DeadlockError.
4. A ``Lock`` of the same name is a writer.
"""

from __future__ import annotations

from typing import Generic, Unpack

from coordinator.client import ClientT
from coordinator.client.locks import Contending
from coordinator.recipes.base.names import name_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.options import Kind, LockOptions, Options


class RWLock(Contending, Generic[ClientT]):
    """The lock ``name`` and its two sides; ``options`` are those of ``Lock``, for both sides."""

    def __init__(self, client: ClientT, name: str | int, **options: Unpack[LockOptions]) -> None:
        self.client = client
        self.name = name_of(name)
        self._options = options
        Options.of(client, **options)  # refuse here what is wrong with them, not at the first use

    def read(self, **options: Unpack[LockOptions]) -> Lock[ClientT]:
        """Return a contender that holds together with other readers.

        ``options`` replace those of this object.

        Raises:
            BadArgumentsError: an option is out of its range.
        """
        return self._side("shared", options)

    def write(self, **options: Unpack[LockOptions]) -> Lock[ClientT]:
        """Return a contender that holds alone; raises as ``read``.

        Raises:
            BadArgumentsError: an option is out of its range.
        """
        return self._side("exclusive", options)

    def _side(self, kind: Kind, options: LockOptions) -> Lock[ClientT]:
        given: LockOptions = {**self._options, **options}
        return Lock.with_options(
            self.client, self.name, Options.of(self.client, kind=kind, **given)
        )
