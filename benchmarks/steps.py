"""The steps under measurement: they do nothing, so what is left is the engine."""

from __future__ import annotations

from typing import Any

from datp_tasks import StepContext, step


@step("bench/pass")
def pass_on(ctx: StepContext, data: dict[str, Any]) -> None:
    """The input goes on unchanged."""
