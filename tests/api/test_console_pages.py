"""Every page of the console in a real browser: no error, no foreign request, nothing serious for
axe, in light and dark, wide and as narrow as a phone; hostile texts stay texts; by keyboard, by two
people, without scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, ViewportSize

from datp_tasks.model.actor import LOCAL, Role
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.api_house import PEPPER, api_house
from tests.support.browser import opened_browser
from tests.support.console_world import HOSTILE, ConsoleWorld, Visitor
from tests.support.eventually import eventually

#: Path, with the names of transactions of the world.
PAGES = (
    "/now",
    "/transactions",
    "/transactions?status=failed&pipeline=transfer",
    *("/transactions/{success}", "/transactions/{failed}", "/transactions/{sleeping}"),
    *("/transactions/{retrying}", "/transactions/{doubt}"),
    *("/transactions/{sleeping}/act/cancel", "/transactions/{sleeping}/act/switch"),
    *("/transactions/{doubt}/act/resolve", "/bulk/cancel?pipeline=transfer"),
    *("/in-doubt", "/approvals", "/metrics", "/search?q=nothing"),
    *("/alerts", "/pipelines", "/pipelines/transfer", "/pipelines/transfer/diff?from=&to="),
    *("/pipelines/transfer/disable", "/drafts?pipeline=transfer", "/groups", "/groups/master"),
    *("/mappings", "/mappings/bank-codes", "/mappings/bank-codes/diff?from={map-a}&to={map-b}"),
    "/mappings/bank-codes/versions/{map-b}/use",
    *("/webhooks", "/webhooks/{webhook}", "/ledgers", "/ledgers/saw/{batch}"),
    *("/ledgers/saw/{batch}/act/resolve", "/timeouts", "/audit", "/audit/chain"),
    *("/endpoints/new", "/endpoints/{endpoint}", "/endpoints/{endpoint}/act/replay"),
    *("/services/new", "/pipelines/transfer/versions/{version}/test"),
    "/try?pipeline=transfer&case=a%20small%20one",
)
SERIOUS = ("serious", "critical")
WIDE, NARROW = ViewportSize(width=1280, height=800), ViewportSize(width=360, height=780)
#: The script of axe is in the page from the first run on.
AXE_AGAIN = "async () => (await axe.run()).violations"


# Not for the session: while it is open its event loop runs, and other tests start one of their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as made:
        yield made


@pytest.fixture(scope="module")
def world(datp_servers: Servers, browser: Browser) -> Iterator[ConsoleWorld]:
    kit = Kit(datp_servers, key_pepper=PEPPER, key_cache_s=0.2)
    # The kit is one person; the API keeps to the strict policy.
    with api_house(kit, replace(kit.settings, policy_file="")) as house:
        made = ConsoleWorld(house, browser)
        made.fill()
        yield made
    kit.close()


@pytest.fixture(scope="module", params=["light", "dark"])
def looking(request: pytest.FixtureRequest, world: ConsoleWorld) -> Iterator[Visitor]:
    with world.person("admin", Role.ADMIN, color_scheme=request.param) as visitor:
        yield visitor


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_without_errors_foreign_requests_and_serious_findings(
    world: ConsoleWorld, looking: Visitor, path: str
) -> None:
    page = looking.go(path.format(**world.tx))
    page.wait_for_selector("html[data-ready]")
    assert serious_findings(page) == []
    page.set_viewport_size(NARROW)
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert serious(page.evaluate(AXE_AGAIN)) == []
    finally:
        page.set_viewport_size(WIDE)
    assert looking.seen.errors == []
    assert page.locator("h1").count() == 1


def serious_findings(page: Page) -> list[tuple[str, list[str]]]:
    return serious(Axe().run(page).response["violations"])


def serious(violations: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [
        (each["id"], [node["html"] for node in each["nodes"]][:3])
        for each in violations
        if each["impact"] in SERIOUS
    ]


def test_a_planted_fault_is_found(world: ConsoleWorld, looking: Visitor) -> None:
    page = looking.go("/now")
    page.wait_for_selector("html[data-ready]")
    page.evaluate(
        """() => {
            const button = document.createElement("button");
            const faint = document.createElement("p");
            faint.textContent = "hardly to be read";
            faint.style.color = "#888";
            faint.style.background = "#999";
            document.querySelector("main").append(button, faint);
        }"""
    )
    assert {name for name, _ in serious_findings(page)} == {"button-name", "color-contrast"}


def test_a_phone_has_a_menu_of_the_pages(world: ConsoleWorld) -> None:
    with world.person("ops", Role.OPERATOR, viewport=NARROW) as visitor:
        page = visitor.go("/now")
        page.click("button.menu")
        page.click("nav.pages a[data-key=d]")
        page.wait_for_url("**/in-doubt")


def test_by_keyboard_alone_from_the_alert_to_the_decision(world: ConsoleWorld) -> None:
    tx_id = world.in_doubt("shop")
    with world.person("ann", Role.OPERATOR) as visitor:
        page, press = visitor.page, visitor.page.keyboard.press
        page.wait_for_selector("html[data-ready]")
        # What the page shows may be a moment old, and comes live then.
        page.wait_for_selector(f"main tr[data-row]:has-text('{tx_id}')")
        rows = page.locator("main tr[data-row]")
        for _ in range(rows.count()):
            press("j")
            if tx_id in (page.locator("tr.chosen").text_content() or ""):
                break
        press("o")
        page.wait_for_url(f"**/transactions/{tx_id}")
        for _ in range(40):
            press("Tab")
            if page.evaluate("document.activeElement.textContent").startswith("Decide"):
                break
        press("Enter")
        page.wait_for_url("**/act/resolve")
        page.locator("#d-redo").focus()
        press("Space")
        for _ in range(3):
            press("Tab")
            if page.evaluate("document.activeElement.id") == "reason":
                break
        page.keyboard.type("the bank has no record of it")
        press("Tab")
        press("Tab")
        press("Enter")
        # The strict policy wants a second person for a step that may have had its effect.
        page.wait_for_url("**/approvals/*")
        number = page.url.rpartition("/")[2]
        assert "another person must decide" in (page.text_content("main") or "")
        assert visitor.seen.errors == []
    with world.person("bob", Role.APPROVER) as other:
        page = other.go("/approvals?state=pending")
        page.click(f"#approval-{number} a")
        page.fill("#note", "called the bank")
        page.click("button:has-text('Approve')")
        page.wait_for_selector(".said:has-text('Approved and done')")
        assert other.seen.errors == []
    assert world.kit.finish(tx_id).status == "success"
    decisions = world.kit.operator.approvals.store.one(int(number)).given
    assert [(each.decided_by, each.note) for each in decisions] == [("bob", "called the bank")]


def test_every_action_works_without_scripts(world: ConsoleWorld) -> None:
    amount = {"from": "ann", "to": "bob", "amount": 5, "currency": "EUR", "kyc": True}
    first, second, third = (world.kit.submit("transfer", amount, owner="plain") for _ in range(3))
    with world.person("opal", Role.OPERATOR, java_script_enabled=False) as visitor:
        page = visitor.go(f"/transactions/{first}")
        page.click("a:has-text('Cancel…')")
        page.fill("#reason", "asked by phone")
        page.click("button.danger")
        page.wait_for_selector(".said:has-text('Cancel is asked for')")
        assert world.kit.finish(first).status == "cancelled"
        page = visitor.go(f"/transactions/{second}")
        page.click("a:has-text('Set switch…')")
        assert page.input_value("#switch-name") == "kyc"
        page.fill("#switch-value", "true")
        page.fill("#reason", "the papers are here")
        page.click("button:has-text('Set the switch')")
        page.wait_for_selector(".said:has-text('woke up')")
        assert world.kit.finish(second).status == "success"
        # What each step changed, for one who gives a reason.
        page = visitor.go(f"/transactions/{second}")
        page.fill("#unmask-reason", "asked by phone")
        page.click("button:has-text('Show payloads')")
        added = page.locator("#diff-1 .added").all_text_contents()
        assert [each.strip("+ ,") for each in added] == ['"checked": true']
        visitor.go("/transactions?owner=plain&status=sleeping")
        page.click("a:has-text('Cancel…')")
        page.fill("#count", "2")
        page.fill("#reason", "a test")
        page.click("button:has-text('Cancel 1 transaction')")
        page.wait_for_selector(".said.trouble:has-text('Nothing was done')")
        assert world.kit.status(third).status == "sleeping"
        page.fill("#count", "1")
        page.fill("#reason", "a test")
        page.click("button:has-text('Cancel 1 transaction')")
        page.wait_for_selector(".said")
        assert visitor.seen.errors == []


def test_one_person_breaks_the_glass_and_another_closes_the_alert(world: ConsoleWorld) -> None:
    tx_id = world.in_doubt("shop")
    with (
        world.person("gus", Role.OPERATOR, java_script_enabled=False) as gus,
        world.person("ola", Role.OPERATOR) as ola,
    ):
        page = gus.go(f"/transactions/{tx_id}/act/resolve")
        page.check("#d-redo")
        page.fill("#reason", "the bank closes in a minute")
        page.check("#break-glass")
        page.click("button:has-text('Decide')")
        page.wait_for_selector(".said:has-text('Decided')")
        assert world.kit.finish(tx_id).status == "success"
        alerts = Alerts(world.kit.connections.engine, world.kit.connections.clock)
        [alert] = [each for each in alerts.open_alerts() if each.kind == "break-glass"]
        for visitor, is_closed in ((gus, False), (ola, True)):
            page = visitor.go(f"/alerts/{alert.id}/close")
            page.fill("#reason", "looked into it")
            page.click("button:has-text('Close the alert')")
            page.wait_for_selector(".said" if is_closed else ".said.trouble")
            kinds = [each.kind for each in alerts.open_alerts()]
            assert ("break-glass" not in kinds) is is_closed
        # The browser of the first one notes that the server refused.
        assert ola.seen.errors == []


def test_bulk_waits_for_the_count_and_the_reason(world: ConsoleWorld) -> None:
    with world.person("opal", Role.OPERATOR) as visitor:
        page = visitor.go("/bulk/wake?pipeline=transfer")
        button = page.locator("#bulk-form button[type=submit]")
        count = page.get_attribute("#bulk-form", "data-count") or ""
        assert int(count) >= 1 and button.is_disabled()
        page.fill("#count", count)
        assert button.is_disabled()
        page.fill("#reason", "a test")
        assert button.is_enabled()
        page.fill("#count", count + "0")
        assert button.is_disabled()
        page = visitor.go("/bulk/cancel")
        assert "at least one" in (page.text_content("main") or "")


def test_a_viewer_sees_no_actions_and_a_forged_form_is_refused(world: ConsoleWorld) -> None:
    tx_id = world.tx["sleeping"]
    with world.person("vic", Role.VIEWER) as visitor:
        page = visitor.go(f"/transactions/{tx_id}")
        assert page.locator("main .actions a").count() == 0
        assert page.locator("#unmask-reason").count() == 0
        token = page.input_value("input[name=token]")
        status = page.evaluate(
            """async ([url, token]) => {
                const body = new URLSearchParams({token, reason: "forged"});
                return (await fetch(url, {method: "POST", body, redirect: "manual"})).status;
            }""",
            [f"{world.url}/transactions/{tx_id}/cancel", token],
        )
        assert status == 403
    assert world.kit.status(tx_id).status == "sleeping"


def test_texts_that_look_like_markup_stay_texts(world: ConsoleWorld) -> None:
    tx_id = world.hostile()
    # Only what is stored can be shown; a thread of the API that runs steps now takes this one, too.
    eventually(lambda: world.kit.status(tx_id).status.is_final)
    stored = world.kit.status(tx_id)
    assert (stored.status, stored.note) == ("failed", HOSTILE)
    with world.person("opal", Role.ADMIN) as visitor:
        paths = ("/now", "/transactions?pipeline=hostile", f"/transactions/{tx_id}", "/metrics")
        for path in (*paths, *world.hostile_pages, f"/search?q={HOSTILE.replace('&', '')}"):
            page = visitor.go(path)
            page.wait_for_selector("html[data-ready]")
            assert page.locator("img").count() == 0, path
        page = visitor.go(f"/transactions/{tx_id}")
        page.fill("#unmask-reason", HOSTILE)
        page.click("button:has-text('Show payloads')")
        page.wait_for_selector("#payloads pre")
        assert "onerror" in (page.text_content("#payloads") or "")
        assert HOSTILE in (page.text_content("#logs") or "")
        page.fill("#search", HOSTILE)
        page.press("#search", "Enter")
        page.wait_for_url("**/search?q=*")
        visitor.go(f"/transactions/{world.tx['doubt']}/act/resolve")
        page.check("#d-redo")
        page.fill("#reason", HOSTILE)
        page.click("button:has-text('Decide')")
        page.wait_for_url("**/approvals/*")
        assert "onerror" in (page.text_content("main") or "")
        assert page.locator("img").count() == 0
        visitor.go("/transactions?owner=shop")
        page.fill("#view-name", HOSTILE[:50])
        page.click("button:has-text('Save view')")
        page.wait_for_selector(".said")
        assert page.locator("img").count() == 0
        assert visitor.seen.errors == []


def test_a_page_is_live_keeps_what_is_open_and_pauses(world: ConsoleWorld) -> None:
    amount = {"from": "ann", "to": "bob", "amount": 5, "currency": "EUR", "kyc": True}
    tx_id = world.kit.submit("transfer", amount, owner="live")
    with world.person("opal", Role.OPERATOR) as visitor:
        page = visitor.go(f"/transactions/{tx_id}")
        page.wait_for_selector("#freshness-words:has-text('live')")
        page.fill("#unmask-reason", "half a reas")
        # The graph: where it is, and after its end nowhere.
        here = page.locator("#tx-steps tr.here .step")
        assert "step 2 of 3" in (here.text_content() or "")
        world.kit.set_switch(tx_id, "kyc", True)
        page.wait_for_selector("#tx-head .s-success")
        page.wait_for_function("!document.querySelector('#tx-steps tr.here')")
        assert page.locator("#tx-steps svg[aria-label=done]").count() == 4
        # The form is outside of what is replaced.
        assert page.input_value("#unmask-reason") == "half a reas"
        assert page.evaluate("document.activeElement.id") == "unmask-reason"
        page = visitor.go("/transactions?owner=live")
        page.wait_for_selector("#freshness-words:has-text('live')")
        new = world.kit.submit("transfer", amount, owner="live")
        page.wait_for_selector(f"#row-{new}")
        # While no one can see it, it has no stream.
        _set_hidden(page, True)
        page.wait_for_selector("#freshness-words:has-text('paused')")
        unseen = world.kit.submit("transfer", amount, owner="live")
        page.wait_for_timeout(1_500)
        assert page.locator(f"#row-{unseen}").count() == 0
        _set_hidden(page, False)
        page.wait_for_selector(f"#row-{unseen}")
        assert visitor.seen.errors == []


def _set_hidden(page: Page, is_hidden: bool) -> None:
    page.evaluate(
        """(isHidden) => {
            Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_a_page_whose_key_was_revoked_says_so_and_asks_no_more(world: ConsoleWorld) -> None:
    with world.person("eve", Role.VIEWER) as visitor:
        page = visitor.go("/transactions?owner=revoked")
        page.wait_for_selector("#freshness-words:has-text('live')")
        world.house.keys.revoke(visitor.key.split("_")[1], actor=LOCAL)
        page.wait_for_timeout(300)
        world.kit.submit("stopped", {"amount": 1}, owner="revoked")
        page.wait_for_selector("html.stale #freshness-words:has-text('session has ended')")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_timeout(2_500)
        assert asked == []


@pytest.fixture(scope="module")
def many(world: ConsoleWorld) -> ConsoleWorld:
    for _ in range(55):
        world.kit.submit("stopped", {"amount": 1}, owner="many")
    return world


ALL_IDS = "rows => rows.map(row => row.id)"
#: Without a scroll before it, which would also load what is older.
CLICK = "document.querySelector('a[data-more]').click()"
SCROLL = "window.scrollTo(0, document.body.scrollHeight)"


def test_what_new_ones_pushed_out_of_the_live_page_is_on_the_older_one(many: ConsoleWorld) -> None:
    with many.person("opal", Role.VIEWER) as visitor:
        page = visitor.go("/transactions?owner=many")
        page.wait_for_selector("#freshness-words:has-text('live')")
        before = page.locator("tr[data-row]").evaluate_all(ALL_IDS)
        # Else they are as old as the others, and stand among them.
        many.kit.advance(seconds=1)
        new = [many.kit.submit("stopped", {"amount": 1}, owner="many") for _ in range(2)][-1]
        page.wait_for_selector(f"#tx-rows #row-{new}")
        assert page.locator(f"#{before[-1]}").count() == 0
        page.evaluate(CLICK)
        page.wait_for_selector("tbody[data-older] tr")
        ids = page.locator("tr[data-row]").evaluate_all(ALL_IDS)
        assert set(before) <= set(ids)
        assert len(ids) == len(set(ids)) == 57
        assert page.url.endswith("owner=many")
        assert page.locator("a[data-more]").count() == 0
        # From here on it is a list as of a moment, and says so.
        page.wait_for_selector("#freshness-words:has-text('paused: load the page again')")
        _set_hidden(page, True)
        _set_hidden(page, False)
        assert "paused: load" in (page.text_content("#freshness-words") or "")
        page.click("#list-foot a:has-text('Newest')")
        page.wait_for_selector("#freshness-words:has-text('live')")
        assert page.locator("tr[data-row]").count() == 50
        assert visitor.seen.errors == []


def test_older_transactions_come_when_a_person_scrolls_to_the_end(many: ConsoleWorld) -> None:
    with many.person("opal", Role.VIEWER, viewport={"width": 1200, "height": 600}) as visitor:
        page = visitor.go("/transactions?owner=many")
        page.wait_for_selector("html[data-ready]")
        shown = page.locator("tr[data-row]").evaluate_all(ALL_IDS)

        # The page below begins with a row that is shown already.
        def with_a_row_twice(route: Route) -> None:
            answer = route.fetch()
            again = f'<tr data-row id="{shown[-1]}"><td>again</td></tr>'
            mark = '<tbody id="tx-rows" data-part>'
            route.fulfill(response=answer, body=answer.text().replace(mark, mark + again))

        page.route("**/transactions?*cursor=*", with_a_row_twice)
        page.evaluate(SCROLL)
        page.wait_for_selector("tbody[data-older] tr")
        ids = page.locator("tr[data-row]").evaluate_all(ALL_IDS)
        assert ids[:50] == shown
        assert len(ids) == len(set(ids)) > 50


def test_older_transactions_that_cannot_be_loaded_do_not_lead_away(many: ConsoleWorld) -> None:
    with many.person("opal", Role.VIEWER, viewport={"width": 1200, "height": 600}) as visitor:
        page = visitor.go("/transactions?owner=many")
        page.wait_for_selector("#freshness-words:has-text('live')")
        page.route("**/transactions?*cursor=*", lambda route: route.fulfill(status=503))
        page.evaluate(SCROLL)
        page.wait_for_selector("#list-said:has-text('could not be loaded')")
        assert page.url.endswith("owner=many")
        assert page.get_attribute("a[data-more]", "aria-busy") is None
        page.wait_for_selector("#freshness-words:has-text('live')")
        # A body that breaks off is no page either.
        page.unroute("**/transactions?*cursor=*")
        page.evaluate(
            "() => { Response.prototype.text = () => Promise.reject(new TypeError('cut')); }"
        )
        # A click asks for it: it is followed, and shows what is wrong.
        page.evaluate(CLICK)
        page.wait_for_url("**/transactions?*cursor=*")


def test_a_live_part_keeps_the_focus_a_selection_and_a_begun_click(
    world: ConsoleWorld,
) -> None:
    with world.person("opal", Role.VIEWER) as visitor:
        page = visitor.go("/now")
        page.wait_for_selector("#freshness-words:has-text('live')")
        page.locator("#now-needs tr[data-row] a").first.focus()
        page.evaluate(
            """() => {
                window.link = document.activeElement;
                getSelection().selectAllChildren(window.link);
                window.text = getSelection().toString();
            }"""
        )
        alerts = Alerts(world.kit.connections.engine, world.kit.connections.clock)
        alerts.raise_alert("test", "a change of the part", "it is live")
        page.wait_for_selector("#now-needs :text('a change of the part')")
        assert page.evaluate(
            """() => window.text.length > 10 && getSelection().toString() === window.text
                && window.link.isConnected && document.activeElement === window.link"""
        )
        # A click that has begun when the part changes is a click.
        page.evaluate("getSelection().removeAllRanges()")
        page.locator("#now-needs tr[data-row] a").first.hover()
        page.mouse.down()
        alerts.raise_alert("test", "another change", "it is live")
        page.wait_for_selector("#now-needs :text('another change')")
        page.mouse.up()
        page.wait_for_url(lambda url: not url.endswith("/now"))
        assert visitor.seen.errors == []


def test_any_id_in_the_search_box_leads_to_its_page(world: ConsoleWorld) -> None:
    with world.person("opal", Role.VIEWER) as visitor:
        page = visitor.page
        tx, batch = world.tx["success"], world.tx["batch"]
        for text, place in (
            *((tx, f"/transactions/{tx}"), ("order-1", f"/transactions/{tx}")),
            *(("payout", "/pipelines/payout"), (batch, f"/ledgers/saw/{batch}")),
        ):
            visitor.go("/now")
            page.wait_for_selector("html[data-ready]")
            page.keyboard.press("/")
            page.keyboard.type(text)
            page.keyboard.press("Enter")
            page.wait_for_url(f"**{place}")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("a")
        page.wait_for_url("**/approvals")


def test_when_the_api_dies_the_page_says_so_and_recovers(
    world: ConsoleWorld, browser: Browser
) -> None:
    settings = replace(world.kit.settings, policy_file="")
    with api_house(world.kit, settings) as house:
        other = ConsoleWorld(house, browser)
        port = int(re.findall(r":(\d+)", house.url)[0])
        with other.person("opal", Role.VIEWER) as visitor:
            page = visitor.page
            page.wait_for_selector("#freshness-words:has-text('live')")
            house.stop()
            page.wait_for_selector("html.stale")
            assert "connection lost" in (page.text_content("#freshness-words") or "")
            with api_house(world.kit, settings, port=port):
                page.wait_for_selector("html:not(.stale) #freshness-words:has-text('live')")
                # After an error the browser does not try again by itself.
                page.route("**/live?*", lambda route: route.fulfill(status=503))
                _set_hidden(page, True)
                _set_hidden(page, False)
                page.wait_for_selector("html.stale")
                page.unroute("**/live?*")
                page.wait_for_selector("html:not(.stale) #freshness-words:has-text('live')")
                # Else the server waits for the stream as long as it may.
                page.goto("about:blank")


def test_mounted_at_another_path_everything_stays_below_it(
    world: ConsoleWorld, browser: Browser
) -> None:
    settings = replace(world.kit.settings, console_path="/ops/x")
    with api_house(world.kit, settings) as house:
        other = ConsoleWorld(house, browser, path="/ops/x")
        with other.person("opal", Role.OPERATOR) as visitor:
            visitor.seen.base = f"{house.url}/ops/x/"
            page = visitor.go("/transactions?owner=shop")
            page.click(f"#row-{world.tx['sleeping']} a")
            page.wait_for_selector("#freshness-words:has-text('live')")
            page.click("a:has-text('Cancel…')")
            page.wait_for_url("**/ops/x/transactions/*/act/cancel")
            page.click("a:has-text('Leave it as it is')")
            page.wait_for_url("**/ops/x/transactions/*")
            assert visitor.seen.errors == []
