"""One transaction: why it stands where it stands, its steps over time, and what it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.payload_diff import DiffLine, diff
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.timeline import Drawing, StepRow, Timeline
from datp_tasks.api.console.transactions_page import LOOKS
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.problems import forbidden, not_found
from datp_tasks.api.services import Services
from datp_tasks.errors import DatpError
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import Approval
from datp_tasks.model.log_lines import LogLine
from datp_tasks.model.status import Status
from datp_tasks.operator.replay import Replay
from datp_tasks.operator.transaction_logs import opened_lines
from datp_tasks.operator.why import Why
from datp_tasks.record.database import translate_outage
from datp_tasks.record.events import Event
from datp_tasks.record.operator_actions import record_action
from datp_tasks.record.record_types import Summary
from datp_tasks.record.webhooks import Delivery

pages = Pages()

EVENTS_MAX = 200
WEBHOOKS_MAX = 50
#: While it goes on, the words that count seconds are made again so often.
REFRESH_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPayloads:
    """What the transaction holds, for one who gave a reason."""

    input: Any
    metadata: Any
    progress: Any
    output: Any
    errors: list[str]
    steps: list[tuple[StepRow, list[DiffLine]]]
    events: list[Event]
    logs: list[LogLine]


def read(services: Services, params: Params) -> Mapping[str, Any]:
    """Everything but payloads."""
    tx_id = params["tx"]
    summary = look(services, tx_id)
    replay = services.operator.replay(tx_id)
    now_ms = services.live.server_now_ms()
    return {
        "tx": summary,
        "now_ms": now_ms,
        "why": _why(services, tx_id),
        "timeline": timeline_of(services, summary, replay, now_ms),
        "replay": replay,
        "facts": _facts(services, summary, replay),
        **_told(services, tx_id),
        "can": can(summary),
    }


def look(services: Services, tx_id: str) -> Summary:
    """The transaction as of now, masked."""
    if not shard_of_tx(tx_id):
        raise not_found("such transaction")
    (found,) = services.client.status_many([tx_id])
    if found is None:
        raise not_found("such transaction")
    return found.masked()


def _why(services: Services, tx_id: str) -> Why:
    def bells_in(group: str) -> int:
        # What the broker does not tell is not taken for a lost bell.
        return services.node_groups.queues.waiting((group,)).get(group, 1)

    # All tabs are told the same, so it is what a viewer may see.
    return services.operator.why(tx_id, bells_in=bells_in, actor=LOOKS.actor)


def timeline_of(
    services: Services, summary: Summary, replay: Replay, now_ms: int
) -> Timeline | None:
    try:
        drawing = Drawing(summary, services.catalogue.version)
        return drawing.draw(replay.entries, now_ms)
    except DatpError:
        # A version that is not stored any more: there is nothing to draw.
        return None


def _facts(services: Services, summary: Summary, replay: Replay) -> dict[str, Any]:
    """Where it is as the engine sees it."""
    fields = ArchiveFeed(services.live).states([summary.tx_id])[0]
    view = replay.view
    switches = dict(view.switches) if view is not None else {}
    return {
        "source": "Redis" if fields else "SQL",
        "fence": view.fence if view is not None else summary.fence,
        "version": view.version if view is not None else None,
        "node": fields.get("node", ""),
        "group": fields.get("group", ""),
        "place": fields.get("place", ""),
        "step_type": fields.get("stepType", ""),
        "wake_ms": view.wake_ms if view is not None else None,
        "wake_switch": view.wake_switch if view is not None else None,
        # The value is a payload; that it is set, and how often, is not.
        "switches": {name: text.partition(":")[0] for name, text in sorted(switches.items())},
    }


def _told(services: Services, tx_id: str) -> dict[str, Any]:
    """What its client was or will be told, and what waits for a second person."""
    with translate_outage():
        events: list[Event] = services.transactions.events.list(tx_id, rows_max=EVENTS_MAX)
        deliveries: list[Delivery] = services.webhooks.store.deliveries(
            tx_id=tx_id, rows_max=WEBHOOKS_MAX
        )
        approvals: list[Approval] = services.operator.approvals.store.page(subject=tx_id)
    return {"events": events, "deliveries": deliveries, "approvals": approvals}


def can(summary: Summary) -> dict[str, bool]:
    """Which actions make sense for it now; whether a person may is another question."""
    status = summary.status
    is_bound = summary.no_return_at is not None or summary.forwarded_at is not None
    return {
        "cancel": not status.is_final and not is_bound,
        "wake": status is Status.SLEEPING,
        "switch": not status.is_final,
        "retry": status in (Status.QUEUED, Status.SLEEPING),
        "resolve": status is Status.IN_DOUBT,
    }


def mark(services: Services, params: Params) -> object:
    tx_id = params["tx"]
    ((version, node),) = services.live.versions_many([tx_id])
    if version is None:
        with translate_outage():
            return services.transactions.listing.sequences([tx_id]).get(tx_id)
    return version, node, services.live.server_now_ms() // 1_000 // REFRESH_S


VIEW = LiveView(
    name="transaction",
    read=read,
    mark=mark,
    parts={
        "tx-head": "parts/tx_head.html",
        "tx-why": "parts/tx_why.html",
        "tx-steps": "parts/tx_steps.html",
        "tx-facts": "parts/tx_facts.html",
        "tx-told": "parts/tx_told.html",
    },
    every_s=0.5,
)


@pages.page("/transactions/{tx_id}")
async def transaction(visit: Visit) -> Response:
    return await _page(visit, None)


@pages.action("/transactions/{tx_id}/unmask", back="/transactions/{tx_id}")
async def unmask(visit: Visit) -> Response:
    """Shows the payloads once, in this answer; the audit keeps who asked, and why."""
    reason = visit.reason()
    summary: Summary = await visit.run(look, visit.services, visit.part("tx_id"))
    if summary.is_sealed and not visit.has(Role.ADMIN):
        raise forbidden("What is sealed is shown to the role admin only.")
    payloads = await visit.run(_payloads, visit, summary.tx_id, reason)
    return await _page(visit, payloads)


async def _page(visit: Visit, payloads: ShownPayloads | None) -> Response:
    tx_id = visit.part("tx_id")
    found = await visit.run(read, visit.services, {"tx": tx_id})
    return visit.page(
        "transaction.html",
        title=tx_id,
        live=with_query("", {"view": "transaction", "tx": tx_id})[1:],
        payloads=payloads,
        **found,
    )


def _payloads(visit: Visit, tx_id: str, reason: str) -> ShownPayloads:
    services, actor = visit.services, visit.caller.actor
    with translate_outage():
        (stored,) = services.transactions.record.summaries([tx_id])
    if stored.is_sealed:
        unmasked = services.operator.unmask(tx_id, actor=actor, reason=reason)
        summary, errors = unmasked.summary, unmasked.errors
    else:
        with translate_outage():
            record_action(
                services.transactions.record.engine,
                actor=actor,
                action="transaction.unmask",
                subject=tx_id,
                reason=reason,
            )
        summary, errors = stored, _errors(services, tx_id)

    def opened(value: Any) -> Any:
        return services.transactions.vault.open(tx_id, value)

    replay = services.operator.replay(tx_id)
    drawing = Drawing(summary, services.catalogue.version, opened)
    rows = drawing.draw(replay.entries, services.live.server_now_ms()).rows
    with translate_outage():
        events = services.transactions.events.list(tx_id, rows_max=EVENTS_MAX)
        if stored.is_sealed:
            events = services.transactions.vault.opened_events(tx_id, events)
    return ShownPayloads(
        input=summary.input,
        metadata=summary.metadata,
        progress=summary.progress,
        output=summary.output,
        errors=errors,
        steps=[(row, diff(row.data, row.output)) for row in rows if row.data is not None],
        events=events,
        logs=opened_lines(tx_id, replay.entries, services.transactions.vault),
    )


def _errors(services: Services, tx_id: str) -> list[str]:
    lines = [line for entry in services.operator.deltas(tx_id) for line in entry.deltas]
    return [str(each["why"]) for each in map(json.loads, lines) if each.get("why")]
