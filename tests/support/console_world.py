"""A console in a browser: an API in front of a kit with transactions of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep
from datp_tasks.model.actor import Role
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse
from tests.support.console_surroundings import CASES, Surroundings

#: Text that would run, or break the page, if it were not escaped.
HOSTILE = "<img src=x onerror=alert(1)>\"'</script>"

Data = dict[str, Any]


@dataclass
class Seen:
    """What a page did that it must not do."""

    base: str
    errors: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        page.on("request", self._on_request)
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:", "about:")):
            self.errors.append(f"foreign request: {request.url}")


class ConsoleWorld:
    """Transactions of every kind, and people who look at them."""

    def __init__(self, house: ApiHouse, browser: Browser, path: str = "/console") -> None:
        self.house = house
        self.kit = house.kit
        self.browser = browser
        self.url = house.url + path
        self.tx: dict[str, str] = {}
        self.hostile_pages: list[str] = []

    @contextmanager
    def person(
        self, name: str, role: Role | None, *, sign_in: bool = True, **options: Any
    ) -> Iterator[Visitor]:
        """A browser of one's own, signed in with a new key."""
        given = {"locale": "en-US", "viewport": {"width": 1280, "height": 800}, **options}
        context = self.browser.new_context(**given)
        context.set_default_timeout(10_000)
        visitor = Visitor(self, context, self.house.new_key(name, role))
        try:
            if sign_in:
                visitor.sign_in()
            yield visitor
        finally:
            context.close()

    def fill(self) -> None:
        """One transaction of each kind; their names are the keys of `tx`."""
        kit = self.kit
        declare_steps(kit)
        who = {"owner": "shop"}
        amount = {"from": "ann", "to": "bob", "amount": 2_500, "currency": "EUR"}
        self.tx["success"] = kit.submit("transfer", amount, external_id="order-1", **who)
        self.tx["failed"] = kit.submit("transfer", {**amount, "amount": 9_999_999}, **who)
        self.tx["sleeping"] = kit.submit("transfer", {**amount, "kyc": True}, **who)
        self.tx["retrying"] = kit.submit("shaky", amount, **who)
        self.tx["aborted"] = kit.submit("stopped", amount, **who)
        self.tx["doubt"] = self.in_doubt("shop")
        self.tx |= Surroundings(kit).fill(amount)
        kit.run_job("meter")

    def hostile(self) -> str:
        """A transaction, an alert and a view in which every text tries to be markup."""
        kit, bad = self.kit, HOSTILE

        @kit.step("bank/hostile")
        def hostile(ctx: Any, data: Data) -> Data:
            ctx.progress({"stage": bad})
            ctx.log.info("%s", bad, field=bad)
            raise Fail(bad)

        kit.use(Pipeline("hostile").step("bank/hostile", name=bad[:40]).build())
        tx_id = kit.submit(
            "hostile",
            {bad: bad},
            owner="shop",
            external_id=bad.replace(" ", "/"),
            metadata={"note": bad},
        )
        Alerts(kit.connections.engine, kit.connections.clock).raise_alert("odd", bad, bad)
        self.hostile_pages = Surroundings(kit).hostile(bad)
        return tx_id

    def in_doubt(self, owner: str) -> str:
        """Its worker died in the middle of a step that is not safe to run again."""
        # The second step of the pipeline is the one that is not safe.
        self.kit.crash_at("hop.after_step", nth=2)
        tx_id = self.kit.submit("payout", {"amount": 70}, owner=owner)
        self.kit.recover()
        assert self.kit.status(tx_id).status == "in-doubt"
        return tx_id


class Visitor:
    """One browser with one session."""

    def __init__(self, world: ConsoleWorld, context: BrowserContext, key: str) -> None:
        self.world = world
        self.context = context
        self.key = key
        self.seen = Seen(world.house.url)
        self.page = context.new_page()
        self.seen.watch(self.page)

    def sign_in(self) -> None:
        self.page.goto(f"{self.world.url}/sign-in")
        self.page.fill("#key", self.key)
        self.page.click("button.primary")
        self.page.wait_for_url("**/now")

    def go(self, path: str) -> Page:
        self.page.goto(self.world.url + path)
        return self.page


def declare_steps(kit: Kit) -> None:
    _declare_good_steps(kit)
    _declare_bad_steps(kit)
    kit.use(
        Pipeline("notice", startable=False).step("mail/send", name="send the mail").build(),
        Pipeline("transfer", tests=CASES)
        .step("bank/reserve", name="reserve the money")
        .step("bank/check")
        .step("bank/notify", name="tell both")
        .build(),
        Pipeline("shaky").step("bank/shaky").build(),
        Pipeline("stopped").step("bank/stop").build(),
        Pipeline("payout").step("bank/reserve").step("bank/pay-out").step("mail/send").build(),
    )


def _declare_good_steps(kit: Kit) -> None:
    @kit.step("bank/reserve")
    def reserve(ctx: Any, data: Data) -> Data:
        return {**data, "reservation": "r-1"}

    @reserve.rollback
    def release(ctx: Any, data: Data, output: Data | None) -> None:
        return None

    @kit.step("bank/check")
    def check(ctx: Any, data: Data) -> Any:
        if data.get("kyc") and ctx.switch("kyc") is None:
            ctx.progress({"stage": "waits for kyc"})
            return Sleep(switch="kyc", seconds=86_400)
        if data["amount"] > 1_000_000:
            raise Fail("not enough money")
        return {**data, "checked": True}

    @kit.step("bank/notify")
    def notify(ctx: Any, data: Data) -> Any:
        return Call("notice", {**data, "kind": "transfer"})

    @kit.step("mail/send")
    def send(ctx: Any, data: Data) -> Data:
        return {**data, "mailed": True}


def _declare_bad_steps(kit: Kit) -> None:
    @kit.step("bank/shaky", retry={"max_attempts": 5, "first_s": 3600})
    def shaky(ctx: Any, data: Data) -> Data:
        raise RuntimeError("the bank answered 503")

    @kit.step("bank/stop")
    def stop(ctx: Any, data: Data) -> Data:
        raise Abort("the account is closed")

    @kit.step("bank/pay-out", on_crash="review", timeout_s=30)
    def pay_out(ctx: Any, data: Data) -> Data:
        return {**data, "paid": True}
