"""What Prometheus scrapes: totals of the counters, gauges as last sampled, and open alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from datp_tasks.live.event_counts import PIPELINE, REQUEUED
from datp_tasks.live.metrics import Metrics
from datp_tasks.model.status import FINAL
from datp_tasks.record.alerts import Alert

#: Kind of a gauge -> name, help and label of its family.
GAUGES = {
    "list": ("datp_list_size", "Transactions in each list of Redis.", "list"),
    "queue": ("datp_queue_messages", "Messages that wait in the queue of each group.", "group"),
    "waiting": (
        "datp_queue_oldest_seconds",
        "How long the oldest that is queued for each group has waited.",
        "group",
    ),
    "nodes": ("datp_nodes", "Live nodes of each group.", "group"),
    "lag": ("datp_lag_seconds", "How long the most overdue has been due.", "of"),
}


def families(metrics: Metrics, alerts: Sequence[Alert]) -> Iterator[Metric]:
    yield from _transactions(metrics)
    yield from _gauges(metrics.gauges())
    yield from _steps(metrics.step_times())
    opened = GaugeMetricFamily("datp_alerts_open", "Alerts that are open.", labels=["kind"])
    for kind, number in sorted(Counter(each.kind for each in alerts).items()):
        opened.add_metric([kind], number)
    yield opened


def _transactions(metrics: Metrics) -> Iterator[Metric]:
    labels = ["group", "pipeline"]
    queued = CounterMetricFamily("datp_transactions_queued", "Accepted and queued.", labels=labels)
    started = CounterMetricFamily(
        "datp_transactions_started", "Claimed by a worker; once per hop.", labels=labels
    )
    ended = CounterMetricFamily(
        "datp_transactions_ended", "Ended, by final status.", labels=[*labels, "status"]
    )
    requeued = CounterMetricFamily(
        "datp_transactions_requeued",
        "Queued again: handed over, woken, switched, resolved or taken over.",
        labels=labels,
    )
    pipelines = CounterMetricFamily(
        "datp_pipelines_started", "Pipelines begun, those called by others too.", labels=labels
    )
    by_name = {"queued": queued, REQUEUED: requeued, PIPELINE: pipelines}
    # Owners are added up: a scraper need not know who they are.
    totals: Counter[tuple[str, str, str]] = Counter()
    for label, number in metrics.totals().items():
        totals[label.what, label.group, label.pipeline] += number
    for (what, group, pipeline), number in sorted(totals.items()):
        if what in FINAL:
            ended.add_metric([group, pipeline, what], number)
        else:
            by_name.get(what, started).add_metric([group, pipeline], number)
    yield from (queued, started, ended, requeued, pipelines)


def _gauges(values: Mapping[str, float]) -> Iterator[Metric]:
    for kind, (name, text, label) in GAUGES.items():
        family = GaugeMetricFamily(name, text, labels=[label])
        for key, value in sorted(values.items()):
            prefix, _, rest = key.partition("|")
            if prefix == kind:
                family.add_metric([rest], value)
        yield family
    yield GaugeMetricFamily(
        "datp_journal_entries_waiting",
        "Entries of the journal that SQL does not have yet.",
        value=values.get("journal", 0.0),
    )


def _steps(times: Mapping[str, tuple[int, float]]) -> Iterator[Metric]:
    passed = CounterMetricFamily(
        "datp_step_transactions", "Transactions that passed a place.", labels=["place"]
    )
    spent = CounterMetricFamily(
        "datp_step_seconds", "Time spent in the steps of hops from a place.", labels=["place"]
    )
    for place, (number, seconds) in times.items():
        passed.add_metric([place], number)
        spent.add_metric([place], seconds)
    yield from (passed, spent)
