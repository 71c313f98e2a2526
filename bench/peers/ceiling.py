"""The servers' own ceiling: writes by clients that cost little, so that Python is not what limits.

wrk speaks HTTP to our door and to etcd's gateway; a program in Go speaks the stream to us, and etcd
with its own client; ZooKeeper's own client is in Java. What is not built is named, not left out.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.peers.figures import cpu_seconds
from bench.peers.systems import INSTALL, TOOLS, System
from bench.peers.work import VALUE

CONNECTIONS = 4
WORKERS = 64
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_SOURCE = TOOLS.parent / "bench" / "peers"


def each(system: System, run: Any) -> Iterator[tuple[str, list[dict[str, float]] | str]]:
    """Measure every compiled client of a system; yield its name and its rounds, or what failed."""
    seconds = max(run.seconds, 1.0) * 2
    for name, measured in _CLIENTS[system.name].items():
        rounds = []
        for _ in range(run.rounds):
            before_s = cpu_seconds(system.pids)
            try:
                found = measured(system, seconds)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                yield name, str(error)
                break
            spent_s = cpu_seconds(system.pids) - before_s
            # The warm-up is in the processor time as well as in what is counted for it.
            whole = found.pop("seconds_of_cpu", seconds)
            count = found["per_second"] * whole
            rounds.append(found | {"servers_us": spent_s / count * 1e6 if count else 0.0})
        else:
            yield name, rounds


def wrk_figures(text: str) -> dict[str, float]:
    """Return the figures in what wrk prints with ``--latency``."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None:
        raise ValueError(f"expected the figures of wrk, found {text[-200:]!r}")
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    if errors:
        raise RuntimeError(f"{errors.group(1)} requests were refused")
    found = {"per_second": float(rate.group(1))}
    for percent, name in (("50", "p50_ms"), ("99", "p99_ms")):
        place = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)$", text, re.MULTILINE)
        if place:
            found[name] = float(place.group(1)) * _UNITS_MS[place.group(2)]
    return found


def _wrk(system: System, seconds: float, method: str, target: str, body: str) -> dict[str, float]:
    if not shutil.which("wrk"):
        raise RuntimeError("wrk is not here: apt-get install wrk")
    script = system.directory / "wrk.lua"
    script.write_text(
        f'wrk.method = "{method}"\nwrk.body = [[{body}]]\n'
        'wrk.headers["Content-Type"] = "application/json"\n'
    )
    endpoint = system.endpoints[system.wait()].removeprefix("http://")
    done = subprocess.run(
        [
            "wrk", "-t1", f"-c{WORKERS}", f"-d{seconds:.0f}s", "--latency", "-s", str(script),
            f"http://{endpoint}{target}",
        ],
        capture_output=True, text=True, check=True, timeout=seconds + 30,
    )  # fmt: skip
    return wrk_figures(done.stdout)


def _our_http(system: System, seconds: float) -> dict[str, float]:
    from bench.peers.attempts import attempt

    attempt(system, system.wait(), 5.0, is_first=True)
    return _wrk(system, seconds, "PUT", "/v1/tree/attempt", json.dumps({"data": VALUE.decode()}))


def _etcd_gateway(system: System, seconds: float) -> dict[str, float]:
    said = {"key": base64.b64encode(b"load").decode(), "value": base64.b64encode(VALUE).decode()}
    return _wrk(system, seconds, "POST", "/v3/kv/put", json.dumps(said))


def _program(command: list[str], warm_s: float, seconds: float) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-200:])
    found: dict[str, float] = json.loads(done.stdout)
    return found | {"seconds_of_cpu": seconds + warm_s}


def _go(kind: str) -> Callable[[System, float], dict[str, float]]:
    def measured(system: System, seconds: float) -> dict[str, float]:
        program = TOOLS / "load"
        if not program.exists():
            raise RuntimeError(f"the client in Go is not built: `{INSTALL}`")
        endpoint = system.endpoints[system.wait()].removeprefix("http://")
        words = [str(program), kind, endpoint, str(CONNECTIONS), str(WORKERS), str(seconds)]
        return _program(words, 0.5, seconds)

    return measured


def _java(system: System, seconds: float) -> dict[str, float]:
    endpoint = system.endpoints[system.wait()]
    words = [
        "java", "-cp", f"{TOOLS}/zookeeper/*:{TOOLS}", "Load", endpoint, str(CONNECTIONS),
        str(WORKERS), str(seconds),
    ]  # fmt: skip
    began_s = time.monotonic()
    found = _program(words, 2.0, seconds)
    assert time.monotonic() - began_s > seconds
    return found


_CLIENTS: dict[str, dict[str, Callable[[System, float], dict[str, float]]]] = {
    "ours": {"ours, HTTP (wrk)": _our_http, "ours, stream (Go)": _go("stream")},
    "etcd": {"etcd, gateway (wrk)": _etcd_gateway, "etcd, own client (Go)": _go("etcd")},
    "zookeeper": {"zookeeper, own client (Java)": _java},
}
