"""Pictures of the console for the documentation: `make screenshots` draws them anew.

They show the real console in a real browser, before the product as `datp up --example` runs it,
with the transfers of `datp demo` in it and one thing of each kind that needs a person.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from rich.console import Console

from datp_tasks import Pipeline
from datp_tasks.cli.command_context import Context, connect
from datp_tasks.cli.demo import run_demo
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.model.actor import LOCAL, Actor, Role
from tests.support.browser import opened_browser

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "console"
WIDE, PHONE = {"width": 1200, "height": 760}, {"width": 390, "height": 760}
TRANSFERS = 150
#: The series get a shape, and what the watcher and the sender see is there.
ROUNDS, ROUND_S = 6, 8.0
GIVE_UP_S = 120.0
PROGRAM = "from datp_tasks.cli import main; main()"
POLICY = "rules:\n  - {action: pipeline.use, approvals: 0}\n"
DARK = ("now", "transactions", "transaction", "metrics", "pipeline")
PHONES = ("now", "transactions", "transaction", "approval", "in-doubt")
CASES = [
    {
        "name": "a small one",
        "input": {"from": "ann", "to": "bob", "amount": 2_500, "currency": "EUR"},
        "expect": {"status": "success"},
        "stubs": {"payout/send": {"output": {"sent": True}}},
    },
    {
        "name": "the bank refuses",
        "input": {"from": "ann", "to": "bob", "amount": 9_000_000, "currency": "EUR"},
        "expect": {"status": "failed", "note": "limit"},
        "stubs": {"payout/send": {"fail": "above the limit of the day"}},
    },
]


@dataclass
class Scene:
    """The running product, and the names of what the pages are about."""

    datp: Context
    url: str
    names: dict[str, str] = field(default_factory=dict)

    def key(self, person: str, role: Role) -> str:
        return self.datp.api_keys.create(person, role, actor=Actor(name="screenshots")).text


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with _running() as scene, opened_browser() as browser:
        fill(scene)
        with _person(scene, browser, "ann", Role.OPERATOR) as page:
            _ask_for_a_second_person(scene, page)
        with _person(scene, browser, "bob", Role.ADMIN) as page:
            _save_view(scene, page)
            _photograph(scene, page, "")
        with _person(scene, browser, "bob", Role.ADMIN, color_scheme="dark") as page:
            _photograph(scene, page, "-dark", DARK)
        with _person(scene, browser, "bob", Role.ADMIN, viewport=PHONE) as page:
            _photograph(scene, page, "-phone", PHONES)


@contextmanager
def _running() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="datp-screenshots-") as folder:
        os.chmod(folder, 0o755)
        policy = Path(folder) / "policy.yaml"
        policy.write_text(POLICY)
        os.environ |= {
            "DATP_STEPS": "tools.screenshot_steps",
            "DATP_SECURITY__POLICY_FILE": str(policy),
        }
        directory = Path(folder) / "datp"
        up = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PROGRAM,
                "up",
                "--example",
                "--no-flower",
                f"--directory={directory}",
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        try:
            address = directory / "api-url"
            _wait(lambda: _read(address) != "" or up.poll() is not None)
            assert up.poll() is None, "datp up has ended"
            scene = Scene(connect(directory), _read(address).strip() + "/console")
            yield scene
        finally:
            up.terminate()
            up.wait(60)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _wait(until: Callable[[], Any], what: str = "the product") -> Any:
    give_up_s = time.monotonic() + GIVE_UP_S
    while not (found := until()):
        assert time.monotonic() < give_up_s, f"{what} is not there"
        time.sleep(0.2)
    return found


def fill(scene: Scene) -> None:
    """The demo, several times, and in the last seconds one of each kind."""
    datp, names = scene.datp, scene.names
    _pipelines(datp)
    for number in range(ROUNDS):
        began_s = time.monotonic()
        # Not the whole: the check of the books is the demo's own business.
        run_demo(
            datp.client, datp.engine, transfers=TRANSFERS, seed=number, console=Console(quiet=True)
        )
        if number == 0:
            _one_of_each(scene)
        time.sleep(max(0.0, ROUND_S - (time.monotonic() - began_s)))
    _wait(lambda: datp.client.status(names["doubt"]).status == "in-doubt", "the one in doubt")
    names["cancelled"] = _newest(datp, "cancelled", "transfer")


def _pipelines(datp: Context) -> None:
    store = datp.pipelines
    head: dict[str, Any] = {"description": "Sends money to a bank account", "tests": CASES}
    first = Pipeline("payout", **head).step("payout/send", name="send the money")
    booked = Pipeline("payout-booking").step("payout/book", name="book it")
    checked = Pipeline("payout-review").step("payout/review", name="wait for the review")
    for each in (first, booked, checked):
        applied = store.apply(each.build())
        store.commit(applied.name, applied.version, "first version")
        store.use(applied.name, applied.version)
    draft = Pipeline("payout", **head).step("payout/send", name="send the money")
    store.apply(draft.step("payout/book", name="book it").build())


def _one_of_each(scene: Scene) -> None:
    datp, names = scene.datp, scene.names
    client = datp.client
    amount = {"from": "ann", "to": "bob", "amount": 250_000, "currency": "EUR"}
    hook: dict[str, Any] = {"owner": "shop", "webhook": "https://hooks.shop.example/payments"}
    dead = client.submit("payout", {**amount, "worker": "dies"}, external_id="order-1044", **hook)
    names["doubt"] = dead.tx_id
    client.submit("payout-booking", amount, owner="shop", external_id="order-1045")
    for number in range(4):
        asleep = client.submit(
            "payout-review",
            amount,
            owner="shop",
            external_id=f"order-{1050 + number}",
            expires_in_s=3_600 * (number + 1),
        )
    names["sleeping"] = asleep.tx_id
    small = {**amount, "amount": 2_500}
    for number in range(3):
        told = client.submit("transfer", small, external_id=f"order-{1060 + number}", **hook)
    _endpoint(scene)
    _batches(scene)
    datp.groups.set("kyc", {"concurrency": 2}, actor=LOCAL, reason="month end, twice the checks")
    found = _wait(lambda: datp.webhooks.store.deliveries(tx_id=told.tx_id), "a delivery")
    names["webhook"] = found[0].id


def _endpoint(scene: Scene) -> None:
    made, _ = scene.datp.webhooks.endpoints.add(
        "shop",
        "https://books.shop.example/events",
        types=["transaction.completed", "transaction.in-doubt"],
        description="Bookkeeping of the shop",
        actor=LOCAL,
    )
    scene.names["endpoint"] = made.id


def _batches(scene: Scene) -> None:
    ledger = scene.datp.ledger
    ledger.intake.add_service("notary", kind="sawtooth", url="http://127.0.0.1:9", by=LOCAL)
    ids = [derived_id(f"page {number}") for number in range(3)]
    payloads = [("notary", unsigned_batch_list(each, b"{}"), None) for each in ids]
    ledger.intake.submit_many(payloads)
    ledger.operator.park("notary", ids[0], actor=LOCAL, reason="the notary asks for another format")
    scene.names["batch"] = ids[0]


def _newest(datp: Context, status: str, pipeline: str) -> str:
    from datp_tasks.operator.selection import Where

    where = Where.from_texts([f"status={status}", f"pipeline={pipeline}"])
    [found] = list(datp.operator.choose(where, rows_max=1))
    return found.tx_id


@contextmanager
def _person(
    scene: Scene, browser: Browser, name: str, role: Role, **options: Any
) -> Iterator[Page]:
    context = browser.new_context(**{"locale": "en-US", "viewport": WIDE, **options})
    page = context.new_page()
    page.goto(f"{scene.url}/sign-in")
    page.fill("#key", scene.key(name, role))
    page.click("button.primary")
    page.wait_for_url("**/now")
    yield page
    context.close()


def _ask_for_a_second_person(scene: Scene, page: Page) -> None:
    page.goto(f"{scene.url}/transactions/{scene.names['doubt']}/act/resolve")
    page.check("#d-redo")
    page.fill("#reason", "The bank has no record of this payout (ticket 4711).")
    page.click("button:has-text('Decide')")
    page.wait_for_url("**/approvals/*")
    scene.names["approval"] = page.url.rpartition("/")[2]


def _save_view(scene: Scene, page: Page) -> None:
    page.goto(f"{scene.url}/transactions?owner=shop&status=sleeping")
    page.fill("#view-name", "Shop, waiting")
    page.click("button:has-text('Save view')")
    page.wait_for_selector(".said")


def _paths(scene: Scene) -> dict[str, str]:
    names = scene.names
    newest, before, *_ = scene.datp.pipelines.versions("payout")
    diff = f"/pipelines/payout/diff?from={before.version}&to={newest.version}"
    return {
        "now": "/now",
        "transactions": "/transactions",
        "transaction": f"/transactions/{names['cancelled']}",
        "doubt": f"/transactions/{names['doubt']}",
        "resolve": f"/transactions/{names['doubt']}/act/resolve",
        "bulk": "/bulk/wake?owner=shop",
        "in-doubt": "/in-doubt",
        "alerts": "/alerts",
        "approvals": "/approvals",
        "approval": f"/approvals/{names['approval']}",
        "pipelines": "/pipelines",
        "pipeline": "/pipelines/payout",
        "cases": f"/pipelines/payout/versions/{before.version}/test",
        "diff": diff,
        "draft": "/drafts?pipeline=payout",
        "groups": "/groups",
        "group": "/groups/kyc",
        "webhooks": "/webhooks",
        "webhook": f"/webhooks/{names['webhook']}",
        "endpoint": f"/endpoints/{names['endpoint']}",
        "endpoint-new": "/endpoints/new",
        "ledgers": "/ledgers",
        "batch": f"/ledgers/notary/{names['batch']}",
        "service-new": "/services/new",
        "timeouts": "/timeouts",
        "metrics": "/metrics",
        "audit": "/audit",
        "chain": "/audit/chain",
        "try": "/try?pipeline=payout&case=a%20small%20one",
    }


def _photograph(scene: Scene, page: Page, ending: str, only: tuple[str, ...] = ()) -> None:
    for name, path in _paths(scene).items():
        if only and name not in only:
            continue
        page.goto(scene.url + path)
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(300)
        if name == "cases":
            page.fill("#reason", "before the change of Friday")
            page.click("button.primary")
            page.wait_for_selector("#cases .status", timeout=GIVE_UP_S * 1_000)
            page.locator("#cases").scroll_into_view_if_needed()
        page.screenshot(path=FOLDER / f"{name}{ending}.png")


if __name__ == "__main__":
    main()
