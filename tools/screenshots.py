"""Pictures of the console for the documentation: `make screenshots` draws them anew.

They show the real console in a real browser, before a system in one process whose clock stands
still: transfers of every kind have run in it, so the same commit makes the same pictures.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from datp_tasks.model.actor import Role
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import test_servers
from tests.support.api_house import PEPPER, api_house
from tests.support.browser import opened_browser
from tests.support.console_surroundings import Surroundings
from tests.support.console_world import ConsoleWorld, Visitor

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "console"
WIDE, PHONE = {"width": 1200, "height": 700}, {"width": 390, "height": 760}
SLOTS, SLOT_S = 50, 5


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, test_servers(Path(folder)) as servers:
        kit = Kit(servers, key_pepper=PEPPER)
        settings = replace(kit.settings, policy_file="")
        with api_house(kit, settings) as house, opened_browser() as browser:
            world = ConsoleWorld(house, browser)
            _fill(world)
            with world.person("ann", Role.OPERATOR, viewport=WIDE) as ann:
                _ask_for_a_second_person(ann)
            with world.person("bob", Role.ADMIN, viewport=WIDE) as bob:
                _photograph(bob, "")
            with world.person("bob", Role.ADMIN, viewport=WIDE, color_scheme="dark") as bob:
                _photograph(bob, "-dark", ("now", "transaction"))
            with world.person("bob", Role.ADMIN, viewport=PHONE) as bob:
                _photograph(bob, "-phone", ("now", "transaction"))
        kit.close()


def _fill(world: ConsoleWorld) -> None:
    """Some minutes of transfers, and one transaction of each kind at their end."""
    kit, dice = world.kit, random.Random(1)
    world.fill()
    for _ in range(SLOTS):
        for _ in range(dice.randint(1, 6)):
            amount = 9_999_999 if dice.random() < 0.08 else dice.randint(100, 9_000)
            data = {"from": "ann", "to": "bob", "amount": amount, "currency": "EUR"}
            owner = dice.choice(("shop", "payroll", "market"))
            kit.submit("transfer", data, owner=owner, external_id=f"order-{dice.getrandbits(24)}")
        kit.advance(seconds=SLOT_S)
    world.tx["doubt"] = world.in_doubt("shop")
    Surroundings(kit).node("worker-1@node", ["bank/reserve", "bank/check", "mail/send"])


def _ask_for_a_second_person(ann: Visitor) -> None:
    page = ann.go(f"/transactions/{ann.world.tx['doubt']}/act/resolve")
    page.check("#d-redo")
    page.fill("#reason", "The bank has no record of this payout (ticket 4711).")
    page.click("button:has-text('Decide')")
    page.wait_for_url("**/approvals/*")


def _photograph(visitor: Visitor, ending: str, only: tuple[str, ...] = ()) -> None:
    tx = visitor.world.tx
    paths = {
        "now": "/now",
        "transactions": "/transactions",
        "transaction": f"/transactions/{tx['failed']}",
        "resolve": f"/transactions/{tx['doubt']}/act/resolve",
        "bulk": "/bulk/wake?pipeline=transfer",
        "in-doubt": "/in-doubt",
        "approvals": "/approvals",
        "approval": "/approvals/1",
        "metrics": "/metrics",
        "alerts": "/alerts",
        "pipelines": "/pipelines",
        "pipeline": "/pipelines/transfer",
        "diff": _newest_diff(visitor),
        "draft": "/drafts?pipeline=transfer",
        "groups": "/groups",
        "group": "/groups/kyc",
        "webhooks": "/webhooks",
        "webhook": f"/webhooks/{tx['webhook']}",
        "ledgers": "/ledgers",
        "batch": f"/ledgers/saw/{tx['batch']}",
        "timeouts": "/timeouts",
        "audit": "/audit",
        "try": "/try?pipeline=transfer&case=a%20small%20one",
    }
    for name, path in paths.items():
        if only and name not in only:
            continue
        page = visitor.go(path)
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(300)
        page.screenshot(path=FOLDER / f"{name}{ending}.png")


def _newest_diff(visitor: Visitor) -> str:
    """What the newest draft of the pipeline changes."""
    newest, before, *_ = visitor.world.kit.connections.pipelines.versions("transfer")
    return f"/pipelines/transfer/diff?from={before.version}&to={newest.version}"


if __name__ == "__main__":
    main()
