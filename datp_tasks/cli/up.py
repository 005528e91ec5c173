"""`datp up` and `datp demo`: the whole product on this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from datp_tasks.cli.api import LocalApi, start_local_api
from datp_tasks.cli.command_context import Context, connect, connect_sql, given_url, is_running
from datp_tasks.cli.demo import run_demo
from datp_tasks.cli.demo_plan import example
from datp_tasks.cli.flower import Flower, start_flower
from datp_tasks.cli.group_watch import GroupWatch, node_groups
from datp_tasks.cli.own_steps import import_steps
from datp_tasks.engine.registry import registry
from datp_tasks.errors import LocalStackError
from datp_tasks.local.ports import HOST
from datp_tasks.local.stack import DEFAULT_DIRECTORY, Stack, StackUrls
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.pipelines.step_availability import offered_step_types
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.record.database import Engine, migrate
from datp_tasks.runtime.command_parts import CommandParts
from datp_tasks.settings import Settings, environment

Directory = Annotated[Path, typer.Option(help="Where data and logs are kept.")]


def add_commands(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(demo)
    app.command("migrate")(migrate_command)


def up(
    directory: Directory = Path(DEFAULT_DIRECTORY),
    concurrency: Annotated[int, typer.Option(min=1, help="Processes per worker.")] = 1,
    with_example: Annotated[
        bool, typer.Option("--example", help="Load the payments example, for `datp demo`.")
    ] = False,
    with_api: Annotated[
        bool, typer.Option("--api/--no-api", help="Serve the HTTP API, on this machine only.")
    ] = True,
    with_flower: Annotated[
        bool, typer.Option("--flower/--no-flower", help="Run Flower, on this machine only.")
    ] = True,
) -> None:
    """Run everything here: servers, workers for every node group, and beat. Ctrl-C ends it.

    Workers import the modules that DATP_STEPS names, with commas between them. A node group that a
    pipeline brings along while this runs gets a worker at once.
    """
    console = Console()
    with _started(console, directory, concurrency, with_example) as stack:
        flower = start_flower(stack) if with_flower else None
        api = start_local_api(stack) if with_api else None
        console.print(_what_runs(stack))
        # Secrets are not printed: terminals are recorded, shared and scrolled back.
        for line in doors(api, flower):
            console.print(line, highlight=False, soft_wrap=True)
        console.print(_what_to_try(with_example), highlight=False, soft_wrap=True)
        with GroupWatch(stack, registry.names(), _say_to(console)) as watch:
            stack.run_until_interrupted(between=watch.look)
    console.print("stopped")


def doors(api: LocalApi | None, flower: Flower | None) -> Iterator[str]:
    """Where to go in, and which files hold what is asked there."""
    if api is not None:
        key, operator_key = map(os.path.relpath, (api.key_file, api.operator_key_file))
        yield f"API: {api.url}  key in [bold]{key}[/bold], for operators in {operator_key}"
        if api.console_url:
            yield f"Console: {api.console_url}  sign in with the key in [bold]{operator_key}[/bold]"
    if flower is not None:
        password = os.path.relpath(flower.password_file)
        yield f"Flower: {flower.url}  user {flower.user}  password in [bold]{password}[/bold]"


def _what_to_try(with_example: bool) -> str:
    modules = ", ".join(_own_modules())
    lines = [
        f"Steps: those of {modules} (DATP_STEPS), and those that come along."
        if modules
        else "Steps: those that come along. DATP_STEPS=my_steps datp up adds those of my_steps.py.",
        "Try in another terminal:",
    ]
    if with_example:
        lines += [
            "  [bold]datp demo[/bold]",
            "  [bold]datp submit transfer --wait --input "
            '\'{"from": "ann", "to": "bob", "amount": 2500, "currency": "EUR"}\'[/bold]',
            '  [bold]datp submit settlement --wait --input \'{"currency": "EUR"}\'[/bold]',
        ]
    else:
        lines += [
            "  [bold]datp pipelines apply my_pipeline.yaml --use[/bold]",
            "  [bold]datp submit my_pipeline --wait --input '{}'[/bold]",
        ]
    return "\n".join([*lines, "Ctrl-C stops everything; the data stay."])


def demo(
    transfers: Annotated[int, typer.Option(min=10, max=100_000, help="How many.")] = 300,
    seed: Annotated[int, typer.Option(help="The same seed makes the same choices.")] = 1,
    directory: Directory = Path(DEFAULT_DIRECTORY),
    timeout_s: Annotated[float, typer.Option(help="Give up after so many seconds.")] = 120.0,
) -> None:
    """Run a few hundred transfers of all kinds and check the books. Exit code 0: all is right.

    Uses a running `datp up` (or the servers that DATP_*_URL name); starts its own otherwise.
    """
    console = Console()
    if is_running(directory):
        good = _run_demo(connect(directory), console, transfers, seed, timeout_s)
    else:
        console.print("Nothing runs here yet, so the demo starts its own servers and workers.")
        with _started(console, directory, concurrency=1, with_example=True) as stack:
            settings = Settings.from_env({**os.environ, **stack.urls.as_environment()})
            good = _run_demo(Context(settings), console, transfers, seed, timeout_s)
    raise typer.Exit(0 if good else 1)


def migrate_command() -> None:
    """Create the tables in PostgreSQL, or bring them up to date."""
    migrate(connect_sql().settings.database_url)
    typer.echo("the tables are up to date")


def _run_demo(
    context: Context, console: Console, transfers: int, seed: int, timeout_s: float
) -> bool:
    _require_example_workers(context)
    load_example(context.pipelines, context.engine)
    service = example("").SETTLEMENT_SERVICE
    with_ledger = bool(context.ledger.batches.services([service]))
    with context.client as client:
        return run_demo(
            client,
            context.engine,
            transfers=transfers,
            seed=seed,
            console=console,
            timeout_s=timeout_s,
            with_ledger=with_ledger,
        )


def _require_example_workers(context: Context) -> None:
    """Without them every transfer would wait for ever."""
    offered = offered_step_types(context.live.redis, context.live.keys)
    if offered is not None and not any(each.startswith("payments/") for each in offered):
        raise LocalStackError(
            "The workers that run here do not have the payments example. Stop `datp up` and start "
            "`datp up --example`."
        )


def _say_to(console: Console) -> Callable[[str], None]:
    def say(line: str) -> None:
        console.print(f"[dim]{line}[/dim]", highlight=False, soft_wrap=True)

    return say


@contextmanager
def _started(
    console: Console, directory: Path, concurrency: int, with_example: bool
) -> Iterator[Stack]:
    import_steps(_modules(with_example))
    stack = Stack(
        directory,
        say=_say_to(console),
        redis_url=given_url("DATP_REDIS_URL") or None,
        broker_url=given_url("DATP_BROKER_URL") or None,
        database_url=given_url("DATP_DATABASE_URL") or None,
        concurrency=concurrency,
        environment=_worker_environment(with_example),
    )
    with stack:
        urls = stack.start_servers()
        # `datp keys` needs it also while no API runs.
        stack.key_pepper()
        stack.keyring_file()
        ledger_url = f"http://{HOST}:{stack.take_port()}" if with_example else ""
        groups = prepare(urls, with_example=with_example, ledger_url=ledger_url)
        if ledger_url:
            port = ledger_url.rpartition(":")[2]
            program = "from datp_tasks.cli import main; main()"
            stack.start_program(
                "ledger-sim", [sys.executable, "-c", program, "ledger-sim", "--port", port]
            )
        stack.start_workers(groups)
        yield stack


def prepare(urls: StackUrls, *, with_example: bool, ledger_url: str = "") -> list[str]:
    """Tables, pipelines, and the node groups that need a worker."""
    migrate(urls.database_url)
    settings = Settings.from_env({**os.environ, **urls.as_environment()})
    with CommandParts(settings) as parts:
        if with_example:
            load_example(parts.pipelines, parts.engine)
        if ledger_url:
            package = example("")
            parts.ledger.intake.add_service(
                package.SETTLEMENT_SERVICE, kind="sawtooth", url=ledger_url
            )
        parts.pipelines.refresh_all()
        needs = node_groups(
            parts.pipelines, parts.catalogue, settings.maintenance_group, registry.names()
        )
        return list(dict.fromkeys([*needs.served, settings.ledger_group]))


def load_example(pipelines: PipelineStore, engine: Engine) -> None:
    """Put the payments example into use; its accounts are made too."""
    package = example("")
    for definition in load_definitions([package.PIPELINES_FOLDER]):
        applied = pipelines.apply(definition)
        pipelines.commit(applied.name, applied.version, "payments example")
        pipelines.use(applied.name, applied.version)
    example("sample").open_sample_accounts(engine)


def _worker_environment(with_example: bool) -> dict[str, str]:
    if importlib.util.find_spec("celeryconfig") is None:
        raise LocalStackError("celeryconfig.py is missing; install datp-tasks again.")
    # On this machine webhooks may stay on this machine.
    hosts = Settings.from_env().webhook_private_hosts or ("127.0.0.1", "localhost")
    return environment({"steps": tuple(_modules(with_example)), "webhook_private_hosts": hosts})


def _own_modules() -> list[str]:
    return [part.strip() for part in os.environ.get("DATP_STEPS", "").split(",") if part.strip()]


def _modules(with_example: bool) -> list[str]:
    """What the workers import."""
    of_example = [example("").STEPS_MODULE] if with_example else []
    return list(dict.fromkeys([*_own_modules(), *of_example]))


def _what_runs(stack: Stack) -> Table:
    table = Table(title="DATP Tasks is running", title_justify="left")
    table.add_column("what")
    table.add_column("pid", justify="right")
    table.add_column("where")
    for child in stack.children:
        table.add_row(child.name, str(child.pid or "-"), _where(child.name, stack))
    return table


def _where(name: str, stack: Stack) -> str:
    urls = {"PostgreSQL": stack.urls.database_url, "Redis": stack.urls.redis_url}
    for label, url in urls.items():
        if name.lower().startswith(label.lower()[:5]):
            return url.rpartition("@")[2]
    return os.path.relpath(stack.logs_dir / f"{name.replace(' ', '-')}.log")
