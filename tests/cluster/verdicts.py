"""Was what the clients of a ``Load`` saw what ``docs/guarantees.md`` promises?

Each function returns sentences about what was wrong, none when all was well. The letters are those
of the matrix of faults: L linearizable, V one order, D nothing lost or twice, M mutual exclusion,
E ephemerals, W watches, Q sequence numbers, H equal members.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import http.client
import json
import tempfile
import time
from collections import Counter, defaultdict
from typing import Any

from tests.cluster.load import ROOT, Held, Load
from tests.cluster.processes import ProcessCluster
from tests.history.checker import check
from tests.history.explanation import explain
from tests.history.operations import to_json
from tests.history.register import Register
from tests.history.search import Budget, Verdict

_SHOWN_MAX = 3
_CHECK_SECONDS_MAX = 60.0
_REST_S = 15.0
_TRIES_MIN = 5


def judge(load: Load) -> list[str]:
    """Return everything that can be said without asking the members again."""
    found = list(load.violations)
    for rule in (linearizable, one_order, exclusive, watched, refusals_had_no_effect):
        found += rule(load)
    return found


def linearizable(load: Load) -> list[str]:
    """L: each znode behaved like one versioned register."""
    history = load.recorder.history()
    model = Register()
    result = check(history, model, Budget(seconds_max=_CHECK_SECONDS_MAX))
    found = [
        f"L undecided: key {key.key} after {key.steps} steps"
        for key in result.keys.values()
        if key.verdict is Verdict.UNDECIDED
    ]
    for key in result.bad_keys()[:_SHOWN_MAX]:
        of_key = [operation for operation in history if operation.key == key.key]
        found.append(f"L {explain(key, of_key, model)}")
    if found and load.keeps_history:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
            file.writelines(to_json(operation) + "\n" for operation in history)
        found.append(f"L the history is kept in {file.name}")
    return found


def one_order(load: Load) -> list[str]:
    """V: no answer shows less than one that was there before it was asked for; no zxid twice."""
    found = []
    readings = sorted(load.readings, key=lambda reading: reading.called_at)
    returned: list[tuple[float, int]] = []
    highest = 0
    for reading in readings:
        while returned and returned[0][0] < reading.called_at:
            highest = max(highest, heapq.heappop(returned)[1])
        least = highest + 1 if reading.is_write else highest
        if reading.zxid < least:
            found.append(f"V {reading.what} shows zxid {reading.zxid} after {highest} was seen")
        heapq.heappush(returned, (reading.returned_at, reading.zxid))
    times = Counter(reading.zxid for reading in readings if reading.is_write)
    found += [f"V zxid {zxid} was given to {count} writes" for zxid, count in times.items()
              if count > 1]  # fmt: skip
    return found[:_SHOWN_MAX]


def exclusive(load: Load) -> list[str]:
    """M: no more held a lock for certain at once than may, and tokens grow where only one may."""
    found = []
    of_lock = defaultdict(list)
    for held in load.held:
        of_lock[held.lock].append(held)
    for lock, grants in of_lock.items():
        grants.sort(key=lambda held: held.granted_at)
        tokens = Counter(held.token for held in grants)
        found += [f"M {lock}: token {token} was granted {count} times"
                  for token, count in tokens.items() if count > 1]  # fmt: skip
        holding: list[Held] = []
        highest, highest_alone = 0, 0
        for later in grants:
            least = highest if later.beside == 1 else highest_alone
            if later.token <= least:
                found.append(f"M {lock}: token {later.token} was granted after {least}")
            highest = max(highest, later.token)
            if later.beside == 1:
                highest_alone = max(highest_alone, later.token)
            holding = [each for each in holding if each.certain_until > later.granted_at]
            holding.append(later)
            if len(holding) > min(each.beside for each in holding):
                shown = ", ".join(f"{each.token} until {each.certain_until}" for each in holding)
                found.append(f"M {lock}: too many at {later.granted_at}: {shown}")
    return found[: 2 * _SHOWN_MAX]


def watched(load: Load) -> list[str]:
    """W: every watcher was told the same of each zxid, and all that was acknowledged."""
    found: list[str] = []
    told: dict[int, Any] = {}
    for each in load.watched:
        for stretch in each.stretches:
            for zxid, events in stretch.changes:
                if told.setdefault(zxid, events) != events:
                    found.append(f"W zxid {zxid} was told as {events} and as {told[zxid]}")
    due = {r.zxid for r in load.readings if r.is_write} | set(told)
    for number, each in enumerate(load.watched):
        for stretch in each.stretches:
            seen = {zxid for zxid, _ in stretch.changes}
            missed = [z for z in due if stretch.from_zxid < z <= stretch.to_zxid and z not in seen]
            if missed:
                found.append(f"W watcher {number} was never told of zxids {sorted(missed)[:5]}")
    return found[:_SHOWN_MAX]


def refusals_had_no_effect(load: Load) -> list[str]:
    """An error that calls itself definite is the truth: nobody ever reads that value."""
    return [f"refused as definite but read: {value}"
            for value in sorted(load.refused_values & load.seen_values)]  # fmt: skip


async def judge_end(cluster: ProcessCluster, load: Load) -> list[str]:
    """Return what is wrong with what the members, all running again, show after the load."""
    end = time.monotonic() + 3 * load.options.session_s + _REST_S
    while True:
        found = await equal_dumps(cluster)
        if isinstance(found, str):
            return [f"H {found}"]
        left = [path for path in found if path.startswith(f"{ROOT}/sessions/")]
        if not left or time.monotonic() > end:
            break
        await asyncio.sleep(0.2)
    late = [f"E ephemerals of sessions that ended are still there: {left[:3]}"] if left else []
    return late + _nothing_lost(load, found)


def _nothing_lost(load: Load, dump: dict[str, Any]) -> list[str]:
    """D and Q: each acknowledged znode once under its name, no unknown one twice."""
    present = {path: entry for path, entry in dump.items() if path.startswith(f"{ROOT}/set/")}
    times = Counter(entry["data"] for entry in present.values())
    found = []
    paths = Counter(added.path for added in load.added if added.path is not None)
    found += [f"Q {path} was given {count} times" for path, count in paths.items() if count > 1]
    for added in load.added:
        count = times[added.value]
        if added.path is not None:
            entry = present.get(added.path)
            if entry is None or entry["data"] != added.value:
                found.append(f"D {added.path} with {added.value} was acknowledged and is {entry}")
            elif entry["stat"]["czxid"] != added.zxid:
                found.append(f"D {added.path}: acknowledged under zxid {added.zxid}, is {entry}")
        if count > 1:
            found.append(f"D {added.value} was added {count} times")
        if count and added.is_refused:
            found.append(f"{added.value} was refused as definite and is there")
    numbers = sorted(int(path.rsplit("-", 1)[1]) for path in present)
    by_czxid = [int(path.rsplit("-", 1)[1]) for path, entry in
                sorted(present.items(), key=lambda item: item[1]["stat"]["czxid"])]  # fmt: skip
    if numbers != by_czxid:
        found.append("Q sequence numbers do not grow with the zxid")
    return found[: 2 * _SHOWN_MAX]


async def equal_dumps(cluster: ProcessCluster, deadline_s: float = 40.0) -> dict[str, Any] | str:
    """Return the tree that all running members show, or how they differ at one applied index."""
    return await asyncio.to_thread(_equal_dumps, cluster, deadline_s)


def _equal_dumps(cluster: ProcessCluster, deadline_s: float) -> dict[str, Any] | str:
    end, tries = time.monotonic() + deadline_s, 0
    running = [each for each in cluster.ids if cluster.is_running(each)]
    while True:
        indexes = _applied(cluster, running)
        if len(indexes) == 1:
            tries += 1
            with contextlib.suppress(OSError, http.client.HTTPException):
                dumps = [dump(cluster, each) for each in running]
                if _applied(cluster, running) == indexes:
                    break
        # What is still done after a load, sessions that end for example, comes to its end; a busy
        # machine may need the whole time for one look at all members.
        late_s = time.monotonic() - end
        if late_s > 0 and (tries >= _TRIES_MIN or late_s > deadline_s):
            return f"the members do not come to rest at one applied index: {sorted(indexes)}"
        time.sleep(0.2)
    for member_id, found in zip(running[1:], dumps[1:], strict=True):
        if found != dumps[0]:
            paths = [path for path in sorted({*found, *dumps[0]})
                     if found.get(path) != dumps[0].get(path)][:_SHOWN_MAX]  # fmt: skip
            shown = [(path, dumps[0].get(path), found.get(path)) for path in paths]
            return f"members {running[0]} and {member_id} differ at index {indexes}: {shown}"
    return dumps[0]


def _applied(cluster: ProcessCluster, member_ids: list[str]) -> set[int]:
    found = [cluster.status(each) for each in member_ids]
    return {-1 if status is None else int(status["applied_index"]) for status in found}


def dump(cluster: ProcessCluster, member_id: str, path: str = "/") -> dict[str, Any]:
    """Return every znode below ``path`` as this member has it, and its open sessions."""
    host, port = cluster.hosts[member_id], cluster.client_ports[member_id]
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=10.0)) as connection:

        def get(target: str) -> tuple[int, Any]:
            connection.request("GET", target)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")

        found: dict[str, Any] = {}
        waiting = [path]
        while waiting:
            at = waiting.pop()
            status, body = get(f"/v1/tree{at}?stale")
            if status != 200:
                found[at] = {"data": None, "status": status}
                continue
            found[at] = {"data": body.get("data", body.get("data_base64")), "stat": body["stat"]}
            after: str | None = ""
            while body["stat"]["num_children"] and after is not None:
                query = f"&after={after}" if after else ""
                _, page = get(f"/v1/tree{at}?children&stale{query}")
                waiting += [f"{at.rstrip('/')}/{name}" for name in page.get("children", ())]
                after = page.get("next")
        if path == "/":
            found["sessions"] = {"data": get("/v1/sessions?stale")[1].get("sessions")}
    return found
