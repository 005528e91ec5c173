"""A step type that only some workers of this ring offer."""

from __future__ import annotations

from typing import Any

from datp_tasks import step
from datp_tasks.engine.context import StepContext
from tests.acceptance.acceptance_steps import note


@step("extra/exotic")
def exotic(ctx: StepContext, data: dict[str, Any]) -> None:
    note("exotic", ctx)
