"""`datp pipelines test`: the cases of a pipeline, run for real on servers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.own_steps import import_steps
from datp_tasks.cli.terminal_tables import list_table, print_list
from datp_tasks.errors import PipelineInvalid
from datp_tasks.pipelines.files import load_definitions

if TYPE_CHECKING:
    from datp_tasks.model.pipeline import PipelineDefinition
    from datp_tasks.pipelines.version_store import PipelineStore
    from datp_tasks.settings import Settings


class Installation(Protocol):
    @property
    def settings(self) -> Settings: ...
    @property
    def steps_of_stack(self) -> Path | None: ...
    @property
    def pipelines(self) -> PipelineStore: ...


def run_cases(
    datp: Installation,
    name: str,
    version: str | None,
    *,
    cases: Sequence[str],
    files: Sequence[Path],
) -> None:
    """Print what came of each case, and end with 1 if one has failed."""
    import_steps(datp.settings.steps, of_stack=datp.steps_of_stack)
    known = _pipelines(datp, name, version, files)
    definition = known.pop(name)
    wanted = [each.name for each in definition.cases if not cases or each.name in cases]
    missing = [each for each in cases if each not in wanted]
    if missing or not wanted:
        has = ", ".join(each.name for each in definition.cases) or "none"
        raise PipelineInvalid([f"{name}: {', '.join(missing) or 'tests'}: has these cases: {has}"])
    # The kit takes a while to import.
    from datp_tasks.testing.case_runner import run_on_own_servers

    outcomes = run_on_own_servers(definition, list(known.values()), wanted)
    _tell([(each.case, each.status, each.mistakes) for each in outcomes])


def run_cases_over_http(
    name: str, version: str | None, *, cases: Sequence[str], files: Sequence[Path]
) -> None:
    """The same for a version that the server has, on servers of its own."""
    from datp_tasks.cli.remote_calls import refuse_over_http
    from datp_tasks.cli.remote_context import remote_calls

    if files:
        refuse_over_http("--file (over HTTP, apply the pipeline as a draft and name its --version)")
    calls = remote_calls()
    if version is None:
        stored = calls.get("pipelines", name)["versions"]
        version = str(next((each for each in stored if each["inUse"]), stored[0])["version"])
    body = {"cases": list(cases)} if cases else {}
    found = calls.post("pipelines", name, "versions", version, "test", body=body)
    _tell([(each["case"], each["status"], each["mistakes"]) for each in found["cases"]])


def _tell(outcomes: Sequence[tuple[str, str, Sequence[str]]]) -> None:
    rows = [
        ("FAILED" if mistakes else "passed", escape(case), status, escape("; ".join(mistakes)))
        for case, status, mistakes in outcomes
    ]
    columns = ("Result", "Case", "Status", "What differs")
    table = list_table(columns, rows, whole=("Result",))
    print_list(Console(), table, empty="no test case ran")
    failed = sum(bool(mistakes) for _, _, mistakes in outcomes)
    typer.echo(f"{len(outcomes) - failed} passed, {failed} failed")
    if failed:
        raise typer.Exit(1)


def _pipelines(
    datp: Installation, name: str, version: str | None, files: Sequence[Path]
) -> dict[str, PipelineDefinition]:
    """The tested one and those that it may call: from files first, else as they are in use."""
    given = load_definitions(files) if files else []
    found = {each.name: each for each in given}
    if name not in found:
        found[name] = datp.pipelines.show(name, version).definition
    for each in datp.pipelines.list() if not files else ():
        if each.version_in_use and each.name not in found:
            found[each.name] = datp.pipelines.load(each.name, each.version_in_use)
    return found
