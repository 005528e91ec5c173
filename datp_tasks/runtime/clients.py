"""Wiring of the client and of the operator: each part gets the stores it needs."""

from __future__ import annotations

from datp_tasks.bells.broker import backlog, make_celery
from datp_tasks.client.batches import LedgerBatches
from datp_tasks.client.client import Client
from datp_tasks.client.reads import Reader
from datp_tasks.client.submit import RequestAcceptor, RequestPreparer
from datp_tasks.client.submit_in import CallerSubmits
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.live.notifications import Notifications
from datp_tasks.model.approval import STEP
from datp_tasks.operator.audit import Auditor
from datp_tasks.operator.bulk import Bulk
from datp_tasks.operator.doctor import Doctor
from datp_tasks.operator.doubt_decisions import DoubtDecisions
from datp_tasks.operator.doubts import Doubts
from datp_tasks.operator.erase import Eraser, PayloadSearch
from datp_tasks.operator.operator import Decisions, Inquiries, Operator
from datp_tasks.operator.resolve import Resolver
from datp_tasks.operator.retention_changes import DataEnd, RetentionChanges
from datp_tasks.operator.retry import Retrier
from datp_tasks.operator.runs import OperatorRuns
from datp_tasks.operator.selection import Selection
from datp_tasks.operator.situation import ServedGroups, Situations
from datp_tasks.operator.step_approval import StepApproval
from datp_tasks.operator.transaction_logs import TransactionLogs
from datp_tasks.operator.unmask import Unmasker
from datp_tasks.operator.why import Explainer
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.caller_transaction import CallerAccepts
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.erasure import Erasure
from datp_tasks.record.journal import Journal
from datp_tasks.record.journal_files import JournalFiles
from datp_tasks.record.operator_runs import OperatorRunStore
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
    preparer = RequestPreparer(
        settings=container.settings,
        catalogue=container.catalogue,
        vault=container.seals.vault,
        tracing=container.tracing,
    )
    acceptor = RequestAcceptor(
        preparer=preparer,
        record=container.record,
        live=container.live,
        ringer=container.bells.ringer,
    )
    accepts = CallerAccepts(container.engine, container.record)
    reader = Reader(
        record=container.record,
        locator=locator,
        notifications=Notifications(container.redis, container.live.keys.notify),
        vault=container.seals.vault if opens else None,
    )
    return Client(
        acceptor=acceptor,
        caller_submits=CallerSubmits(acceptor, accepts, watches=watches),
        reader=reader,
        signals=make_signal_sender(container, locator),
        batches=LedgerBatches(intake=container.ledger.intake, batches=container.ledger.batches),
        close=container.close,
    )


def make_operator(container: Container) -> Operator:
    """Closing the operator closes the container."""
    journal = Journal(container.engine, container.clock)
    alerts = Alerts(container.engine, container.clock)
    auditor = _auditor(container)
    eraser = _eraser(container, auditor)
    store = OperatorRunStore(container.engine, container.clock)
    return Operator(
        inquiries=Inquiries(
            explainer=_explainer(container, auditor),
            doctor=Doctor(
                live=container.live,
                journal=journal,
                alerts=alerts,
                node_stale_ms=container.settings.node_stale_ms,
            ),
            logs=TransactionLogs(record=container.record, live=container.live, journal=journal),
            auditor=auditor,
            unmasker=_unmasker(container, auditor),
        ),
        decisions=_decisions(container, auditor, alerts),
        data_end=DataEnd(eraser, _retention(container), OperatorRuns(store, auditor, eraser)),
        close=container.close,
    )


def make_operator_runs(container: Container) -> OperatorRuns:
    """For the job, without the rest of an operator."""
    auditor = _auditor(container)
    store = OperatorRunStore(container.engine, container.clock)
    return OperatorRuns(store, auditor, _eraser(container, auditor))


def _auditor(container: Container) -> Auditor:
    return Auditor(
        record=container.record,
        live=container.live,
        states=States(container.engine, container.clock),
        journal=Journal(container.engine, container.clock),
        first_view=container.recovery.restorer.views.first,
        keep_journal_days=container.settings.keep_journal_days,
    )


def _decisions(container: Container, auditor: Auditor, alerts: Alerts) -> Decisions:
    locator = make_locator(container)
    signals = make_signal_sender(container, locator)
    resolver = _resolver(container, auditor, alerts)
    retrier = Retrier(
        engine=container.engine,
        live=container.live,
        ringer=container.bells.ringer,
        locator=locator,
        signals=signals,
        resolver=resolver,
    )
    bulk = Bulk(
        engine=container.engine,
        live=container.live,
        locator=locator,
        signals=signals,
        retrier=retrier,
        approvals=container.approvals,
    )
    selection = Selection(
        engine=container.engine, record=container.record, live=container.live, locator=locator
    )
    # How each action is done that may wait for a second person.
    container.approvals.offer(STEP, StepApproval(record=container.record, signals=signals))
    for decision in ("done", "fail", "redo", "redo-effect"):
        container.approvals.offer(f"resolve.{decision}", resolver.decisions)
    for kind in ("cancel", "wake", "retry"):
        container.approvals.offer(f"bulk.{kind}", bulk)
    return Decisions(
        resolver=resolver,
        retrier=retrier,
        selection=selection,
        bulk=bulk,
        approvals=container.approvals,
    )


def _resolver(container: Container, auditor: Auditor, alerts: Alerts) -> Resolver:
    doubts = Doubts(
        record=container.record,
        live=container.live,
        catalogue=container.catalogue,
        begun_steps=BegunSteps(container.engine),
        effects=EffectStore(container.engine, container.clock),
        auditor=auditor,
    )
    decisions = DoubtDecisions(
        doubts=doubts,
        record=container.record,
        live=container.live,
        alerts=alerts,
        ringer=container.bells.ringer,
    )
    return Resolver(
        engine=container.engine,
        doubts=doubts,
        decisions=decisions,
        gate=container.approvals,
        vault=container.seals.vault,
    )


def _explainer(container: Container, auditor: Auditor) -> Explainer:
    settings, live, restorer = container.settings, container.live, container.recovery.restorer
    situations = Situations(record=container.record, live=live, restorer=restorer)
    return Explainer(
        settings=settings,
        situations=situations,
        groups=ServedGroups(
            register=NodeRegister(
                live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
            ),
            store=container.groups,
            bells_in=lambda group: backlog(make_celery(settings), group),
        ),
        auditor=auditor,
        approvals=container.approvals.store,
    )


def _retention(container: Container) -> RetentionChanges:
    rules = RetentionRules(container.engine, container.clock)
    return RetentionChanges(rules, container.approvals)


def _eraser(container: Container, auditor: Auditor) -> Eraser:
    erasure = Erasure(container.engine, container.clock)
    return Eraser(
        search=PayloadSearch(record=container.record, erasure=erasure, vault=container.seals.vault),
        erasure=erasure,
        live=container.live,
        auditor=auditor,
        files=JournalFiles.of(container.settings),
        approvals=container.approvals,
    )


def _unmasker(container: Container, auditor: Auditor) -> Unmasker:
    return Unmasker(
        engine=container.engine,
        record=container.record,
        auditor=auditor,
        vault=container.seals.vault,
        approvals=container.approvals.store,
    )


def make_locator(container: Container) -> Locator:
    return Locator(
        live=container.live,
        record=container.record,
        states=States(container.engine, container.clock),
        restorer=container.recovery.restorer,
    )


def make_signal_sender(container: Container, locator: Locator) -> SignalSender:
    return SignalSender(
        live=container.live,
        record=container.record,
        rebuilder=container.recovery.rebuilder,
        ringer=container.bells.ringer,
        locator=locator,
    )
