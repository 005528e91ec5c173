"""`datp env`: where a running `datp up` has its servers, for programs of your own."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from datp_tasks.cli.api import KEY_FILE, OPERATOR_KEY_FILE, URL_FILE
from datp_tasks.cli.command_context import ALL_URL_VARIABLES, connect, of_running_stack
from datp_tasks.errors import LocalStackError, SettingsError
from datp_tasks.local.private_files import read_text
from datp_tasks.local.run_file import read_run_file
from datp_tasks.local.stack import DEFAULT_DIRECTORY


def add_commands(app: typer.Typer) -> None:
    app.command()(env)


def env(
    directory: Annotated[Path, typer.Option(help="Where `datp up` keeps its data.")] = Path(
        DEFAULT_DIRECTORY
    ),
) -> None:
    """Print the addresses of a running `datp up` for a shell: `eval "$(datp env)"`.

    The values hold passwords and the keys of its HTTP API at DATP_URL: DATP_KEY for programs,
    DATP_OPERATOR_KEY for operators.
    """
    run = read_run_file(directory)
    if run is None:
        raise LocalStackError(f"Nothing runs in {directory}; start it with `datp up`.")
    found = of_running_stack(directory)
    urls = {name: found[name] for name in ALL_URL_VARIABLES}
    # A shell whose variables name other servers, or these with an old password, asks for these.
    with suppress(LocalStackError, SettingsError):
        found |= {**connect(directory).environment, **urls}
    if "api" in run.pids:
        # What is left of an earlier run with an API is of no use without one.
        found["DATP_URL"] = read_text(run.directory / URL_FILE) or ""
        found["DATP_KEY"] = read_text(run.directory / KEY_FILE) or ""
        found["DATP_OPERATOR_KEY"] = read_text(run.directory / OPERATOR_KEY_FILE) or ""
    for name, value in sorted(found.items()):
        typer.echo(f"export {name}={shlex.quote(value)}")
