"""Each job by its name, given what it needs of the container, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from datp_tasks.jobs import (
    approvals,
    archiver,
    audit_sealer,
    batch_poller,
    claim_queuer,
    endpoint_feeder,
    group_cache,
    meter,
    operator_runs,
    pipeline_cache,
    reaper,
    rebuild,
    reconciler,
    retention,
    sleeper,
    timeout_handler,
    watcher,
    webhook_sender,
)
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.record.journal import Journal
from datp_tasks.record.journal_gap import FilesAndGap
from datp_tasks.record.retention import Retention
from datp_tasks.record.retention_rules import RetentionRules
from datp_tasks.record.states import States
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.runtime.clients import make_operator, make_operator_runs
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings
from datp_tasks.timeouts.expire import Patience
from datp_tasks.webhooks.sender import Pace

#: Actions that one run puts into the chain of the audit: a second's work at most.
SEALED_MAX = 10_000

#: How many messages wait in the queue of a node group.
Backlog = Callable[[str], int]
#: The settings are those of the process, with what the node group says in their place.
Job = Callable[[Container, Settings, Backlog], Any]


def run(name: str, container: Container, backlog: Backlog, settings: Settings | None = None) -> Any:
    """One run of a job, as the settings say; what it did."""
    return JOBS[name](container, settings or container.settings, backlog)


def send_webhooks(container: Container, settings: Settings) -> webhook_sender.Result:
    """The webhook sender without its look into SQL, for what has just become due."""
    return webhook_sender.send(container.webhooks, pace=Pace.of(settings))


# What several need.


def alerts_of(container: Container) -> Alerts:
    return Alerts(container.engine, container.clock)


def node_register(container: Container, settings: Settings) -> NodeRegister:
    return NodeRegister(
        container.live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
    )


# One by one.


def archiver_tables(container: Container, settings: Settings) -> archiver.ArchiverTables:
    engine, clock = container.engine, container.clock
    return archiver.ArchiverTables(
        journal=Journal(engine, clock),
        states=States(engine, clock),
        alerts=alerts_of(container),
        files=FilesAndGap.of(settings, engine, clock),
    )


def archiver_limits(settings: Settings) -> archiver.Limits:
    return archiver.Limits(
        role_s=settings.archiver_role_s,
        grace_s=settings.archiver_grace_s,
        states_max=settings.archiver_batch_max,
    )


def _archiver(container: Container, settings: Settings, _: Backlog) -> archiver.Result:
    tables, limits = archiver_tables(container, settings), archiver_limits(settings)
    return archiver.run_once(container.live, tables, limits=limits)


def _meter(container: Container, settings: Settings, backlog: Backlog) -> meter.Result:
    container.bells.counts.send()
    return meter.run_once(
        container.live,
        node_register(container, settings),
        Timeouts(container.engine, container.clock),
        container.webhooks.store,
        backlog,
        maintenance_group=settings.maintenance_group,
    )


def _reaper(container: Container, settings: Settings, _: Backlog) -> reaper.Result:
    silent_ms = settings.node_stale_ms + settings.node_grace_ms
    take_over = container.recovery.take_over
    return reaper.run_once(container.live, take_over, unlisted_after_ms=silent_ms)


def rebuild_tables(container: Container) -> rebuild.RebuildTables:
    journal = Journal(container.engine, container.clock)
    return rebuild.RebuildTables(container.record, journal, alerts_of(container))


def _reconciler(container: Container, settings: Settings, backlog: Backlog) -> reconciler.Result:
    return reconciler.run_once(
        container.live,
        rebuild_tables(container),
        container.recovery.rebuilder,
        container.bells.ringer,
        partial(_messages, container, backlog),
        ring_again_after_ms=settings.ring_again_after_ms,
    )


def _messages(container: Container, backlog: Backlog, group: str) -> int:
    """Those in the queue of a group. A line without any goes on with a message that a worker has
    just taken, or its message was lost: it counts as one."""
    return backlog(group) or min(container.bells.ringer.waiting(group), 1)


def _retention(container: Container, settings: Settings, _: Backlog) -> retention.Result:
    limits = retention.Limits(
        states_days=settings.keep_states_days,
        journal_days=settings.keep_journal_days,
        state_changes_days=settings.keep_state_changes_days,
        effects_days=settings.keep_effects_days,
        events_days=settings.keep_events_days,
        webhooks_days=settings.keep_webhooks_days,
        batches_days=settings.keep_batches_days,
        summaries_days=settings.keep_summaries_days,
        alerts_days=settings.keep_alerts_days,
        rules=RetentionRules(container.engine, container.clock).all(),
    )
    tables = Retention(container.engine, container.clock)
    signals = container.recovery.rebuilder.signals
    return retention.run_once(container.live, tables, signals, limits=limits)


def _sleeper(container: Container, settings: Settings, _: Backlog) -> sleeper.Result:
    return sleeper.run_once(
        container.live,
        container.record,
        container.recovery.rebuilder,
        container.bells.ringer,
        batch_max=settings.sleeper_batch_max,
    )


def _timeout_handler(
    container: Container, settings: Settings, _: Backlog
) -> timeout_handler.Result:
    limits = timeout_handler.Limits(
        retry_s=settings.timeout_retry_s,
        patience=Patience(
            look_again_s=settings.timeout_handler_period_s,
            # A step that rolls something back may take its time.
            takeover_s=max(
                timeout_handler.TAKEOVER_S, settings.step_timeout_s + settings.step_kill_grace_s
            ),
        ),
    )
    timeouts = Timeouts(container.engine, container.clock)
    return timeout_handler.run_once(
        container.live,
        container.record,
        timeout_handler.TimeoutTables(timeouts, alerts_of(container)),
        container.recovery.restorer,
        container.bells.ringer,
        limits=limits,
    )


def _watcher(container: Container, settings: Settings, backlog: Backlog) -> watcher.Result:
    groups = watcher.WorkGroups(
        container.groups,
        container.pipelines,
        container.catalogue,
        container.ledger.batches,
        maintenance_group=settings.maintenance_group,
        ledger_group=settings.ledger_group,
    )
    result = watcher.run_once(
        container.live,
        node_register(container, settings),
        groups,
        alerts_of(container),
        backlog,
    )
    # Also what others have raised and cleared since.
    container.webhooks.tell_alerts()
    return result


#: One run goes through so many; a bulk action among them takes seconds.
APPROVALS_MAX = 50


def _approvals(container: Container, *_: object) -> approvals.Result:
    # The operator knows how resolving and bulk actions are done, and offers that.
    made = make_operator(container).approvals
    return approvals.run_once(made, batch_max=APPROVALS_MAX)


#: Of the time of a worker that other jobs wait for.
OPERATOR_RUN_S = 2.0


#: What `jobs/schedule.py` schedules, and nothing else.
JOBS: dict[str, Job] = {
    "approvals": _approvals,
    "archiver": _archiver,
    "audit_sealer": lambda container, *_: audit_sealer.run_once(
        AuditChain(container.engine), rows_max=SEALED_MAX
    ),
    "batch_poller": lambda container, *_: batch_poller.run_once(container.ledger.work.poller),
    "claim_queuer": lambda container, *_: claim_queuer.run_once(container.ledger.work.queuer),
    "endpoint_feeder": lambda container, *_: endpoint_feeder.run_once(
        container.webhooks.endpoints,
        endpoints_max=endpoint_feeder.ENDPOINTS_MAX,
        rows_max=endpoint_feeder.ROWS_MAX,
    ),
    "group_cache": lambda container, *_: group_cache.run_once(container.groups),
    "meter": _meter,
    "operator_runs": lambda container, *_: operator_runs.run_once(
        make_operator_runs(container), run_s=OPERATOR_RUN_S
    ),
    "pipeline_cache": lambda container, *_: pipeline_cache.run_once(container.pipelines),
    "reaper": _reaper,
    "reconciler": _reconciler,
    "retention": _retention,
    "sleeper": _sleeper,
    "timeout_handler": _timeout_handler,
    "watcher": _watcher,
    "webhook_sender": lambda container, settings, _: webhook_sender.run_once(
        container.webhooks, pace=Pace.of(settings)
    ),
}
