"""Signing in with an OpenID provider: the flow as it should be, and answers that are refused."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse, api_house

KEY, OTHER_KEY = (rsa.generate_private_key(65537, 2048) for _ in range(2))


@dataclass
class Provider:
    """Answers as a provider does, or as `changes` and `key` say."""

    server: ThreadingHTTPServer
    changes: dict[str, Any] = field(default_factory=dict)
    key: Any = KEY
    algorithm: str = "RS256"
    nonce: str = ""
    challenge: str = ""

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def token(self) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "console",
            "sub": "u-1",
            "iat": now,
            "exp": now + 60,
            "nonce": self.nonce,
            "email": "carol@example.com",
            "groups": ["ops", "all"],
            **self.changes,
        }
        key = "" if self.algorithm == "none" else self.key
        return jwt.encode(claims, key, algorithm=self.algorithm, headers={"kid": "k1"})

    def answer(self, path: str, form: dict[str, list[str]]) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                # With a query of its own, as some providers have one.
                "authorization_endpoint": f"{self.issuer}/authorize?realm=ops",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        if path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
            return 200, {"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]}
        digest = sha256(form["code_verifier"][0].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if challenge != self.challenge or form["code"] != ["good"]:
            return 400, {"error": "invalid_grant"}
        return 200, {"id_token": self.token(), "token_type": "Bearer"}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def _reply(self, form: dict[str, list[str]]) -> None:
            status, content = found.answer(self.path, form)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self._reply(parse_qs(self.rfile.read(length).decode()))

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Provider(server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def oidc_house(
    kit: Kit, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiHouse]:
    path = tmp_path_factory.mktemp("identity") / "identity.yaml"
    path.write_text(
        f"oidc: {{issuer: '{provider.issuer}', client_id: console, name_claim: email, "
        "role_claim: groups, roles: {ops: operator, all: viewer}}"
    )
    with api_house(kit, replace(kit.settings, identity_file=str(path))) as house:
        yield house


@pytest.fixture
def person(oidc_house: ApiHouse, provider: Provider) -> Iterator[httpx.Client]:
    yield oidc_house.client()
    provider.changes, provider.key, provider.algorithm = {}, KEY, "RS256"


def begin(person: httpx.Client, provider: Provider) -> dict[str, str]:
    answer = person.get("/console/oidc/begin?on=/metrics")
    place = urlsplit(answer.headers["location"])
    assert (answer.status_code, place.path) == (303, "/authorize")
    assert "samesite=lax" in answer.headers["set-cookie"].lower()
    asked = {name: values[0] for name, values in parse_qs(place.query).items()}
    assert (asked["realm"], asked["client_id"]) == ("ops", "console")
    provider.nonce, provider.challenge = asked["nonce"], asked["code_challenge"]
    return asked


def come_back(person: httpx.Client, **query: str) -> httpx.Response:
    return person.get("/console/oidc/callback", params=query)


def test_a_person_comes_in_with_the_highest_role_of_its_groups(
    person: httpx.Client, provider: Provider
) -> None:
    asked = begin(person, provider)
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    answer = come_back(person, code="good", state=asked["state"])
    assert answer.status_code == 200
    # By a page of ours: a redirect that another site began carries no strict cookie.
    assert 'content="0; url=/console/metrics"' in answer.text
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    shown = person.get("/console/now").text
    assert "carol@example.com" in shown and ">operator<" in shown
    assert "Sign in with your organisation" in person.get("/console/sign-in").text


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"nonce": "another"},
        {"groups": ["strangers"]},
        {"groups": None},
        {"email": "<script>"},
        {"email": None},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_that_does_not_fit_lets_no_one_in(
    person: httpx.Client, provider: Provider, changes: dict[str, Any]
) -> None:
    asked = begin(person, provider)
    provider.changes = changes
    assert come_back(person, code="good", state=asked["state"]).status_code == 403
    assert person.get("/console/now").status_code == 303


@pytest.mark.parametrize(("key", "algorithm"), [(OTHER_KEY, "RS256"), (None, "none")])
def test_a_token_that_the_provider_did_not_sign_lets_no_one_in(
    person: httpx.Client, provider: Provider, key: Any, algorithm: str
) -> None:
    asked = begin(person, provider)
    provider.key, provider.algorithm = key, algorithm
    assert come_back(person, code="good", state=asked["state"]).status_code == 403
    assert person.get("/console/now").status_code == 303


def test_an_answer_to_another_attempt_is_refused(
    oidc_house: ApiHouse, person: httpx.Client, provider: Provider
) -> None:
    asked = begin(person, provider)
    assert come_back(person, code="good", state="another").status_code == 403
    # That attempt is over; and one that did not begin here has no cookie.
    assert come_back(person, code="good", state=asked["state"]).status_code == 403
    stranger = oidc_house.client()
    assert come_back(stranger, code="good", state=asked["state"]).status_code == 403
    asked = begin(person, provider)
    assert come_back(person, error="access_denied", state=asked["state"]).status_code == 403
    asked = begin(person, provider)
    assert come_back(person, code="bad", state=asked["state"]).status_code == 403
    assert person.get("/console/now").status_code == 303
