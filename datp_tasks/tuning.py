"""Constants that no deployment has to set, each with its reason, by topic.

They are fields, so that a test or a benchmark can give others (`Settings(reaper_batch_max=2)`);
`Settings` inherits them. The environment does not name them, and their values may change with any
release. What an operator decides is in settings.py instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def number(default: float, low: float, high: float, env: str = "") -> Any:
    """A number within bounds; `env` is the name by which a setting is published under a topic."""
    return field(default=default, metadata={"low": low, "high": high, "env": env})


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Limits, periods and batch sizes with values that an installation should not have to know."""

    # What a client may send.
    #: JSON deeper than this is a mistake or an attack on recursive readers.
    input_depth_max: int = number(32, 2, 128)
    #: As much as a request: what one step hands to the next is stored in the same places.
    output_bytes_max: int = number(262_144, 1_024, 16_777_216)
    #: Two UUIDs with a separator do not fit, one with a prefix does; it is part of an index.
    external_id_chars_max: int = number(64, 8, 255)
    #: Each is a field of the hash that every claim reads.
    switches_per_transaction_max: int = number(64, 1, 1_000)
    #: Beyond a few hundred rows in one commit the gain is below what can be measured.
    submit_batch_max: int = number(500, 1, 5_000)

    # Submitting in a caller's SQL transaction.
    #: At some kilobytes each; what is beyond that has the reconciler find it.
    submit_in_pending_max: int = number(20_000, 0, 1_000_000)

    # Pipelines and steps.
    #: A definition is read as a whole by each worker; longer ones are split into child pipelines.
    pipeline_steps_max: int = number(200, 1, 2_000)
    #: Pipelines that call each other in a circle end here.
    nesting_max: int = number(16, 1, 64)
    #: A step that kills its worker is parked before it has stopped a whole node group.
    crashes_max: int = number(5, 1, 100)
    #: A year and a day: longer is a mistake in a unit.
    sleep_s_max: int = number(31_622_400, 1, 315_360_000)
    #: Time for a step to notice its time limit and clean up, before its process is killed.
    step_kill_grace_s: float = number(10.0, 0.1, 600)
    #: A version that was put into use counts everywhere after this; one query per pipeline.
    pipeline_reload_s: float = number(2.0, 0, 60)

    # Vectors.
    #: Past 100 nothing more is shared (docs/scaling.md).
    vector_max: int = number(100, 1, 1_000)
    #: Long against a usual step, short against what a waiting neighbour's client notices.
    vector_stuck_ms: int = number(500, 10, 60_000)
    #: At 2 to 20 kB each, tens of megabytes in a worker.
    state_cache_entries_max: int = number(2_000, 0, 1_000_000)
    #: One that has not come back by then went on elsewhere, or sleeps for long.
    state_cache_s: float = number(300.0, 1, 86_400)

    # Nodes.
    #: Three beats fit into the silence after which a node is suspected.
    node_beat_ms: int = number(2_000, 50, 60_000)
    #: Three heartbeats: one that is late in a busy process is no reason to take its work away.
    node_stale_ms: int = number(6_000, 100, 600_000)
    #: A second look, so that a short outage of Redis ends no node.
    node_grace_ms: int = number(3_000, 0, 600_000)

    # What beat runs, how often, and how much of it at a time.
    #: An alert may be some seconds late; a person reads it.
    watcher_period_s: float = number(5.0, 0.1, 3_600)
    #: Ten times what a step may take; a pipeline that is known to take longer says so.
    long_running_s: float = number(600.0, 1, 315_360_000)
    #: Three runs of the slowest frequent jobs.
    beat_silent_s: float = number(15.0, 0.1, 3_600)
    #: Messages that a worker of ordinary speed needs a minute for.
    queue_bells_alert_max: int = number(10_000, 1, 100_000_000)
    #: At a few thousand a second, more than half a minute of work for a group.
    queued_alert_max: int = number(100_000, 1, 100_000_000)
    #: Long for a client that polls; a node group that is known to work off batches says so.
    queue_age_alert_s: float = number(120.0, 1, 315_360_000)
    #: A queue with at most so many messages is short, and that it grows is ordinary.
    queue_short_bells_max: int = number(100, 1, 100_000_000)
    #: A sleeper wakes at most this late.
    sleeper_period_s: float = number(1.0, 0.1, 3_600)
    #: Short against the silence after which a node is given up.
    reaper_period_s: float = number(2.0, 0.1, 3_600)
    #: One run ends before the next begins, also with slow SQL.
    reaper_batch_max: int = number(500, 1, 100_000)
    #: A lost bell costs its transaction `ring_again_after_ms` and at most this.
    reconciler_period_s: float = number(2.0, 0.1, 3_600)
    #: One page of ids; a run looks at several.
    reconciler_batch_max: int = number(1_000, 1, 100_000)
    #: One stretch of rebuilding Redis; the next run goes on from there.
    rebuild_run_s: float = number(60.0, 0.1, 3_600)
    #: Rows that are nowhere are almost always new: younger ones are looked at five times as often.
    reconciler_window_s: int = number(3_600, 1, 864_000)
    #: The client that accepted a row needs milliseconds to place it in Redis.
    place_after_ms: int = number(2_000, 10, 3_600_000)
    #: A bell that is not heard for so long is lost more often than late; a second one does no harm.
    ring_again_after_ms: int = number(10_000, 10, 3_600_000)
    #: What the loss of Redis can cost is repaired from SQL; the journal is in Redis this long.
    archiver_period_s: float = number(5.0, 0.1, 3_600)
    #: Ends before the next run begins.
    archiver_run_s: float = number(4.0, 0.1, 600)
    #: Journal entries, and states, in memory at a time; one that is larger goes alone.
    archiver_bytes_max: int = number(67_108_864, 65_536, 1_073_741_824)
    #: Some megabytes of journal for one COPY.
    journal_batch_max: int = number(5_000, 16, 100_000)
    #: What ended is read for minutes, not days; a sleeper is restored by one query.
    sleeping_ttl_s: int = number(300, 1, 864_000)
    #: The summaries' period drops them too; without one, the log is what an auditor asks for.
    keep_state_changes_days: int = number(0, 0, 36_500)
    #: Outputs of transactional steps are needed while their transaction may be repaired.
    keep_effects_days: int = number(30, 0, 36_500)
    #: Progress reports are of use to a client for as long as it may ask what happened.
    keep_events_days: int = number(90, 0, 36_500)
    #: A receiver that lost its data asks for redelivery within a quarter.
    keep_webhooks_days: int = number(90, 0, 36_500)
    #: A sixth of the time, so that other jobs of the group go on.
    retention_run_s: float = number(10.0, 0.1, 3_600)
    #: Short statements hold no row for long.
    retention_batch_max: int = number(1_000, 1, 100_000)
    #: Alerts that were cleared, for a look back over a year; 0 keeps them.
    keep_alerts_days: int = number(400, 0, 36_500)

    # Timeouts.
    #: A year and a day, as for sleeping.
    expiry_s_max: int = number(31_622_400, 1, 315_360_000)
    #: An expiry is at most this late.
    timeout_handler_period_s: float = number(1.0, 0.1, 3_600)
    #: State changes that one pass reads in less than its period.
    timeout_window_max: int = number(10_000, 1, 1_000_000)
    #: Due transactions that one pass ends in less than its period.
    timeout_batch_max: int = number(1_000, 1, 100_000)
    #: A transaction that could not be expired has a cause that does not pass in a second.
    timeout_retry_s: float = number(30.0, 0.1, 86_400)
    #: A worker that has not moved so long after the expiry will not; a step may take longer.
    timeout_takeover_s: float = number(120.0, 0.1, 864_000)
    #: A minute behind means that the handler does not run or does not keep up.
    timeout_lag_alert_s: float = number(60.0, 0.1, 86_400)

    # Ledgers: how claims, submissions and questions are timed.
    #: The queue of the workers that submit batches; another group gets the role by `datp groups`.
    ledger_group: str = field(default="ledger", metadata={"pattern": "[a-z0-9][a-z0-9_-]{0,63}"})
    #: The seed's 30 seconds.
    ledger_claim_ttl_s: float = number(30.0, 0.2, 3_600)
    #: The seed's 3 minutes, for `two-phase`.
    ledger_slow_ttl_s: float = number(180.0, 0.2, 86_400)
    #: A host that takes longer to accept a connection is down.
    ledger_connect_s: float = number(3.0, 0.01, 60)
    #: One submission with everything; 0 is the time of a request and 5 s for the commits around it.
    ledger_post_budget_s: float = number(0.0, 0, 600)
    #: Until what was sent has arrived or never will; 0 is the submission and 5 s on the way.
    ledger_grace_s: float = number(0.0, 0, 3_600)
    #: First pause when a ledger is busy.
    ledger_delay_first_s: float = number(1.0, 0.01, 60)
    #: Longest of these pauses: a ledger that is back gets work within half a minute.
    ledger_delay_s_max: float = number(30.0, 0.01, 3_600)
    #: An answer that only a person can mend does not change within seconds.
    ledger_long_delay_s: float = number(60.0, 0.01, 86_400)
    #: A message that no submitter takes is rung again, as for bells.
    ledger_ring_again_s: float = number(10.0, 0.1, 600)
    #: A result that is there by then saves a message and a poll.
    ledger_follow_s: float = number(0.25, 0, 60)
    #: How long a worker stays with one service before others get their turn.
    ledger_run_s: float = number(2.0, 0, 600)
    #: First pause between questions to a ledger: a block takes a second or more.
    ledger_poll_first_s: float = number(1.0, 0.01, 60)
    #: Longest of these pauses.
    ledger_poll_s_max: float = number(10.0, 0.01, 3_600)
    #: One "unknown" may come from a validator that is behind; three in a row do not.
    ledger_unknown_max: int = number(3, 1, 100)
    #: Submissions of one batch after the first, before a person looks at it.
    ledger_resubmits_max: int = number(3, 0, 100)
    #: For so long a ledger may drop second copies without a word (docs/ledger.md).
    ledger_swallow_s: float = number(1_200.0, 0, 86_400)
    #: Well below the lease, so that a late tick loses no claim.
    claim_queuer_period_s: float = number(2.0, 0.1, 60)
    #: As often as a ledger is asked about one batch at most.
    batch_poller_period_s: float = number(1.0, 0.1, 60)

    # The HTTP API.
    #: A revoked key works this long at most; looking each one up costs a query per request.
    key_cache_s: float = number(5.0, 0, 300)
    #: Two seconds of an owner's rate.
    owner_burst_max: int = number(2_000, 1, 10_000_000)
    #: More threads than this only wait for the interpreter's lock.
    api_threads_max: int = number(6, 1, 64)
    #: Answers within a second.
    bulk_items_max: int = number(1_000, 1, 5_000)
    #: Memory of one bulk request before it is split into transactions.
    bulk_bytes_max: int = number(16_777_216, 1_024, 268_435_456)
    #: A client that sends more slowly holds a place that others need.
    body_read_s: float = number(30.0, 0.1, 600)
    #: Below the usual limits of proxies for a request without an answer.
    long_poll_s_max: float = number(60.0, 0, 600)
    #: One query for all who wait, in case a publish was lost.
    long_poll_tick_s: float = number(2.0, 0.05, 60)
    #: Waiters in one process, at a few kilobytes each.
    long_poll_waiters_max: int = number(10_000, 1, 1_000_000)
    #: What clients of the original expect, who cannot say how long they wait.
    compat_long_poll_s: float = number(15.0, 0, 600)

    # Webhooks: where they may go if their host is not named as private.
    #: Data of transactions do not travel in clear text.
    webhook_schemes: tuple[str, ...] = ("https",)
    #: Other ports of a public host are as likely a service that must not be reached.
    webhook_ports: tuple[str, ...] = ("443", "8443")
    # How many are sent at a time, and how often to look.
    #: One target that is slow leaves places to the others.
    webhook_per_url_max: int = number(8, 1, 1_000)
    #: Deliveries per look: some rounds of the workers.
    webhook_batch_max: int = number(500, 1, 10_000)
    #: How often beat starts a sender that does not run; a running one looks by its pauses.
    webhook_sender_period_s: float = number(1.0, 0.1, 3_600)
    #: The job only hands over to the thread that sends.
    webhook_run_s: float = number(0.1, 0, 600)
    #: What is late by so much is looked for in SQL: Redis may have lost it.
    webhook_overdue_s: float = number(5.0, 0.1, 3_600)
    # One attempt.
    #: A host that takes longer to accept a connection is down.
    webhook_connect_s: float = number(5.0, 0.05, 60)
    #: Until another sender may make the next attempt; 0 is one attempt and 25 s for its commits.
    webhook_hold_s: float = number(0.0, 0, 3_600)
    # All attempts.
    #: A receiver that restarts is back by then.
    webhook_delay_first_s: float = number(5.0, 0.01, 86_400)
    #: All pauses together: three days, so that a weekend passes.
    webhook_give_up_s: float = number(259_200.0, 0.1, 31_622_400)

    # Registered endpoints.
    #: As many as a person can still keep apart.
    webhook_endpoints_max: int = number(20, 1, 10_000)

    # The event feed.
    #: How late an event may be told by a stream, beside its commit: one query for all owners.
    event_tick_ms: int = number(100, 5, 60_000)
    #: Streams and long polls of the feed in one process; each costs some kilobytes.
    event_streams_max: int = number(1_000, 1, 100_000)
    #: Proxies close what is silent for a minute, some after half of that.
    event_heartbeat_s: float = number(15.0, 0.05, 3_600)

    # Databases.
    #: A script takes milliseconds; a server that is silent for so long is gone.
    redis_timeout_s: float = number(5.0, 0.1, 60)
    #: The longest statement of the jobs takes a few seconds on large tables.
    sql_statement_timeout_s: float = number(30.0, 0.1, 3_600)

    # Keys, limits before them, approvals and the audit.
    #: Eight bulk requests of the largest size at once in one process.
    bodies_bytes_max: int = number(134_217_728, 65_536, 17_179_869_184)
    #: More than there may be long polls; each costs a file and some kilobytes.
    api_connections_max: int = number(12_000, 4, 1_000_000)
    #: A session of the console that is not used ends; one that is used is renewed.
    console_idle_s: float = number(3_600.0, 1, 86_400)
    #: A working day: then the person signs in again.
    console_session_s: float = number(43_200.0, 1, 604_800)
    #: Tabs of the console that one process tells of changes.
    console_streams_max: int = number(1_000, 1, 100_000)
    #: An owner that fills the line of a ledger service is told so before the others wait behind it.
    ledger_owner_batches_max: int = number(10_000, 1, 100_000_000)
