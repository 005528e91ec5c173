"""Constants that no deployment has to set, but that tests change in processes of their own.

Almost all are times: a test that kills workers cannot wait as long as production does, and gives
its processes shorter ones (`Settings(reaper_period_s=0.2)`, by DATP_TUNING). They are fields, which
`Settings` inherits, because several rooms must agree on them. They have no variables, and their
values may change with any release. What a node group may decide is here with what counts for the
other groups. What an operator decides is in settings.py; any other number is a constant beside its
use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def number(default: float, low: float, high: float, *, env: str = "", group_value: str = "") -> Any:
    """A number within bounds.

    `env` is the name by which a setting is published under a topic, `group_value` that of the
    value by which a node group decides it; its old variable is read once more, with a warning.
    """
    rules = {"low": low, "high": high, "env": env, "group_value": group_value}
    return field(default=default, metadata=rules)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Times and limits with values that an installation should not have to know."""

    # Pipelines and steps.
    #: A step that kills its worker is parked before it has stopped a whole node group.
    crashes_max: int = number(5, 1, 100)
    #: Time for a step to notice its time limit and clean up, before its process is killed.
    step_kill_grace_s: float = number(10.0, 0.1, 600)
    #: A version that was put into use counts everywhere after this; one query per pipeline.
    pipeline_reload_s: float = number(2.0, 0, 60)

    # Vectors.
    #: Each of 200 costs a tenth less than each of 100. More help short pipelines alone, and others
    #: wait longer for their turn (docs/scaling.md).
    vector_max: int = number(200, 1, 1_000)

    # Nodes.
    #: Three beats fit into the silence after which a node is suspected.
    node_beat_ms: int = number(2_000, 50, 60_000)
    #: Three heartbeats: one that is late in a busy process is no reason to take its work away.
    node_stale_ms: int = number(6_000, 100, 600_000)
    #: A second look, so that a short outage of Redis ends no node.
    node_grace_ms: int = number(3_000, 0, 600_000)

    # What a node group may decide for itself.
    #: Sleepers woken per shard and run: what a script does within some milliseconds.
    sleeper_batch_max: int = number(1_000, 1, 100_000, group_value="wakeupBatchSize")
    #: States per statement of the archiver, as far as its limit of bytes allows. Beside busy
    #: workers it mostly waits: as often for a small batch as for a large one.
    archiver_batch_max: int = number(5_000, 1, 10_000, group_value="archiveBatchSize")
    #: Between two looks for webhooks that are due: a receiver does not notice it.
    webhook_pause_ms: int = number(20, 1, 60_000, group_value="webhookPause")
    #: The same while all places are taken; the longer one of both counts.
    webhook_pause_busy_ms: int = number(50, 1, 60_000, group_value="webhookPauseBusy")
    #: The same while nothing is due: the sender is woken by what comes in.
    webhook_pause_idle_ms: int = number(2_000, 1, 60_000, group_value="webhookPauseIdle")

    # What beat runs, and how often.
    #: An alert may be some seconds late; a person reads it.
    watcher_period_s: float = number(5.0, 0.1, 3_600)
    #: Three runs of the slowest frequent jobs.
    beat_silent_s: float = number(15.0, 0.1, 3_600)
    #: A sleeper wakes at most this late.
    sleeper_period_s: float = number(1.0, 0.1, 3_600)
    #: Short against the silence after which a node is given up.
    reaper_period_s: float = number(2.0, 0.1, 3_600)
    #: A lost bell costs its transaction `ring_again_after_ms` and at most this.
    reconciler_period_s: float = number(2.0, 0.1, 3_600)
    #: A bell that is not heard for so long is lost more often than late; a second one does no harm.
    ring_again_after_ms: int = number(10_000, 10, 3_600_000)
    #: What the loss of Redis can cost is repaired from SQL; the journal is in Redis this long.
    archiver_period_s: float = number(5.0, 0.1, 3_600)

    # Timeouts.
    #: An expiry is at most this late.
    timeout_handler_period_s: float = number(1.0, 0.1, 3_600)
    #: A transaction that could not be expired has a cause that does not pass in a second.
    timeout_retry_s: float = number(30.0, 0.1, 86_400)

    # Ledgers: how claims, submissions and questions are timed.
    #: The queue of the workers that submit batches; another group gets the role by `datp groups`.
    ledger_group: str = field(
        default="ledger",
        metadata={"pattern": "[a-z0-9][a-z0-9_-]{0,63}", "group_value": "ledger"},
    )
    #: The seed's 30 seconds.
    ledger_claim_ttl_s: float = number(30.0, 0.2, 3_600)
    #: The seed's 3 minutes, for `two-phase`.
    ledger_slow_ttl_s: float = number(180.0, 0.2, 86_400)
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
    #: First pause between questions to a ledger: a block takes a second or more.
    ledger_poll_first_s: float = number(1.0, 0.01, 60)
    #: Longest of these pauses.
    ledger_poll_s_max: float = number(10.0, 0.01, 3_600)
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
    #: Eight bulk requests of the largest size at once in one process.
    bodies_bytes_max: int = number(134_217_728, 65_536, 17_179_869_184)
    #: More than there may be long polls; each costs a file and some kilobytes.
    api_connections_max: int = number(12_000, 4, 1_000_000)

    # Webhooks.
    #: How often beat starts a sender that does not run; a running one looks by its pauses.
    webhook_sender_period_s: float = number(1.0, 0.1, 3_600)
    #: The job only hands over to the thread that sends.
    webhook_run_s: float = number(0.1, 0, 600)
    #: What is late by so much is looked for in SQL: Redis may have lost it.
    webhook_overdue_s: float = number(5.0, 0.1, 3_600)
    #: Until another sender may make the next attempt; 0 is one attempt and 25 s for its commits.
    webhook_hold_s: float = number(0.0, 0, 3_600)
    #: A receiver that restarts is back by then.
    webhook_delay_first_s: float = number(5.0, 0.01, 86_400)

    # PostgreSQL.
    #: The longest statement of the jobs takes a few seconds on large tables.
    sql_statement_timeout_s: float = number(30.0, 0.1, 3_600)
