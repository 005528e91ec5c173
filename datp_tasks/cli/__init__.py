"""The command `datp`. Errors are sentences, never stack traces; exit codes are for scripts."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from datp_tasks.errors import DatabaseUnavailable, DatpError

app = typer.Typer(
    name="datp",
    help="Distributed asynchronous transaction pipelines on Celery.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s")
    if show_version:
        typer.echo(f"datp-tasks {version('datp-tasks')}")
        raise typer.Exit


def _build() -> typer.Typer:
    from datp_tasks.cli import (
        api,
        env,
        groups,
        keys,
        ledger,
        nodes,
        operate,
        pipelines,
        resolve,
        timeouts,
        top,
        transactions,
        up,
        webhooks,
    )

    up.add_commands(app)
    env.add_commands(app)
    transactions.add_commands(app)
    resolve.add_commands(app)
    timeouts.add_commands(app)
    ledger.add_commands(app)
    nodes.add_commands(app)
    operate.add_commands(app)
    top.add_commands(app)
    api.add_commands(app)
    app.add_typer(pipelines.app, name="pipelines")
    app.add_typer(groups.app, name="groups")
    app.add_typer(keys.app, name="keys")
    app.add_typer(webhooks.app, name="webhooks")
    return app


def main() -> None:
    from redis.exceptions import RedisError
    from sqlalchemy.exc import DBAPIError

    try:
        _build()()
    except DatabaseUnavailable as error:
        _fail(f"{error} Is `datp up` running here, or DATP_DATABASE_URL right?")
    except DatpError as error:
        _fail(str(error))
    except RedisError as error:
        _fail(f"Redis does not answer: {error}. Is `datp up` running, or DATP_REDIS_URL right?")
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else "no reason given"
        _fail(f"PostgreSQL: {reason}. Is `datp up` running, or DATP_DATABASE_URL right?")
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str) -> None:
    typer.secho(message, err=True, fg=typer.colors.RED)
    sys.exit(1)
