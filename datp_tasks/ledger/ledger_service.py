"""Everything this room offers to a process, put together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from datp_tasks.clock import Clock
from datp_tasks.failpoints import reach
from datp_tasks.ledger.batch_operator import BatchOperator
from datp_tasks.ledger.batch_types import Ring, RingAll, Tell, Work
from datp_tasks.ledger.credentials import Credentials
from datp_tasks.ledger.intake import Intake
from datp_tasks.ledger.kinds import KINDS
from datp_tasks.ledger.ledger_wire import LedgerWire, Secret
from datp_tasks.ledger.poller import Asking
from datp_tasks.ledger.queuer import Queuer
from datp_tasks.ledger.submitter import Submitter
from datp_tasks.model.approval import ApprovalGate
from datp_tasks.outbound.address_guard import AnyAddress
from datp_tasks.outbound.http_client import Manners
from datp_tasks.outbound.response_reader import BodyLimits
from datp_tasks.outbound.threaded_client import ThreadedHttpClient
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import Engine, make_engine
from datp_tasks.record.ledger_actions import BatchActions
from datp_tasks.record.ledger_batches import BatchStore
from datp_tasks.record.ledger_claims import ClaimStore
from datp_tasks.record.ledger_sql import Sql
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")

BODY_BYTES_MAX = 1_048_576
IDLE_MAX = 64


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
    operator: BatchOperator
    queuer: Queuer
    submitter: Submitter
    asking: Asking
    wire: LedgerWire
    ring: RingAll
    #: Its own: each of its statements is a transaction.
    engine: Engine

    @classmethod
    def open(
        cls,
        settings: Settings,
        engine: Engine,
        clock: Clock,
        *,
        ring: Ring,
        tell: Tell,
        gate: ApprovalGate,
        secret: Secret,
    ) -> Ledger:
        """Nothing is connected before it is used."""
        alone = make_engine(settings, autocommit=True)
        sql = Sql(engine, alone, clock)
        alerts = Alerts(engine, clock)
        once = [kind.name for kind in KINDS.values() if kind.drops_duplicates]
        batches = BatchStore(sql, alerts, settings, drops_duplicates=once)
        claims = ClaimStore(sql, settings)
        wire = LedgerWire(ledger_client(settings), secret, _before_send)
        ring_all = partial(_ring_all, ring, settings.ledger_vector_max)
        asking = Asking(settings=settings, batches=batches, wire=wire, tell=tell)
        submitter = Submitter(
            settings=settings,
            batches=batches,
            wire=wire,
            asking=asking,
            ring=ring_all,
            tell=tell,
        )
        return cls(
            settings=settings,
            alerts=alerts,
            batches=batches,
            claims=claims,
            intake=Intake(settings=settings, batches=batches, claims=claims, ring=ring_all),
            operator=BatchOperator(BatchActions(sql, alerts), tell, gate),
            queuer=Queuer(settings=settings, claims=claims, ring=ring_all, do=submitter.run),
            submitter=submitter,
            asking=asking,
            wire=wire,
            ring=ring_all,
            engine=alone,
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
        self.engine.dispose()


def ledger_client(settings: Settings) -> ThreadedHttpClient:
    """What talks to ledgers. Which hosts those may be is decided by DATP_LEDGER__HOSTS."""
    manners = Manners(
        connect_s=settings.ledger_connect_s,
        body=BodyLimits(bytes_max=BODY_BYTES_MAX),
        idle_max=IDLE_MAX,
        headers={"user-agent": "datp-tasks"},
        secret_headers=Credentials(settings.ledger_authorization),
    )
    return ThreadedHttpClient(AnyAddress(), manners, before_send=_before_send)


def _before_send() -> None:
    reach("ledger.before_send")


def _ring_all(ring: Ring, vector_max: int, works: Sequence[Work]) -> list[Work]:
    """In messages of a size one process can handle; a broker that is unavailable breaks nothing."""
    for start in range(0, len(works), vector_max):
        try:
            ring(works[start : start + vector_max])
        except Exception as error:
            log.warning("%d batches could not be rung for: %s", len(works) - start, error)
            return list(works[start:])
    return []
