"""The client, the locks and the exclusive management commands of a Django project.

::

    COORDINATOR = {"endpoints": "http://10.0.0.7:7071"}                  # settings.py

    with lock(f"accounts/{number}", timeout=2) as grant, transaction.atomic():
        close(number, token=grant.fencing_token)

    class Command(ExclusiveCommand, BaseCommand):                        # a management command
        lock_timeout = 0

        def handle(self, *args, **options):
            send_invoices(token=self.grant.fencing_token)

1. One client for each process, connected with its first use, so after gunicorn has forked.
2. Take the lock outside of ``atomic()``: it must be held until the transaction is committed. With
   ATOMIC_REQUESTS on, such a view needs ``@transaction.non_atomic_requests``.
3. A command that finds its lock held ends with exit code 75 ("try again later"), or quietly with
   ``skip_if_busy``. In the main thread ``handle`` is interrupted by LockLostError when the lock is
   lost; in another one it has to call ``self.grant.check()``.
4. One at a time, not once: commands that come one after the other all run (``Once``, ``once_per``).
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any, Unpack

from coordinator.client import Client, connect, expect_function
from coordinator.errors import BadArgumentsError, LockTimeoutError
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import LockOptions
from coordinator.recipes.waits import Timeout

try:
    from django.conf import settings
    from django.core.management.base import CommandError
except ImportError as error:
    raise missing_extra("django", "django") from error

BUSY_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h."""

_guard = threading.Lock()
_clients: list[Client] = []


def client() -> Client:
    """Return this process' client, made with ``settings.COORDINATOR``: arguments of ``connect``.

    Raises:
        BadArgumentsError: the setting is no dict, or has an argument that ``connect`` has not.
    """
    with _guard:
        if not _clients:
            _clients.append(connect(**_arguments()))
        return _clients[0]


def close_client() -> None:
    """Close this process' client, for tests; the next use makes another one."""
    with _guard:
        closing, _clients[:] = list(_clients), []
    for each in closing:
        each.close()


def lock(name: str | int, **options: Unpack[LockOptions]) -> Lock[Client]:
    """Return a contender for the lock ``name``, with this process' client; for ``with``."""
    return Lock(client(), name, **options)


class ExclusiveCommand:
    """Base of a management command that runs on one machine at a time; before BaseCommand.

    ``lock_name`` is ``command:`` and the command's name unless said otherwise. ``lock_timeout`` is
    in seconds, 0 tries once. ``grant`` is there while ``handle`` runs. The client is one of its
    own, which ends with the command.
    """

    lock_name: str = ""
    lock_timeout: Timeout = 0
    skip_if_busy: bool = False
    grant: Grant[Client]

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command while the lock is held.

        Raises:
            CommandError: the lock was not acquired in time; ``handle`` did not run. Exit code 75.
            LockLostError: the lock was lost while ``handle`` ran.
            BadArgumentsError: ``handle`` is a coroutine function or a generator function.
            All else that ``Lock.acquire`` and the command raise.
        """
        command: Any = super()
        name = self.lock_name or f"command:{type(self).__module__.rpartition('.')[2]}"
        is_main = threading.current_thread() is threading.main_thread()
        has_begun = False
        try:
            with (
                connect(**_arguments()) as own,
                self._lock(own, name) as grant,
                grant.interrupting() if is_main else nullcontext(),
            ):
                self.grant, has_begun = grant, True
                return command.execute(*args, **options)
        except LockTimeoutError as busy:
            if has_begun:  # the command waited for another lock
                raise
            if self.skip_if_busy:
                return None
            raise CommandError(
                f"not run: {busy}; it runs elsewhere", returncode=BUSY_EXIT_CODE
            ) from None

    def _lock(self: Any, own: Client, name: str) -> Lock[Client]:
        expect_function(own, name, self.handle)
        return Lock(own, name, timeout=self.lock_timeout, label=name[:200])


def _arguments() -> dict[str, Any]:
    found = getattr(settings, "COORDINATOR", {})
    known = connect.__annotations__.keys() - {"return"}
    if not isinstance(found, dict) or not found.keys() <= known:
        raise BadArgumentsError(
            f"settings.COORDINATOR: expected a dict of {', '.join(sorted(known))}; found "
            + (f"{', '.join(map(str, found))}" if isinstance(found, dict) else f"{type(found)}")
        )
    return found
