"""`datp steps`: which step types there are, what they are for and what params they take."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from datp_tasks.cli.command_context import connect
from datp_tasks.cli.terminal_tables import list_table, print_json, print_list

steps_app = typer.Typer(
    help="Step types: what they are for and what params they take.", no_args_is_help=True
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    app.add_typer(steps_app, name="steps")


@steps_app.command("list")
def list_types(as_json: AsJson = False) -> None:
    """List the step types of live nodes, and those that come with the package."""
    found = connect().step_types()
    if as_json:
        print_json(Console(), [each.to_json() for each in found])
        return
    rows = [
        [
            escape(each.name),
            ", ".join(each.groups) or "-",
            str(each.nodes),
            escape(each.description.partition("\n")[0]),
        ]
        for each in found
    ]
    table = list_table(("step type", "groups", "nodes", "does"), rows, whole=("step type",))
    print_list(Console(), table, empty="no step types")


@steps_app.command()
def show(
    name: Annotated[str, typer.Argument(help="Such as util/delay.")], as_json: AsJson = False
) -> None:
    """Show a step type: description, the JSON schema of its params, a definition to begin with."""
    found = connect().step_type(name)
    console = Console()
    if as_json:
        print_json(console, found.to_json())
        return
    console.print(f"[bold]{escape(found.name)}[/bold]  {escape(found.description)}")
    console.print(f"groups: {', '.join(found.groups) or 'no live node offers it'}")
    about = found.to_json()
    for title, part in (("params", "parameters"), ("to begin with", "defaultDefinition")):
        if about.get(part):
            console.print(f"{title}:")
            print_json(console, about[part])
