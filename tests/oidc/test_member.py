"""A member that believes an issuer: a workload's own token is its credential."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import connect
from coordinator.clock import SystemClock
from coordinator.errors import AuthFailedError, NoAuthError
from coordinator.model.access import NOBODY, Rule, Verb
from coordinator.node.config import OidcConfig
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import InitAccess, PutIdentity, PutRole
from tests.audit.audited import lines
from tests.audit.test_member import Audited
from tests.oidc.issuer import Issuer, issuing

RULES = (Rule("/pay", (Verb.READ, Verb.WRITE)),)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


async def submit(member: Audited, *operations: Any) -> None:
    """Set up access rights, with those of the first administrator."""
    inside = member.server.member
    for operation in operations:
        admin = inside._replica.machine.access.token("token0001")
        await inside.proposer.submit(
            operation,
            RequestContext(
                None,
                SystemClock().monotonic_ms() + 10_000,
                caller=NOBODY if admin is None else admin.caller,
            ),
        )


async def test_a_workloads_own_token_is_its_credential(tmp_path: Path, issuer: Issuer) -> None:
    """By issuer and subject; a token of an unknown subject says which identity is missing."""
    subject = f"oidc:{issuer.url}#worker"
    audited = Audited(tmp_path)
    audited.config = replace(audited.config, oidc=OidcConfig(issuer=issuer.url))
    async with audited as member:
        await member.call("GET", "/v1/limits")
        await submit(
            member,
            InitAccess("ann", token_id="token0001", digest=sha256(b"none").digest()),
            PutRole("payer", RULES),
            PutIdentity("payments", roles=("payer",), subjects=(subject,)),
        )
        url = member.server.url
        token_file = tmp_path / "token"
        token_file.write_text(issuer.token(sub="worker"))
        async with connect(url, token_file=token_file) as client:
            await client.create("/pay", b"1")
            with pytest.raises(NoAuthError, match="needs write on /other"):
                await client.create("/other", b"1")
            token_file.write_text(issuer.token(sub="worker", jti="renewed"))
            assert (await client.get("/pay")).data == b"1"
            assert (await client.caller()).identity == "payments"
        async with connect(url, token=issuer.token(sub="stranger")) as client:
            with pytest.raises(AuthFailedError, match="#stranger, and no identity has"):
                await client.get("/pay")
        async with connect(url, token=issuer.token(sub="worker", aud="x")) as client:
            with pytest.raises(AuthFailedError, match="not known"):
                await client.get("/pay")

    refused = [each for each in lines(member.log) if each["event"] == "request.refused"]
    assert [each["code"] for each in refused] == ["NoAuth"]
    strangers = lines(member.log.with_name(f"{member.log.name}.strangers"))
    assert [each["code"] for each in strangers] == ["AuthFailed", "AuthFailed"]
    assert (refused[0]["identity"], refused[0]["credential"]) == ("payments", subject)
    assert (refused[0]["verb"], refused[0]["resource"]) == ("write", "/other")
    assert all(each["address"] == "127.0.0.1" for each in [*refused, *strangers])
    assert issuer.token().encode()[:40] not in member.log.read_bytes()
