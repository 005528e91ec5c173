"""The command `datp`. Errors are sentences, never stack traces; exit codes are for scripts."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from datp_tasks.cli.lazy import LazyGroup
from datp_tasks.errors import ApprovalNeeded, DatabaseUnavailable, DatpError

#: Exit code: nothing was done yet, another person must agree first.
APPROVAL_NEEDED = 7
#: SQLSTATEs: undefined table, undefined column.
NOT_MIGRATED = ("42P01", "42703")

app = typer.Typer(
    name="datp",
    cls=LazyGroup,
    help="Distributed asynchronous transaction pipelines on Celery.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
    url: Annotated[
        str | None, typer.Option("--url", help="Ask the HTTP API there, instead of the servers.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="API key for --url; better in DATP_KEY.")
    ] = None,
) -> None:
    import logging

    from datp_tasks.cli.command_context import ask_over_http

    ask_over_http(url, key)

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s")
    if show_version:
        from importlib.metadata import version

        typer.echo(f"datp-tasks {version('datp-tasks')}")
        raise typer.Exit


def main() -> None:
    try:
        app()
    except DatabaseUnavailable as error:
        said = f" It said: {error.reason}." if error.reason else ""
        _fail(f"{error}{said} Is `datp up` running here, or DATP_DATABASE_URL right?")
    except ApprovalNeeded as error:
        typer.secho(str(error), err=True, fg=typer.colors.YELLOW)
        sys.exit(APPROVAL_NEEDED)
    except DatpError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sentence = _of_a_server(error)
        if sentence is None:
            raise
        _fail(sentence)


def _of_a_server(error: Exception) -> str | None:
    """What a driver raised, as a sentence. The drivers are imported only now."""
    from datp_tasks.live.redis_errors import RedisError
    from datp_tasks.record.sql_errors import DBAPIError

    if isinstance(error, RedisError):
        return f"Redis does not answer: {error}. Is `datp up` running, or DATP_REDIS_URL right?"
    if isinstance(error, DBAPIError):
        reason = str(error.orig).strip().splitlines()[0] if error.orig else "no reason given"
        if getattr(error.orig, "pgcode", None) in NOT_MIGRATED:
            return (
                f"PostgreSQL: {reason}. The tables are missing, or older than this release: "
                "run `datp migrate`."
            )
        return f"PostgreSQL: {reason}. Is `datp up` running, or DATP_DATABASE_URL right?"
    return None


def _fail(message: str) -> None:
    typer.secho(message, err=True, fg=typer.colors.RED)
    sys.exit(1)
