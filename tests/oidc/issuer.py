"""An OpenID Connect issuer for tests, in a thread of the test's process."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "coordinator"


@cache
def private_key(kind: str) -> Any:
    """Return a key; the same for the whole run, because large ones take long to make."""
    if kind == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    bits = 1_024 if kind == "weak" else 2_048
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


def public_jwk(kind: str, key_id: str, **said: Any) -> dict[str, Any]:
    """Return the public half as a key set has it."""
    public = private_key(kind).public_key()
    algorithm: Any = {"ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}.get(kind, RSAAlgorithm)
    return {**algorithm.to_jwk(public, as_dict=True), "kid": key_id, "use": "sig", **said}


class Issuer:
    """Serves its discovery document and its keys; counts who asked."""

    def __init__(self, certificate: tuple[str, str] | None = None) -> None:
        self.keys = [public_jwk("RS256", "k1")]
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.answer: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False
        """May answer a request otherwise; True if it has."""
        self.discovery: dict[str, Any] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.authorizations.append(self.headers["Authorization"])
                if issuer.answer(self):
                    return
                of_keys = self.path == "/keys"
                said: Any = {"keys": issuer.keys} if of_keys else issuer.discovery
                body = json.dumps(said).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self.discovery = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}

    def token(self, kind: str = "RS256", key_id: str | None = "k1", **claims: Any) -> str:
        """Return a signed token; a claim of None is left out."""
        now = int(time.time())
        said = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "system:serviceaccount:pay:worker",
            "iat": now,
            "exp": now + 3_600,
            **claims,
        }
        return jwt.encode(
            {name: each for name, each in said.items() if each is not None},
            private_key(kind),
            algorithm="RS256" if kind == "weak" else kind,
            headers={} if key_id is None else {"kid": key_id},
        )


@contextmanager
def issuing(certificate: tuple[str, str] | None = None) -> Iterator[Issuer]:
    """Run an issuer for the length of a block; with a certificate and its key, over TLS."""
    issuer = Issuer(certificate)
    thread = threading.Thread(target=issuer._server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer._server.shutdown()
        issuer._server.server_close()
        thread.join(10)
