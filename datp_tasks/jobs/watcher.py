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
from datp_tasks.live.queue_trends import QueueTrend, QueueTrends
from datp_tasks.live.store import LiveStore
from datp_tasks.model.node_groups import NodeGroup
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.observe.beat_watch import BEAT_SILENT
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.ledger_batches import BatchStore

log = logging.getLogger("datp.watcher")

NO_WORKER, NODE_LOST, QUEUE_LONG = "group-without-worker", "node-lost", "queue-long"
LONG_RUNNING, QUEUE_GROWS = "long-running", "queue-grows"
#: What this job opens and closes; and closes only.
KINDS = (NO_WORKER, NODE_LOST, QUEUE_LONG, LONG_RUNNING, QUEUE_GROWS)
#: Subject of the alert about all queued transactions together.
ALL_QUEUED = "queuedZ"
#: An alert says so above these. Messages that a worker of ordinary speed needs a minute for.
BELLS_MAX = 10_000
#: At a few thousand a second, more than half a minute of work for a group.
QUEUED_MAX = 100_000
#: Ten times what a step may take; a pipeline that is known to take longer says so.
LONG_RUNNING_S = 600.0
#: Long for a client that polls; a node group that is known to work off batches says so.
QUEUE_AGE_S = 120.0
#: A queue with at most so many messages is short, and that it grows is ordinary.
SHORT_MAX = 100
#: A hundred of each of 16 shards: so many that were accepted together may lie in one.
LATE_MAX = 1_600
#: One that waits shorter is just about to be taken.
LATE_MS = 3_000
#: Transactions that run for longer than the shortest limit, the longest first.
RUNNING_MAX = 1_000
#: A queue that has so many times the messages of some minutes ago grows.
GROWS = 2.0

#: Kind and subject -> what there is to say.
Findings = dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Result:
    raised: int
    cleared: int


def run_once(
    live: LiveStore,
    register: NodeRegister,
    groups: WorkGroups,
    alerts: Alerts,
    backlog: Callable[[str], int],
) -> Result:
    standing = register.look()
    is_open = {(each.kind, each.subject) for each in alerts.open_alerts()}
    lost, healed = _lost(register, standing, live.server_now_ms())
    waiting = {group: backlog(group) for group in sorted(groups.names())}
    found = lost | _without_worker(live, standing, waiting)
    sizes = {group: (size, BELLS_MAX) for group, size in waiting.items()}
    sizes[ALL_QUEUED] = (live.sizes()["queuedZ"], QUEUED_MAX)
    found |= _long_queues(sizes, is_open)
    known = groups.current()
    found |= _long_runners(live, LongRunning(groups.long_running_s(), known))
    trends = QueueTrends(live).look(waiting)
    found |= _growing_queues(trends, known, is_open)
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

    def current(self) -> dict[str, NodeGroup]:
        return self._groups.current()

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
        what = "1 node" if len(gone) == 1 else f"{len(gone)} nodes"
        summary = (
            f"{what} of group {group} stopped without leaving: {names}{more}. "
            f"{'Its' if len(gone) == 1 else 'Their'} transactions are taken over by others"
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


@dataclass(frozen=True, slots=True)
class LongRunning:
    """From when on one that runs is worth an alert: as its pipeline says, else its node group."""

    by_pipeline: dict[str, float]
    groups: dict[str, NodeGroup]

    def limit_s(self, pipeline: str, group: str) -> float:
        """0: never."""
        if pipeline in self.by_pipeline:
            return self.by_pipeline[pipeline]
        return _said(self.groups, group, "longRunningSeconds", LONG_RUNNING_S)

    def shortest_s(self) -> float:
        groups = (each.values.get("longRunningSeconds", 0) for each in self.groups.values())
        said = [*self.by_pipeline.values(), *groups, LONG_RUNNING_S]
        return min(seconds for seconds in said if seconds > 0)


def _said(groups: dict[str, NodeGroup], group: str, name: str, otherwise: float) -> float:
    values = groups[group].values if group in groups else {}
    return float(values.get(name, otherwise))


def _long_runners(live: LiveStore, wanted: LongRunning) -> Findings:
    """By pipeline: transactions that a node has held for longer than theirs should take."""
    now_ms, shortest_ms = live.server_now_ms(), wanted.shortest_s() * 1_000
    held = [
        (tx_id, now_ms - since_ms)
        for tx_id, since_ms in live.listed("processingZ", rows_max=RUNNING_MAX)
        if now_ms - since_ms >= shortest_ms
    ]
    found = live.named_many([tx_id for tx_id, _ in held], ("pipeline", "group"))
    late: dict[str, list[str]] = {}
    limits: dict[str, float] = {}
    for (tx_id, held_ms), fields in zip(held, found, strict=True):
        pipeline = fields.get("pipeline", "")
        limit_s = wanted.limit_s(pipeline, fields.get("group", ""))
        if pipeline and limit_s and held_ms >= limit_s * 1_000:
            late.setdefault(pipeline, []).append(tx_id)
            limits[pipeline] = limit_s
    return {
        (LONG_RUNNING, pipeline): f"{len(held)} transaction(s) of {pipeline} run for longer than "
        f"{limits[pipeline]:g} s: {', '.join(held[:5])}; datp why {held[0]}"
        for pipeline, held in late.items()
    }


def _growing_queues(
    trends: dict[str, QueueTrend],
    groups: dict[str, NodeGroup],
    is_open: set[tuple[str, str]],
) -> Findings:
    """What waits for a group is old, or more and more. Over at half of that: it must not flicker.

    A group that was stopped on purpose is to queue.
    """
    found: Findings = {}
    for group, trend in trends.items():
        if group in groups and groups[group].is_stopped:
            continue
        share = 2 if (QUEUE_GROWS, group) in is_open else 1
        age_s = _said(groups, group, "queueAgeSeconds", QUEUE_AGE_S)
        said = []
        if age_s and trend.oldest_s > age_s / share:
            said.append(f"the oldest has waited for {trend.oldest_s:.0f} s")
        if trend.grows(SHORT_MAX // share, factor=GROWS if share == 1 else 1.0):
            said.append(f"{trend.before:.0f} messages are {trend.now} after {trend.over_s:.0f} s")
        if said:
            found[QUEUE_GROWS, group] = (
                f"more is queued for group {group} than its workers do: {', and '.join(said)}"
            )
    return found


def _long_queues(sizes: dict[str, tuple[int, int]], is_open: set[tuple[str, str]]) -> Findings:
    """Raised above a limit, cleared below half of it, so that it does not flicker."""
    found: Findings = {}
    for subject, (size, limit) in sizes.items():
        if size > (limit / 2 if (QUEUE_LONG, subject) in is_open else limit):
            what = "transactions are queued" if subject == ALL_QUEUED else "messages wait in it"
            found[QUEUE_LONG, subject] = f"queue {subject}: {size} {what}, the limit is {limit}"
    return found
