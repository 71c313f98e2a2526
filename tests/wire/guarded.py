"""A cluster whose access rights are on: identities, tokens, and requests under them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from coordinator.wire.stream import frames
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import Speaker, speaking
from tests.wire.stream.test_both_doors import MSGPACK, Row, _filled, _raw


class Cluster:
    """One member with access rights on, and a way to ask it as anybody through each door."""

    def __init__(self, api: Api, speaker: Speaker, root: str) -> None:
        self.api, self.speaker, self.root = api, speaker, root
        self._tokens: dict[tuple[tuple[str, tuple[str, ...]], ...], str] = {}
        self._count = 0

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        reply = await self.api.call(
            method, path, body, headers={"Authorization": f"Bearer {self.root}"}
        )
        assert reply.status < 300 or reply.status == 409, reply
        return reply.body

    async def identity(self, *rules: tuple[str, tuple[str, ...]], is_new: bool = False) -> str:
        """Return a token of an identity with these rules alone."""
        token = None if is_new else self._tokens.get(rules)
        if token is None:
            self._count += 1
            name = f"who{self._count}"
            stated = [{"prefix": prefix, "verbs": list(verbs)} for prefix, verbs in rules]
            await self.admin("PUT", f"/v1/access/roles/{name}", {"rules": stated})
            await self.admin("PUT", f"/v1/access/identities/{name}", {"roles": [name]})
            added = await self.admin("POST", f"/v1/access/identities/{name}/tokens", {})
            self._tokens[rules] = token = added["token"]
        return token

    async def scene(self, owner: str) -> dict[str, str]:
        """Make what the rows speak of; return what stands for what in them."""
        await self.admin("POST", "/v1/tree/a", {"data": "one"})
        reply = await self.api.post("/v1/sessions", {"timeout_ms": 60_000}, **bearer(owner))
        if reply.status >= 300:
            return {"{session}": "none", "{grant}": "1-1", "{elected}": "1-1"}
        session_id = reply.body["session_id"]
        admins = (await self.admin("POST", "/v1/sessions", {}))["session_id"]
        body = {"session_id": session_id, "timeout_ms": 0}
        bounded = {**body, "max_hold_ms": 600_000}
        held = await self.api.post("/v1/locks/held", bounded, **bearer(owner))
        if held.status >= 300:
            held = await self.api.post(
                "/v1/locks/held", {**bounded, "session_id": admins}, **bearer(self.root)
            )
        elected = await self.api.post("/v1/elections/e", body, **bearer(owner))
        sized = {"session_id": admins, "timeout_ms": 0, "kind": "slot", "size": 2}
        await self.admin("POST", "/v1/locks/sized", sized)
        await self.admin("PUT", "/v1/access/roles/spare", {"rules": []})
        await self.admin("PUT", "/v1/access/identities/ann", {})
        spare = {"token_id": "spare000", "digest_base64": "/" * 42 + "8="}
        await self.admin("POST", "/v1/access/identities/ann/tokens", spare)
        grant = held.body.get("grant", {}).get("grant_id", "1-1")
        elected_id = elected.body.get("grant", {}).get("grant_id", "1-1")
        return {"{session}": session_id, "{grant}": grant, "{elected}": elected_id}

    async def clear(self) -> None:
        """End all sessions, and with them all that is held."""
        for each in (await self.admin("GET", "/v1/sessions"))["sessions"]:
            await self.admin("DELETE", f"/v1/sessions/{each['session_id']}")

    async def by_http(self, row: Row, token: str | None, names: dict[str, str]) -> int:
        from yarl import URL

        raw = _raw(_filled(row.body, names))
        headers = {
            "Accept": MSGPACK,
            "Content-Type": MSGPACK,
            "Coordinator-Test": "1",
            **bearer(token),
        }
        headers.update({name.title(): value for name, value in row.headers.items()})
        if raw is None:
            del headers["Content-Type"]
        url = URL(self.api.server.url + _filled(row.target, names), encoded=True)
        given: dict[str, Any] = {"headers": headers, "data": raw}
        given["skip_auto_headers"] = ["Content-Type"] if raw is None else []
        async with self.api.session.request(row.method, url, **given) as response:
            assert (response.status == 401) == ("WWW-Authenticate" in response.headers)
            return response.status

    async def by_stream(self, row: Row, token: str | None, names: dict[str, str]) -> int:
        shown = frames.Credential("" if token is None else f"Bearer {token}")
        request = self.speaker.request(
            row.method, _filled(row.target, names), _raw(_filled(row.body, names)), **row.headers
        )
        self.speaker.send(shown, request)
        while True:
            frame = await self.speaker.next()
            if isinstance(frame, frames.AnswerFrame | frames.Head) and frame.id == request.id:
                if isinstance(frame, frames.Head):
                    self.speaker.send(frames.Cancel(frame.id))
                return frame.status


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[Cluster]:
    """Run a member with access rights on; ``options`` are those of ``serving``."""
    async with serving(**options) as api, speaking(api.server.port) as speaker:
        root = (await api.post("/v1/access/init", {"identity": "root"})).body["token"]
        yield Cluster(api, speaker, root)
