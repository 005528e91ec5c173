"""What a command works with, of the servers and with the clock of a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from datp_tasks.engine.step_types import list_step_types, show_step_type
from datp_tasks.live.metrics import Metrics
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.testing import Kit


def command_parts(kit: Kit, **others: Any) -> SimpleNamespace:
    """As `connect()` gives them; `others` are added or stand in for one."""
    container, settings = kit.connections, kit.settings
    live, engine = container.live, container.engine
    parts = {
        "settings": settings,
        "steps_of_stack": None,
        "client": kit.client,
        "reader": kit.client,
        "operator": kit.operator,
        "engine": engine,
        "live": live,
        "metrics": Metrics(live.redis, live.keys),
        "nodes": NodeRegister(
            live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
        ),
        "groups": container.groups,
        "alerts": Alerts(engine, kit.clock),
        "timeouts": Timeouts(engine, kit.clock),
        "audit_chain": AuditChain(engine),
        "step_types": lambda: list_step_types(live),
        "step_type": lambda name: show_step_type(live, name),
        "ledger": container.ledger,
        "webhooks": container.webhooks,
    }
    return SimpleNamespace(**{**parts, **others})
