"""What the demo lacks for pictures of every state: a worker that dies, a bank that is down."""

from __future__ import annotations

import os
import time
from typing import Any

from datp_tasks import Fail, Sleep, step


@step("payout/send", on_crash="review", timeout_s=30)
def send(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Its worker is lost in the middle of it, so that it is not known whether money was sent."""
    if data.get("worker") == "dies":
        os.kill(os.getpid(), 9)
    if data.get("account") == "closed":
        raise Fail("the account is closed")
    ctx.log.info("the bank has it", reference="B-20931")
    return {**data, "sent": True, "reference": "B-20931"}


@step("payout/check")
def check(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "checked": True}


@step("payout/statement", timeout_s=600)
def write_statement(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Takes long, so that something runs while the pictures are taken."""
    time.sleep(180)
    return data


@step("payout/book", retry={"max_attempts": 8, "first_s": 600})
def book(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    raise ConnectionError("the bank answered 503")


@step("payout/review")
def review(ctx: Any, data: dict[str, Any]) -> Any:
    if ctx.switch("reviewed") is None:
        ctx.progress({"stage": "waits for the review"})
        return Sleep(switch="reviewed", seconds=86_400)
    return data
