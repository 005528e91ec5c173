"""Everything this room offers to a process, put together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Engine

from datp_tasks.archive.alerts import Alerts
from datp_tasks.clock import Clock
from datp_tasks.ledger.asking import Asking
from datp_tasks.ledger.batches import BatchStore
from datp_tasks.ledger.claims import ClaimStore
from datp_tasks.ledger.intake import Intake
from datp_tasks.ledger.operate import Operator
from datp_tasks.ledger.queuer import Queuer
from datp_tasks.ledger.sql import Sql
from datp_tasks.ledger.submitter import Submitter
from datp_tasks.ledger.wire import Wire
from datp_tasks.ledger.words import Ring, Tell, Work
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")


@dataclass(frozen=True, kw_only=True)
class PollResult:
    asked: int = 0
    final: int = 0
    rung: int = 0


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The way in, the queuer, the submitter, the poller, and what operators can do."""

    settings: Settings
    alerts: Alerts
    batches: BatchStore
    claims: ClaimStore
    intake: Intake
    operator: Operator
    queuer: Queuer
    submitter: Submitter
    asking: Asking
    wire: Wire
    ring: Ring

    @classmethod
    def open(
        cls, settings: Settings, engine: Engine, clock: Clock, *, ring: Ring, tell: Tell
    ) -> Ledger:
        """Nothing is connected before it is used."""
        sql = Sql(engine, clock)
        alerts = Alerts(engine, clock)
        batches = BatchStore(sql, alerts, settings)
        claims = ClaimStore(sql, settings)
        wire = Wire(settings)
        safely = partial(_ring_safely, ring, settings.ledger_vector_max)
        asking = Asking(settings=settings, batches=batches, wire=wire, tell=tell)
        return cls(
            settings=settings,
            alerts=alerts,
            batches=batches,
            claims=claims,
            intake=Intake(settings=settings, batches=batches, claims=claims, ring=safely),
            operator=Operator(sql, alerts, tell),
            queuer=Queuer(settings=settings, claims=claims, ring=safely),
            submitter=Submitter(
                settings=settings,
                batches=batches,
                wire=wire,
                asking=asking,
                ring=safely,
                tell=tell,
            ),
            asking=asking,
            wire=wire,
            ring=safely,
        )

    def poll(self) -> PollResult:
        """Ask for what is due, and ring for what comes after batches that are final now."""
        asked = self.batches.take_up(rows_max=self.settings.ledger_poll_batch_max)
        if not asked:
            return PollResult()
        polled = self.asking.poll(asked)
        works = self.claims.work_of(polled.ready) if polled.ready else []
        self.ring(works)
        return PollResult(asked=len(asked), final=len(polled.final), rung=len(works))

    def close(self) -> None:
        self.wire.close()


def _ring_safely(ring: Ring, vector_max: int, works: list[Work]) -> None:
    """In messages of a size one process can handle. Without a broker: the next tick rings again."""
    for start in range(0, len(works), vector_max):
        part = works[start : start + vector_max]
        try:
            ring(part)
        except Exception as error:
            log.warning("%d batches could not be rung for: %s", len(part), error)
