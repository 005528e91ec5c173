"""The console against hostile or unlucky requests: what is masked, what ends, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.api.console import alerts_page, mount
from datp_tasks.api.console.sessions import IDLE_S, SESSION_S
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse, api_house

#: Of a stream that should have ended: some seconds of beats.
LINES_MAX = 100
SAME = {"sec-fetch-site": "same-origin"}


def person(house: ApiHouse, name: str, role: Role) -> httpx.Client:
    made = house.client(follow_redirects=False)
    made.headers.update(SAME)
    made.post("/console/sign-in", data={"key": house.new_key(name, role)})
    return made


def test_what_an_exception_said_is_masked(house: ApiHouse, kit: Kit) -> None:
    @kit.step("t/says-iban", retry={"max_attempts": 1})
    def says(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError(f"no such account {data['iban']}")

    kit.use(Pipeline("says-iban").step("t/says-iban").build())
    tx_id = kit.submit("says-iban", {"iban": "DE02secret"}, owner="shop")
    for role in (Role.VIEWER, Role.ADMIN):
        shown = person(house, f"p-{role}", role).get(f"/console/transactions/{tx_id}")
        assert "internal-error" in shown.text
        assert "DE02secret" not in shown.text


def live_page_ends_after(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> httpx.Client:
    """A live page that is open for so long is told that it is signed out; its browser."""
    monkeypatch.setattr("datp_tasks.api.console.sessions.CLOCK_S", -1)
    monkeypatch.setattr("datp_tasks.api.console.streams.BEAT_S", 0.05)
    ann = person(house, "ann", Role.VIEWER)
    with ann.stream("GET", "/console/live?view=approvals") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("event: ")) == "event: parts"
        house.kit.clock.advance(seconds=seconds)
        assert "event: signed-out" in islice(lines, LINES_MAX)
    return ann


def test_a_live_page_ends_with_the_longest_time_of_its_session(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_page_ends_after(house, monkeypatch, SESSION_S + 1)


def test_a_live_page_ends_with_the_idle_time_of_its_session(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open tab is no use: it does not keep the session alive."""
    ann = live_page_ends_after(house, monkeypatch, IDLE_S + 1)
    assert ann.get("/console/live?view=approvals").status_code == 401


def test_a_live_page_ends_with_its_key(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datp_tasks.api.console.streams.BEAT_S", 0.05)
    ann = house.client(follow_redirects=False)
    ann.headers.update(SAME)
    key = house.new_key("ann", Role.VIEWER)
    ann.post("/console/sign-in", data={"key": key})
    with ann.stream("GET", "/console/live?view=approvals") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("event: ")) == "event: parts"
        house.keys.revoke(key.split("_")[1], actor=Actor(name="test"))
        assert "event: signed-out" in islice(lines, LINES_MAX)
    assert ann.get("/console/now").status_code == 303


def test_a_new_tab_is_told_nothing_older_than_its_page(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other tabs see of the same view may be as old as its pause between two looks."""
    monkeypatch.setitem(mount.VIEWS, "alerts", replace(alerts_page.VIEW, every_s=60.0))
    ann, bob = person(house, "ann", Role.VIEWER), person(house, "bob", Role.VIEWER)
    with ann.stream("GET", "/console/live?view=alerts") as first:
        # Kept: a stream whose lines are dropped is closed, and its view is looked at anew.
        lines = first.iter_lines()
        assert "newer than" not in next(line for line in lines if line.startswith("data: "))
        alerts = Alerts(house.kit.connections.engine, house.kit.connections.clock)
        alerts.raise_alert("odd", "newer than the look", "a test")
        with bob.stream("GET", "/console/live?view=alerts") as second:
            told = next(line for line in second.iter_lines() if line.startswith("data: "))
        assert "newer than the look" in told


@pytest.fixture(scope="module")
def proxied(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHouse]:
    path: Path = tmp_path_factory.mktemp("identity") / "identity.yaml"
    path.write_text(
        "proxy: {from: [127.0.0.1], name_header: X-User, role_header: X-Groups, "
        "roles: {ops: operator, all: viewer}}"
    )
    settings = replace(
        kit.settings,
        identity_file=str(path),
        api_proxies=("127.0.0.1",),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mount, "STREAMS_MAX", 1)
        with api_house(kit, settings) as house:
            yield house


def test_a_tab_for_which_there_is_no_place_is_refused_by_the_status(proxied: ApiHouse) -> None:
    named = {"x-user": "carol", "x-groups": "all"}
    browser = proxied.client()
    with browser.stream("GET", "/console/live?view=approvals", headers=named) as first:
        lines = first.iter_lines()
        assert first.status_code == 200 and next(lines).startswith("retry:")
        refused = proxied.client().get("/console/live?view=now", headers=named)
        assert refused.status_code == 429 and "retry-after" in refused.headers


def test_a_name_that_was_given_twice_is_none(proxied: ApiHouse) -> None:
    """A proxy that adds its header behind the one of its client must not be believed."""
    for doubled in (
        [("x-user", "mallory"), ("x-user", "carol"), ("x-groups", "all")],
        [("x-user", "carol"), ("x-groups", "ops"), ("x-groups", "all")],
    ):
        assert proxied.client().get("/console/now", headers=doubled).status_code == 303


def test_the_root_of_the_console_keeps_the_prefix_of_the_proxy(proxied: ApiHouse) -> None:
    for path in ("/console", "/console/"):
        answer = proxied.client().get(path, headers={"x-forwarded-prefix": "/ops"})
        assert answer.headers["location"] == "/ops/console/now", path
        plain = proxied.client().get(path)
        assert plain.headers["location"] == "/console/now", path


def test_texts_that_are_no_addresses_are_no_error_of_the_server(house: ApiHouse) -> None:
    stranger = house.client()
    assert stranger.get("/console/sign-in", params={"on": "//[x"}).status_code == 200
    headers = {"origin": "http://[x"}
    answer = stranger.post("/console/sign-in", data={"key": "x"}, headers=headers)
    assert answer.status_code == 403


def test_a_reason_of_a_bulk_action_has_a_limit(house: ApiHouse, kit: Kit) -> None:
    kit.submit("nap", {}, owner="bulk-owner")
    opal = person(house, "opal", Role.OPERATOR)
    token = opal.get("/console/now").text.partition('name="token" value="')[2].partition('"')[0]
    form = {"token": token, "query": "owner=bulk-owner", "count": "1", "reason": "x" * 1_001}
    answer = opal.post("/console/bulk/wake", data=form)
    assert answer.status_code == 303
    assert "1000 characters" in opal.get(answer.headers["location"]).text


def test_a_bulk_action_is_on_what_its_preview_showed(house: ApiHouse, kit: Kit) -> None:
    seen = kit.submit("nap", {}, owner="moving-owner")
    opal = person(house, "opal-two", Role.OPERATOR)
    page = opal.get("/console/bulk/cancel", params={"owner": "moving-owner"}).text
    token, selection = (
        page.partition(f'name="{name}" value="')[2].partition('"')[0]
        for name in ("token", "selection")
    )
    # As many as before, and not the same.
    kit.client.cancel(seen, "gone")
    other = kit.submit("nap", {}, owner="moving-owner")
    form = {"token": token, "query": "owner=moving-owner", "count": "1", "reason": "a wrong file"}
    answer = opal.post("/console/bulk/cancel", data={**form, "selection": selection})
    assert answer.status_code == 303
    assert "other transactions" in opal.get(answer.headers["location"]).text
    assert kit.status(other).status == "sleeping"
