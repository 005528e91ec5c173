"""The steps under measurement: they do nothing, so what is left is the engine."""

from __future__ import annotations

import time
from typing import Any

from datp_tasks import StepContext, step

SLOW_S = 0.25
CALL_S = 0.02


@step("bench/pass")
def pass_on(ctx: StepContext, data: dict[str, Any]) -> None:
    """The input goes on unchanged."""


@step("bench/slow")
def take_time(ctx: StepContext, data: dict[str, Any]) -> None:
    """As long as a call to the outside takes: so that a kill finds it in the middle."""
    time.sleep(SLOW_S)


@step("bench/call")
def call_outside(ctx: StepContext, data: dict[str, Any]) -> None:
    """As long as a quick answer of another service takes."""
    time.sleep(CALL_S)
