"""Wiring of the client and of the operator: each part gets the stores it needs."""

from __future__ import annotations

from datp_tasks.client.batches import LedgerBatches
from datp_tasks.client.bulk_transfers import BulkTransfers
from datp_tasks.client.client import Client
from datp_tasks.client.reads import Reader
from datp_tasks.client.submit import RequestAcceptor
from datp_tasks.client.submit_in import CallerSubmits
from datp_tasks.live.notifications import Notifications
from datp_tasks.model.approval import STEP
from datp_tasks.operator.audit import Auditor
from datp_tasks.operator.bulk import Bulk
from datp_tasks.operator.doctor import Doctor
from datp_tasks.operator.erase import Eraser
from datp_tasks.operator.operator import Operator
from datp_tasks.operator.resolve import Resolver
from datp_tasks.operator.retention_changes import DataEnd, RetentionChanges
from datp_tasks.operator.step_approval import StepApproval
from datp_tasks.operator.transaction_logs import TransactionLogs
from datp_tasks.operator.unmask import Unmasker
from datp_tasks.operator.why import Explainer
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.bulk_transfers import BulkRecord
from datp_tasks.record.caller_transaction import CallerAccepts
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.erasure import Erasure
from datp_tasks.record.journal import Journal
from datp_tasks.record.journal_files import JournalFiles
from datp_tasks.record.retention_rules import RetentionRules
from datp_tasks.record.states import States
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings
from datp_tasks.transactions.locate import Locator
from datp_tasks.transactions.send_signals import SignalSender


def open_client(settings: Settings | None = None) -> Client:
    """Of the servers that the settings (or the environment) name."""
    return make_client(Container.open(settings or Settings.from_env()))


def open_operator(settings: Settings | None = None) -> Operator:
    return make_operator(Container.open(settings or Settings.from_env()))


def make_client(container: Container, *, opens: bool = True, watches: bool = True) -> Client:
    """Closing the client closes the container.

    `opens`: what is sealed is opened for its caller, a program of the owner. Doors that are not
    only the owner's leave it sealed, and open it themselves for the one who may see it.
    `watches`: a thread starts what is committed by callers of `submit_in`.
    """
    locator = make_locator(container)
    acceptor = RequestAcceptor(
        settings=container.settings,
        record=container.record,
        live=container.live,
        catalogue=container.catalogue,
        ringer=container.ringer,
        vault=container.vault,
        tracing=container.tracing,
    )
    accepts = CallerAccepts(container.engine, container.record)
    reader = Reader(
        record=container.record,
        locator=locator,
        notifications=Notifications(container.redis, container.live.keys.notify),
        vault=container.vault if opens else None,
    )
    bulks = BulkRecord(container.engine, container.record)
    return Client(
        acceptor=acceptor,
        caller_submits=CallerSubmits(acceptor, accepts, watches=watches),
        reader=reader,
        signals=make_signal_sender(container, locator),
        batches=LedgerBatches(intake=container.ledger.intake, batches=container.ledger.batches),
        bulk_transfers=BulkTransfers(acceptor, bulks, reader),
        close=container.close,
    )


def make_operator(container: Container) -> Operator:
    """Closing the operator closes the container."""
    locator = make_locator(container)
    journal = Journal(container.engine, container.clock)
    alerts = Alerts(container.engine, container.clock)
    auditor = Auditor(
        record=container.record,
        live=container.live,
        states=States(container.engine, container.clock),
        journal=journal,
        first_view=container.restorer.views.first,
        keep_journal_days=container.settings.keep_journal_days,
    )
    resolver = Resolver(
        settings=container.settings,
        engine=container.engine,
        record=container.record,
        live=container.live,
        catalogue=container.catalogue,
        ringer=container.ringer,
        alerts=alerts,
        begun_steps=BegunSteps(container.engine),
        effects=EffectStore(container.engine, container.clock),
        auditor=auditor,
        gate=container.approvals,
        vault=container.vault,
    )
    bulk = Bulk(
        engine=container.engine,
        record=container.record,
        live=container.live,
        ringer=container.ringer,
        locator=locator,
        signals=make_signal_sender(container, locator),
        resolver=resolver,
        approvals=container.approvals,
    )
    _offer_actions(container, resolver, bulk, locator)
    return Operator(
        explainer=Explainer(
            settings=container.settings,
            record=container.record,
            live=container.live,
            restorer=container.restorer,
            groups=container.groups,
            auditor=auditor,
            approvals=container.approvals.store,
        ),
        doctor=Doctor(
            live=container.live,
            journal=journal,
            alerts=alerts,
            node_stale_ms=container.settings.node_stale_ms,
        ),
        resolver=resolver,
        bulk=bulk,
        approvals=container.approvals,
        auditor=auditor,
        data_end=DataEnd(_eraser(container, auditor), _retention(container)),
        unmasker=_unmasker(container, auditor),
        logs=TransactionLogs(record=container.record, live=container.live, journal=journal),
        close=container.close,
    )


def _offer_actions(container: Container, resolver: Resolver, bulk: Bulk, locator: Locator) -> None:
    """Say how each action is done that may wait for a second person."""
    container.approvals.offer(
        STEP, StepApproval(record=container.record, signals=make_signal_sender(container, locator))
    )
    for decision in ("done", "fail", "redo", "redo-effect"):
        container.approvals.offer(f"resolve.{decision}", resolver)
    for kind in ("cancel", "wake", "retry"):
        container.approvals.offer(f"bulk.{kind}", bulk)


def _retention(container: Container) -> RetentionChanges:
    rules = RetentionRules(container.engine, container.clock)
    return RetentionChanges(rules, container.approvals)


def _eraser(container: Container, auditor: Auditor) -> Eraser:
    return Eraser(
        record=container.record,
        erasure=Erasure(container.engine, container.clock),
        live=container.live,
        auditor=auditor,
        files=JournalFiles.of(container.settings),
        approvals=container.approvals,
        vault=container.vault,
    )


def _unmasker(container: Container, auditor: Auditor) -> Unmasker:
    return Unmasker(
        engine=container.engine,
        record=container.record,
        auditor=auditor,
        vault=container.vault,
        approvals=container.approvals.store,
    )


def make_locator(container: Container) -> Locator:
    return Locator(
        live=container.live,
        record=container.record,
        states=States(container.engine, container.clock),
        restorer=container.restorer,
    )


def make_signal_sender(container: Container, locator: Locator) -> SignalSender:
    return SignalSender(
        live=container.live,
        record=container.record,
        restorer=container.restorer,
        ringer=container.ringer,
        locator=locator,
        switches_max=container.settings.switches_per_transaction_max,
    )
