"""Let transactions expire whose time is over.

Moves:    nothing begun -> expired, at once. Otherwise it is marked in SQL, then told to stop:
          sleeping -> queued, and a worker rolls it back and ends it.
Knows:    what the log of state changes says, up to the oldest writer that has not committed. Not
          whether a worker will answer: one that does nothing for TAKEOVER_S after it was
          asked loses its fence (running -> queued), as if its node were gone.
Bound:    WINDOW_MAX rows of the log and BATCH_MAX due ones at a time, ROUNDS_MAX times a run.
Overlap:  harmless: one reads the log, each takes other due ones, and the finish in SQL decides.
Crash:    a due one stays in `tx_timeout` until the log says that it is final; another run takes
          it again after `timeout_retry_s`.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.bells.ringer import Ringer
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.timeouts import BEHIND, LAG_ALERT_S, Timeouts
from datp_tasks.record.transactions import Record
from datp_tasks.timeouts.expire import Expirer, Patience
from datp_tasks.transactions.restore import Restorer

ROUNDS_MAX = 10
#: State changes that one pass reads in less than the period of this job.
WINDOW_MAX = 10_000
#: Due transactions that one pass ends in less than that period.
BATCH_MAX = 1_000
#: A worker that has not moved so long after the expiry will not; a step may take longer.
TAKEOVER_S = 120.0


@dataclass(frozen=True, slots=True)
class Result:
    #: Rows of the log that were read.
    read: int
    #: Ended at once, told to stop, taken from a worker that does not answer.
    expired: int
    asked: int
    taken: int


@dataclass(frozen=True, slots=True)
class TimeoutTables:
    """What the handler keeps in SQL beside the record."""

    timeouts: Timeouts
    alerts: Alerts


@dataclass(frozen=True, slots=True)
class Limits:
    #: When another run takes a due one again.
    retry_s: float
    patience: Patience


def run_once(
    live: LiveStore,
    record: Record,
    tables: TimeoutTables,
    restorer: Restorer,
    ringer: Ringer,
    *,
    limits: Limits,
) -> Result:
    timeouts = tables.timeouts
    expirer = Expirer(live, record, timeouts, restorer, ringer, limits.patience)
    read = 0
    peek = timeouts.peek()
    for _ in range(ROUNDS_MAX):
        if not (peek.is_new or peek.is_due):
            break
        window, due = timeouts.run_pass(
            rows_max=WINDOW_MAX,
            batch_max=BATCH_MAX,
            again_s=limits.retry_s,
        )
        reach("timeouts.after_pass")
        read += window.rows
        expirer.expire(due)
        peek = timeouts.peek()
    expirer.leave()
    if (peek.lag_s > LAG_ALERT_S) != peek.is_alarmed:
        _tell_of_lag(tables.alerts, peek.lag_s, is_over=peek.is_alarmed)
    return Result(read=read, expired=expirer.expired, asked=expirer.asked, taken=expirer.taken)


def _tell_of_lag(alerts: Alerts, lag_s: float, *, is_over: bool) -> None:
    if is_over:
        alerts.clear_alert(BEHIND, "tx_state_change")
    else:
        alerts.raise_alert(
            BEHIND,
            "tx_state_change",
            f"the timeout handler is {lag_s:.0f} s behind: a writer that does not commit holds it "
            "up, or it cannot keep pace",
        )
