"""The test cases that a version of a pipeline carries: running them, and what came of each."""

from __future__ import annotations

from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.case_routes import callable_pipelines, note_test, why_not
from datp_tasks.api.console.case_runs import CasesNotRun
from datp_tasks.api.console.confirming import Confirm, confirm_page
from datp_tasks.api.console.pipelines_page import look, place_of, show_version
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.model.actor import Role
from datp_tasks.pipelines.records import StoredVersion

pages = Pages()

CASES = "/pipelines/{name}/versions/{version}/test"


@pages.page(CASES)
async def ask_test(visit: Visit) -> Response:
    name = visit.part("name")
    stored: StoredVersion = await visit.run(look, visit.services, name, visit.part("version"))
    cases, version = stored.definition.cases, stored.info.version
    others = await visit.run(callable_pipelines, visit.services, name)
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
            impossible=why_not(stored.definition, others),
        ),
    )


@pages.action(CASES, role=Role.ADMIN, back=CASES)
async def run_tests(visit: Visit) -> Response:
    """As `datp pipelines test`; the answer is the page of the version, with the results."""
    services, name, reason = visit.services, visit.part("name"), visit.reason()
    stored: StoredVersion = await visit.run(look, services, name, visit.part("version"))
    names = [each.name for each in stored.definition.cases]
    place = place_of(name, stored.info.version)
    others = await visit.run(callable_pipelines, services, name)
    impossible = why_not(stored.definition, others)
    if impossible:
        return visit.back_to(place, trouble=impossible)

    async def note() -> None:
        await visit.run(note_test, services, stored, names, (visit.caller.actor, reason))

    try:
        found = await visit.console.case_runs.run([stored.definition, *others], names, note)
    except CasesNotRun as error:
        return visit.back_to(place, trouble=str(error))
    return await show_version(visit, stored, results=found)
