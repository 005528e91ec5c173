"""Pictures of the console for the documentation: `make screenshots` draws them anew.

They show the real console in a real browser, before the product as `datp up --example` runs it,
with the transfers of `datp demo` in it, one thing of each kind that needs a person, and a
receiver of webhooks on this machine.
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
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize
from rich.console import Console

from datp_tasks import Pipeline
from datp_tasks.cli.command_context import Context, connect
from datp_tasks.cli.demo import run_demo
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.model.actor import LOCAL, Actor, Role
from datp_tasks.model.mapping import MappingDefinition
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.version_store import PipelineStore
from tests.support.browser import opened_browser
from tests.support.receiver import Receiver, answers, receiving

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "console"
WIDE, PHONE = ViewportSize(width=1200, height=760), ViewportSize(width=390, height=760)
#: Of each round; the series get a shape, and what the watcher and the sender see is there.
TRANSFERS = (60, 110, 150, 90, 40, 70, 130, 150, 120, 80, 60, 100, 140, 110, 70, 90)
ROUND_S = 10.0
GIVE_UP_S = 120.0
#: A picture is as high as its page, so that nothing is cut; of a long list it shows whole rows.
HEIGHT_MIN, LIST_HEIGHT = 520, 900
#: Space below the last panel.
BELOW = 16
LISTS = ("transactions", "webhooks", "endpoint", "audit")
#: Below the last row or panel that fits into a height.
LAST_EDGE = """high => Math.max(...[...document.querySelectorAll("main tr, main section")]
    .map(each => Math.ceil(each.getBoundingClientRect().bottom + scrollY))
    .filter(bottom => bottom <= high))"""
PROGRAM = "from datp_tasks.cli import main; main()"
POLICY = "rules:\n  - {action: pipeline.use, approvals: 0}\n"
DARK = ("now", "transactions", "transaction", "metrics", "pipeline")
PHONES = ("now", "transactions", "transaction", "approval", "in-doubt")
CASES: list[dict[str, Any]] = [
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
    receiver: Receiver
    names: dict[str, str] = field(default_factory=dict)

    def key(self, person: str, role: Role) -> str:
        return self.datp.api_keys.create(person, role, actor=Actor(name="screenshots")).text


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with receiving() as receiver, _running(receiver) as scene, opened_browser() as browser:
        fill(scene)
        _photograph_sign_in(scene, browser)
        with _person(scene, browser, "ann", Role.OPERATOR) as page:
            _ask_for_a_second_person(scene, page)
        with _person(scene, browser, "bob", Role.ADMIN) as page:
            _decide_about_batches(scene, page)
        with _person(scene, browser, "bob", Role.ADMIN) as page:
            _save_view(scene, page)
            _photograph(scene, page, "")
        with _person(scene, browser, "bob", Role.ADMIN, color_scheme="dark") as page:
            _photograph(scene, page, "-dark", DARK)
        with _person(scene, browser, "bob", Role.ADMIN, viewport=PHONE) as page:
            _photograph(scene, page, "-phone", PHONES)


@contextmanager
def _running(receiver: Receiver) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="datp-screenshots-") as folder:
        os.chmod(folder, 0o755)
        policy = Path(folder) / "policy.yaml"
        policy.write_text(POLICY)
        os.environ |= {
            "DATP_STEPS": "tools.screenshot_steps",
            "DATP_SECURITY__POLICY_FILE": str(policy),
            "DATP_WEBHOOKS__PRIVATE_HOSTS": "127.0.0.1,localhost",
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
            scene = Scene(connect(directory), _read(address).strip() + "/console", receiver)
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
    """The demo, several times, and one of each kind."""
    datp, names = scene.datp, scene.names
    _pipelines(datp)
    for number, transfers in enumerate(TRANSFERS):
        began_s = time.monotonic()
        # Not the whole: the check of the books is the demo's own business.
        run_demo(
            datp.client, datp.engine, transfers=transfers, seed=number, console=Console(quiet=True)
        )
        if number == 0:
            _one_of_each(scene)
        if number % 4 == 1:
            _told(scene, number)
        if number == len(TRANSFERS) - 3:
            _statements(scene)
        time.sleep(max(0.0, ROUND_S - (time.monotonic() - began_s)))
    _wait(lambda: datp.client.status(names["doubt"]).status == "in-doubt", "the one in doubt")
    names["cancelled"] = _newest(datp, "cancelled", "transfer")
    names["done"] = _newest(datp, "success", "payout")


def _pipelines(datp: Context) -> None:
    store = datp.pipelines
    about = "Sends money to a bank account"
    # What would ask a bank has a stand-in in every case.
    checks = {"payout/check": {"output": {"checked": True}}}
    cases = [{**each, "stubs": {**each["stubs"], **checks}} for each in CASES]
    head: dict[str, Any] = {"description": about, "tests": cases}
    first = Pipeline("payout", description=about, tests=CASES).step(
        "payout/send", name="send the money"
    )
    checked = Pipeline("payout", **head).step("payout/check", name="check the account")
    checked.step("payout/send", name="send the money")
    booking = Pipeline("payout-booking").step("payout/book", name="book it")
    review = Pipeline("payout-review").step("payout/review", name="wait for the review")
    statement = Pipeline("statement", group="reports")
    statement.step("payout/statement", name="write the statement")
    for each in (booking, review, statement):
        _use(store, each.build(), "first version")
    _use(store, first.build(), "first version")
    amount = {"from": "ann", "to": "bob", "amount": 90_000, "currency": "EUR"}
    for number in range(9):
        # The first version did not check accounts, and two in nine were wrong.
        account = "closed" if number % 4 == 3 else "open"
        datp.client.submit("payout", {**amount, "account": account}, owner="shop")
    _wait(lambda: _newest(datp, "success", "payout"), "a payout")
    _use(store, checked.build(), "accounts are checked first (ticket 4690)")
    draft = Pipeline("payout", **head).step("payout/check", name="check the account")
    draft.step("payout/send", name="send the money").step("payout/book", name="book it")
    store.apply(draft.build())
    _mappings(datp)


def _mappings(datp: Context) -> None:
    """Codes of the bank that pipelines share, and a draft of the next version."""
    codes = {"iban": "account.iban", "currency": {"from": "currency", "default": "EUR"}}
    about = "The payment as the bank wants it"
    mappings, name = datp.mappings, "bank-codes"
    first = MappingDefinition(name=name, description=about, fields={**codes, "sum": "amount"})
    version, _ = mappings.apply(first)
    mappings.commit(name, version, "as the bank asked for in May")
    mappings.use(name, version)
    mappings.apply(
        MappingDefinition(name=name, description=about, fields={**codes, "amount": "amount"})
    )
    statement = Pipeline("bank-message", startable=False)
    statement.step("util/map-fields", name="for the bank", params={"mapping": name})
    _use(datp.pipelines, statement.build(), "first version")


def _use(store: PipelineStore, definition: PipelineDefinition, comment: str) -> None:
    applied = store.apply(definition)
    store.commit(applied.name, applied.version, comment)
    store.use(applied.name, applied.version)


def _one_of_each(scene: Scene) -> None:
    datp, names = scene.datp, scene.names
    client = datp.client
    amount = {"from": "ann", "to": "bob", "amount": 250_000, "currency": "EUR"}
    hook: dict[str, Any] = {"owner": "shop", "webhook": scene.receiver.url("/shop/payments")}
    _endpoint(scene)
    dead = client.submit("payout", {**amount, "worker": "dies"}, external_id="order-1044", **hook)
    names["doubt"] = dead.tx_id
    for _ in range(12):
        client.submit("payout", {**amount, "amount": 90_000, "account": "open"}, owner="shop")
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
    _batches(scene)
    datp.groups.set("kyc", {"concurrency": 2}, actor=LOCAL, reason="month end, twice the checks")


def _told(scene: Scene, number: int) -> None:
    """Transfers whose receivers are told: most are well, one is busy, one is gone."""
    scene.receiver.always("/mall/orders", answers(503))
    scene.receiver.always("/old-shop/orders", answers(410))
    amount = {"from": "ann", "to": "bob", "amount": 2_500, "currency": "EUR"}
    is_last = number + 4 > len(TRANSFERS)
    paths = ["/shop/payments"] * 4 + ["/mall/orders", "/old-shop/orders"] * is_last
    for place, path in enumerate(paths):
        told = scene.datp.client.submit(
            "transfer",
            amount,
            owner=path.split("/")[1],
            external_id=f"order-{1_060 + 10 * number + place}",
            webhook=scene.receiver.url(path),
        )
        if path == "/mall/orders":
            store = scene.datp.webhooks.store
            found = _wait(partial(store.deliveries, tx_id=told.tx_id), "a delivery")
            scene.names["webhook"] = found[0].id


def _statements(scene: Scene) -> None:
    """A long step in a group of its own, and others behind it."""
    for number in range(3):
        scene.datp.client.submit(
            "statement", {"month": 8 + number}, owner="shop", external_id=f"statement-{number + 1}"
        )


def _endpoint(scene: Scene) -> None:
    made, _ = scene.datp.webhooks.endpoints.add(
        "shop",
        scene.receiver.url("/shop/books"),
        types=["transaction.completed", "transaction.in-doubt"],
        description="Bookkeeping of the shop",
        actor=LOCAL,
    )
    scene.names["endpoint"] = made.id


def _batches(scene: Scene) -> None:
    ledger = scene.datp.ledger
    ledger.intake.add_service("notary", kind="sawtooth", url="http://127.0.0.1:9", by=LOCAL)
    ids = [derived_id(f"page {number}") for number in range(4)]
    payloads = [("notary", unsigned_batch_list(each, b"{}"), None) for each in ids]
    ledger.intake.submit_many(payloads)
    for each in ids[:3]:
        why = "the notary asks for another format"
        ledger.operator.park("notary", each, actor=LOCAL, reason=why)
    scene.names |= {"batch": ids[2], "batch-done": ids[0], "batch-kept": ids[1]}


def _newest(datp: Context, status: str, pipeline: str) -> str:
    from datp_tasks.operator.selection import Where

    where = Where.from_texts([f"status={status}", f"pipeline={pipeline}"])
    return next((each.tx_id for each in datp.operator.choose(where, rows_max=1)), "")


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
    for which in ("batch-done", "batch-kept"):
        page.goto(f"{scene.url}/ledgers/notary/{scene.names[which]}/act/resolve")
        page.check("#d-COMMITTED")
        page.fill("#reason", "The notary has stamped it (letter of Monday).")
        page.click("button:has-text('Resolve')")
        page.wait_for_url("**/approvals/*")
        scene.names[f"approval of {which}"] = page.url.rpartition("/")[2]


def _decide_about_batches(scene: Scene, page: Page) -> None:
    page.goto(f"{scene.url}/approvals/{scene.names['approval of batch-done']}")
    page.fill("#note", "Seen the letter.")
    page.click("button:has-text('Approve')")
    page.wait_for_selector(".said")
    page.goto(f"{scene.url}/approvals/{scene.names['approval of batch-kept']}")
    page.click("summary:has-text('Reject')")
    page.fill("#why-not", "The letter names another page.")
    page.click("button:has-text('Reject')")
    page.wait_for_selector(".said")


def _photograph_sign_in(scene: Scene, browser: Browser) -> None:
    context = browser.new_context(locale="en-US", viewport=WIDE)
    page = context.new_page()
    page.goto(f"{scene.url}/sign-in")
    page.screenshot(path=FOLDER / "sign-in.png")
    context.close()


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
        "payloads": f"/transactions/{names['done']}",
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
        "mappings": "/mappings",
        "mapping": "/mappings/bank-codes",
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
        "search": "/search?q=order-9999",
        "try": "/try?pipeline=payout&case=a%20small%20one",
    }


def _photograph(scene: Scene, page: Page, ending: str, only: tuple[str, ...] = ()) -> None:
    for name, path in _paths(scene).items():
        if only and name not in only:
            continue
        page.goto(scene.url + path)
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(300)
        _prepare(page, name)
        width = page.viewport_size["width"] if page.viewport_size else WIDE["width"]
        page.set_viewport_size({"width": width, "height": HEIGHT_MIN})
        page.set_viewport_size({"width": width, "height": _height(page, name in LISTS)})
        page.screenshot(path=FOLDER / f"{name}{ending}.png")


def _height(page: Page, is_list: bool) -> int:
    """Of the whole page; of a long list, down to the end of a row."""
    page.evaluate("scrollTo(0, 0)")
    bottom = (
        "Math.ceil(document.querySelector('main').lastElementChild.getBoundingClientRect().bottom)"
    )
    whole = int(page.evaluate(bottom)) + BELOW
    if is_list and whole > LIST_HEIGHT:
        return int(page.evaluate(LAST_EDGE, LIST_HEIGHT)) + 1
    return max(HEIGHT_MIN, whole)


def _prepare(page: Page, name: str) -> None:
    """What a person does on the page before the picture."""
    match name:
        case "cases":
            page.fill("#reason", "before the change of Friday")
            page.click("button.primary")
            page.wait_for_selector("#cases .status", timeout=GIVE_UP_S * 1_000)
        case "draft":
            text = page.input_value("#yaml")
            page.fill("#yaml", text.replace("name: send the money", "nmae: send the money"))
            page.click("button:has-text('Check')")
            page.wait_for_selector("#verdict .chip")
        case "payloads":
            page.fill("#unmask-reason", "the customer asks what was sent (ticket 4712)")
            page.click("button:has-text('Show payloads')")
            page.wait_for_selector("#payloads pre")
            page.click("#payloads details summary >> nth=0")


if __name__ == "__main__":
    main()
