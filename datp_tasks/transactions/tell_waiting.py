"""Wake transactions that wait for a batch which a ledger has decided."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from redis.exceptions import RedisError
from sqlalchemy.exc import OperationalError

from datp_tasks.bells.ringer import Ringer
from datp_tasks.ledger.types import Finished
from datp_tasks.live.store import LiveStore
from datp_tasks.live.types import Bell
from datp_tasks.model.switch import switch_json
from datp_tasks.transactions.restore import Restorer

log = logging.getLogger("datp.ledger")


def tell_waiting(
    live: LiveStore, ringer: Ringer, restorer: Restorer, final: Sequence[Finished]
) -> None:
    """Set the switches of transactions that wait for batches. One that is missed wakes by time."""
    for batch in final:
        if batch.tx_id and batch.switch:
            try:
                value = switch_json(batch.switch, str(batch.state))
                restorer.restore([batch.tx_id])
                answer = live.set_switch(batch.tx_id, batch.switch, value)
            except (RedisError, OperationalError) as error:
                about = {"event": "tx.waits", "tx": batch.tx_id, "fence": None}
                log.warning("%s is not told of its batch: %s", batch.tx_id, error, extra=about)
            else:
                ringer.ring([answer if isinstance(answer, Bell) else None])
