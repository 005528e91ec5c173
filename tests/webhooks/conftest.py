"""A kit whose webhooks go to receivers on this machine, and quickly give up on bad ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from datp_tasks.webhooks import webhook_service
from tests.support.receiver import Receiver, receiving

NewKit = Callable[..., Kit]

#: Real waits are short; what is waited for by the clock of the kit is as in production.
QUICK: dict[str, Any] = {
    "webhook_timeout_s": 0.4,
    "webhook_sender_period_s": 0.1,
}


@pytest.fixture
def new_kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewKit]:
    monkeypatch.setattr(webhook_service, "CONNECT_S", 0.3)
    made: list[Kit] = []

    def make(**changes: Any) -> Kit:
        kit = Kit(datp_servers, **{**QUICK, **changes})
        made.append(kit)
        # By its clock it is now, so that signatures are as fresh as receivers want them.
        kit.advance(seconds=time.time() - (kit.clock.now_ms() or 0) / 1_000)
        prepare(kit)
        return kit

    yield make
    for kit in made:
        kit.close()


@pytest.fixture
def kit(new_kit: NewKit) -> Kit:
    return new_kit()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def prepare(kit: Kit) -> None:
    @kit.step("hook/reports")
    def reports(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        for number in range(data.get("reports", 0)):
            ctx.progress({"done": number})
        return {"paid": data.get("amount", 0)}

    kit.use(
        Pipeline("pay").step("hook/reports").build(),
        Pipeline("wait").step("util/delay", params={"seconds": 3_600}).build(),
    )
