"""Whether the process lives, and whether it can do its work."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from datp_tasks.api import models
from datp_tasks.api.problems import RETRY_AFTER_S, Problem
from datp_tasks.api.routing import json_response
from datp_tasks.api.services import services_of
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.record.database import Engine, answers

router = APIRouter(tags=["health"], redirect_slashes=False)


@router.get("/healthz", operation_id="getHealth", response_model=models.Health)
async def healthz() -> Response:
    """The process lives."""
    return json_response({"status": "ok"})


@router.get("/readyz", operation_id="getReadiness", response_model=models.Readiness)
async def readyz(request: Request) -> Response:
    """Transactions can be accepted. Without Redis they can: they are only late."""
    services = services_of(request)
    sql, redis = await services.health.servers.get()
    if not sql:
        raise Problem(
            503,
            "record-unavailable",
            "PostgreSQL does not answer, so nothing can be accepted.",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )
    status = "ok" if redis else "degraded"
    servers = {"postgresql": "ok", "redis": "ok" if redis else "unavailable"}
    # Nothing that counts: this needs no key.
    return json_response({"status": status, **servers})


def look_at_servers(engine: Engine, live: LiveStore) -> tuple[bool, bool]:
    sql, redis = answers(engine), True
    try:
        live.ping()
    except RedisError:
        redis = False
    return sql, redis
