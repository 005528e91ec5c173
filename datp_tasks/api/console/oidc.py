"""OpenID Connect: the authorization code flow with PKCE, against one provider."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlencode

import jwt
from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from datp_tasks.api.console.identity_file import OidcSettings, checked_name, role_of
from datp_tasks.api.console.sessions import Signer, person
from datp_tasks.api.console.sign_in import ask_to_sign_in, local_path, signed_in
from datp_tasks.api.console.visit import ConsoleParts, base_of, cookie_options
from datp_tasks.api.shares import Shares
from datp_tasks.outbound.address_guard import AnyAddress
from datp_tasks.outbound.http_client import Manners
from datp_tasks.outbound.messages import HttpRequest
from datp_tasks.outbound.messages import Response as Answer
from datp_tasks.outbound.response_reader import BodyLimits
from datp_tasks.outbound.threaded_client import ThreadedHttpClient
from datp_tasks.settings import Settings

log = logging.getLogger("datp.console")

T = TypeVar("T")

COOKIE = "datp_console_oidc"
#: How long a person may take at the provider.
FLOW_S = 600
ANSWER_BYTES_MAX = 262_144
HTTP_S = 10.0
#: For questions to the provider, and how many of them may be asked or wait at once.
THREADS = 4
ASKING_MAX = 40
#: Keys of the provider are asked for again after this, and when a token names another.
KEYS_S = 600.0
#: The clocks of provider and server may differ by so much.
LEEWAY_S = 30
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]


class ProviderTrouble(Exception):
    """The provider did not answer as it should; the text is for the log."""


class Oidc:
    def __init__(self, given: OidcSettings, settings: Settings) -> None:
        self._given = given
        self._signer = Signer(settings.key_pepper, "oidc")
        manners = Manners(
            connect_s=HTTP_S / 2,
            body=BodyLimits(bytes_max=ANSWER_BYTES_MAX),
            headers={"user-agent": "datp-tasks", "accept": "application/json"},
        )
        self._http = ThreadedHttpClient(AnyAddress(), manners)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="datp-oidc")
        self._asking = Shares(ASKING_MAX, what="questions to the sign-in provider")
        self._places: dict[str, Any] = {}
        self._keys: jwt.PyJWKSet | None = None
        self._keys_until_s = 0.0

    def close(self) -> None:
        self._http.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def begin(self, request: Request, console: ConsoleParts) -> Response:
        """Send the person to the provider; what comes back must fit what is kept in a cookie."""
        try:
            places = await self._in_thread(request, self._discover)
        except ProviderTrouble as error:
            return _refused(request, console, "The sign-in provider does not answer.", error)
        verifier = secrets.token_urlsafe(48)
        flow = {
            "state": secrets.token_urlsafe(24),
            "nonce": secrets.token_urlsafe(24),
            "verifier": verifier,
            "on": local_path(request.query_params.get("on", "/now"))[:500],
            "until": await console.sessions.clock.now_s() + FLOW_S,
        }
        challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode()
        asked = {
            "response_type": "code",
            "client_id": self._given.client_id,
            "redirect_uri": _redirect_uri(request),
            "scope": "openid profile email",
            "state": flow["state"],
            "nonce": flow["nonce"],
            "code_challenge": challenge.rstrip("="),
            "code_challenge_method": "S256",
        }
        place = str(places["authorization_endpoint"])
        # Some providers have a query of their own there, which must be kept.
        joint = "&" if "?" in place else "?"
        response = RedirectResponse(f"{place}{joint}{urlencode(asked)}", 303)
        options = cookie_options(request, FLOW_S)
        # The provider sends the person back from its own site, which a strict cookie would not do.
        response.set_cookie(COOKIE, self._signer.sign(flow), **{**options, "samesite": "lax"})
        return response

    async def come_back(self, request: Request, console: ConsoleParts) -> Response:
        """From the provider: with a code that is good for a token, or with an error."""
        given = request.query_params
        flow = self._signer.read(request.cookies.get(COOKIE, ""))
        if flow is None or flow["until"] <= await console.sessions.clock.now_s():
            return _refused(request, console, "Signing in took too long. Try again.")
        if not secrets.compare_digest(given.get("state", "").encode(), flow["state"].encode()):
            return _refused(request, console, "This answer belongs to another attempt. Try again.")
        if "code" not in given:
            return _refused(request, console, "The sign-in provider refused.", given.get("error"))
        try:
            claims = await self._in_thread(
                request, self._claims, given["code"], flow, _redirect_uri(request)
            )
        except (ProviderTrouble, jwt.PyJWTError) as error:
            return _refused(
                request, console, "The sign-in provider did not answer as it should.", error
            )
        found = claims.get(self._given.role_claim)
        listed = found if isinstance(found, list) else [found]
        role = role_of(map(str, listed), self._given.roles)
        name = checked_name(self._name(claims))
        if name is None or role is None:
            text = "The sign-in provider knows you, but gives you no role here."
            return _refused(request, console, text, f"{name}: {found!r:.200}")
        actor = person("oidc", name, role)
        response = await signed_in(request, console, actor, "oidc", flow["on"], by_page=True)
        response.delete_cookie(COOKIE, path=base_of(request))
        return response

    def _name(self, claims: dict[str, Any]) -> object:
        """Who it is. An address that is not verified may be that of another person."""
        claim = self._given.name_claim
        if claim == "email" and claims.get("email_verified") is False:
            return None
        return claims.get(claim)

    async def _in_thread(self, request: Request, work: Callable[..., T], *args: Any) -> T:
        """One who is not signed in can make the provider slow; those who are do not wait for it."""
        address = request.client.host if request.client else ""
        with self._asking.held(address):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    # In threads.

    def _claims(self, code: str, flow: dict[str, Any], redirect_uri: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._given.client_id,
            "code_verifier": flow["verifier"],
        }
        if self._given.client_secret:
            form["client_secret"] = self._given.client_secret
        answer = self._ask("POST", self._discover()["token_endpoint"], urlencode(form).encode())
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise ProviderTrouble("its answer has no id_token")
        claims: dict[str, Any] = jwt.decode(
            token,
            self._key_of(token),
            algorithms=ALGORITHMS,
            audience=self._given.client_id,
            issuer=self._discover()["issuer"],
            leeway=LEEWAY_S,
            options={"require": ["exp", "iat", "aud", "iss", "sub"]},
        )
        if claims.get("nonce") != flow["nonce"]:
            raise ProviderTrouble("its token is for another attempt")
        return claims

    def _discover(self) -> dict[str, Any]:
        if not self._places:
            issuer = self._given.issuer
            found = self._ask("GET", f"{issuer}/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != issuer:
                raise ProviderTrouble(f"it calls itself {found.get('issuer')!r:.200}")
            self._places = found
        return self._places

    def _key_of(self, token: str) -> jwt.PyJWK:
        wanted = jwt.get_unverified_header(token).get("kid")
        for attempt in (1, 2):
            keys = self._keys
            if keys is None or attempt == 2 or time.monotonic() > self._keys_until_s:
                keys = jwt.PyJWKSet.from_dict(self._ask("GET", self._discover()["jwks_uri"]))
                self._keys, self._keys_until_s = keys, time.monotonic() + KEYS_S
            for key in keys.keys:
                if wanted is None or key.key_id == wanted:
                    return key
        raise ProviderTrouble(f"it has no key {wanted!r:.100}")

    def _ask(self, method: str, url: str, content: bytes = b"") -> dict[str, Any]:
        headers = {"content-type": "application/x-www-form-urlencoded"} if content else {}
        request = HttpRequest(method=method, url=url, headers=headers, content=content)
        answer = self._http.start(request, time.monotonic() + HTTP_S).result(HTTP_S * 2)
        if not isinstance(answer, Answer):
            raise ProviderTrouble(answer.reason)
        if answer.status != 200:
            raise ProviderTrouble(f"{url} answered {answer.status}")
        try:
            found = json.loads(answer.body)
        except ValueError:
            raise ProviderTrouble(f"{url} answered no JSON") from None
        if not isinstance(found, dict):
            raise ProviderTrouble(f"{url} answered no object")
        return found


def _redirect_uri(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers['host']}{base_of(request)}/oidc/callback"


def _refused(request: Request, console: ConsoleParts, text: str, reason: object = None) -> Response:
    log.warning("a person could not sign in: %s %s", text, reason or "")
    response = ask_to_sign_in(request, console, trouble=text, status=403)
    response.delete_cookie(COOKIE, path=base_of(request))
    return response
