"""Requests as bytes: mutated, hostile, smuggled, half, slow; what comes back is HTTP or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import resource
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.console.pages import HEADERS
from coordinator.errors import REGISTRY
from coordinator.node.config import HttpConfig
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged
from tests.fuzz.served import Served, on_loopback, with_disk
from tests.fuzz.watch import WALL_SECONDS, Watch, watching
from tests.patience import patient
from tests.wire.chance import Chance

IMPATIENT = HttpConfig(
    header_deadline_ms=250,
    body_deadline_ms=250,
    idle_deadline_ms=250,
    request_deadline_ms=400,
    request_deadline_ms_max=400,
)
CALLERS = 24
STATUS_LINE = re.compile(rb"HTTP/[01]\.[019] (\d{3}) [ -~]*\r\n")
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
# Everything that a response of ours may carry: a name from a request must not get in.
HEADER_NAMES = {
    b"server", b"date", b"content-type", b"content-length", b"connection", b"transfer-encoding",
    b"etag", b"location", b"retry-after", b"allow", b"cache-control", b"x-accel-buffering",
    b"vary", b"x-content-type-options", b"www-authenticate",
}  # fmt: skip
PAGE_HEADER_NAMES = HEADER_NAMES | {each.lower().encode() for each in HEADERS}
"""Of the pages for people, whose paths begin with one of ``PAGES``."""
PAGES = (b"/console", b"/learn")
TOKENS = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\x00",
    b" ",
    b"\t",
    b":",
    b"\r\n\r\n",
    b"\n\n",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 0x5\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length: \r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"Host: a\r\n",
    b"Host: \r\n",
    b" folded\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Content-Encoding: br, gzip\r\n",
    b"X" * 9_000,
    b"A: b\r\n" * 200,
    b"\xff\xfe",
    "é".encode(),
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b"fffffffffffffffff\r\n",
    b'5;ext="\n"\r\n',
    b"-1\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"Coordinator-Request-Number: 1\r\n",
    b"Sec-Fetch-Site: cross-site\r\n",
    b"Origin: http://evil\r\n",
    b"{" * 100,
    b"[" * 100,
    b'"\\ud800"',
    b"1e999",
    b"NaN",
    b"%00",
    b"%2e%2e",
    b"..",
    b"//",
    b"?" * 50,
)


def request_bytes(chance: Chance, draw: random.Random) -> bytes:
    """Return one or two requests, as bytes, usually with something wrong in them."""
    out = b""
    for _ in range(draw.choice((1, 1, 1, 2))):
        method, path, headers, body = chance.request()
        headers = {"Host": "127.0.0.1", "Coordinator-Timeout-Ms": "100", **headers}
        if draw.random() < 0.7:
            headers["Connection"] = "close"
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in headers.items()
        )
        if body and draw.random() < 0.3:
            cut = draw.randrange(len(body) + 1)
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in (body[:cut], body[cut:]) if c)
            out += head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        else:
            out += head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        if draw.random() < 0.5:
            at = draw.randrange(len(out) + 1)
            out = out[:at] + draw.choice(TOKENS) + out[at + draw.choice((0, 0, 1, 8)) :]
        else:
            out = damaged(out, draw)
    return out


async def exchange(served: Served, sent: bytes, draw: random.Random) -> bytes:
    """Send ``sent`` in some pieces; return all that comes back until the member hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    answer = b""
    try:
        async with asyncio.timeout(WALL_SECONDS):
            cut = draw.randrange(len(sent) + 1) if draw.random() < 0.3 else len(sent)
            writer.write(sent[:cut])
            if cut < len(sent):
                await asyncio.sleep(0)
                writer.write(sent[cut:])
            if draw.random() < 0.1:
                writer.write_eof()
            while len(answer) < 4 * 2**20:
                piece = await reader.read(65_536)
                answer += piece
                is_stream = b"x-ndjson" in answer or b"event-stream" in answer
                if not piece or is_stream:
                    break
    except TimeoutError:
        raise
    except OSError:
        pass  # it hung up first, in one of several ways
    finally:
        writer.transport.abort()
    return answer


def judge(sent: bytes, answer: bytes, shown: str) -> int:
    """Return the first status; fail for an answer that no client could trust."""
    while answer.startswith(GO_ON):
        answer = answer[len(GO_ON) :]
    if not answer:
        return 0
    found = STATUS_LINE.match(answer)
    assert found is not None, f"{shown}: not HTTP: {answer[:200]!r}"
    statuses = [int(each) for each in STATUS_LINE.findall(answer)]
    assert 500 not in statuses, f"{shown}: {answer[:400]!r}"
    head, _, rest = answer[found.end() :].partition(b"\r\n\r\n")
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n") if line]
    is_page = any(page in sent for page in PAGES)
    for name in names:
        known = PAGE_HEADER_NAMES if is_page else HEADER_NAMES
        assert name in known or name.startswith(b"coordinator-"), f"{shown}: {name!r}"
    lengths = re.findall(rb"(?i)content-length: (\d+)", head)
    if statuses[0] >= 400 and lengths and not sent.lstrip().startswith(b"HEAD") and rest:
        problem = json.loads(rest[: int(lengths[0])])
        assert problem.get("code") in REGISTRY or "status" in problem, f"{shown}: {problem}"
    return statuses[0]


async def bombard(served: Served, fuzz: Fuzz, name: str, watch: Watch) -> None:
    """Send as many as are asked for, from some callers at once."""
    loop = asyncio.get_running_loop()
    count = fuzz.count(name)
    numbers = iter(range(count))

    async def call(chance: Chance) -> None:
        for number in numbers:
            draw = random.Random(f"{fuzz.seed} {name} {number}")
            chance = Chance(draw.randrange(2**32))
            sent = request_bytes(chance, draw)
            shown = f"seed {fuzz.seed}, number {number}: {sent[:1_500]!r}"
            began = loop.time()
            answer = await exchange(served, sent, draw)
            watch.took(loop.time() - began, shown)
            watch.done.accepted += 200 <= judge(sent, answer, shown) < 400

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call(Chance(0)))


def is_ready(served: Served) -> bool:
    with urllib.request.urlopen(served.url + "/health/ready", timeout=WALL_SECONDS) as reply:
        return bool(reply.status == 200)


async def test_mutated_requests_get_http_or_nothing(fuzz: Fuzz) -> None:
    """Over the loopback engine: no 500, no foreign header, no answer that is not HTTP."""
    with on_loopback(IMPATIENT) as served, watching(fuzz.of("requests")) as watch:
        await bombard(served, fuzz, "requests", watch)
        assert await asyncio.to_thread(is_ready, served)


async def test_mutated_requests_to_a_member_with_a_disk(fuzz: Fuzz, tmp_path: Path) -> None:
    """With Raft and a log, in a process of its own whose log and memory are looked at."""
    with (
        with_disk(tmp_path, IMPATIENT) as served,
        watching(fuzz.of("requests-disk"), served.pid) as watch,
    ):
        await bombard(served, fuzz, "requests-disk", watch)
        assert await asyncio.to_thread(is_ready, served)


LINE = b"POST /v1/tree/smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
INNER = LINE.replace(b"smuggled", b"inner") + b"Content-Length: 2\r\n\r\n{}"
REFUSED: dict[str, bytes] = {
    "length and chunks": LINE
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + INNER,
    "chunks and length": LINE
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    + INNER,
    "two lengths": LINE + b"Content-Length: 2\r\nContent-Length: 90\r\n\r\n{}" + INNER,
    "a list of lengths": LINE + b"Content-Length: 2, 2\r\n\r\n{}" + INNER,
    "a length with a sign": LINE + b"Content-Length: +2\r\n\r\n{}",
    "a length in hex": LINE + b"Content-Length: 0x2\r\n\r\n{}",
    "a length with a letter": LINE + b"Content-Length: 2a\r\n\r\n{}",
    "a negative length": LINE + b"Content-Length: -2\r\n\r\n{}",
    "a length past every number": LINE + b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "a space before the colon": LINE + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab in the coding": LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a coding that is not the last": LINE
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a coding twice": LINE + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "a chunk length with a sign": CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n",
    "a chunk length in words": CHUNKED + b"two\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than said": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n",
    "a chunk length past every number": CHUNKED + b"" + b"f" * 40 + b"\r\n{}",
    "a header on several lines": LINE + b"Content-Length: 2\r\nA: b\r\n c\r\n\r\n{}",
    "a header without a name": LINE + b": x\r\nContent-Length: 2\r\n\r\n{}",
    "a NUL in a header": LINE + b"A: b\x00c\r\nContent-Length: 2\r\n\r\n{}",
    "a line end in a header": LINE + b"A: b\rX: c\r\nContent-Length: 2\r\n\r\n{}",
    "no version": b"POST /v1/tree/smuggled\r\nContent-Length: 2\r\n\r\n{}",
    "an old version": b"POST /v1/tree/smuggled HTTP/0.9\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(160),
    "deep JSON": LINE + b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000,
    "a number of 5,000 digits": LINE
    + b"Content-Length: 5011\r\n\r\n"
    + b'{"ttl_ms":'
    + b"9" * 5_000
    + b"}",
    "a name twice": LINE + b'Content-Length: 23\r\n\r\n{"data":"a","data":"b"}',
    "not a number": LINE + b'Content-Length: 14\r\n\r\n{"ttl_ms":NaN}',
    "half a surrogate": LINE + b'Content-Length: 17\r\n\r\n{"data":"\\ud800"}',
    "bytes that are no UTF-8": LINE + b'Content-Length: 12\r\n\r\n{"data":"\xff"}',
    "a byte order mark": LINE + b"Content-Length: 5\r\n\r\n\xef\xbb\xbf{}",
    "two documents": LINE + b"Content-Length: 4\r\n\r\n{}{}",
    "gzip": LINE + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    "a form": LINE.replace(b"json", b"x-www-form-urlencoded") + b"Content-Length: 2\r\n\r\n{}",
    "dots in the path": LINE.replace(b"smuggled", b"a/../b") + b"Content-Length: 2\r\n\r\n{}",
    "escaped dots": LINE.replace(b"smuggled", b"%2e%2e/b") + b"Content-Length: 2\r\n\r\n{}",
    "an escaped slash": LINE.replace(b"smuggled", b"a%2fb") + b"Content-Length: 2\r\n\r\n{}",
    "a NUL in the path": LINE.replace(b"smuggled", b"a%00b") + b"Content-Length: 2\r\n\r\n{}",
    "a path that is no UTF-8": LINE.replace(b"smuggled", b"%ff%fe")
    + b"Content-Length: 2\r\n\r\n{}",
    "an overlong slash": LINE.replace(b"smuggled", b"%c0%af") + b"Content-Length: 2\r\n\r\n{}",
    "a doubled slash": LINE.replace(b"smuggled", b"a//b") + b"Content-Length: 2\r\n\r\n{}",
    "a path of 5,000": LINE.replace(b"smuggled", b"x" * 5_000) + b"Content-Length: 2\r\n\r\n{}",
    "65 levels": LINE.replace(b"smuggled", b"/".join([b"a"] * 65)) + b"Content-Length: 2\r\n\r\n{}",
    "another method": LINE.replace(b"POST", b"BREW") + b"Content-Length: 2\r\n\r\n{}",
    "a proxy's method": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a trace": b"TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a website's preflight": b"OPTIONS /v1/tree/a HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil\r\n"
    b"Access-Control-Request-Method: PUT\r\n\r\n",
}


@pytest.fixture(scope="module")
def impatient() -> Iterator[Served]:
    with on_loopback(IMPATIENT) as served:
        yield served


@pytest.mark.parametrize("name", REFUSED)
async def test_a_hostile_request_is_refused_and_changes_nothing(
    impatient: Served, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A reason or a closed connection; nothing behind it is taken for a request of its own."""
    assert impatient.member is not None
    machine = impatient.member.member._replica.machine
    before = machine.digest()

    answer = await exchange(impatient, REFUSED[name], random.Random(0))

    status = judge(REFUSED[name], answer, name)
    assert 400 <= status < 500 or status == 501, answer[:300]
    assert len(STATUS_LINE.findall(answer)) == 1
    assert machine.digest() == before
    assert not [record for record in caplog.records if record.exc_info]
    assert b"access-control-allow-origin" not in answer.lower()


# --- clients that take their time


def room_for(count: int) -> int:
    """Return how many connections this process, and the member's, may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(count, max(10, (soft - 200) // 2))


HALF_HEADER = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = LINE + b"Content-Length: 100\r\n\r\n{"
UNREAD_STREAM = b"GET /v1/watch?path=/&kind=subtree HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
RECEIVE_BYTES = 4_096
"""What our end takes for a stream that is not read; the rest is kept by the member, or is not."""


async def open_all(served: Served, count: int, sent: bytes) -> list[asyncio.StreamWriter]:
    writers = []
    for _ in range(count):
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        own.setblocking(False)
        await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", served.port))
        _, writer = await asyncio.open_connection(sock=own, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(sent)
        writers.append(writer)
    return writers


async def still_answers(served: Served, watch: Watch, rounds: int = 5) -> None:
    """Others are served meanwhile, well within what a person waits."""
    for _ in range(rounds):
        began = time.monotonic()
        assert await asyncio.to_thread(is_ready, served)
        watch.took(time.monotonic() - began, "a request beside slow ones", patient(5.0))


async def until_closed(served: Served, count: int) -> None:
    """Wait until the member has given up the connections."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 30
    while descriptors(served) > count:
        assert loop.time() < end, f"{descriptors(served)} descriptors are left, {count} expected"
        await asyncio.sleep(0.05)


def descriptors(served: Served) -> int:
    return len(list(Path(f"/proc/{served.pid}/fd").iterdir()))


@pytest.mark.parametrize("kind", ["half a header", "half a body", "an unread stream"])
async def test_slow_clients_do_not_keep_others_waiting(
    fuzz: Fuzz, tmp_path: Path, kind: str
) -> None:
    """Many at once: the member answers others, gives the slow ones up, and takes them again."""
    count = room_for(fuzz.count("slowness"))
    http = replace(HttpConfig(), header_deadline_ms=1_500, body_deadline_ms=1_500,
                   connections_per_address_max=count + 50)  # fmt: skip
    sent = {
        "half a header": HALF_HEADER, "half a body": HALF_BODY, "an unread stream": UNREAD_STREAM,
    }[kind]  # fmt: skip
    with with_disk(tmp_path, http) as served:
        await asyncio.to_thread(change_much, served, op="create", times=1)
        before = descriptors(served)
        with watching(fuzz.of("slowness"), served.pid) as watch:
            writers = await open_all(served, count, sent)
            await still_answers(served, watch)
            if kind == "an unread stream":
                await asyncio.to_thread(change_much, served, op="set", times=4)
                await still_answers(served, watch)
                for writer in writers:
                    writer.transport.abort()
            await until_closed(served, before + 5)
            fuzz.of("slowness").count += count
            for writer in writers:
                writer.transport.abort()
            await still_answers(served, watch)


def change_much(served: Served, *, op: str, times: int) -> None:
    """Write what all the streams should read, most of it in lines of a megabyte; they do not."""
    for _ in range(times):
        operations = [
            {"op": op, "path": f"/{each}-" + "x" * 900, "data": ""} for each in range(1_000)
        ]
        send(served, "POST", "/v1/multi", {"operations": operations})
        for each in range(10):
            send(served, "PUT", "/v1/tree/slow?create", {"data": f"{each}" * 100})


def send(served: Served, method: str, path: str, body: Any) -> None:
    request = urllib.request.Request(
        served.url + path,
        data=json.dumps(body).encode(),
        method=method,
        headers={"Content-Type": "application/json"},
    )
    with contextlib.closing(urllib.request.urlopen(request, timeout=WALL_SECONDS)) as reply:
        assert reply.status in (200, 201), reply.status
