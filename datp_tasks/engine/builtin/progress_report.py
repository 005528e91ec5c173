"""`util/progress-report`: tell the client how far its transaction is.

params:  report: {stage: paying, to: "{{payee.name}}"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in, schema_of
from datp_tasks.engine.registry import step
from datp_tasks.model.paths import fill, template_mistakes

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext


@step(
    "util/progress-report",
    description="Sets the progress report; passes its input on.",
    parameters=schema_of({"report": "an object"}, "report"),
    default={"report": {"stage": "paying"}},
)
def progress_report(ctx: StepContext, data: dict[str, Any]) -> None:
    # A report is only news, so a field that is missing becomes null and stops nothing.
    ctx.progress(fill(ctx.params["report"], data, default=None))


@progress_report.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, {"report": "an object"})
    if "report" not in params:
        mistakes.append("report must be given: the object that the client will see")
    return mistakes + template_mistakes(params.get("report"), "report")
