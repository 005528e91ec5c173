"""`datp mappings …`: mappings that pipelines share, and their versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.terminal_tables import list_table, print_list, short_time
from datp_tasks.pipelines.files import load_mappings
from datp_tasks.pipelines.yaml_text import dump

if TYPE_CHECKING:
    from datp_tasks.pipelines.mapping_store import MappingStore, StoredMapping

app = typer.Typer(help="Mappings that pipelines share, and their versions.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the mapping.")]
VersionOption = Annotated[str | None, typer.Option("--version", help="Version, or its start.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="mappings")


@app.command()
def apply(
    files: Annotated[list[Path], typer.Argument(help="YAML or JSON files, or folders of them.")],
    commit: Annotated[str | None, typer.Option(help="Commit too, with this comment.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Put into use too.")] = False,
) -> None:
    """Store each mapping as a new version, if its content is new."""
    mappings = _mappings()
    for definition in load_mappings(files):
        version, is_new = mappings.apply(definition)
        if commit is not None:
            mappings.commit(definition.name, version, commit)
        typer.echo(f"{definition.name} {version}: {'new version' if is_new else 'unchanged'}")
        if use:
            _use(mappings, definition.name, version, commit or "")


@app.command()
def commit(
    name: Name,
    comment: Annotated[str, typer.Option("--comment", "-m", help="What was changed, and why.")],
    version: VersionOption = None,
) -> None:
    """Mark a version (else the latest draft) as committed."""
    found = _mappings().commit(name, version, comment)
    typer.echo(f"{name} {found}: committed: {comment}")


@app.command()
def use(
    name: Name,
    version: Annotated[str, typer.Argument(help="Version, or the start of it.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept in the audit table.")] = "",
) -> None:
    """Give this version to pipelines; those in use that name it get a new version."""
    mappings = _mappings()
    _use(mappings, name, mappings.show(name, version).version, reason)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Show all mappings."""
    found = _mappings().list()
    if as_json:
        shown = [{"name": each.name, "versionInUse": each.version_in_use} for each in found]
        typer.echo(json.dumps(shown, indent=2))
        return
    rows = [
        (
            each.name,
            each.version_in_use or "-",
            str(each.versions),
            str(each.drafts),
            short_time(each.updated_at),
        )
        for each in found
    ]
    columns = ("Mapping", "In use", "Versions", "Drafts", "Changed")
    table = list_table(columns, rows, whole=("In use", "Changed"))
    print_list(Console(), table, empty="no mappings; `datp mappings apply` stores one from a file")


@app.command()
def show(name: Name, version: VersionOption = None, as_json: AsJson = False) -> None:
    """Show one version (else the one in use, else the newest) and what others there are."""
    mappings = _mappings()
    stored = mappings.show(name, version)
    if as_json:
        typer.echo(json.dumps(_as_json(stored), indent=2, ensure_ascii=False))
        return
    rows = [
        (
            each.version,
            f"{each.state}, in use" if each.in_use else each.state,
            short_time(each.created_at),
            escape(each.comment or ""),
        )
        for each in mappings.versions(name)
    ]
    columns = ("Version", "State", "Applied", "Comment")
    print_list(Console(), list_table(columns, rows, whole=columns[:3]), empty="no versions")
    typer.echo(dump(stored.definition.to_mapping()))


def _use(mappings: MappingStore, name: str, version: str, reason: str) -> None:
    for each in mappings.use(name, version, reason=reason):
        state = "in use"
        if each.approval_id is not None:
            state = f"in use after approval {each.approval_id} by another person"
        typer.echo(f"pipeline {each.pipeline} {each.version}: {state}")
    typer.echo(f"{name} {version}: in use")


def _as_json(stored: StoredMapping) -> dict[str, object]:
    return {
        "name": stored.definition.name,
        "version": stored.version,
        "state": stored.state,
        "inUse": stored.in_use,
        "comment": stored.comment,
        "definition": stored.definition.to_mapping(),
    }


def _mappings() -> MappingStore:
    # Late, because connecting needs libraries that `--help` does not.
    from datp_tasks.cli.command_context import connect

    return connect().mappings
