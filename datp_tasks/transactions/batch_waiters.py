"""Wake transactions that wait for a batch which a ledger has decided."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from redis.exceptions import RedisError
from sqlalchemy.exc import OperationalError

from datp_tasks.bells.ringer import Ringer
from datp_tasks.ledger.types import Finished
from datp_tasks.live.store import LiveStore
from datp_tasks.live.types import Bell
from datp_tasks.model.switch import switch_json
from datp_tasks.transactions.locate import ask_many
from datp_tasks.transactions.restore import Restorer

log = logging.getLogger("datp.ledger")


class BatchWaiters:
    def __init__(self, live: LiveStore, ringer: Ringer, restorer: Restorer) -> None:
        self._live = live
        self._ringer = ringer
        self._restorer = restorer

    def wake(self, final: Sequence[Finished]) -> None:
        """Set the switches that they wait for. One that is missed wakes by time."""
        for batch in final:
            if batch.tx_id and batch.switch:
                try:
                    value = switch_json(batch.switch, str(batch.state))
                    set_it = partial(self._set_switch, batch.switch, value)
                    answer = ask_many(self._restorer, [batch.tx_id], set_it).answers[0]
                except (RedisError, OperationalError) as error:
                    about = {"event": "tx.waits", "tx": batch.tx_id, "fence": None}
                    log.warning("%s is not told of its batch: %s", batch.tx_id, error, extra=about)
                else:
                    self._ringer.ring([answer if isinstance(answer, Bell) else None])

    def _set_switch(self, name: str, value: str, tx_ids: Sequence[str]) -> list[object]:
        return [self._live.set_switch(tx_id, name, value) for tx_id in tx_ids]
