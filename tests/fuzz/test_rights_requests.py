"""Mutated requests of who has few rights or none: nothing of others is read, changed or guessed.

A member with access rights on has a subtree, a lock and a session of another identity, each with a
word in it that no request knows. Requests are aimed at them by every route, damaged, and shown with
the token of a worker, with a wrong one, with several, and with none.
"""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from typing import Any

from coordinator.client import Rule, Verb, connect
from coordinator.node.config import HttpConfig
from coordinator.recipes import Lock
from tests.fuzz.budget import Fuzz
from tests.fuzz.served import Served, on_loopback
from tests.fuzz.test_raw_requests import CALLERS, TOKENS, exchange, judge
from tests.fuzz.watch import Watch, watching
from tests.wire.chance import Chance

HURRIED = HttpConfig(header_deadline_ms=250, body_deadline_ms=250, idle_deadline_ms=1_000)
WORD = "kestrel-4471-juniper"
"""In the data, the names, the labels and the owner of what is another's."""
PLACES = (
    "secret", "secret", "secret", "secret/../secret", "mine/..%2Fsecret", "%73ecret", "secret%00",
    "/secret", "./secret", "mine",
)  # fmt: skip
ONE = {"path": "/secret", "data": "mine"}
WAIT = {"lease_ms": 1_000, "timeout_ms": 0, "owner": "x"}
ADMIN = [{"prefix": "/", "verbs": ["admin"]}]
AIMED: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/v1/tree/{}", None), ("HEAD", "/v1/tree/{}", None),
    ("GET", "/v1/tree/{}?children", None), ("GET", "/v1/tree/{}?children&stat", None),
    ("GET", "/v1/tree/{}?subtree", None), ("GET", "/v1/tree/{}?raw", None),
    ("GET", "/v1/tree/{}?stale", None), ("GET", "/v1/tree?children", None),
    ("GET", "/v1/tree?subtree", None), ("GET", "/v1/tree/locks?subtree", None),
    ("PUT", "/v1/tree/{}", {"data": "mine"}), ("PUT", "/v1/tree/{}?raw", None),
    ("POST", "/v1/tree/{}", {"data": "mine"}), ("POST", "/v1/tree/{}/b", {"data": "mine"}),
    ("DELETE", "/v1/tree/{}?recursive", None), ("DELETE", "/v1/tree/{}", None),
    ("POST", "/v1/multi", {"operations": [{"op": "set", **ONE}]}),
    ("POST", "/v1/multi", {"operations": [{"op": "read", "path": "/secret"}]}),
    ("POST", "/v1/multi", {"operations": [{"op": "delete", "path": "/secret", "recursive": True}]}),
    ("POST", "/v1/watch", {"watches": [{"path": "/secret", "kind": "subtree"}]}),
    ("GET", "/v1/watch?path=/{}&kind=subtree&from_zxid=0", None),
    ("GET", "/v1/watch?path=/&kind=subtree&from_zxid=0", None),
    ("GET", "/v1/locks", None), ("GET", "/v1/locks/{}", None), ("POST", "/v1/locks/{}", WAIT),
    ("POST", "/v1/locks/{}/revoke", {"by": "x", "reason": "y"}),
    ("POST", "/v1/locks", {**WAIT, "names": ["secret", "mine"]}),
    ("GET", "/v1/grants?lock={}", None), ("GET", "/v1/grants", None), ("GET", "/v1/sessions", None),
    ("GET", "/v1/elections/{}", None), ("GET", "/v1/elections/{}?observe", None),
    ("PUT", "/v1/access", {"is_on": False}), ("GET", "/v1/access/identities", None),
    ("PUT", "/v1/access/roles/work", {"rules": ADMIN}),
    ("PUT", "/v1/access/identities/worker", {"roles": ["other"]}),
    ("POST", "/v1/access/identities/root/tokens", {}),
    ("PATCH", "/v1/access/identities/worker/quota", {"sessions": 1}),
    ("PATCH", "/v1/limits", {"limits": {"sessions_max": 60_000}, "by": "x"}),
    ("GET", "/v1/status", None), ("GET", "/metrics", None),
)  # fmt: skip


class Aimed:
    """What requests are aimed at, and how."""

    def __init__(self, draw: random.Random, tokens: dict[str, str]) -> None:
        self._draw = draw
        self._tokens = tokens

    def request(self) -> bytes:
        """Return a request as bytes, perhaps damaged."""
        draw = self._draw
        method, path, headers, body = Chance(draw.randrange(2**32)).request()
        if draw.random() < 0.8:
            method, form, wanted = draw.choice(AIMED)
            path, body = form.format(draw.choice(PLACES)), b""
            if wanted is not None:
                body = json.dumps(wanted).encode()
                headers["Content-Type"] = "application/json"
        lines = [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Authorization: {each}" for each in self._shown()]
        lines += ["Host: 127.0.0.1", "Coordinator-Timeout-Ms: 100", "Connection: close",
                  f"Content-Length: {len(body)}"]  # fmt: skip
        draw.shuffle(lines)
        out = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body
        if draw.random() < 0.3:
            at = draw.randrange(len(out) + 1)
            out = out[:at] + draw.choice(TOKENS) + out[at:]
        return out

    def _shown(self) -> list[str]:
        known = [f"Bearer {each}" for each in self._tokens.values()]
        return self._draw.choice([known[:1]] * 5 + [known[1:], known, [], ["Basic x"]])


async def bombard(served: Served, fuzz: Fuzz, watch: Watch, tokens: dict[str, str]) -> None:
    """Send as many as are asked for, from some callers at once."""
    loop, numbers = asyncio.get_running_loop(), iter(range(fuzz.count("rights")))

    async def call() -> None:
        for number in numbers:
            draw = random.Random(f"{fuzz.seed} rights {number}")
            sent = Aimed(draw, tokens).request()
            shown = f"seed {fuzz.seed}, number {number}: {sent[:1_500]!r}"
            began = loop.time()
            answer = await exchange(served, sent, draw)
            watch.took(loop.time() - began, shown)
            watch.done.accepted += 200 <= judge(sent, answer, shown) < 400
            assert WORD.encode() not in answer, f"{shown}: {answer[:1_500]!r}"

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call())


def looked_at(served: Served, root: str) -> dict[str, Any]:
    """Return what must be as it was, as the administrator sees it."""
    found = {}
    for path in (
        "/v1/tree/secret?subtree", f"/v1/tree/secret/{WORD}", "/v1/access/roles",
        "/v1/access/identities", "/v1/access", "/v1/limits",
    ):  # fmt: skip
        request = urllib.request.Request(served.url + path)
        request.add_header("Authorization", f"Bearer {root}")
        with urllib.request.urlopen(request, timeout=20) as reply:
            answer = json.load(reply)
        for each in ("zxid", "index", "age_ms"):
            answer.pop(each, None)
        found[path] = answer
    return found


async def test_requests_without_the_right_read_and_change_nothing(fuzz: Fuzz) -> None:
    """And the lock that another holds is held after it, by the same grant."""
    every = (Verb.READ, Verb.WRITE, Verb.WATCH)
    with on_loopback(HURRIED) as served, watching(fuzz.of("rights")) as watch:
        async with connect(served.url) as first:
            root = (await first.init_access("root")).token
        async with connect(served.url, token=root, label=WORD, session_timeout=120) as admin:
            await admin.put_role("other", [Rule("/", tuple(Verb))])
            await admin.put_role("work", [Rule("/mine", every), Rule("/locks/mine*", (Verb.LOCK,))])
            await admin.put_identity("worker", ["work"])
            token = (await admin.add_token("worker")).token
            await admin.create("/mine", b"")
            await admin.create("/secret", WORD.encode())
            await admin.create(f"/secret/{WORD}", WORD.encode())
            await admin.create(f"/{WORD}", b"")
            held = await Lock(admin, "secret", owner=WORD).acquire()
            before = await asyncio.to_thread(looked_at, served, root)
            tokens = {"worker": token, "wrong": token[:-6] + "AAAAAA"}
            await bombard(served, fuzz, watch, tokens)
            assert await asyncio.to_thread(looked_at, served, root) == before
            await held.verify()
            await held.release()
    done = fuzz.of("rights")
    assert done.accepted > done.count // 50, "some of them are the worker's own business"
