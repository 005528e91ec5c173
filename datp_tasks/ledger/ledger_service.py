"""Everything this room offers to a process, put together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from datp_tasks.clock import Clock
from datp_tasks.failpoints import reach
from datp_tasks.ledger.attempts import Attempts
from datp_tasks.ledger.batch_operator import BatchOperator
from datp_tasks.ledger.batch_types import VECTOR_MAX, Ring, Tell, Work
from datp_tasks.ledger.credentials import Credentials
from datp_tasks.ledger.intake import Intake
from datp_tasks.ledger.kinds import KINDS
from datp_tasks.ledger.ledger_wire import LedgerWire, Secret
from datp_tasks.ledger.poller import Asking, Poller
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

#: A host that takes longer to accept a connection is down.
CONNECT_S = 3.0
BODY_BYTES_MAX = 1_048_576
IDLE_MAX = 64


@dataclass(frozen=True, kw_only=True)
class LedgerWork:
    """What worker processes do for ledgers: claim services and ring, submit, ask."""

    queuer: Queuer
    submitter: Submitter
    poller: Poller


@dataclass(frozen=True, kw_only=True)
class LedgerConnections:
    """To the ledgers, and to PostgreSQL: each statement of this engine is a transaction."""

    wire: LedgerWire
    engine: Engine

    def close(self) -> None:
        self.wire.close()
        self.engine.dispose()


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The way in, what operators can do, what workers do, and the stores of all three."""

    batches: BatchStore
    claims: ClaimStore
    intake: Intake
    operator: BatchOperator
    work: LedgerWork
    connections: LedgerConnections

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
        autocommit = make_engine(settings, autocommit=True)
        sql = Sql(engine, autocommit, clock)
        alerts = Alerts(engine, clock)
        once = [kind.name for kind in KINDS.values() if kind.drops_duplicates]
        batches = BatchStore(sql, alerts, settings, drops_duplicates=once)
        claims = ClaimStore(sql, settings)
        wire = LedgerWire(ledger_client(settings), secret, _before_send)
        ring_all = partial(_ring_all, ring)
        asking = Asking(settings=settings, batches=batches, wire=wire, tell=tell)
        attempts = Attempts(settings=settings, batches=batches, wire=wire, tell=tell)
        submitter = Submitter(attempts=attempts, asking=asking, ring=ring_all)
        return cls(
            batches=batches,
            claims=claims,
            intake=Intake(settings=settings, batches=batches, claims=claims, ring=ring_all),
            operator=BatchOperator(BatchActions(sql, alerts), tell, gate),
            work=LedgerWork(
                queuer=Queuer(claims=claims, ring=ring_all, do=submitter.run),
                submitter=submitter,
                poller=Poller(
                    batches=batches,
                    claims=claims,
                    asking=asking,
                    ring=ring_all,
                ),
            ),
            connections=LedgerConnections(wire=wire, engine=autocommit),
        )

    def close(self) -> None:
        self.connections.close()


def ledger_client(settings: Settings) -> ThreadedHttpClient:
    """What talks to ledgers. Which hosts those may be is decided by DATP_LEDGER__HOSTS."""
    manners = Manners(
        connect_s=CONNECT_S,
        body=BodyLimits(bytes_max=BODY_BYTES_MAX),
        idle_max=IDLE_MAX,
        headers={"user-agent": "datp-tasks"},
        secret_headers=Credentials(settings.ledger_authorization),
    )
    return ThreadedHttpClient(AnyAddress(), manners, before_send=_before_send)


def _before_send() -> None:
    reach("ledger.before_send")


def _ring_all(ring: Ring, works: Sequence[Work]) -> list[Work]:
    """In messages of a size one process can handle; a broker that is unavailable breaks nothing."""
    for start in range(0, len(works), VECTOR_MAX):
        try:
            ring(works[start : start + VECTOR_MAX])
        except Exception as error:
            log.warning("%d batches could not be rung for: %s", len(works) - start, error)
            return list(works[start:])
    return []
