"""`datp api`: the HTTP API; and how `datp up` runs one, with a key of its own."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from datp_tasks.cli.command_context import connect
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.local.ports import HOST
from datp_tasks.local.private_files import read_text, write_private
from datp_tasks.local.stack import Stack
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys, KeyHash
from datp_tasks.record.database import require_tables
from datp_tasks.runtime.command_parts import CommandParts
from datp_tasks.settings import Settings, variable

DEFAULT_PORT = 8700
LOCAL_OWNER = "local"
#: The key for programs, and the one for the person who runs the stack.
KEY_FILE = "api-key"
OPERATOR_KEY_FILE = "operator-key"
#: A key that can do everything should not be good for ever; the next `datp up` makes a new one.
OPERATOR_KEY_S = 30 * 86_400
URL_FILE = "api-url"
READY_S = 15.0
LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class LocalApi:
    """Where the API of `datp up` is, and the files with keys for it."""

    url: str
    key_file: Path
    operator_key_file: Path
    #: Empty if it is turned off.
    console_url: str = ""


def add_commands(app: typer.Typer) -> None:
    app.command()(api)


def api(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = HOST,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen at.")] = DEFAULT_PORT,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many processes.")] = 1,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each request.")
    ] = False,
) -> None:
    """Serve the HTTP API, until Ctrl-C or SIGTERM. `docs/api.md` explains it.

    It listens to this machine only, unless --host says otherwise; put a proxy with TLS in front
    of it before others can reach it.
    """
    from datp_tasks.api.server import serve

    context = connect()
    # Said here, before there are processes that could only die of it.
    KeyHash(context.settings.key_pepper, context.settings.key_pepper_previous)
    with suppress(DatabaseUnavailable):
        require_tables(context.engine)
    # The processes of the API have connections of their own.
    context.close()
    os.environ.update(context.environment)
    level = "info" if access_log else "warning"
    serve(host=host, port=port, workers=workers, log_level=level, access_log=access_log)


def start_local_api(stack: Stack, port: int | None = None) -> LocalApi:
    """One API process beside the others, and a key that is made once and kept."""
    pepper = stack.key_pepper()
    wanted = {**os.environ, **stack.urls.as_environment(), variable("key_pepper"): pepper}
    key, operator_key = _local_keys(stack, Settings.from_env(wanted))
    port = stack.take_port(port or DEFAULT_PORT)
    program = "from datp_tasks.cli import main; main()"
    stack.start_program(
        "api",
        [sys.executable, "-c", program, "api", "--port", str(port)],
        {variable("key_pepper"): pepper},
    )
    _wait_until_it_listens(port)
    url = f"http://{HOST}:{port}"
    write_private(stack.directory / URL_FILE, url + "\n")
    path = Settings.from_env(wanted).console_path
    return LocalApi(url, key, operator_key, "" if path == "off" else url + path)


def _local_keys(stack: Stack, settings: Settings) -> tuple[Path, Path]:
    """Files with the keys of the last time, if they still hold; else with new ones."""
    with CommandParts(settings) as parts:
        client, operator = stack.directory / KEY_FILE, stack.directory / OPERATOR_KEY_FILE
        _keep_key(parts.api_keys, client, None)
        _keep_key(parts.api_keys, operator, Role.ADMIN, expires_in_s=OPERATOR_KEY_S)
        return client, operator


def _keep_key(
    keys: ApiKeys, path: Path, role: Role | None, *, expires_in_s: float | None = None
) -> None:
    text = read_text(path)
    known = keys.verify(text) if text else None
    if known is None or known.role is not role:
        made = keys.create(
            LOCAL_OWNER,
            role,
            actor=Actor(name="datp up"),
            name="made by datp up",
            expires_in_s=expires_in_s,
        )
        write_private(path, made.text + "\n")
        if known is not None:
            # Earlier releases made an operator key that never expires in its place.
            keys.revoke(
                known.id, actor=Actor(name="datp up"), reason="replaced by one that may do less"
            )


def _wait_until_it_listens(port: int) -> None:
    """What is printed next can be tried at once; one that is late is late."""
    give_up_s = time.monotonic() + READY_S
    while time.monotonic() < give_up_s:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            time.sleep(LOOK_EVERY_S)
