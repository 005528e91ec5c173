"""Running the test cases that a version of a pipeline carries, for the API and the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.console.case_runs import CaseRuns, CasesBusy, CasesNotRun
from datp_tasks.api.models import Given, Long, Sent, Text
from datp_tasks.api.once import keeps
from datp_tasks.api.pipeline_versions import Name, Version
from datp_tasks.api.problems import Problem, not_found
from datp_tasks.api.routing import json_response, router
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.errors import DatpError, PipelineInvalid, PipelineUnknown
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.case_effects import without_stand_in
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.records import StoredVersion
from datp_tasks.record.database import translate_outage
from datp_tasks.record.operator_actions import record_action

routes = router("/v1", "operator", role=Role.ADMIN)

CASES_MAX = 1_000


class TestIn(Sent):
    cases: Annotated[
        list[Text] | None,
        Field(max_length=CASES_MAX, min_length=1, description="Only these; else all of them."),
    ] = None
    reason: Annotated[Long, Field(description="Kept in the audit table.")] = ""


class CaseShown(Given):
    case: str
    passed: bool
    status: str
    mistakes: Annotated[list[str], Field(description="Where it differs from what is expected.")]


class CasesShown(Given):
    name: str
    version: str
    passed: int
    failed: int
    cases: list[CaseShown]


@routes.post(
    "/pipelines/{name}/versions/{version}/test",
    operation_id="testPipeline",
    response_model=CasesShown,
    responses=CONFLICT,
)
@keeps("again")
async def run_cases(
    request: Request, name: Name, version: Version, wanted: TestIn | None = None
) -> Response:
    """Run the test cases of a version in a process and on servers of their own, and wait for them.

    Nothing is asked of other systems: each step that would needs a stand-in (`stubs`). It takes
    some seconds; one run at a time.
    """
    services, actor = services_of(request), caller_of(request).actor
    given = wanted or TestIn()
    stored, others = await services.threads.run(_found, services, name, version)
    definition = stored.definition
    wanted_names = given.cases or [each.name for each in definition.cases]
    names = [each.name for each in definition.cases if each.name in wanted_names]
    unknown = [each for each in wanted_names if each not in names]
    trouble = f"there is no case {unknown[0]!r:.80}" if unknown else why_not(definition, others)
    if trouble:
        raise PipelineInvalid([f"{definition.name}: {trouble}"])

    async def note() -> None:
        await services.threads.run(note_test, services, stored, names, (actor, given.reason))

    runs: CaseRuns = request.app.state.case_runs
    try:
        found = await runs.run([definition, *others], names, note)
    except CasesBusy as error:
        raise Problem(409, "cases-busy", str(error)) from None
    except CasesNotRun as error:
        raise Problem(409, "cases-not-run", str(error)) from None
    outcomes = [
        {
            "case": case,
            "passed": not each.mistakes,
            "status": each.status,
            "mistakes": list(each.mistakes),
        }
        for case, each in found.items()
    ]
    failed = sum(not each["passed"] for each in outcomes)
    about = {"name": definition.name, "version": stored.info.version}
    counts = {"passed": len(outcomes) - failed, "failed": failed}
    return json_response({**about, **counts, "cases": outcomes})


def _found(
    services: Services, name: str, version: str
) -> tuple[StoredVersion, list[PipelineDefinition]]:
    with translate_outage():
        try:
            return services.pipelines.show(name, version), callable_pipelines(services, name)
        except PipelineUnknown as error:
            raise not_found(f"such pipeline or version: {error}") from None


def callable_pipelines(services: Services, name: str) -> list[PipelineDefinition]:
    """The pipelines that it may call, as they are in use."""
    found = []
    with translate_outage():
        for each in services.pipelines.list():
            if each.version_in_use and each.name != name:
                try:
                    found.append(services.catalogue.version(each.name, each.version_in_use))
                except DatpError:
                    # Altered in the database: it cannot be called.
                    continue
    return found


def why_not(definition: PipelineDefinition, others: Sequence[PipelineDefinition]) -> str:
    """Why its cases are not run from here; empty: they are."""
    if not definition.cases:
        return "This version carries no test cases."
    for case in definition.cases:
        real = without_stand_in(definition, others, case)
        if real:
            return (
                f"The case {case.name!r} has no stand-in for {', '.join(real)}, which would run "
                "for real: write one under its stubs, or run it at the command line."
            )
    return ""


def note_test(
    services: Services, stored: StoredVersion, cases: Sequence[str], by: tuple[Actor, str]
) -> None:
    """Who ran which cases, and why, before they are run."""
    actor, reason = by
    with translate_outage():
        record_action(
            services.transactions.record.engine,
            actor=actor,
            action="pipeline.test",
            subject=stored.info.name,
            reason=reason or None,
            details={"version": stored.info.version, "cases": list(cases)},
        )
