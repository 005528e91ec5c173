"""Routes that explain: why a transaction stands, what its journal leads to, how the system is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.models import Given, Object
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.transactions import TxId, note_read
from datp_tasks.model.actor import Role
from datp_tasks.operator.doctor import Diagnosis, InFlight
from datp_tasks.operator.replay import Replay
from datp_tasks.operator.why import Why
from datp_tasks.record.database import translate_outage
from datp_tasks.record.timeouts import LAG_ALERT_S, NextTimeout, Peek, TimeoutStanding

routes = router("/v1", "operator", role=Role.VIEWER)

ROWS_MAX = 1_000


class WhyShown(Given):
    tx_id: str
    status: str
    cause: Annotated[str, Field(description="One word for programs.")]
    answer: Annotated[str, Field(description="For people.")]
    moves_at: Annotated[datetime | None, Field(description="When it moves by itself.")]
    hints: Annotated[list[str], Field(description="What a person can do.")]


class ReplayShown(Given):
    tx_id: str
    fits: Annotated[bool, Field(description="The journal leads to what the system has.")]
    faults: list[str]
    status: str | None
    version: int | None
    dropped: Annotated[bool, Field(description="Its journal is older than it is kept.")]
    erased: bool
    state: Object | None


class InFlightShown(Given):
    tx_id: str
    node: str
    place: str
    step_type: str
    since: datetime
    orphaned: bool
    mid_step: bool


class InFlightNowShown(Given):
    now: Annotated[datetime, Field(description="By the clock that `since` is of.")]
    in_flight: list[InFlightShown]


class InDoubtShown(Given):
    tx_id: str
    place: str
    step_type: str
    since: datetime
    why: str


class ViolationShown(Given):
    tx_id: str
    what: str


class DiagnosisShown(Given):
    healthy: bool
    in_flight: list[InFlightShown]
    in_doubt: list[InDoubtShown]
    violations: list[ViolationShown]
    sizes: dict[str, int]
    journal_backlog: int
    lost_shards: list[str]
    open_alerts: int


class SegmentShown(Given):
    value: int
    xact: Annotated[str, Field(description="Of PostgreSQL; larger than a float can hold.")]
    changed_at: datetime | None


class TimeoutShown(Given):
    tx_id: str
    pipeline: str
    owner: str
    state: str
    expires_at: datetime
    expiring_at: datetime | None


class TimeoutsShown(Given):
    lag_seconds: float
    behind: bool
    segment: SegmentShown
    watched: int
    due: int
    next: list[TimeoutShown]


@routes.get("/transactions/{txId}/why", response_model=WhyShown)
async def explain_transaction(request: Request, tx_id: TxId) -> Response:
    """What it waits for, which node has it, when it moves, and what a person can do."""
    services, caller = services_of(request), caller_of(request)
    await services.look(caller, tx_id)
    explain = services.operator.why
    return json_response(why_json(await services.threads.run(explain, tx_id, actor=caller.actor)))


@routes.get("/transactions/{txId}/replay", response_model=ReplayShown)
@needs(Role.OPERATOR)
async def replay_transaction(request: Request, tx_id: TxId) -> Response:
    """Rebuild it from its journal, and compare it with everything there is."""
    services, caller = services_of(request), caller_of(request)
    summary = await services.look(caller, tx_id)
    await note_read(request, "transaction.replay", tx_id, [summary])
    return json_response(replay_json(await services.threads.run(services.operator.replay, tx_id)))


@routes.get("/doctor", operation_id="getDiagnosis", response_model=DiagnosisShown)
async def doctor(request: Request) -> Response:
    """What is in flight and in doubt, and whether everything is where it should be."""
    services = services_of(request)
    return json_response(diagnosis_json(await services.threads.run(services.operator.doctor)))


@routes.get("/in-flight", operation_id="getInFlight", response_model=InFlightNowShown)
async def in_flight(
    request: Request, limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = 10
) -> Response:
    """What workers have, the longest first. Cheap: nothing else is looked at."""
    services = services_of(request)
    return json_response(await services.threads.run(_in_flight_now, services, limit))


def _in_flight_now(services: Services, limit: int) -> dict[str, Any]:
    found = services.operator.in_flight(rows_max=limit)
    return {
        "now": _moment(services.live.server_now_ms()),
        "inFlight": [in_flight_json(each) for each in found],
    }


@routes.get("/timeouts", operation_id="getTimeouts", response_model=TimeoutsShown)
async def timeouts(
    request: Request, limit: Annotated[int, Query(ge=0, le=ROWS_MAX)] = 10
) -> Response:
    """What expires next, and how far behind the timeout handler is."""
    services = services_of(request)
    return json_response(await services.threads.run(_timeouts, services, limit))


def _timeouts(services: Services, limit: int) -> dict[str, Any]:
    store = services.transactions.timeouts
    with translate_outage():
        peek, standing, due = store.peek(), store.standing(), store.next_due(limit)
    return timeouts_json(peek, standing, due, lag_alert_s=LAG_ALERT_S)


def why_json(found: Why) -> dict[str, Any]:
    return {
        "txId": found.tx_id,
        "status": found.status,
        "cause": found.cause,
        "answer": found.answer,
        "movesAt": time_text(found.moves_at),
        "hints": found.hints,
    }


def replay_json(found: Replay) -> dict[str, Any]:
    view = found.view
    return {
        "txId": found.tx_id,
        "fits": not found.faults,
        "faults": found.faults,
        "status": view.status if view else None,
        "version": view.version if view else None,
        "dropped": found.dropped,
        "erased": found.erased,
        "state": json.loads(view.state.to_json()) if view else None,
    }


def in_flight_json(found: InFlight) -> dict[str, Any]:
    return {
        "txId": found.tx_id,
        "node": found.node,
        "place": found.place,
        "stepType": found.step_type,
        "since": _moment(found.since_ms),
        "orphaned": found.orphaned,
        "midStep": found.mid_step,
    }


def diagnosis_json(found: Diagnosis) -> dict[str, Any]:
    return {
        "healthy": found.is_healthy,
        "inFlight": [in_flight_json(each) for each in found.in_flight],
        "inDoubt": [
            {
                "txId": each.tx_id,
                "place": each.place,
                "stepType": each.step_type,
                "since": _moment(each.since_ms),
                "why": each.why,
            }
            for each in found.in_doubt
        ],
        "violations": [{"txId": each.tx_id, "what": each.what} for each in found.violations],
        "sizes": found.sizes,
        "journalBacklog": found.journal_backlog,
        "lostShards": found.lost_shards,
        "openAlerts": found.open_alerts,
    }


def timeouts_json(
    peek: Peek, standing: TimeoutStanding, due: list[NextTimeout], *, lag_alert_s: float
) -> dict[str, Any]:
    return {
        "lagSeconds": peek.lag_s,
        "behind": peek.lag_s > lag_alert_s,
        "segment": {
            "value": standing.value,
            "xact": standing.xact,
            "changedAt": time_text(standing.changed_at),
        },
        "watched": standing.watched,
        "due": standing.due,
        "next": [
            {
                "txId": each.tx_id,
                "pipeline": each.pipeline,
                "owner": each.owner,
                "state": each.state,
                "expiresAt": time_text(each.expires_at),
                "expiringAt": time_text(each.expiring_at),
            }
            for each in due
        ],
    }


def _moment(at_ms: int) -> str | None:
    return time_text(datetime.fromtimestamp(at_ms / 1_000, UTC))
