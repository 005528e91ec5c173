"""People of an OIDC provider: whose name is believed, what ends a session, and floods."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse, api_house
from tests.support.eventually import eventually
from tests.support.oidc_provider import CLIENT_ID, OidcProvider, oidc_provider


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as made:
        yield made


@pytest.fixture(autouse=True)
def _as_it_should_be(provider: OidcProvider) -> None:
    provider.reset()


@pytest.fixture(scope="module")
def identity(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("oidc") / "identity.yaml"
    path.write_text(
        f"oidc: {{issuer: '{provider.url}', client_id: {CLIENT_ID}, roles: {{ops: operator}}}}"
    )
    return path


@pytest.fixture(scope="module")
def with_oidc(kit: Kit, identity: Path) -> Iterator[ApiHouse]:
    with api_house(kit, replace(kit.settings, identity_file=str(identity))) as house:
        yield house


def begin(house: ApiHouse, provider: OidcProvider) -> tuple[httpx.Client, str]:
    """A browser that comes back from the provider, and the state that it brings."""
    browser = house.client(follow_redirects=False)
    sent = browser.get("/console/oidc/begin?on=/metrics")
    asked = parse_qs(urlsplit(sent.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"] and asked["response_type"] == ["code"]
    provider.nonce = asked["nonce"][0]
    return browser, asked["state"][0]


def sign_in(house: ApiHouse, provider: OidcProvider) -> tuple[httpx.Client, httpx.Response]:
    browser, state = begin(house, provider)
    answer = browser.get("/console/oidc/callback", params={"state": state, "code": "c"})
    return browser, answer


def test_an_address_that_the_provider_has_not_verified_is_no_name(
    kit: Kit, provider: OidcProvider, tmp_path: Path
) -> None:
    path = tmp_path / "identity.yaml"
    path.write_text(
        f"oidc: {{issuer: '{provider.url}', client_id: {CLIENT_ID}, name_claim: email, "
        "roles: {ops: operator}}"
    )
    with api_house(kit, replace(kit.settings, identity_file=str(path))) as house:
        for verified, status in ((False, 403), (True, 200)):
            provider.claims = {"email": "boss@example.com", "email_verified": verified}
            assert sign_in(house, provider)[1].status_code == status, verified


def test_without_the_provider_its_sessions_end(
    with_oidc: ApiHouse, provider: OidcProvider, kit: Kit, house: ApiHouse, tmp_path: Path
) -> None:
    """An operator that takes the provider, or a role, out of the file means those inside, too."""
    browser, _ = sign_in(with_oidc, provider)
    cookie = {"cookie": f"datp_console={browser.cookies['datp_console']}"}
    assert with_oidc.client().get("/console/now", headers=cookie).status_code == 200
    assert house.client().get("/console/now", headers=cookie).status_code == 303
    assert house.client().get("/console/live?view=now", headers=cookie).status_code == 401
    path = tmp_path / "identity.yaml"
    path.write_text(
        f"oidc: {{issuer: '{provider.url}', client_id: {CLIENT_ID}, roles: {{ops: viewer}}}}"
    )
    with api_house(kit, replace(kit.settings, identity_file=str(path))) as lowered:
        assert lowered.client().get("/console/now", headers=cookie).status_code == 303


def test_a_provider_that_is_slow_does_not_take_all_threads(
    with_oidc: ApiHouse, provider: OidcProvider
) -> None:
    """One who is not signed in cannot keep the API from answering others."""
    browser, state = begin(with_oidc, provider)
    provider.may_answer.clear()
    operator = with_oidc.client(key=with_oidc.new_key("shop"))
    operator.get("/v1/transactions")

    def come_back(_: int) -> int:
        params = {"state": state, "code": "c"}
        with httpx.Client(base_url=with_oidc.url, cookies=browser.cookies, timeout=30) as one:
            return one.get("/console/oidc/callback", params=params).status_code

    with ThreadPoolExecutor(60) as callers:
        answers = [callers.submit(come_back, each) for each in range(60)]
        eventually(lambda: sum(each.done() for each in answers) >= 35)
        assert operator.get("/v1/transactions", timeout=3).status_code == 200
        provider.may_answer.set()
        statuses = {each.result() for each in answers}
    assert statuses == {200, 429}
