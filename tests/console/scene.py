"""A cluster in which something of everything goes on: what the console is shown with."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from coordinator.recipes.jobs.ledger import Ledger
from coordinator.recipes.jobs.schedule import Schedule
from coordinator.testing.cluster import LocalCluster

WAITERS = ("billing", "search-indexer", "mailer", "audit-export")


class Scene:
    """Clients of one cluster, by plain HTTP requests; each that waits in a thread of its own."""

    def __init__(self, cluster: LocalCluster, token: str = "") -> None:
        self.cluster = cluster
        self.token = token
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self._kept: list[str] = []

    @property
    def url(self) -> str:
        """Of the first member."""
        return self.cluster.urls[0]

    def call(self, method: str, path: str, body: Any = None, expected: int = 299) -> Any:
        """Ask, and return the body of the answer; a refusal up to ``expected`` is one, too."""
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None and method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=70) as reply:
                return json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            answer = json.loads(error.read())
            if error.code > expected:
                raise ValueError(f"{method} {path}: {answer}") from None
            return answer

    def session(self, label: str, timeout_ms: int = 20_000) -> str:
        """Open a session that is renewed until the scene ends."""
        opened = self.call("POST", "/v1/sessions", {"timeout_ms": timeout_ms, "label": label})
        self._kept.append(opened["session_id"])
        return str(opened["session_id"])

    def acquire(self, lock: str, label: str, session: str, **more: Any) -> Any:
        """Acquire, waiting for a minute at most; return the grant."""
        body = {
            "session_id": session,
            "label": label,
            "host": f"host-{len(label):02}",
            "pid": 4_217,
            "timeout_ms": 60_000,
            **more,
        }
        return self.call("POST", f"/v1/locks/{quote(lock, safe='')}", body, expected=599)

    def wait(self, lock: str, label: str, session: str, **more: Any) -> None:
        """Stand in a queue, in the background: again if a minute was not enough."""

        def until_it_holds() -> None:
            while not self._over.is_set():
                begun_s = time.monotonic()
                said = self.acquire(lock, label, session, **more)
                if "grant" in said or time.monotonic() - begun_s < 50:
                    return

        thread = threading.Thread(target=lambda: self._quietly(until_it_holds), daemon=True)
        thread.start()
        self._threads.append(thread)
        self._until(lambda: self._waits(lock, label))

    def begin(self) -> None:
        """Let everything happen that the screens show."""
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        self._threads.append(renewing)
        self._past()
        self._present()
        self._tree()

    def end(self) -> None:
        """End what waits, and the renewing."""
        self._over.set()
        for each in self._kept:
            self._quietly(lambda each=each: self.call("DELETE", f"/v1/sessions/{each}"))
        for thread in self._threads:
            thread.join(5)

    def _past(self) -> None:
        """Grants that have ended in several ways."""
        worker = self.session("report-worker")
        for number in range(6):
            grant = self.acquire("daily-report", "report-worker", worker)["grant"]
            time.sleep(0.05 + 0.04 * number)
            self.call("DELETE", f"/v1/locks/daily-report/grants/{grant['grant_id']}")
        hung = self.session("report-worker")
        grant = self.acquire("daily-report", "report-worker", hung)["grant"]
        self.call(
            "POST",
            "/v1/locks/daily-report/revoke",
            {"grant_id": grant["grant_id"], "by": "ann", "reason": "the host is being replaced"},
        )

    def _present(self) -> None:
        holder = self.session("report-worker")
        self.acquire("daily-report", "report-worker", holder, purpose="correctness", owner="main")
        for label in WAITERS:
            self.wait("daily-report", label, self.session(label))
        one, other = self.session("payments"), self.session("ledger")
        self.acquire("account:7", "payments", one, owner="task-1")
        self.acquire("account:3", "ledger", other, owner="task-2")
        self.wait("account:3", "payments", one, owner="task-1")
        self.acquire("account:7", "ledger", other, owner="task-2", timeout_ms=1_000)
        for number in range(3):
            self.acquire("image-resize", f"gpu-{number}", holder, kind="slot", size=3)
        for name, label in (("scheduler", "scheduler-a"), ("primary-db", "db-2")):
            body = {"session_id": self.session(label), "value": f"10.0.0.{len(name)}:80"}
            self.call("POST", f"/v1/elections/{name}", body)

    def _tree(self) -> None:
        def put(path: str, data: str, **more: Any) -> None:
            self.call(
                "POST",
                "/v1/tree" + quote(path),
                {"data": data, "parents": "persistent", **more},
            )

        put("/app/settings", json.dumps({"rate": 20, "regions": ["eu", "us"], "dark": True}))
        put("/app/motd", "maintenance on Sunday, 02:00 to 03:00")
        put("/app/broken<b>&amp;\"'", "<script>alert(1)</script>")
        for number in range(40):
            put(f"/app/flags/flag-{number:02}", "on" if number % 3 else "off")
        for number in range(7):
            put(f"/queues/thumbnails/items/5-{number:010}", "image")
        put("/queues/thumbnails/dead/5-dead", "image")
        said = {"state": "up", "reason": "", "metadata": {"url": "http://10.0.0.5:80", "zone": "a"}}
        for name in ("web-1", "web-2", "web-3"):
            own = {"mode": "ephemeral", "session_id": self.session(name)}
            put(f"/groups/web/{name}", json.dumps(said), **own)
        run = {"state": "done", "attempt": 1, "fencing_token": 9, "by": "worker-3", "reason": "",
               "started_ms": 1_700_000_000_000, "result": None}  # fmt: skip
        ledger = Ledger(Schedule.of("6h"), time_ms=time.time_ns() // 1_000_000)
        put("/schedules/jobs/nightly-backup", ledger.to_bytes().decode())
        put("/schedules/jobs/invoices", Ledger(Schedule.of("1h"), time_ms=1).to_bytes().decode())
        put("/schedules/jobs/nightly-backup/1700000000000", json.dumps(run))

    def _renew(self) -> None:
        while not self._over.wait(2):
            ids = list(self._kept)
            if ids:
                body = {"session_ids": ids}
                self._quietly(lambda body=body: self.call("POST", "/v1/sessions/heartbeats", body))

    def _waits(self, lock: str, label: str) -> bool:
        view = self.call("GET", f"/v1/locks/{quote(lock, safe='')}")
        return any(each["label"] == label for each in view["queue"])

    def _until(self, is_so: Any) -> None:
        for _ in range(200):
            if is_so():
                return
            time.sleep(0.02)
        raise AssertionError("it never came to be so")

    def _quietly(self, deed: Any) -> None:
        try:
            deed()
        except (OSError, AssertionError, ValueError):
            return  # the member is gone, or the session is: the scene goes on
