"""An OIDC provider for tests: discovery, keys and tokens, on a port of this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID = "console"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class OidcProvider:
    """Gives out one kind of token; a test changes what is in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: Of the next token.
        self.claims: dict[str, Any] = {}
        self.nonce = ""
        #: Held back until it is set.
        self.may_answer = threading.Event()
        self.may_answer.set()

    def reset(self) -> None:
        self.claims = {}
        self.may_answer.set()

    def token(self) -> str:
        now_s = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "sub": "carol",
            "iat": now_s,
            "exp": now_s + 60,
            "nonce": self.nonce,
            "groups": ["ops"],
            **self.claims,
        }
        return jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": "k1"})

    def answer(self, path: str) -> Any:
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
            }
        if path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
            return {"keys": [{**public, "kid": "k1", "alg": "RS256", "use": "sig"}]}
        self.may_answer.wait(10)
        return {"id_token": self.token()}


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    made: OidcProvider

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(made.answer(self.path))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self._send(made.answer(self.path))

        def _send(self, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = OidcProvider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="oidc")
    thread.start()
    try:
        yield made
    finally:
        made.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
