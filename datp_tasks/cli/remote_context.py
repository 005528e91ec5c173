"""`datp --url … --key …`: the parts of a command over HTTP, without any server's password.

Each part has the methods that commands call, under the same names; what the API does not give is
refused with a sentence. Who acts is whose key it is: the server checks its role and grants.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from datp_tasks.cli.command_context import Context, connect
from datp_tasks.cli.remote_calls import RemoteCalls, refuse_over_http
from datp_tasks.errors import SettingsError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.settings import Settings

if TYPE_CHECKING:
    from datp_tasks.bells.group_queues import GroupQueues
    from datp_tasks.cli.reader import StatusReader
    from datp_tasks.cli.top import TopView
    from datp_tasks.client.client import Client
    from datp_tasks.engine.step_types import StepTypeInfo
    from datp_tasks.ledger.ledger_service import Ledger
    from datp_tasks.live.nodes import NodeRegister
    from datp_tasks.operator.operator import Operator
    from datp_tasks.pipelines.mapping_store import MappingStore
    from datp_tasks.pipelines.version_store import PipelineStore
    from datp_tasks.record.alerts import Alerts
    from datp_tasks.record.api_keys import ApiKeys
    from datp_tasks.record.audit_chain import AuditChain
    from datp_tasks.record.groups import GroupStore
    from datp_tasks.record.sealed_secrets import SealedSecrets
    from datp_tasks.record.timeouts import Timeouts
    from datp_tasks.webhooks.webhook_service import WebhookService

KEY_VARIABLE = "DATP_KEY"


def open_remote(url: str, key: str | None) -> RemoteContext:
    key = key or os.environ.get(KEY_VARIABLE)
    if not key:
        raise SettingsError(f"--url needs an API key: give --key, or better set {KEY_VARIABLE}.")
    return RemoteContext(url, key)


def remote_calls() -> RemoteCalls:
    """For commands whose work the server does in another way than they do."""
    return cast("RemoteContext", connect()).calls


class RemoteContext(Context):
    """Parts over HTTP. Each is cast to what it stands for: it has what commands call of it."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(Settings())
        self._url = url
        self._key = key

    @cached_property
    def calls(self) -> RemoteCalls:
        try:
            from datp_tasks.http import ApiClient
        except ImportError:
            missing = 'Install it with `pip install "datp-tasks[http]"`.'
            raise SettingsError(f"--url needs the library httpx. {missing}") from None
        api = ApiClient(self._url, self._key)
        self._opened.callback(api.close)
        return RemoteCalls(api)

    @cached_property
    def actor(self) -> Actor:
        """The server knows whose key it is, and has masked what that may not see."""
        return Actor(name="remote", role=Role.ADMIN)

    @cached_property
    def client(self) -> Client:
        from datp_tasks.cli.remote_transactions import RemoteClient

        return cast("Client", RemoteClient(self.calls))

    @cached_property
    def reader(self) -> StatusReader:
        return cast("StatusReader", self.client)

    @cached_property
    def operator(self) -> Operator:
        from datp_tasks.cli.remote_transactions import RemoteOperator

        return cast("Operator", RemoteOperator(self.calls))

    @cached_property
    def alerts(self) -> Alerts:
        from datp_tasks.cli.remote_reports import RemoteAlerts

        return cast("Alerts", RemoteAlerts(self.calls))

    @property
    def pipelines(self) -> PipelineStore:
        from datp_tasks.cli.remote_settings import RemotePipelines

        return cast("PipelineStore", RemotePipelines(self.calls))

    @property
    def mappings(self) -> MappingStore:
        from datp_tasks.cli.remote_settings import RemoteMappings

        return cast("MappingStore", RemoteMappings(self.calls))

    @cached_property
    def groups(self) -> GroupStore:
        from datp_tasks.cli.remote_settings import RemoteGroups

        return cast("GroupStore", RemoteGroups(self.calls))

    @cached_property
    def nodes(self) -> NodeRegister:
        from datp_tasks.cli.remote_settings import RemoteNodes

        return cast("NodeRegister", RemoteNodes(self.calls))

    @cached_property
    def api_keys(self) -> ApiKeys:
        from datp_tasks.cli.remote_settings import RemoteKeys

        return cast("ApiKeys", RemoteKeys(self.calls))

    @cached_property
    def group_queues(self) -> GroupQueues:
        from datp_tasks.cli.remote_settings import RemoteQueues

        return cast("GroupQueues", RemoteQueues(self.calls))

    @cached_property
    def webhooks(self) -> WebhookService:
        from datp_tasks.cli.remote_webhooks import RemoteWebhooks

        return cast("WebhookService", RemoteWebhooks(self.calls))

    @cached_property
    def ledger(self) -> Ledger:
        from datp_tasks.cli.remote_ledger import RemoteLedger

        return cast("Ledger", RemoteLedger(self.calls))

    @cached_property
    def timeouts(self) -> Timeouts:
        from datp_tasks.cli.remote_reports import RemoteTimeouts

        return cast("Timeouts", RemoteTimeouts(self.calls))

    @cached_property
    def audit_chain(self) -> AuditChain:
        from datp_tasks.cli.remote_reports import RemoteAudit

        return cast("AuditChain", RemoteAudit(self.calls))

    @cached_property
    def secrets(self) -> SealedSecrets:
        from datp_tasks.cli.remote_sealing import RemoteSecrets

        return cast("SealedSecrets", RemoteSecrets(self.calls))

    def key_ring(self) -> list[dict[str, Any]]:
        from datp_tasks.cli.remote_sealing import key_ring_of

        return key_ring_of(self.calls)

    def top_view(self) -> TopView:
        from datp_tasks.cli.remote_top import look_over_http

        return look_over_http(self.calls)

    def step_types(self) -> list[StepTypeInfo]:
        from datp_tasks.cli.remote_reports import step_types_of

        return step_types_of(self.calls)

    def step_type(self, name: str) -> StepTypeInfo:
        from datp_tasks.cli.remote_reports import step_type_of

        return step_type_of(self.calls, name)

    def offered_step_types(self) -> set[str] | None:
        """The server warns by itself."""
        return None

    @property
    def engine(self) -> Any:
        refuse_over_http("PostgreSQL")

    @property
    def live(self) -> Any:
        refuse_over_http("Redis")

    @property
    def _container(self) -> Any:
        refuse_over_http("PostgreSQL, Redis and the broker")
