"""Waking transactions that wait for a batch of an outside ledger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from datp_tasks.bells.ringer import Ringer
from datp_tasks.ledger.batch_types import Finished
from datp_tasks.live.live_types import Bell, Refused
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.model.switch import switch_json
from datp_tasks.record.sql_errors import OperationalError
from datp_tasks.transactions.locate import ask_many
from datp_tasks.transactions.restore import Restorer

log = logging.getLogger("datp.ledger")


def tell_waiting(
    live: LiveStore, ringer: Ringer, restorer: Restorer, final: Sequence[Finished]
) -> None:
    """Set the switches of transactions that wait for batches. One that is missed wakes by time."""
    for batch in final:
        if batch.tx_id and batch.switch:
            value = switch_json(batch.switch, str(batch.state))
            try:
                set_switch = partial(_set_switch, live, batch.switch, value)
                answer = ask_many(restorer, [batch.tx_id], set_switch).answers[0]
            except (RedisError, OperationalError) as error:
                about = {"event": "tx.waits", "tx": batch.tx_id, "fence": None}
                log.warning("%s is not told of its batch: %s", batch.tx_id, error, extra=about)
            else:
                ringer.ring([answer if isinstance(answer, Bell) else None])


def _set_switch(
    live: LiveStore, name: str, value_json: str, tx_ids: Sequence[str]
) -> list[Bell | Refused]:
    return [live.set_switch(tx_id, name, value_json) for tx_id in tx_ids]
