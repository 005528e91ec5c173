"""Let transactions expire whose time is over.

Moves:    nothing begun -> expired, at once. Otherwise it is marked in SQL, then told to stop:
          sleeping -> queued, and a worker rolls it back and ends it.
Knows:    what the log of state changes says, up to the oldest writer that has not committed. Not
          whether a worker will answer: one that does nothing for `timeout_takeover_s` after it
          was asked loses its fence (running -> queued), as if its node were gone.
Bound:    `timeout_window_max` rows of the log and `timeout_batch_max` due ones at a time,
          ROUNDS_MAX times a run.
Overlap:  harmless: one reads the log, each takes other due ones, and the finish in SQL decides.
Crash:    a due one stays in `tx_timeout` until the log says that it is final; another run takes
          it again after `timeout_retry_s`.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.failpoints import reach
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.timeouts import BEHIND, Timeouts
from datp_tasks.runtime.container import Container
from datp_tasks.timeouts.expire import Expirer

ROUNDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Result:
    #: Rows of the log that were read.
    read: int
    #: Ended at once, told to stop, taken from a worker that does not answer.
    expired: int
    asked: int
    taken: int


def run_once(connections: Container) -> Result:
    settings = connections.settings
    timeouts = Timeouts(connections.engine, connections.clock)
    expirer = Expirer(
        settings=settings,
        live=connections.live,
        record=connections.record,
        restorer=connections.restorer,
        ringer=connections.ringer,
        timeouts=timeouts,
    )
    read = 0
    peek = timeouts.peek()
    for _ in range(ROUNDS_MAX):
        if not (peek.is_new or peek.is_due):
            break
        window, due = timeouts.run_pass(
            rows_max=settings.timeout_window_max,
            batch_max=settings.timeout_batch_max,
            again_s=settings.timeout_retry_s,
        )
        reach("timeouts.after_pass")
        read += window.rows
        expirer.expire(due)
        peek = timeouts.peek()
    expirer.leave()
    _watch_lag(connections, peek.lag_s, peek.is_alarmed)
    return Result(read=read, expired=expirer.expired, asked=expirer.asked, taken=expirer.taken)


def _watch_lag(connections: Container, lag_s: float, is_alarmed: bool) -> None:
    is_behind = lag_s > connections.settings.timeout_lag_alert_s
    if is_behind == is_alarmed:
        return
    alerts = Alerts(connections.engine, connections.clock)
    if is_behind:
        alerts.raise_alert(
            BEHIND,
            "tx_state_change",
            f"the timeout handler is {lag_s:.0f} s behind: a writer that does not commit holds it "
            "up, or it cannot keep pace",
        )
    else:
        alerts.clear_alert(BEHIND, "tx_state_change")
