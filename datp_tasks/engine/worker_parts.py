"""What a worker is given: who it is, where it reads and writes, and how it rings."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer
from datp_tasks.clock import Clock
from datp_tasks.engine.decide import Pipelines
from datp_tasks.engine.registry import Registry
from datp_tasks.ledger.ledger_service import Ledger
from datp_tasks.live.doorbells import Doorbells
from datp_tasks.live.store import LiveStore
from datp_tasks.record.sealed_secrets import SealedSecrets
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Where the engine reads and writes."""

    live: LiveStore
    record: Record
    pipelines: Pipelines
    clock: Clock
    vault: Vault


@dataclass(frozen=True, slots=True)
class StepResources:
    """What steps may use beyond their transaction: secrets of its owner, and ledgers."""

    secrets: SealedSecrets
    #: None: steps of this worker cannot submit batches.
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class Bells:
    """What the engine rings, what answers, and how many transactions share a bell."""

    ringer: Ringer
    costs: CostBook
    doorbells: Doorbells


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisNode:
    """Who this worker is, what it can run, and how far it goes on by itself."""

    name: str
    steps: Registry
    #: Node groups that it serves; a hop between them needs no bell.
    groups: frozenset[str] = frozenset()
    #: Every step gets a message of its own, unless its pipeline says otherwise.
    own_messages: bool = False
