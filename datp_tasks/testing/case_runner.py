"""Runs the test cases that a pipeline carries: for real, in this process, on servers of a test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datp_tasks.errors import DatpError
from datp_tasks.model.mapping import CONTENT
from datp_tasks.model.mapping import STEP_TYPE as MAPS
from datp_tasks.model.pipeline import PipelineDefinition, StepDefinition
from datp_tasks.model.pipeline_cases import PipelineCase
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing.kit import Kit
from datp_tasks.testing.servers import test_servers

#: A case that sets a switch again and again would never end.
SWITCHES_MAX = 100
STAND_IN = "util/fixed-reply"


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What came of one case; without a mistake it has passed."""

    pipeline: str
    case: str
    status: str
    mistakes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.mistakes


def run_on_own_servers(
    definition: PipelineDefinition, others: Sequence[PipelineDefinition], names: Iterable[str]
) -> list[CaseOutcome]:
    """Run these cases, each in a system of its own, on servers that end with the last one."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, test_servers(Path(folder)) as servers:
        for name in names:
            kit = Kit(servers)
            try:
                outcomes.append(run_case(kit, definition, others, name))
            finally:
                kit.close()
    return outcomes


def run_case(
    kit: Kit, definition: PipelineDefinition, others: Iterable[PipelineDefinition], name: str
) -> CaseOutcome:
    """Run the case of this name; `others` are pipelines that it may call."""
    case = next(each for each in definition.cases if each.name == name)
    unused = set(case.stubs)
    stubbed = [_stubbed(each, case, unused) for each in (*others, definition)]
    try:
        kit.use(*stubbed)
        summary = _run(kit, definition.name, case)
    except DatpError as error:
        return CaseOutcome(definition.name, name, "not started", (str(error),))
    mistakes = [f"no step is called {each}, so its stub was not used" for each in sorted(unused)]
    mistakes += _unknown_step(kit, summary) or _mistakes(case, summary)
    return CaseOutcome(definition.name, name, str(summary.status), tuple(mistakes))


def _unknown_step(kit: Kit, summary: Summary) -> list[str]:
    """It waits for a worker that has the step type; here no other worker will come."""
    if summary.status is not Status.QUEUED:
        return []
    step_type = kit.connections.live.fields_many([summary.tx_id])[0].get("stepType", "")
    if kit.steps.find(step_type) is not None:
        return []
    return [
        f"the step type {step_type} is not known here: name the module that declares it in "
        "DATP_STEPS, as for the workers, or give the step a stub"
    ]


def _run(kit: Kit, pipeline: str, case: PipelineCase) -> Summary:
    options = {} if case.metadata is None else {"metadata": case.metadata}
    summary = kit.run(pipeline, dict(case.input), **options)
    waiting = dict(case.switches)
    for _ in range(SWITCHES_MAX):
        if summary.status is not Status.SLEEPING or not waiting:
            break
        fields = kit.connections.live.fields_many([summary.tx_id])[0]
        switch = fields.get("wakeSwitch", "")
        name = switch if switch in waiting else next(iter(waiting))
        kit.set_switch(summary.tx_id, name, waiting.pop(name))
        summary = kit.finish(summary.tx_id)
    return summary


def _stubbed(
    definition: PipelineDefinition, case: PipelineCase, unused: set[str]
) -> PipelineDefinition:
    steps = tuple(_stand_in(_alone(step), case.stubs, unused) for step in definition.steps)
    # The cases are not needed to run one, and a test may start what other pipelines only call.
    reply = _without_name(definition.reply) if definition.reply else None
    return replace(definition, steps=steps, reply=reply, tests=(), startable=True)


def _alone(step: StepDefinition) -> StepDefinition:
    return replace(step, params=_without_name(step.params)) if step.type == MAPS else step


def _without_name(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a shared mapping says, but not its name: the servers of a case hold no mappings."""
    is_filled = "mapping" in given and "fields" in given
    return {name: given[name] for name in CONTENT if name in given} if is_filled else given


def _stand_in(
    step: StepDefinition, stubs: Mapping[str, Mapping[str, Any]], unused: set[str]
) -> StepDefinition:
    name = step.name if step.name in stubs else step.type
    stub = stubs.get(name or "")
    if stub is None:
        return step
    unused.discard(name or "")
    params: dict[str, Any] = {} if "output" not in stub else {"output": dict(stub["output"])}
    for end in ("fail", "abort"):
        if end in stub:
            params |= {end: True, "note": str(stub[end])}
    return replace(step, type=STAND_IN, params=params)


def _mistakes(case: PipelineCase, summary: Summary) -> list[str]:
    found = []
    if str(summary.status) != case.status:
        note = f" ({summary.note})" if summary.note else ""
        found.append(f"status is {summary.status}{note}, not {case.status}")
    if case.output is not None:
        found += _differences(case.output, summary.output, "output")
    if case.note is not None and case.note not in (summary.note or ""):
        found.append(f"note is {summary.note!r}, which does not say {case.note!r}")
    return found


def _differences(expected: Any, actual: Any, where: str) -> list[str]:
    """Where the actual value lacks or differs; an object may have more fields than expected."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return [
            difference
            for key, value in expected.items()
            for difference in (
                _differences(value, actual[key], f"{where}.{key}")
                if key in actual
                else [f"{where}.{key} is missing"]
            )
        ]
    if type(expected) is type(actual) and expected == actual:
        return []
    return [f"{where} is {actual!r:.200}, not {expected!r:.200}"]
