"""What every process of the system holds: its connections and the stores built on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from celery import Celery

from datp_tasks.bells.broker import CelerySend, make_celery, refuse_eager
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.posting import Posting
from datp_tasks.bells.ringer import Ringer, Send
from datp_tasks.clock import Clock, ServerClock
from datp_tasks.ledger.batch_operator import GUARDED
from datp_tasks.ledger.batch_types import Ring
from datp_tasks.ledger.ledger_service import Ledger
from datp_tasks.ledger.submit_bell import SubmitBell
from datp_tasks.live.connect import Redis, make_redis
from datp_tasks.live.doorbells import Doorbells
from datp_tasks.live.event_counts import EventCounts
from datp_tasks.live.group_copy import GroupCopy
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.live.step_costs import StepCosts
from datp_tasks.live.store import LiveStore
from datp_tasks.observe.tracing import Tracing, make_tracing
from datp_tasks.operator.approvals import Approvals
from datp_tasks.operator.policy_file import load_policy
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.version_store import USE, PipelineStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.approvals import ApprovalStore
from datp_tasks.record.database import Engine, make_engine
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.journal import Journal
from datp_tasks.record.sealed_secrets import SealedSecrets
from datp_tasks.record.signals import Signals
from datp_tasks.record.states import States
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault
from datp_tasks.runtime.group_book import GroupBook
from datp_tasks.runtime.ledger_place import LedgerPlace
from datp_tasks.seals.keyring import load
from datp_tasks.settings import Settings
from datp_tasks.transactions.rebuild_lost import Rebuilder
from datp_tasks.transactions.restore import Restorer
from datp_tasks.transactions.state_fields import StateFields
from datp_tasks.transactions.take_over import TakeOver
from datp_tasks.transactions.tell_waiting import tell_waiting
from datp_tasks.transactions.views import RecordedViews
from datp_tasks.webhooks.send_bell import SendBell
from datp_tasks.webhooks.webhook_service import WebhookService


@dataclass(frozen=True)
class BellParts:
    """What rings, what a step costs, and what this process counts for the meter."""

    ringer: Ringer
    costs: CostBook
    counts: EventCounts


@dataclass(frozen=True)
class Recovery:
    """Bringing back transactions: those that left Redis, those that it lost, those whose worker
    died."""

    restorer: Restorer
    rebuilder: Rebuilder
    take_over: TakeOver


@dataclass(frozen=True)
class Seals:
    """What opens payloads, and the secrets of pipelines."""

    vault: Vault
    secrets: SealedSecrets


@dataclass(frozen=True, kw_only=True)
class Container:
    settings: Settings
    clock: Clock
    redis: Redis
    engine: Engine
    live: LiveStore
    record: Record
    bells: BellParts
    pipelines: PipelineStore
    catalogue: Catalogue
    ledger: Ledger
    recovery: Recovery
    groups: GroupStore
    ledger_place: LedgerPlace
    webhooks: WebhookService
    approvals: Approvals
    seals: Seals
    #: None: nothing is traced.
    tracing: Tracing | None

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        clock: Clock | None = None,
        celery: Celery | None = None,
        send: Send | None = None,
        ring_ledger: Ring | None = None,
        ring_webhooks: Callable[[], None] | None = None,
    ) -> Container:
        """Nothing is connected before it is used."""
        clock, celery = clock or ServerClock(), celery or make_celery(settings)
        refuse_eager()
        redis, engine = make_redis(settings), make_engine(settings)
        live = LiveStore(redis, settings, clock)
        groups = GroupStore(engine, GroupCopy(redis, live.keys), clock)
        costs = CostBook(StepCosts(redis, live.keys), settings)
        approvals = _approvals(settings, engine, clock)
        pipelines = _pipelines(engine, live, approvals)
        doorbells = Doorbells(live) if send is None else None
        post, counts = Posting(celery, settings), EventCounts(live)
        ringer = Ringer(send or CelerySend(celery), costs, doorbells, post, counts)
        tracing = make_tracing(settings)
        vault = Vault(engine, clock, load(settings))
        senders = ring_webhooks or SendBell(celery, settings.maintenance_group)
        webhooks = WebhookService(settings, engine, live, clock, vault=vault, ring=senders)
        on_final = tracing.ended_many if tracing else None
        record = Record(engine, clock, tell_due=webhooks.tell_due, on_final=on_final)
        catalogue = Catalogue(redis, pipelines, settings.pipeline_reload_s)
        restorer = _restorer(live, record, catalogue)
        rebuilder = Rebuilder(
            restorer=restorer,
            live=live,
            record=record,
            signals=Signals(engine, clock),
            alerts=Alerts(engine, clock),
            ringer=ringer,
        )
        secrets = SealedSecrets(engine, clock, vault.ring)
        ledger_place = _ledger_place(settings, live, groups)
        ring = ring_ledger or SubmitBell(celery, ledger_place)
        tell = partial(tell_waiting, live, ringer, restorer)
        opened = partial(Ledger.open, ring=ring, tell=tell, gate=approvals, secret=secrets.value)
        ledger = opened(settings, engine, clock)
        _offer(approvals, pipelines, ledger)
        return cls(
            settings=settings,
            clock=clock,
            redis=redis,
            engine=engine,
            live=live,
            record=record,
            bells=BellParts(ringer, costs, counts),
            pipelines=pipelines,
            catalogue=catalogue,
            recovery=Recovery(restorer, rebuilder, TakeOver(live, record, ringer)),
            ledger=ledger,
            approvals=approvals,
            groups=groups,
            ledger_place=ledger_place,
            webhooks=webhooks,
            seals=Seals(vault, secrets),
            tracing=tracing,
        )

    def close(self) -> None:
        self.webhooks.close()
        self.ledger.close()
        self.bells.costs.publish()
        self.bells.counts.send()
        self.redis.close()
        self.engine.dispose()


def _approvals(settings: Settings, engine: Engine, clock: Clock) -> Approvals:
    policy = load_policy(settings.policy_file)
    return Approvals(ApprovalStore(engine, clock), Alerts(engine, clock), policy)


def _pipelines(engine: Engine, live: LiveStore, approvals: Approvals) -> PipelineStore:
    return PipelineStore(engine, live.redis, live.keys, gate=approvals)


def _restorer(live: LiveStore, record: Record, catalogue: Catalogue) -> Restorer:
    states, journal = States(record.engine, record.clock), Journal(record.engine, record.clock)
    views = RecordedViews(states, journal, StateFields(catalogue))
    return Restorer(live, record, views)


def _ledger_place(settings: Settings, live: LiveStore, groups: GroupStore) -> LedgerPlace:
    register = NodeRegister(live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms)
    return LedgerPlace(settings, register, GroupBook(groups, settings.pipeline_reload_s))


def _offer(approvals: Approvals, pipelines: PipelineStore, ledger: Ledger) -> None:
    """Say how actions of these rooms are done once a second person has agreed."""
    approvals.offer(USE, pipelines)
    for name in GUARDED:
        approvals.offer(name, ledger.operator)
