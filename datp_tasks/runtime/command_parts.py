"""What commands of `datp` work with: each part is wired when a command asks for it, no sooner.

A command asks for what it needs by name. What needs only SQL or only Redis is made without the
rest, so that a short command imports little and opens one connection.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self

from datp_tasks.clock import ServerClock

if TYPE_CHECKING:
    from datp_tasks.bells.group_queues import GroupQueues
    from datp_tasks.client.client import Client
    from datp_tasks.engine.step_types import StepTypeInfo
    from datp_tasks.ledger.ledger_service import Ledger
    from datp_tasks.live.metrics import Metrics
    from datp_tasks.live.nodes import NodeRegister
    from datp_tasks.live.store import LiveStore
    from datp_tasks.operator.operator import Operator
    from datp_tasks.pipelines.catalogue import Catalogue
    from datp_tasks.pipelines.version_store import PipelineStore
    from datp_tasks.record.alerts import Alerts
    from datp_tasks.record.api_keys import ApiKeys
    from datp_tasks.record.audit_chain import AuditChain
    from datp_tasks.record.database import Engine
    from datp_tasks.record.groups import GroupStore
    from datp_tasks.record.sealed_secrets import SealedSecrets
    from datp_tasks.record.timeouts import Timeouts
    from datp_tasks.record.transactions import Record
    from datp_tasks.runtime.container import Container
    from datp_tasks.settings import Settings
    from datp_tasks.webhooks.webhook_service import WebhookService


class CommandParts:
    """The parts of one command, on connections that it shares."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._clock = ServerClock()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened."""
        self._opened.close()

    # What needs SQL alone.

    @cached_property
    def engine(self) -> Engine:
        from datp_tasks.record.database import make_engine

        engine = make_engine(self.settings)
        self._opened.callback(engine.dispose)
        return engine

    @cached_property
    def record(self) -> Record:
        """For reading: no webhook is sent for what this one ends."""
        from datp_tasks.record.transactions import Record

        return Record(self.engine, self._clock)

    @cached_property
    def api_keys(self) -> ApiKeys:
        from datp_tasks.record.api_keys import ApiKeys

        peppers = (self.settings.key_pepper, self.settings.key_pepper_previous)
        return ApiKeys(self.engine, self._clock, *peppers)

    @cached_property
    def alerts(self) -> Alerts:
        from datp_tasks.record.alerts import Alerts

        return Alerts(self.engine, self._clock)

    @cached_property
    def timeouts(self) -> Timeouts:
        from datp_tasks.record.timeouts import Timeouts

        return Timeouts(self.engine, self._clock)

    @cached_property
    def secrets(self) -> SealedSecrets:
        from datp_tasks.record.sealed_secrets import SealedSecrets
        from datp_tasks.seals.keyring import load

        return SealedSecrets(self.engine, self._clock, load(self.settings))

    @property
    def audit_chain(self) -> AuditChain:
        from datp_tasks.record.audit_chain import AuditChain

        return AuditChain(self.engine)

    # What needs Redis.

    @cached_property
    def live(self) -> LiveStore:
        from datp_tasks.live.connect import make_redis
        from datp_tasks.live.store import LiveStore

        redis = make_redis(self.settings)
        self._opened.callback(redis.close)
        return LiveStore(redis, self.settings, self._clock)

    @cached_property
    def metrics(self) -> Metrics:
        from datp_tasks.live.metrics import Metrics

        return Metrics(self.live.redis, self.live.keys)

    @cached_property
    def nodes(self) -> NodeRegister:
        from datp_tasks.live.nodes import NodeRegister

        settings = self.settings
        return NodeRegister(
            self.live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
        )

    @cached_property
    def groups(self) -> GroupStore:
        from datp_tasks.live.group_copy import GroupCopy
        from datp_tasks.record.groups import GroupStore

        return GroupStore(self.engine, GroupCopy(self.live.redis, self.live.keys), self._clock)

    @cached_property
    def group_queues(self) -> GroupQueues:
        from datp_tasks.bells.broker import make_celery
        from datp_tasks.bells.group_queues import GroupQueues

        queues = GroupQueues(make_celery(self.settings))
        self._opened.callback(queues.close)
        return queues

    def offered_step_types(self) -> set[str] | None:
        """The step types of all live nodes together; None if no node is alive."""
        from datp_tasks.pipelines.step_availability import offered_step_types

        return offered_step_types(self.live.redis, self.live.keys)

    def step_types(self) -> list[StepTypeInfo]:
        """Those of live nodes, and those that come with the package."""
        from datp_tasks.engine.step_types import list_step_types

        return list_step_types(self.live)

    def step_type(self, name: str) -> StepTypeInfo:
        from datp_tasks.engine.step_types import show_step_type

        return show_step_type(self.live, name)

    # What acts on transactions, pipelines, batches and webhooks needs all of it.

    @cached_property
    def client(self) -> Client:
        from datp_tasks.runtime.clients import make_client

        # A person at a terminal is not the owner: `datp unmask` shows what is sealed.
        return make_client(self._container, opens=False)

    @cached_property
    def operator(self) -> Operator:
        from datp_tasks.runtime.clients import make_operator

        return make_operator(self._container)

    @property
    def pipelines(self) -> PipelineStore:
        return self._container.pipelines

    @property
    def catalogue(self) -> Catalogue:
        return self._container.catalogue

    @property
    def ledger(self) -> Ledger:
        return self._container.ledger

    @property
    def webhooks(self) -> WebhookService:
        return self._container.webhooks

    @cached_property
    def _container(self) -> Container:
        from datp_tasks.runtime.container import Container

        container = Container.open(self.settings)
        self._opened.callback(container.close)
        return container
