"""The test cases that a version of a pipeline carries: running them, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.case_runs import CasesNotRun
from datp_tasks.api.console.confirming import Confirm, confirm_page
from datp_tasks.api.console.pipelines_page import look, place_of, show_version
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.services import Services
from datp_tasks.errors import DatpError
from datp_tasks.model.actor import Role
from datp_tasks.model.case_effects import without_stand_in
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.records import StoredVersion
from datp_tasks.record.database import translate_outage
from datp_tasks.record.operator_actions import record_action

pages = Pages()

CASES = "/pipelines/{name}/versions/{version}/test"


@pages.page(CASES)
async def ask_test(visit: Visit) -> Response:
    name = visit.part("name")
    stored: StoredVersion = await visit.run(look, visit.services, name, visit.part("version"))
    cases, version = stored.definition.cases, stored.info.version
    others = await visit.run(_others, visit.services, name)
    return confirm_page(
        visit,
        Confirm(
            title=f"Run the test cases of {name}",
            says=[
                f"The {len(cases)} cases of version {version} are run in a process and on servers "
                "of their own, which end with them; this system has no transaction of them.",
                "Nothing is asked of other systems: each step that would needs a stand-in.",
                "It takes some seconds, and longer for many cases.",
            ],
            act=f"/pipelines/{quote(name)}/versions/{version}/test",
            back=place_of(name, version),
            button="Run the cases",
            cli=f"datp pipelines test {name} --version {version}",
            role=Role.ADMIN,
            impossible=_impossible(stored.definition, others),
        ),
    )


@pages.action(CASES, role=Role.ADMIN, back=CASES)
async def run_tests(visit: Visit) -> Response:
    """As `datp pipelines test`; the answer is the page of the version, with the results."""
    services, name, reason = visit.services, visit.part("name"), visit.reason()
    stored: StoredVersion = await visit.run(look, services, name, visit.part("version"))
    names = [each.name for each in stored.definition.cases]
    place = place_of(name, stored.info.version)
    others = await visit.run(_others, services, name)
    impossible = _impossible(stored.definition, others)
    if impossible:
        return visit.back_to(place, trouble=impossible)

    async def note() -> None:
        await visit.run(_note, visit, stored, names, reason)

    try:
        found = await visit.desk.case_runs.run([stored.definition, *others], names, note)
    except CasesNotRun as error:
        return visit.back_to(place, trouble=str(error))
    return await show_version(visit, stored, results=found)


def _impossible(definition: PipelineDefinition, others: Sequence[PipelineDefinition]) -> str:
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


def _note(visit: Visit, stored: StoredVersion, names: Sequence[str], reason: str) -> None:
    with translate_outage():
        record_action(
            visit.services.transactions.record.engine,
            actor=visit.caller.actor,
            action="pipeline.test",
            subject=stored.info.name,
            reason=reason,
            details={"version": stored.info.version, "cases": list(names)},
        )


def _others(services: Services, name: str) -> list[PipelineDefinition]:
    """The pipelines that it may call, as they are in use."""
    with translate_outage():
        listed = services.pipelines.list()
        found = []
        for each in listed:
            if each.version_in_use and each.name != name:
                try:
                    found.append(services.catalogue.version(each.name, each.version_in_use))
                except DatpError:
                    # Altered in the database: it cannot be called.
                    continue
    return found
