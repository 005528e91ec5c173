"""`datp db …`: what the roles of the database may do."""

from __future__ import annotations

from typing import Annotated

import typer

from datp_tasks.cli.command_context import connect_sql
from datp_tasks.record.table_rights import apply_rights, rights_sql

app = typer.Typer(help="The database: rights of its roles.", no_args_is_help=True)


def add_commands(root: typer.Typer) -> None:
    root.add_typer(app, name="db")


@app.callback()
def db() -> None:
    """The database: rights of its roles."""


@app.command()
def rights(
    role: Annotated[str, typer.Option(help="The role that workers and the API connect as.")],
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Do it, as the owner of the tables, instead of printing."),
    ] = False,
) -> None:
    """Print the SQL that lets a role run everything, and only add to the audit.

    Run it after each `datp migrate`; the role must exist and must not own the tables.
    """
    statements = rights_sql(role)
    if apply:
        apply_rights(connect_sql().engine, role)
        typer.echo(f"done: {role} can add to the audit, and change nothing in it")
        return
    for statement in statements:
        typer.echo(f"{statement};")
