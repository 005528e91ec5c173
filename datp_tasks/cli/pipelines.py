"""`datp pipelines …`: put pipelines into the store, choose the version in use, look at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from datp_tasks.cli.own_steps import import_steps, import_what_is_here
from datp_tasks.cli.terminal_tables import list_table, print_list, short_time
from datp_tasks.engine.registry import param_mistakes, registry
from datp_tasks.errors import ApprovalNeeded, PipelineInvalid
from datp_tasks.pipelines.files import load_definitions, read_json_file
from datp_tasks.pipelines.records import Applied, PipelineInfo, VersionInfo
from datp_tasks.pipelines.step_availability import unoffered
from datp_tasks.pipelines.yaml_text import dump

if TYPE_CHECKING:
    from datp_tasks.model.pipeline import PipelineDefinition
    from datp_tasks.pipelines.version_store import PipelineStore
    from datp_tasks.settings import Settings


class Connected(Protocol):
    """What these commands need of `datp_tasks.cli.command_context.connect()`."""

    @property
    def settings(self) -> Settings: ...
    @property
    def steps_of_stack(self) -> Path | None: ...
    @property
    def pipelines(self) -> PipelineStore: ...
    def offered_step_types(self) -> set[str] | None: ...


app = typer.Typer(help="Pipelines and their versions.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the pipeline.")]
Version = Annotated[str, typer.Argument(help="Version, or the start of it.")]
VersionOption = Annotated[str | None, typer.Option("--version", help="Version, or its start.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="pipelines")


@app.command()
def apply(
    files: Annotated[list[Path], typer.Argument(help="YAML or JSON files, or folders of them.")],
    commit: Annotated[str | None, typer.Option(help="Commit too, with this comment.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Put into use too.")] = False,
) -> None:
    """Store each pipeline as a new version, if its content is new."""
    datp = _connect()
    definitions = load_definitions(files)
    _check_params(definitions, datp)
    for definition in definitions:
        applied = datp.pipelines.apply(definition)
        done = ["new version" if applied.is_new else "unchanged"]
        if commit is not None and applied.state == "draft":
            datp.pipelines.commit(applied.name, applied.version, comment=commit)
            done.append("committed")
        if use:
            done.append(_put_into_use(datp.pipelines, applied))
        _say(f"{applied.name} {applied.version}: {', '.join(done)}")
    for warning in unoffered(definitions, datp.offered_step_types()):
        _warn(warning)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Show all pipelines."""
    found = _connect().pipelines.list()
    if as_json:
        _say_json([_pipeline_json(each) for each in found])
        return
    rows = [
        (
            each.name,
            each.version_in_use or "-",
            _state(each),
            str(each.versions),
            str(each.drafts),
            short_time(each.updated_at),
        )
        for each in found
    ]
    columns = ("Pipeline", "In use", "State", "Versions", "Drafts", "Changed")
    table = list_table(columns, rows, whole=("In use", "State", "Changed"))
    none = "no pipelines; `datp pipelines apply` stores one from a file"
    print_list(Console(), table, empty=none)


@app.command()
def show(name: Name, version: VersionOption = None, as_json: AsJson = False) -> None:
    """Show one version (else the one in use, else the newest) and what other versions there are."""
    pipelines = _connect().pipelines
    stored = pipelines.show(name, version)
    versions = pipelines.versions(name)
    if as_json:
        _say_json(
            _version_json(stored.info)
            | {
                "definition": stored.definition.to_mapping(),
                "access": stored.definition.access.whole(),
                "versions": [_version_json(each) for each in versions],
            }
        )
        return
    rows = []
    for each in versions:
        mark = ">" if each.version == stored.info.version else ""
        state = f"{each.state}, in use" if each.in_use else each.state
        applied, committed = short_time(each.created_at), short_time(each.committed_at)
        rows.append((mark, each.version, state, applied, committed, escape(each.comment or "")))
    console = Console()
    columns = ("", "Version", "State", "Applied", "Committed", "Comment")
    print_list(console, list_table(columns, rows, whole=columns[1:5]), empty="no versions")
    said = escape(_who_may(stored.definition.access.whole()))
    console.print(said, highlight=False, soft_wrap=True)
    console.print(_highlighted(dump(stored.definition.to_mapping()), "yaml"))


def _who_may(access: dict[str, Any]) -> str:
    """The definition says only what differs from the defaults."""
    switches = access.pop("switches")
    others = switches.pop("*")
    parts = [f"{what} {who}" for what, who in access.items()]
    parts += [f"switch {name} {who}" for name, who in switches.items()]
    return f"Who may: {', '.join(parts)}, {'other' if switches else 'all'} switches {others}"


@app.command()
def commit(
    name: Name,
    comment: Annotated[str, typer.Option("--comment", "-m", help="What was changed, and why.")],
    version: VersionOption = None,
) -> None:
    """Mark a version (else the latest draft) as committed."""
    info = _connect().pipelines.commit(name, version, comment)
    _say(f"{info.name} {info.version}: committed: {info.comment}")


@app.command()
def use(
    name: Name,
    version: Version,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the audit table.")] = "",
    break_glass: Annotated[
        bool, typer.Option("--break-glass", help="Act alone; an alert stays for another person.")
    ] = False,
) -> None:
    """Give this version to new transactions; those on their way keep theirs."""
    if break_glass and not reason.strip():
        raise typer.BadParameter("--break-glass needs --reason")
    info = _connect().pipelines.use(name, version, reason=reason, break_glass=break_glass)
    _say(f"{info.name} {info.version}: in use{'' if info.state == 'committed' else ' (a draft)'}")


@app.command()
def disable(name: Name) -> None:
    """Take no new transactions; those on their way go on."""
    _connect().pipelines.disable(name)
    _say(f"{name}: disabled")


@app.command()
def export(
    name: Name,
    version: VersionOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
) -> None:
    """Write one version with its hash, for `import` elsewhere."""
    document = _connect().pipelines.export(name, version)
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise PipelineInvalid([f"{output}: cannot be written: {error.strerror}"]) from None
    _say(f"{document['name']} {document['version']}: written to {output}")


@app.command("import")
def import_(file: Annotated[Path, typer.Argument(help="File that `export` wrote.")]) -> None:
    """Store an exported version: committed, but not in use. An altered file is refused."""
    applied = _connect().pipelines.import_(read_json_file(file))
    _say(f"{applied.name} {applied.version}: {'imported' if applied.is_new else 'unchanged'}")


@app.command()
def clone(
    name: Name,
    new_name: Annotated[str, typer.Argument(help="Name of the clone.")],
    version: VersionOption = None,
) -> None:
    """Store one version (else the one in use) under another name, as a draft."""
    applied = _connect().pipelines.clone(name, new_name, version)
    _say(f"{applied.name} {applied.version}: {'new draft' if applied.is_new else 'unchanged'}")


@app.command()
def delete(name: Name, version: Version) -> None:
    """Remove a draft that was never in use."""
    info = _connect().pipelines.delete(name, version)
    _say(f"{info.name} {info.version}: deleted")


@app.command("test")
def run_tests(
    name: Name,
    version: VersionOption = None,
    case: Annotated[list[str] | None, typer.Option(help="Only the case of this name.")] = None,
    file: Annotated[list[Path] | None, typer.Option(help="Take pipelines from here.")] = None,
) -> None:
    """Run the test cases that a pipeline carries, on servers of their own."""
    from datp_tasks.cli.command_context import is_remote
    from datp_tasks.cli.pipeline_test import run_cases, run_cases_over_http

    if is_remote():
        run_cases_over_http(name, version, cases=case or [], files=file or [])
    else:
        run_cases(_connect(), name, version, cases=case or [], files=file or [])


@app.command()
def diff(name: Name, a: Version, b: Version) -> None:
    """Show what changed from version A to version B."""
    text = _connect().pipelines.diff(name, a, b)
    if text:
        Console().print(_highlighted(text, "diff"))
    else:
        _say("no difference")


def _put_into_use(pipelines: PipelineStore, applied: Applied) -> str:
    try:
        pipelines.use(applied.name, applied.version)
    except ApprovalNeeded as needed:
        # The others of the same command go on.
        return f"in use after approval {needed.approval_id} by another person"
    return "in use"


def _connect() -> Connected:
    # Late, because connecting needs libraries that `--help` does not.
    from datp_tasks.cli.command_context import connect

    return connect()


def _check_params(definitions: list[PipelineDefinition], datp: Connected) -> None:
    """Ask the step types that can be imported here; the others are checked when they run."""
    if datp.steps_of_stack is None:
        import_steps(datp.settings.steps)
    else:
        # Its workers have them; that this process has not is no mistake of the pipelines.
        for missing in import_what_is_here(datp.settings.steps, datp.steps_of_stack):
            _warn(f"the params of its steps are not checked here: {missing}")
    mistakes = param_mistakes(definitions, registry)
    if mistakes:
        raise PipelineInvalid(mistakes)


def _say(text: str) -> None:
    typer.echo(text)


def _say_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _warn(text: str) -> None:
    typer.secho(f"warning: {text}", err=True, fg=typer.colors.YELLOW)


def _highlighted(text: str, language: str) -> Syntax:
    return Syntax(text, language, background_color="default", word_wrap=True)


def _state(info: PipelineInfo) -> str:
    if info.disabled:
        return "disabled"
    return "in use" if info.version_in_use else "not in use"


def _pipeline_json(info: PipelineInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "versionInUse": info.version_in_use,
        "disabled": info.disabled,
        "versions": info.versions,
        "drafts": info.drafts,
        "updatedAt": info.updated_at.isoformat(),
    }


def _version_json(info: VersionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "version": info.version,
        "contentHash": info.content_hash,
        "state": info.state,
        "inUse": info.in_use,
        "comment": info.comment,
        "createdAt": info.created_at.isoformat(),
        "committedAt": info.committed_at.isoformat() if info.committed_at else None,
    }
