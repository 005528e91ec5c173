"""Which steps of a test case would do something outside of it."""

from __future__ import annotations

from collections.abc import Iterable

from datp_tasks.model import bulk_transfer, mapping
from datp_tasks.model.pipeline import CHILD_PIPELINE, PipelineDefinition, StepDefinition
from datp_tasks.model.pipeline_cases import PipelineCase

#: Shipped step types that ask nothing of other systems.
WITHOUT_EFFECT = frozenset(
    {
        CHILD_PIPELINE,
        bulk_transfer.STEP_TYPE,
        mapping.STEP_TYPE,
        "util/approval",
        "util/commit-linked",
        "util/delay",
        "util/fixed-reply",
        "util/link",
        "util/mandatory-fields",
        "util/progress-report",
        "util/wait",
    }
)


def without_stand_in(
    definition: PipelineDefinition, others: Iterable[PipelineDefinition], case: PipelineCase
) -> list[str]:
    """The step types that would run for real, also in the pipelines that this one may call."""
    known = {each.name: each for each in (*others, definition)}
    to_see, seen = [definition.name], set[str]()
    found = set[str]()
    while to_see:
        name = to_see.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for step in known[name].steps:
            if not _has_stand_in(step, case):
                found |= {step.type} - WITHOUT_EFFECT
                to_see += step.calls
    return sorted(found)


def _has_stand_in(step: StepDefinition, case: PipelineCase) -> bool:
    return step.name in case.stubs or step.type in case.stubs
