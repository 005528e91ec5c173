"""A store of pipelines behind the gate of an installation of one person."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from datp_tasks.clock import ServerClock
from datp_tasks.live.keys import Keys
from datp_tasks.model.approval_policy import Policy
from datp_tasks.operator.approvals import Approvals
from datp_tasks.pipelines.version_store import USE, PipelineStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.approvals import ApprovalStore


def make_store(engine: Engine, redis: Any, keys: Keys, **more: Any) -> PipelineStore:
    clock = ServerClock()
    policy = Policy(single_person=True)
    gate = Approvals(ApprovalStore(engine, clock), Alerts(engine, clock), policy)
    store = PipelineStore(engine, redis, keys, gate=gate, **more)
    gate.offer(USE, store)
    return store
