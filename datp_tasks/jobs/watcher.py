"""Raise alerts for what a person should look at, and clear those that have healed.

Moves:    nothing; opens and closes alerts, and forgets lost nodes that were replaced.
Knows:    what the register of nodes, the queues and `queuedZ` say now. That beat itself has
          stopped it cannot know: the workers notice that (observe/beat_watch.py).
Bound:    the nodes and groups there are, and LATE_MAX of the oldest queued transactions.
Overlap:  harmless: one alert is open per kind and subject.
Crash:    the next run finds the same and does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from datp_tasks.errors import DatpError
from datp_tasks.live.nodes import LOST_KEPT_MS, NodeRegister, Standing
from datp_tasks.live.store import LiveStore
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.observe.beat_watch import BEAT_SILENT
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.ledger_batches import BatchStore

log = logging.getLogger("datp.watcher")

NO_WORKER, NODE_LOST, QUEUE_LONG = "group-without-worker", "node-lost", "queue-long"
LONG_RUNNING = "long-running"
#: What this job opens and closes; and closes only.
KINDS = (NO_WORKER, NODE_LOST, QUEUE_LONG, LONG_RUNNING)
#: Subject of the alert about all queued transactions together.
ALL_QUEUED = "queuedZ"
LATE_MAX = 200
#: One that waits shorter is just about to be taken.
LATE_MS = 3_000

#: Kind and subject -> what there is to say.
Findings = dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Result:
    raised: int
    cleared: int


@dataclass(frozen=True, slots=True)
class Limits:
    #: Above so many an alert says so: messages in the queue of a group, and queued transactions.
    bells_max: int
    queued_max: int
    #: For pipelines that say nothing.
    long_running_s: float


def run_once(
    live: LiveStore,
    register: NodeRegister,
    groups: WorkGroups,
    alerts: Alerts,
    backlog: Callable[[str], int],
    *,
    limits: Limits,
) -> Result:
    standing = register.look()
    is_open = {(each.kind, each.subject) for each in alerts.open_alerts()}
    lost, healed = _lost(register, standing, live.server_now_ms())
    waiting = {group: backlog(group) for group in sorted(groups.names())}
    found = lost | _without_worker(live, standing, waiting)
    sizes = {group: (size, limits.bells_max) for group, size in waiting.items()}
    sizes[ALL_QUEUED] = (live.sizes()["queuedZ"], limits.queued_max)
    found |= _long_queues(sizes, is_open)
    found |= _long_runners(live, groups.long_running_s(), limits.long_running_s)
    raised = cleared = 0
    for (kind, subject), summary in (found | healed).items():
        if (kind, subject) not in is_open and alerts.raise_alert(kind, subject, summary):
            raised += 1
            log.error("%s", summary, extra={"event": f"alert.{kind}", "subject": subject})
    # Beat lives: it has brought this job here.
    over = {(kind, subject) for kind, subject in is_open | healed.keys() if kind in KINDS}
    over |= {key for key in is_open if key[0] == BEAT_SILENT}
    for kind, subject in sorted(over - found.keys()):
        if alerts.clear_alert(kind, subject):
            cleared += 1
            log.warning("%s: %s is over", subject, kind, extra={"event": "alert.cleared"})
    return Result(raised=raised, cleared=cleared)


class WorkGroups:
    """Every group that may have work."""

    def __init__(
        self,
        groups: GroupStore,
        pipelines: PipelineStore,
        catalogue: Catalogue,
        batches: BatchStore,
        *,
        maintenance_group: str,
        ledger_group: str,
    ) -> None:
        self._groups = groups
        self._pipelines = pipelines
        self._catalogue = catalogue
        self._batches = batches
        self._maintenance_group = maintenance_group
        self._ledger_group = ledger_group

    def names(self) -> set[str]:
        found = {self._maintenance_group, *self._groups.current()}
        if self._batches.services(rows_max=1):
            # Beat sends there in any case, but without a service no worker is needed.
            found.add(self._ledger_group)
        for definition in self._definitions():
            found |= {definition.group_of(index) for index in range(len(definition.steps))}
        return found

    def long_running_s(self) -> dict[str, float]:
        """Pipeline -> from when on one that runs is worth an alert, where its version says so."""
        return {
            each.name: each.long_running_s
            for each in self._definitions()
            if each.long_running_s is not None
        }

    def _definitions(self) -> Iterator[PipelineDefinition]:
        for info in self._pipelines.list():
            try:
                yield self._catalogue.current(info.name)
            except DatpError:
                continue


def _lost(register: NodeRegister, standing: Standing, now_ms: int) -> tuple[Findings, Findings]:
    """Nodes that fell silent: still missed, and already replaced."""
    missed: Findings = {}
    healed: Findings = {}
    for group, nodes in standing.lost.items():
        gone = {node: beat_ms for node, beat_ms in nodes.items() if now_ms - beat_ms < LOST_KEPT_MS}
        if not gone:
            register.forget_lost(group, nodes)
            continue
        since_ms = min(gone.values())
        fresh = [
            node for node in standing.live if node.group == group and node.joined_ms > since_ms
        ]
        names = ", ".join(sorted(gone)[:5])
        more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
        summary = (
            f"{len(gone)} node(s) of group {group} stopped without leaving: {names}{more}. Their "
            "transactions are taken over by others"
        )
        if len(fresh) >= len(gone):
            healed[NODE_LOST, group] = summary
            register.forget_lost(group, nodes)
        else:
            missed[NODE_LOST, group] = summary
    return missed, healed


def _without_worker(live: LiveStore, standing: Standing, waiting: dict[str, int]) -> Findings:
    late = live.due("queuedZ", before_ms=LATE_MS, batch_max=LATE_MAX)
    busy = {group for group, messages in waiting.items() if messages}
    busy |= {fields["group"] for fields in live.named_many(late, ("group",)) if fields}
    return {
        (NO_WORKER, group): f"group {group} has work, but no live worker; "
        f"start one with: celery -A datp_tasks worker -Q {group}"
        for group in busy - standing.groups()
    }


def _long_runners(live: LiveStore, said_s: dict[str, float], otherwise_s: float) -> Findings:
    """By pipeline: transactions that a node has held for longer than theirs should take."""
    late: dict[str, list[str]] = {}
    for limit_s in sorted({*said_s.values(), otherwise_s}):
        held = live.due("processingZ", before_ms=int(limit_s * 1_000), batch_max=LATE_MAX)
        for tx_id, fields in zip(held, live.named_many(held, ("pipeline",)), strict=True):
            pipeline = fields.get("pipeline", "")
            if pipeline and said_s.get(pipeline, otherwise_s) == limit_s:
                late.setdefault(pipeline, []).append(tx_id)
    return {
        (LONG_RUNNING, pipeline): f"{len(held)} transaction(s) of {pipeline} run for longer than "
        f"{said_s.get(pipeline, otherwise_s):g} s: {', '.join(held[:5])}; datp why {held[0]}"
        for pipeline, held in late.items()
    }


def _long_queues(sizes: dict[str, tuple[int, int]], is_open: set[tuple[str, str]]) -> Findings:
    """Raised above a limit, cleared below half of it, so that it does not flicker."""
    found: Findings = {}
    for subject, (size, limit) in sizes.items():
        if size > (limit / 2 if (QUEUE_LONG, subject) in is_open else limit):
            what = "transactions are queued" if subject == ALL_QUEUED else "messages wait in it"
            found[QUEUE_LONG, subject] = f"queue {subject}: {size} {what}, the limit is {limit}"
    return found
