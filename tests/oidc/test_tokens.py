"""Tokens of an issuer: whose they are, and all that proves nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from coordinator.clock import ManualClock
from coordinator.errors import ConfigError
from coordinator.node.config import OidcConfig
from coordinator.node.config_file import load
from coordinator.oidc.fetching import DOCUMENT_BYTES_MAX, FetchError, connection_to, fetch_keys
from coordinator.oidc.keys import FETCH_EVERY_MS
from coordinator.oidc.opening import check_issuer, open_issuer
from coordinator.oidc.tokens import Tokens
from tests.certificates import Certificates
from tests.oidc.issuer import Issuer, issuing, private_key, public_jwk

SUBJECT = "system:serviceaccount:pay:worker"


@pytest.fixture(scope="module")
def shared_issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


def clock_now() -> ManualClock:
    return ManualClock(wall_ms=int(time.time() * 1_000))


def tokens_of(issuer: Issuer, clock: ManualClock | None = None, **settings: Any) -> Tokens:
    return Tokens(OidcConfig(issuer=issuer.url, **settings), clock or clock_now())


async def subject(tokens: Tokens, token: str) -> str | None:
    """Ask as a door does: with the keys that are here, then after a fetch."""
    found = tokens.subject_of(token)
    if found is None:
        await tokens.prepare(token)
        found = tokens.subject_of(token)
    return found


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
async def test_a_token_of_the_issuer_says_whose_it_is(issuer: Issuer, kind: str) -> None:
    """The subject names the issuer, too."""
    issuer.keys = [public_jwk(kind, "k1")]
    tokens = tokens_of(issuer)

    assert await subject(tokens, issuer.token(kind)) == f"oidc:{issuer.url}#{SUBJECT}"
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]
    assert await subject(tokens, issuer.token(kind, sub="other")) == f"oidc:{issuer.url}#other"
    assert len(issuer.asked) == 2


def part(said: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


def unsigned(token: str) -> str:
    return f"{part({'alg': 'none', 'kid': 'k1'})}.{token.split('.')[1]}."


def signed_with_the_public_key(token: str) -> str:
    """The classic: the public key taken for a shared secret."""
    public = (
        private_key("RS256")
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    signed = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{token.split('.')[1]}"
    mac = hmac.new(public, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def now(later_s: int = 0) -> int:
    """Return the wall time in seconds as it is when a token is made, long after this is loaded."""
    return int(time.time()) + later_s


WRONG: dict[str, Callable[[Issuer], str]] = {
    "another audience": lambda issuer: issuer.token(aud="another"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "another issuer": lambda issuer: issuer.token(iss="https://other.example"),
    "over": lambda issuer: issuer.token(exp=now(-60), iat=now(-600)),
    "never over": lambda issuer: issuer.token(exp=None),
    "not yet": lambda issuer: issuer.token(nbf=now(600)),
    "made later": lambda issuer: issuer.token(iat=now(600)),
    "no beginning": lambda issuer: issuer.token(iat=None),
    "for a year": lambda issuer: issuer.token(exp=now(365 * 86_400)),
    "true for a time": lambda issuer: issuer.token(exp=True),
    "an endless time": lambda issuer: issuer.token(exp=1e300),
    "a text for a time": lambda issuer: issuer.token(exp=str(now(60))),
    "no subject": lambda issuer: issuer.token(sub=None),
    "an empty subject": lambda issuer: issuer.token(sub=""),
    "a subject with a line end": lambda issuer: issuer.token(sub="a\nb"),
    "a long subject": lambda issuer: issuer.token(sub="x" * 600),
    "another key": lambda issuer: issuer.token("ES256"),
    "an unknown key": lambda issuer: issuer.token(key_id="k9"),
    "no key": lambda issuer: issuer.token(key_id=None),
    "a weak key": lambda issuer: issuer.token("weak", "weak"),
    "a key to encrypt": lambda issuer: issuer.token("RS256", "enc"),
    "a key for another algorithm": lambda issuer: issuer.token("RS256", "rs512"),
    "no signature": lambda issuer: unsigned(issuer.token()),
    "HMAC with the public key": lambda issuer: signed_with_the_public_key(issuer.token()),
    "HMAC with a key of the set": lambda issuer: signed_with_the_public_key(
        issuer.token()
    ).replace("k1", "oct"),
    "another signature": lambda issuer: issuer.token()[:-8] + "AAAAAAAA",
    "another body": lambda issuer: ".".join([
        *issuer.token().split(".")[:1], part({"sub": "admin"}), *issuer.token().split(".")[2:]
    ]),
    "one part": lambda issuer: issuer.token().replace(".", ""),
    "too long": lambda issuer: issuer.token(more="x" * 9_000),
    "deep": lambda issuer: f"{part({'alg': 'RS256', 'kid': 'k1'})}.{'W1tb' * 2_000}.AAAA",
    "not ASCII": lambda issuer: issuer.token() + "é",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
@pytest.mark.parametrize("name", WRONG)
async def test_what_is_not_wholly_right_proves_nothing(shared_issuer: Issuer, name: str) -> None:
    """Nor does it raise."""
    secret = {"kty": "oct", "kid": "oct", "k": "c2VjcmV0", "alg": "HS256"}
    shared_issuer.keys = [
        public_jwk("RS256", "k1"), public_jwk("weak", "weak"), secret, {"kty": "RSA", "kid": "x"},
        public_jwk("RS256", "enc", use="enc"), public_jwk("RS256", "rs512", alg="RS512"), 7,  # type: ignore[list-item]
    ]  # fmt: skip
    tokens = tokens_of(shared_issuer)
    assert await subject(tokens, shared_issuer.token()) is not None

    assert await subject(tokens, WRONG[name](shared_issuer)) is None


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    """By ``clock_skew_ms``, both ways; a token that was verified ends, too."""
    clock = clock_now()
    tokens = tokens_of(issuer, clock, clock_skew_ms=30_000)
    now = clock.wall_ms() // 1_000
    early = issuer.token(iat=now + 20, exp=now + 100)
    assert await subject(tokens, early) is not None

    clock.advance(125_000)
    assert await subject(tokens, early) is not None
    clock.advance(10_000)
    assert await subject(tokens, early) is None


async def test_strangers_cause_few_fetches(issuer: Issuer) -> None:
    """However many tokens name keys that are not there."""
    clock = clock_now()
    tokens = tokens_of(issuer, clock)
    for number in range(50):
        assert await subject(tokens, issuer.token(key_id=f"none-{number}")) is None
    assert len(issuer.asked) == 2

    clock.advance(FETCH_EVERY_MS)
    for number in range(50):
        assert await subject(tokens, issuer.token(key_id=f"none-{number}")) is None
    assert len(issuer.asked) == 4


async def test_keys_are_rotated_and_a_withdrawn_one_is_not_believed(issuer: Issuer) -> None:
    """A new one at once; the old one until the keys are fetched again."""
    clock = clock_now()
    tokens = tokens_of(issuer, clock)
    old = issuer.token()
    assert await subject(tokens, old) is not None

    issuer.keys = [public_jwk("ES256", "k2")]
    clock.advance(FETCH_EVERY_MS)
    assert await subject(tokens, issuer.token("ES256", "k2")) is not None
    assert await subject(tokens, old) is None


async def test_a_withdrawn_key_goes_though_its_tokens_are_known(issuer: Issuer) -> None:
    """Their use has the keys fetched when those are old."""
    clock = clock_now()
    tokens = tokens_of(issuer, clock, jwks_refresh_ms=60_000)
    old = issuer.token()
    assert await subject(tokens, old) is not None

    issuer.keys = []
    clock.advance(61_000)
    tokens.subject_of(old)
    await tokens._keys.refresh()
    assert await subject(tokens, old) is None


async def test_keys_that_cannot_be_fetched_again_are_believed_for_a_while(issuer: Issuer) -> None:
    """An issuer that is away for an hour stops nobody; one that is away for days does."""
    clock = clock_now()
    tokens = tokens_of(issuer, clock, jwks_keep_ms=7_200_000, lifetime_ms_max=86_400_000)
    token = issuer.token(exp=clock.wall_ms() // 1_000 + 80_000)
    assert await subject(tokens, token) is not None
    issuer.answer = broken

    clock.advance(3_600_000)
    assert await subject(tokens, token) is not None
    clock.advance(3_700_000)
    assert await subject(tokens, token) is None


def broken(handler: BaseHTTPRequestHandler) -> bool:
    handler.send_error(500)
    return True


def elsewhere(handler: BaseHTTPRequestHandler) -> bool:
    if handler.path != "/keys":
        return False
    handler.send_response(302)
    handler.send_header("Location", "/other-keys")
    handler.end_headers()
    return True


def too_long(handler: BaseHTTPRequestHandler) -> bool:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"keys": [' + b" " * DOCUMENT_BYTES_MAX + b"]}")
    return True


def deep(handler: BaseHTTPRequestHandler) -> bool:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"[" * 100_000)
    return True


def never_ending_head(handler: BaseHTTPRequestHandler) -> bool:
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            handler.wfile.write(b"X: y\r\n" if handler.path == "/heads" else b"x")
            time.sleep(0.02)
    except OSError:  # the other side has had enough
        return True


@pytest.mark.parametrize("path", ["/heads", "/a-line"])
def test_an_answer_that_never_ends_ends_in_time(issuer: Issuer, path: str) -> None:
    """Though something comes all the time: while it lasts, no other fetch begins."""
    issuer.answer = never_ending_head
    config = OidcConfig(issuer=issuer.url, jwks_url=issuer.url + path)

    with pytest.raises(FetchError, match="expected it whole within 400 ms"):
        fetch_keys(config, deadline_ms=400)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://[2001:db8::1]/keys", "2001:db8::1", 443), ("http://[::1]/keys", "::1", 80),
        ("https://[::1]:8443/", "::1", 8443), ("https://issuer.example/", "issuer.example", 443),
    ],
)  # fmt: skip
def test_an_issuer_may_have_an_ipv6_address(url: str, host: str, port: int) -> None:
    """Also without a port, for which the end of the address must not be taken."""
    connection = connection_to(url, OidcConfig(), 1.0)
    assert (connection.host, connection.port) == (host, port)


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
async def test_two_keys_may_have_one_id(issuer: Issuer) -> None:
    """An issuer that changes the kind of its keys has both; another one forges nothing."""
    issuer.keys = [public_jwk("RS256", "k1"), public_jwk("ES256", "k1"), public_jwk("EdDSA", "k1")]
    tokens = tokens_of(issuer)

    for kind in ("RS256", "ES256", "EdDSA"):
        assert await subject(tokens, issuer.token(kind)) is not None
    assert await subject(tokens, issuer.token("weak")) is None
    assert await subject(tokens, signed_with_the_public_key(issuer.token())) is None


@pytest.mark.parametrize("answer", [broken, elsewhere, too_long, deep])
async def test_an_answer_that_is_no_key_set_is_not_used(issuer: Issuer, answer: Any) -> None:
    """Nor is a redirect followed."""
    issuer.answer = answer
    tokens = tokens_of(issuer)

    assert await subject(tokens, issuer.token()) is None
    assert "/other-keys" not in issuer.asked


async def test_the_discovery_document_is_the_issuers_own(issuer: Issuer) -> None:
    """And names keys at a safe address."""
    for changed in ({"issuer": "https://other.example"}, {"jwks_uri": "http://10.0.0.1/keys"},
                    {"jwks_uri": "file:///etc/passwd"}, {"jwks_uri": 7},
                    {"jwks_uri": "https://a host/keys"}):  # fmt: skip
        issuer.discovery = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys", **changed}
        assert await subject(tokens_of(issuer), issuer.token()) is None
    assert "/keys" not in issuer.asked


async def test_keys_come_by_https_from_whom_the_ca_knows(tmp_path: Path) -> None:
    """By the configured CA; without it, or by another one, no token is believed."""
    ours, others = Certificates(tmp_path), Certificates(tmp_path, authority="others")
    with issuing(ours.member("1")) as issuer:
        assert await subject(tokens_of(issuer, ca_file=ours.ca_file), issuer.token()) is not None
        assert await subject(tokens_of(issuer, ca_file=others.ca_file), issuer.token()) is None
        assert await subject(tokens_of(issuer), issuer.token()) is None


async def test_a_member_shows_its_own_token_to_its_issuer_alone(tmp_path: Path) -> None:
    """As the API server of Kubernetes asks for: to the origin of the issuer, or the configured
    address. Not to a host that the discovery document names, and never over plain HTTP."""
    made, file = Certificates(tmp_path), tmp_path / "token"
    file.write_text("of-the-member\n")
    own = {"jwks_token_file": str(file), "ca_file": made.ca_file}
    with issuing(made.member("1")) as issuer, issuing(made.member("2")) as other:
        other.keys = issuer.keys
        assert await subject(tokens_of(issuer, **own), issuer.token()) is not None
        assert issuer.authorizations == ["Bearer of-the-member"] * 2
        named = tokens_of(issuer, jwks_url=f"{other.url}/keys", **own)
        assert await subject(named, issuer.token()) is not None
        assert other.authorizations == ["Bearer of-the-member"]

        issuer.discovery = {"issuer": issuer.url, "jwks_uri": f"{other.url}/keys"}
        assert await subject(tokens_of(issuer, **own), issuer.token()) is not None
        assert other.authorizations[1:] == [None]
        other.answer = broken
        config = OidcConfig(issuer=issuer.url, **own)
        with pytest.raises(FetchError, match="name that if the keys are at another host"):
            fetch_keys(config)
    with issuing() as plain:
        assert await subject(tokens_of(plain, **own), plain.token()) is not None
        assert plain.authorizations == [None, None]


async def test_a_forged_token_is_verified_once_and_not_on_the_loop(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is shown, and by however many at once; new keys are a new look at it."""
    threads: list[str] = []
    decode = jwt.decode

    def noted(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread().name)
        return decode(*arguments, **named)

    monkeypatch.setattr(jwt, "decode", noted)
    clock = clock_now()
    tokens = tokens_of(issuer, clock, jwks_refresh_ms=60_000)
    forged = issuer.token().rsplit(".", 1)[0] + "." + "A" * 342

    assert await asyncio.gather(*(subject(tokens, forged) for _ in range(20))) == [None] * 20
    assert await subject(tokens, forged) is None
    assert len(threads) == 1
    assert threading.main_thread().name not in threads
    clock.advance(61_000)
    assert await subject(tokens, forged) is None
    assert len(threads) == 2


@pytest.mark.parametrize("text", ["se\ncret", "se cret", "", "sécret", "s" * 20_000, None])
async def test_a_token_of_its_own_that_cannot_be_one_is_in_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    """Neither at the start nor when it is replaced while the member runs."""
    made, file = Certificates(tmp_path), tmp_path / "token"
    file.write_text("good")
    with issuing(made.member("1")) as issuer:
        config = OidcConfig(issuer=issuer.url, jwks_token_file=str(file), ca_file=made.ca_file)
        check_issuer(config)
        tokens = Tokens(config, clock_now())
        if text is None:
            file.unlink()
        else:
            file.write_text(text)

        assert await subject(tokens, issuer.token()) is None
    with pytest.raises(ConfigError, match=r"oidc\.jwks_token_file: ") as error:
        check_issuer(config)
    for said in (caplog.text, str(error.value)):
        assert "jwks_token_file" in said or text is None
        assert "cret" not in said
        assert "ssss" not in said


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_ca_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, text: str | None) -> None:
    """Not at the first token."""
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    config = OidcConfig(issuer="https://issuer.example", ca_file=str(file))

    with pytest.raises(ConfigError, match=r"oidc\.ca_file: .*ca\.pem, found: "):
        check_issuer(config)


@pytest.mark.parametrize(
    "changed",
    [{"issuer": "http://issuer.example"}, {"issuer": "https://i.example/#x"},
     {"issuer": "https://u:p@i.example"}, {"jwks_url": "ftp://i.example"}, {"audience": ""}],
)  # fmt: skip
def test_an_unsafe_address_is_no_setting(tmp_path: Path, changed: dict[str, str]) -> None:
    """Keys come by HTTPS, or from this machine."""
    settings = {"issuer": "https://issuer.example", **changed}
    file = tmp_path / "member.toml"
    file.write_text("[oidc]\n" + "\n".join(f"{key} = '{text}'" for key, text in settings.items()))

    with pytest.raises(ConfigError, match=rf"\[oidc\] {next(iter(changed))}"):
        load(file, {})


def test_the_default_is_no_issuer() -> None:
    """Then no token of another proves anything."""
    assert replace(OidcConfig()).issuer is None


def test_without_the_extra_the_start_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a member without an issuer never loads it."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    for name in ("tokens", "keys"):
        monkeypatch.delitem(sys.modules, f"coordinator.oidc.{name}", raising=False)

    assert open_issuer(OidcConfig(), ManualClock()) is None
    with pytest.raises(ConfigError, match=r"pip install 'raft-coordinator\[oidc\]'"):
        open_issuer(OidcConfig(issuer="https://issuer.example"), ManualClock())
