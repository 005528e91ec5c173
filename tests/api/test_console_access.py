"""Who may do what in the console: sessions, every page and form by role, and forged requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from datp_tasks.api.console.mount import console_routes
from datp_tasks.api.console.sessions import IDLE_S
from datp_tasks.errors import SettingsError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse, api_house
from tests.support.eventually import eventually

VIEWER, OPERATOR, APPROVER, ADMIN = Role
#: Every page and form -> the least role that is let in.
ROUTES: dict[str, Role] = {
    "GET /now": VIEWER,
    "GET /transactions": VIEWER,
    "GET /transactions/{tx_id}": VIEWER,
    "POST /transactions/{tx_id}/unmask": OPERATOR,
    "GET /transactions/{tx_id}/act/{action}": VIEWER,
    "POST /transactions/{tx_id}/cancel": OPERATOR,
    "POST /transactions/{tx_id}/wake": OPERATOR,
    "POST /transactions/{tx_id}/switch": OPERATOR,
    "POST /transactions/{tx_id}/retry": OPERATOR,
    "POST /transactions/{tx_id}/resolve": OPERATOR,
    "POST /views": VIEWER,
    "POST /views/forget": VIEWER,
    "GET /bulk/{action}": OPERATOR,
    "POST /bulk/{action}": OPERATOR,
    "GET /in-doubt": VIEWER,
    "GET /approvals": VIEWER,
    "GET /approvals/{number}": VIEWER,
    "POST /approvals/{number}/approve": APPROVER,
    "POST /approvals/{number}/reject": APPROVER,
    "GET /alerts": VIEWER,
    "GET /alerts/{number}/close": VIEWER,
    "POST /alerts/{number}/close": OPERATOR,
    "GET /pipelines": VIEWER,
    "GET /pipelines/{name}": VIEWER,
    "GET /pipelines/{name}/diff": VIEWER,
    "POST /pipelines/{name}/versions/{version}/commit": ADMIN,
    "GET /pipelines/{name}/versions/{version}/use": VIEWER,
    "POST /pipelines/{name}/versions/{version}/use": ADMIN,
    "GET /pipelines/{name}/versions/{version}/test": VIEWER,
    "POST /pipelines/{name}/versions/{version}/test": ADMIN,
    "GET /pipelines/{name}/disable": VIEWER,
    "POST /pipelines/{name}/disable": ADMIN,
    "GET /mappings": VIEWER,
    "GET /mappings/{name}": VIEWER,
    "GET /mappings/{name}/diff": VIEWER,
    "POST /mappings/{name}/versions/{version}/commit": ADMIN,
    "GET /mappings/{name}/versions/{version}/use": VIEWER,
    "POST /mappings/{name}/versions/{version}/use": ADMIN,
    "GET /drafts": VIEWER,
    "POST /drafts/check": VIEWER,
    "POST /drafts": ADMIN,
    "GET /groups": VIEWER,
    "GET /groups/{name}": VIEWER,
    "POST /groups/{name}": OPERATOR,
    "GET /groups/{name}/stop": VIEWER,
    "POST /groups/{name}/stop": OPERATOR,
    "POST /groups/{name}/start": OPERATOR,
    "GET /webhooks": VIEWER,
    "GET /webhooks/{id}": VIEWER,
    "POST /webhooks/{id}/redeliver": OPERATOR,
    "GET /endpoints/new": VIEWER,
    "POST /endpoints": ADMIN,
    "GET /endpoints/{id}": VIEWER,
    "GET /endpoints/{id}/act/{action}": VIEWER,
    **{
        f"POST /endpoints/{{id}}/{action}": ADMIN
        for action in ("test", "rotate", "enable", "disable", "replay", "delete")
    },
    "GET /services/new": VIEWER,
    "POST /services": ADMIN,
    "GET /ledgers": VIEWER,
    "GET /ledgers/{service}/{batch}": VIEWER,
    "GET /ledgers/{service}/{batch}/act/{action}": VIEWER,
    "POST /ledgers/{service}/{batch}/park": OPERATOR,
    "POST /ledgers/{service}/{batch}/resume": OPERATOR,
    "POST /ledgers/{service}/{batch}/resubmit": OPERATOR,
    "POST /ledgers/{service}/{batch}/resolve": OPERATOR,
    "GET /timeouts": VIEWER,
    "GET /audit": OPERATOR,
    "GET /audit/chain": OPERATOR,
    "GET /try": VIEWER,
    "POST /try": VIEWER,
    "POST /try/edit": VIEWER,
    "GET /metrics": VIEWER,
    "GET /search": VIEWER,
}
NO_HEADERS: Mapping[str, str] = {}
PARTS = dict(tx_id="t00-" + "0" * 32, action="cancel", number="999999", id="none") | dict.fromkeys(
    ("name", "version", "service", "batch"), "none"
)


class Guest:
    """A browser without a screen: cookies, and headers as a browser sends them."""

    def __init__(self, house: ApiHouse, **headers: str) -> None:
        self.http = house.client(follow_redirects=False)
        self.http.headers.update({"sec-fetch-site": "same-origin", **headers})

    def sign_in(self, key: str) -> httpx.Response:
        return self.http.post("/console/sign-in", data={"key": key, "on": "/now"})

    def get(self, path: str, **options: str) -> httpx.Response:
        return self.http.get(f"/console{path}", headers=options)

    def token(self) -> str:
        found = re.search(r'name="token" value="([^"]+)"', self.get("/now").text)
        assert found is not None
        return found.group(1)

    def post(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS, /, **form: str
    ) -> httpx.Response:
        return self.http.post(f"/console{path}", data=form, headers=headers)


def signed_in(house: ApiHouse, name: str, role: Role) -> Guest:
    guest = Guest(house)
    assert guest.sign_in(house.new_key(name, role)).status_code == 303
    return guest


@pytest.fixture(scope="module")
def guests(house: ApiHouse) -> dict[Role, Guest]:
    return {role: signed_in(house, f"person-{role}", role) for role in Role}


def test_every_route_of_the_console_has_a_row() -> None:
    assert {f"{each.method} {each.path}": each.role for each in console_routes()} == ROUTES


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_lets_in_its_role_and_no_lesser_one(guests: dict[Role, Guest], route: str) -> None:
    method, path = route.split()
    for role, guest in guests.items():
        place = path.format(**PARTS)
        answer = guest.get(place) if method == "GET" else guest.post(place, token=guest.token())
        assert (answer.status_code == 403) is not role.includes(ROUTES[route]), (role, answer.text)


def test_without_a_session_every_page_leads_to_the_sign_in_and_comes_back(house: ApiHouse) -> None:
    guest = Guest(house)
    for route in ROUTES:
        method, path = route.split()
        place = path.format(**PARTS)
        answer = guest.get(place) if method == "GET" else guest.post(place)
        assert answer.status_code == 303, route
        assert answer.headers["location"].startswith("/console/sign-in"), route
    assert guest.http.get("/console/live?view=now").status_code == 401
    asked = guest.get("/transactions?status=failed")
    shown = guest.http.get(asked.headers["location"])
    on = re.search(r'name="on" value="([^"]+)"', shown.text)
    assert on is not None and on.group(1) == "/transactions?status=failed"


def test_the_cookie_is_for_this_path_and_no_script_and_holds_no_key(house: ApiHouse) -> None:
    key = house.new_key("ann", VIEWER)
    cookie = Guest(house).sign_in(key).headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/console"):
        assert part in cookie
    assert "Secure" not in cookie
    assert key.split("_", 2)[2] not in cookie


def test_a_wrong_key_a_clients_key_and_a_changed_cookie_are_refused(house: ApiHouse) -> None:
    guest = Guest(house)
    assert guest.sign_in("datp_0123456789abcdef_" + "x" * 51).status_code == 401
    assert guest.sign_in(house.new_key("shop")).status_code == 403
    assert guest.get("/now").status_code == 303
    good = signed_in(house, "ann", VIEWER)
    cookie = good.http.cookies["datp_console"]
    for wrong in (cookie[:-2] + "AA", cookie.replace(".", "x."), "a.b", "." + cookie):
        answer = house.client().get("/console/now", headers={"cookie": f"datp_console={wrong}"})
        assert answer.status_code == 303
    assert good.get("/now").status_code == 200


def test_a_revoked_key_ends_its_sessions(house: ApiHouse) -> None:
    key = house.new_key("ann", VIEWER)
    guest = Guest(house)
    guest.sign_in(key)
    assert guest.get("/now").status_code == 200
    house.keys.revoke(key.split("_")[1], actor=Actor(name="test"))
    eventually(lambda: guest.get("/now").status_code == 303)
    assert "ended=1" in guest.get("/now").headers["location"]


def test_a_session_that_is_not_used_ends_and_one_in_use_is_renewed(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The console asks for the time of the database every few seconds.
    monkeypatch.setattr("datp_tasks.api.console.sessions.CLOCK_S", -1)
    guest = signed_in(house, "ann", VIEWER)
    sessions = IDLE_S
    house.kit.clock.advance(seconds=sessions * 0.6)
    renewed = guest.get("/now")
    assert "datp_console=" in renewed.headers.get("set-cookie", "")
    house.kit.clock.advance(seconds=sessions * 0.6)
    assert guest.get("/now").status_code == 200
    house.kit.clock.advance(seconds=sessions * 1.1)
    assert guest.get("/now").status_code == 303


def test_forms_of_other_sites_and_other_sessions_are_refused(house: ApiHouse) -> None:
    ann, bob = signed_in(house, "ann", OPERATOR), signed_in(house, "bob", OPERATOR)
    form = {"name": "mine", "query": "status=failed"}
    assert ann.post("/views", **form).status_code == 403
    assert ann.post("/views", token=bob.token(), **form).status_code == 403
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ):
        assert ann.post("/views", headers, token=ann.token(), **form).status_code == 403
    # A browser that does not say so, over http: the origin decides.
    old = {"cookie": f"datp_console={ann.http.cookies['datp_console']}"}
    plain = house.client()
    plain.headers.update(old)
    given = {"token": ann.token(), **form}
    for origin, status in (("https://evil.example", 403), ("null", 403), (house.url, 303)):
        answer = plain.post("/console/views", data=given, headers={"origin": origin})
        assert answer.status_code == status, origin
    assert plain.post("/console/views", data=given).status_code == 403
    evil = Guest(house, **{"sec-fetch-site": "cross-site"})
    assert evil.sign_in(house.new_key("ann", VIEWER)).status_code == 403


def test_a_link_from_another_site_goes_on_by_itself(house: ApiHouse) -> None:
    ann = signed_in(house, "ann", VIEWER)
    # The browser sends no strict cookie with it.
    answer = house.client().get(
        "/console/transactions?status=failed", headers={"sec-fetch-site": "cross-site"}
    )
    assert answer.status_code == 200
    assert 'content="0; url=/console/transactions?status=failed"' in answer.text
    assert ann.get("/transactions?status=failed").status_code == 200


def test_where_to_go_on_stays_in_the_console(house: ApiHouse) -> None:
    key = house.new_key("ann", VIEWER)
    for wanted in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:1"):
        guest = Guest(house)
        answer = guest.http.post("/console/sign-in", data={"key": key, "on": wanted})
        assert answer.headers["location"] == "/console/now", wanted


def test_every_answer_has_the_headers_of_the_console(house: ApiHouse) -> None:
    ann = signed_in(house, "ann", VIEWER)
    answers = [
        *(ann.get("/now"), ann.get("/nothing"), ann.get("/transactions/nope"), ann.get("/sign-in")),
        *(ann.post("/views"), house.client().get("/console/live?view=now")),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
    style = re.search(r'href="(/console/static/[^"]+\.css)"', ann.get("/now").text)
    assert style is not None
    kept = house.client().get(style.group(1))
    assert "immutable" in kept.headers["cache-control"] and kept.status_code == 200


def test_the_root_leads_people_to_the_console_and_programs_to_links(house: ApiHouse) -> None:
    browser = house.client().get("/", headers={"accept": "text/html,*/*"})
    assert (browser.status_code, browser.headers["location"]) == (303, "/console/now")
    program = house.client().get("/")
    assert browser.headers["vary"] == program.headers["vary"] == "Accept"
    links = program.json()["links"]
    assert (links["console"], links["api"]) == ("/console", "/v1")
    assert house.client().get("/console").headers["location"] == "/console/now"


def test_without_a_console_the_root_tells_people_where_things_are(house: ApiHouse) -> None:
    settings = replace(house.kit.settings, console_path="off")
    with api_house(house.kit, settings) as bare:
        page = bare.client().get("/", headers={"accept": "text/html,*/*"})
        assert page.status_code == 200 and "text/html" in page.headers["content-type"]
        assert 'href="/openapi.json"' in page.text and "needs an API key" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["vary"] == "Accept"
        assert "console" not in bare.client().get("/").json()["links"]


def test_unmasking_needs_a_reason_and_is_in_the_audit(house: ApiHouse) -> None:
    tx_id = house.kit.submit("echo", {"iban": "DE02secret"}, owner="shop")
    viewer, operator = signed_in(house, "vic", VIEWER), signed_in(house, "opal", OPERATOR)
    path = f"/transactions/{tx_id}"
    for guest in (viewer, operator):
        assert "DE02secret" not in guest.get(path).text
    assert viewer.post(f"{path}/unmask", token=viewer.token(), reason="x").status_code == 403
    assert operator.post(f"{path}/unmask", token=operator.token()).status_code == 303
    shown = operator.post(f"{path}/unmask", token=operator.token(), reason="ticket 7")
    assert (shown.status_code, "DE02secret" in shown.text) == (200, True)
    assert "DE02secret" not in operator.get(path).text
    with house.kit.connections.engine.connect() as connection:
        rows = connection.execute(
            text("SELECT action, reason, actor FROM operator_action WHERE subject = :tx"),
            {"tx": tx_id},
        ).all()
    assert [(row.action, row.reason) for row in rows] == [("transaction.unmask", "ticket 7")]
    assert rows[0].actor.startswith("key ")


def test_saved_views_are_of_one_person(house: ApiHouse) -> None:
    ann, bob = signed_in(house, "ann", VIEWER), signed_in(house, "bob", VIEWER)
    answer = ann.post("/views", token=ann.token(), name="late <b>", query="status=failed&owner=x")
    assert answer.headers["location"] == "/console/transactions?status=failed&owner=x"
    assert "late &lt;b&gt;" in ann.get("/transactions").text
    assert "late &lt;b&gt;" not in bob.get("/transactions").text
    bob.post("/views/forget", token=bob.token(), name="late <b>")
    assert "late &lt;b&gt;" in ann.get("/transactions").text
    ann.post("/views/forget", token=ann.token(), name="late <b>")
    ann.get("/transactions")
    assert "late &lt;b&gt;" not in ann.get("/transactions").text


@pytest.fixture(scope="module")
def proxied(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHouse]:
    """Behind a proxy at 127.0.0.1 that names people and takes a prefix away."""
    path = tmp_path_factory.mktemp("identity") / "identity.yaml"
    path.write_text(
        "proxy: {from: [127.0.0.1], name_header: X-User, role_header: X-Groups, "
        "roles: {ops: operator, all: viewer}}"
    )
    settings = replace(kit.settings, identity_file=str(path), api_proxies=("127.0.0.1",))
    with api_house(kit, settings) as house:
        yield house


def test_a_proxy_names_a_person_and_a_stranger_cannot(proxied: ApiHouse, house: ApiHouse) -> None:
    named = {"x-user": "carol", "x-groups": "all, ops"}
    answer = proxied.client().get("/console/now", headers=named)
    assert answer.status_code == 200
    assert "carol" in answer.text and "operator" in answer.text
    for headers in ({"x-user": "carol"}, {"x-groups": "ops"}, {"x-user": "<b>", "x-groups": "ops"}):
        assert proxied.client().get("/console/now", headers=headers).status_code == 303
    # The same headers at a server that was not told of a proxy are nothing.
    assert house.client().get("/console/now", headers=named).status_code == 303


def test_over_https_the_cookie_is_for_https_only(proxied: ApiHouse) -> None:
    key = proxied.new_key("ann", VIEWER)
    for scheme in ("https", "http"):
        guest = Guest(proxied, **{"x-forwarded-proto": scheme})
        cookie = guest.sign_in(key).headers["set-cookie"]
        assert ("Secure" in cookie) is (scheme == "https")


def test_behind_a_prefix_every_link_and_cookie_has_it(proxied: ApiHouse, house: ApiHouse) -> None:
    prefix = {"x-forwarded-prefix": "/ops/x"}
    named = {"x-user": "carol", "x-groups": "ops", **prefix}
    shown = proxied.client().get("/console/now", headers=named).text
    links = set(re.findall(r'(?:href|src|action)="(/[^"]*)"', shown))
    assert links and all(link.startswith("/ops/x/console/") for link in links), links
    key = proxied.new_key("ann", VIEWER)
    headers = {**prefix, "sec-fetch-site": "same-origin"}
    answer = proxied.client().post("/console/sign-in", data={"key": key}, headers=headers)
    assert answer.headers["location"] == "/ops/x/console/now"
    assert "Path=/ops/x/console" in answer.headers["set-cookie"]
    evil = {"x-forwarded-prefix": "//evil.example"}
    assert "evil" not in proxied.client().get("/console/sign-in", headers=evil).text
    assert "/ops/x" not in house.client().get("/console/sign-in", headers=prefix).text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("proxy: {from: []}", "must list the addresses"),
        ("oidc: {issuer: 'http://evil.example'}", "must begin with https"),
        ("oidc: {issuer: 'https://a.example', client_id: x}", "roles must say"),
        ("oidc: {issuer: 'https://a.example', client_id: x, roles: {a: king}}", "a role is"),
        ("saml: {}", "knows no saml"),
        ("[]", "must be a mapping"),
    ],
)
def test_a_wrong_identity_file_is_refused_at_the_start(
    kit: Kit, tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "identity.yaml"
    path.write_text(content)
    with (
        pytest.raises(SettingsError, match=says),
        api_house(kit, replace(kit.settings, identity_file=str(path))),
    ):
        pass
