"""`datp top`: groups, queues, rates and long-runners, refreshing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from datp_tasks.bells.broker import backlog, make_celery
from datp_tasks.cli.command_context import Context, connect, is_remote
from datp_tasks.cli.terminal_tables import list_table, print_json
from datp_tasks.live.metrics import RESOLUTIONS, Slot, summed
from datp_tasks.model.plan import step_words
from datp_tasks.model.status import FINAL
from datp_tasks.operator.doctor import InFlight

if TYPE_CHECKING:
    from datp_tasks.cli.remote_context import RemoteContext

BARS = " ▁▂▃▄▅▆▇█"
LONGEST = 8
#: Slots of five seconds that rates are the mean of, and that the small plot shows.
RATE_SLOTS, PLOT_SLOTS = 2, 40


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str
    nodes: int
    busy: int
    slots: int
    messages: int
    started_per_s: float


@dataclass(frozen=True, slots=True)
class TopView:
    groups: list[GroupRow]
    sizes: dict[str, int]
    rates: dict[str, float]
    #: Ended per second, oldest first.
    ended: list[float]
    longest: list[InFlight]
    alerts: list[str]
    now_ms: int


def add_commands(app: typer.Typer) -> None:
    app.command()(top)


def top(
    every_s: Annotated[float, typer.Option("--every", help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Look once; JSON, for programs.")] = False,
) -> None:
    """Watch groups, queues, rates and long-runners. Ctrl-C leaves."""
    context = connect()
    look_once = cast("RemoteContext", context).top_view if is_remote() else partial(look, context)
    console = Console()
    if as_json:
        print_json(console, _as_json(look_once()))
        return
    if once:
        console.print(_drawn(look_once()))
        return
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(_drawn(look_once()), refresh=True)
            time.sleep(every_s)


def look(context: Context) -> TopView:
    live = context.live
    now_ms = live.server_now_ms()
    series = context.metrics.series(RESOLUTIONS["fine"], now_ms // 1_000)
    # The last slot is not over, and the meter may not have read the one before.
    full = [slot for slot in series[:-1]]
    while full and not full[-1].counts and not full[-1].gauges and len(full) > PLOT_SLOTS:
        full.pop()
    recent = full[-RATE_SLOTS:]
    seconds = RESOLUTIONS["fine"].slot_s * max(1, len(recent))
    alerts = context.alerts.open_alerts()
    return TopView(
        groups=_groups(context, recent, seconds),
        sizes=live.sizes(),
        rates={
            what: sum(_count(slot, what) for slot in recent) / seconds
            for what in ("queued", "started", "ended")
        },
        ended=[_count(slot, "ended") / RESOLUTIONS["fine"].slot_s for slot in full[-PLOT_SLOTS:]],
        longest=context.operator.in_flight(rows_max=LONGEST),
        alerts=[f"{each.kind}: {each.summary}" for each in alerts],
        now_ms=now_ms,
    )


def _groups(context: Context, recent: list[Slot], seconds: int) -> list[GroupRow]:
    nodes = context.nodes.nodes()
    celery = make_celery(context.settings)
    names = {node.group for node in nodes} | {context.settings.maintenance_group}
    started = [summed(slot, by=["what", "group"]) for slot in recent]
    return [
        GroupRow(
            name=name,
            nodes=sum(node.group == name for node in nodes),
            busy=sum(int(node.load.get("busy", 0)) for node in nodes if node.group == name),
            slots=sum(int(node.load.get("slots", 1)) for node in nodes if node.group == name),
            messages=backlog(celery, name),
            started_per_s=sum(each.get(("started", name), 0) for each in started) / seconds,
        )
        for name in sorted(names)
    ]


def _count(slot: Slot, what: str) -> int:
    by_what = summed(slot, by=["what"])
    if what == "ended":
        return sum(by_what.get((status,), 0) for status in FINAL)
    return by_what.get((what,), 0)


def _drawn(view: TopView) -> Group:
    groups = Table("group", "nodes", "busy", "messages", "started/s", title="Groups", box=None)
    for row in view.groups:
        groups.add_row(
            *(row.name, str(row.nodes), f"{row.busy}/{row.slots}", str(row.messages)),
            f"{row.started_per_s:,.1f}",
        )
    rates = "   ".join(f"{what} {rate:,.1f}/s" for what, rate in view.rates.items())
    sizes = "   ".join(f"{name[:-1]} {size:,}" for name, size in view.sizes.items())
    running = []
    for each in view.longest:
        node = f"[red]{each.node}[/red]" if each.orphaned else each.node
        since_s = max(0.0, (view.now_ms - each.since_ms) / 1_000)
        running.append(
            (each.tx_id, f"{since_s:.1f} s", step_words(each.place, each.step_type), node),
        )
    columns, whole = ("transaction", "for", "step", "node"), ("transaction", "for")
    long = list_table(columns, running, whole=whole, title="Longest")
    parts: list[Any] = [groups, Text(rates), Text(f"{plot(view.ended)}  ended"), Text(sizes), long]
    parts += [Text(f"! {text}", style="bold red") for text in view.alerts]
    return Group(*parts)


def plot(values: list[float]) -> str:
    """A line of small bars, the highest as high as the highest value."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[round(value / highest * (len(BARS) - 1))] for value in values)


def _as_json(view: TopView) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": row.name,
                "nodes": row.nodes,
                "busy": row.busy,
                "slots": row.slots,
                "messages": row.messages,
                "startedPerS": row.started_per_s,
            }
            for row in view.groups
        ],
        "lists": view.sizes,
        "rates": view.rates,
        "longest": [
            {"txId": each.tx_id, "node": each.node, "place": each.place, "sinceMs": each.since_ms}
            for each in view.longest
        ],
        "alerts": view.alerts,
    }
