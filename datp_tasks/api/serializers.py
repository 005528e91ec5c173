"""How transactions, batches and the rest look as JSON, in the words of the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from datp_tasks.ledger.batch_types import LedgerBatch
from datp_tasks.model.actor import Actor
from datp_tasks.model.log_lines import LogLine
from datp_tasks.model.rights import sees_payloads
from datp_tasks.model.sealed import MASK
from datp_tasks.record.alerts import Alert
from datp_tasks.record.record_types import Summary

if TYPE_CHECKING:
    from datp_tasks.live.nodes import Node
    from datp_tasks.model.node_groups import NodeGroup
    from datp_tasks.record.api_keys import ApiKey


def time_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def summary_json(summary: Summary, actor: Actor) -> dict[str, Any]:
    """As this actor may see it: a viewer without payloads, operators with who handed it in."""
    # Whatever was not opened for the one who asks is not shown.
    shown = _summary_json(summary.masked())
    if not sees_payloads(actor):
        for name in ("input", "output", "progress", "metadata"):
            shown[name] = shown[name] and dict(MASK)
    if actor.is_operator:
        shown |= {"submittedBy": summary.submitted_by, "origin": summary.origin}
    return shown


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "txId": summary.tx_id,
        "status": str(summary.status),
        "owner": summary.owner,
        "externalId": summary.external_id,
        "pipeline": summary.pipeline,
        "version": summary.version,
        "input": summary.input,
        "output": summary.output,
        "progress": summary.progress,
        "note": summary.note,
        "metadata": summary.metadata,
        "sequence": summary.sequence,
        "webhook": summary.webhook,
        "createdAt": time_text(summary.created_at),
        "completedAt": time_text(summary.completed_at),
        "expiresAt": time_text(summary.expires_at),
        "noReturnAt": time_text(summary.no_return_at),
        "forwardedAt": time_text(summary.forwarded_at),
        "notifiedAt": time_text(summary.notified_at),
    }


def batch_json(batch: LedgerBatch, *, with_position: bool) -> dict[str, Any]:
    """For operators with its position: the line is shared, and would tell what others hand in."""
    return {
        "service": batch.service_id,
        "batchId": batch.batch_id,
        "position": batch.seq if with_position else None,
        "owner": batch.owner,
        "state": str(batch.state),
        "attempts": batch.attempts,
        "receipt": batch.receipt,
        "note": batch.note,
        "txId": batch.tx_id,
        "createdAt": time_text(batch.created_at),
        "finalAt": time_text(batch.final_at),
    }


def line_json(line: LogLine) -> dict[str, Any]:
    """A line that a step logged; without its text where it rests sealed."""
    return {
        "cursor": line.cursor,
        "at": time_text(line.at),
        "level": line.level or None,
        "step": line.path or None,
        "stepType": line.step_type or None,
        "attempt": line.attempt,
        "text": dict(MASK) if line.is_sealed else line.text,
        "fields": line.fields,
    }


def alert_json(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.id,
        "kind": alert.kind,
        "subject": alert.subject,
        "summary": alert.summary,
        "createdAt": time_text(alert.created_at),
    }


def key_json(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "owner": key.owner,
        "role": key.role,
        "grants": list(key.grants.texts) if key.grants else None,
        "name": key.name,
        "createdAt": time_text(key.created_at),
        "expiresAt": time_text(key.expires_at),
        "revokedAt": time_text(key.revoked_at),
        "lastUsedAt": time_text(key.last_used_at),
    }


def group_json(group: NodeGroup, nodes: Sequence[Node]) -> dict[str, Any]:
    """What a group was told, and the load of its nodes."""
    loads = [node.load for node in nodes if node.group == group.name]
    return {
        "name": group.name,
        "values": dict(group.values),
        "roles": group.roles,
        "stopped": group.is_stopped,
        "nodes": len(loads),
        "busy": sum(load.get("busy", 0) for load in loads),
        "transactionsPerS": round(sum(load.get("transactionsPerS", 0) for load in loads), 1),
    }
