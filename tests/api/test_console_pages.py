"""Every page of the console in a real browser: no error, no foreign request, nothing serious for
axe, in light and dark; hostile texts stay texts; by keyboard, by two people, without scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from datp_tasks.model.actor import Role
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.api_house import PEPPER, api_house
from tests.support.browser import opened_browser
from tests.support.console_world import ConsoleWorld, Visitor

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
)
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="session")
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
    found = Axe().run(page).response["violations"]
    serious = [
        (each["id"], [node["html"] for node in each["nodes"]][:3])
        for each in found
        if each["impact"] in SERIOUS
    ]
    assert serious == []
    assert looking.seen.errors == []
    assert page.locator("h1").count() == 1


def test_no_page_is_wider_than_a_phone(world: ConsoleWorld) -> None:
    with world.person("ops", Role.OPERATOR, viewport={"width": 390, "height": 844}) as visitor:
        for path in PAGES:
            page = visitor.go(path.format(**world.tx))
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, path
        page.click("button.menu")
        page.click("nav.pages a[data-key=d]")
        page.wait_for_url("**/in-doubt")
