"""A Celery beat of which any number may run: one is elected, and sends what is due.

::

    celery -A shop beat --scheduler coordinator.integrations.celery_beat:ExclusiveScheduler

1. The others wait. When the elected beat ends, the next one is elected at once; when it dies or is
   cut off, after its session's timeout.
2. When each task was sent last is kept in the cluster, not in a file. So the next beat goes on
   where the last one was: what became due since is sent once, what was sent is not sent again.
3. The record is written before the task is sent, and only if this beat is still elected. A beat
   that was paused and replaced is refused. One that dies in between leaves that task unsent until
   its next time: at most once.
4. Between the record and the broker is a gap that no lock closes: a beat that is paused right there
   sends late. It is one message, which has a record, so nothing is sent twice.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any

from coordinator.client import Client, connect
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    LockTimeoutError,
    NoNodeError,
    RequestError,
)
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.base.names import name_of, path_of
from coordinator.recipes.election import Election
from coordinator.recipes.locks.grant import Grant

try:
    from celery.beat import Scheduler
except ImportError as error:
    raise missing_extra("celery_beat", "celery") from error

ROOT = "/celery-beat"

_log = logging.getLogger(__name__)


class ExclusiveScheduler(Scheduler):
    """The scheduler of a beat that sends only while it is elected.

    The setting ``coordinator_endpoints`` says which cluster, ``COORDINATOR_ENDPOINTS`` if it is
    absent; ``coordinator_beat_name`` names the election, by default as the application.
    """

    standby_s = 5.0
    """How long it waits to be elected, or sleeps, before it looks whether it is to stop."""

    def __init__(self, app: Any, *args: Any, **options: Any) -> None:
        self._name = name_of(app.conf.get("coordinator_beat_name") or app.main or "celery")
        self._path = path_of(ROOT, self._name)
        self._client: Client | None = None
        self._election: Election[Client] | None = None
        self._leadership: Grant[Client] | None = None
        super().__init__(app, *args, **options)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send one task that is due, if elected; return for how many seconds to sleep.

        Raises:
            RequestError: the cluster refuses this beat, for want of a right perhaps.
        """
        try:
            if self._leadership is None and not self._campaign():
                return 0.0
            assert self._leadership is not None
            self._leadership.check()
            seconds: float = super().tick(*args, **kwargs)
            return min(seconds, self.standby_s)
        except (ClientClosedError, RequestError):
            raise
        except CoordinatorError as error:
            _log.warning("beat %s: does not send until it is elected: %s", self._name, error)
            self._stand_down()
            return 1.0

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Record that ``entry`` is sent now, then send it.

        Raises:
            CoordinatorError: this beat is not elected any more, or does not know; nothing is sent.
        """
        self._record()
        super().apply_entry(entry, producer=producer)

    def close(self) -> None:
        """Let the next beat be elected."""
        try:
            self._stand_down()
            if self._client is not None:
                self._client.close()
        finally:
            self._client = self._election = None
            super().close()

    @property
    def info(self) -> str:
        """What ``celery beat`` prints of this scheduler when it starts."""
        return f"    . election -> {self._name}"

    def _campaign(self) -> bool:
        """Wait a while to be elected; then go on from what the beat before has recorded."""
        if self._client is None:
            self._client = connect(self.app.conf.get("coordinator_endpoints"), label="celery beat")
        if self._election is None:
            self._election = Election(self._client, f"celery-beat:{self._name}")
        try:
            self._leadership = self._election.campaign(timeout=self.standby_s)
        except LockTimeoutError:
            return False
        sent = self._recorded()
        for name, entry in self.schedule.items():
            if name in sent:
                entry.last_run_at = datetime.fromisoformat(sent[name])
        self._heap = None  # made again by the next tick, from these times
        self._record()  # an entry that is new counts from now, for the next beat as well
        _log.info("beat %s: elected, epoch %d", self._name, self._leadership.epoch)
        return True

    def _stand_down(self) -> None:
        leadership, self._leadership, self._heap = self._leadership, None, None
        election = self._election
        if election is None:
            return
        try:
            election.resign()
        except CoordinatorError as error:
            _log.warning("beat %s: it resigns when that can be said: %s", self._name, error)
            self._election = None  # the next candidate is another; until then nobody is elected
            if leadership is not None:
                leadership.keep_releasing()

    def _recorded(self) -> dict[str, str]:
        """Return when each task was sent last, in ISO 8601."""
        assert self._client is not None
        try:
            data = self._client.get(self._path).data
        except NoNodeError:
            return {}
        try:
            found = json.loads(data)
            for at in found.values():
                datetime.fromisoformat(at)
        except (ValueError, TypeError, AttributeError):
            raise BadArgumentsError(
                f"{self._path}: expected the times of a beat, found {data[:60]!r}; delete it to "
                f"begin again from now"
            ) from None
        return dict(found)

    def _record(self) -> None:
        """Write when each task was sent last, if this beat is still elected."""
        assert self._client is not None
        times = {name: entry.last_run_at.isoformat() for name, entry in self.schedule.items()}
        data = json.dumps(times, separators=(",", ":"), sort_keys=True).encode()
        try:
            self._client.set(self._path, data, if_held=self._leadership)
        except NoNodeError:
            self._client.create(self._path, data, parents="persistent", if_held=self._leadership)
