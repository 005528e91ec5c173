"""Routes for those who run the system; they need a key with a role."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api import operator_models
from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.models import Sent, Text
from datp_tasks.api.pipeline_versions import version_json
from datp_tasks.api.problems import invalid, not_found
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import alert_json, time_text
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.errors import PipelineUnknown
from datp_tasks.live.nodes import live_nodes
from datp_tasks.model.actor import Role
from datp_tasks.pipelines.records import PipelineInfo, VersionInfo
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.ADMIN)

#: Of actions that may need a second person.
ASKED: dict[int | str, dict[str, Any]] = {
    202: {"model": operator_models.ApprovalAsked, "description": "It waits for another person."}
}
Name = Annotated[str, Path(max_length=200)]
#: PostgreSQL's bigint.
AlertId = Annotated[int, Path(ge=1, lt=2**63)]


class CloseIn(Sent):
    reason: Annotated[Text, Field(min_length=1, description="Kept in the audit table.")]


class UseIn(Sent):
    reason: Annotated[Text, Field(description="Why; kept in the audit table.")] = ""
    break_glass: Annotated[
        bool,
        Field(description="Act alone although the policy wants another person; an alert stays."),
    ] = False


@routes.get(
    "/pipelines", operation_id="listPipelines", response_model=operator_models.PipelinesShown
)
@needs(Role.VIEWER)
async def pipelines(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """Every pipeline, by name."""
    services = services_of(request)
    found = await services.threads.run(services.pipelines.list)
    page, more = page_of_all(found, lambda each: each.name, cursor, limit)
    shown = [_pipeline_json(each) for each in page]
    return listed("pipelines", shown, cursor=more, limit=limit)


@routes.get(
    "/pipelines/{name}", operation_id="getPipeline", response_model=operator_models.PipelineInUse
)
@needs(Role.VIEWER)
async def pipeline(request: Request, name: Name) -> Response:
    """One pipeline: its versions, and the definition in use."""
    services = services_of(request)
    return json_response(await services.threads.run(_pipeline, services, name))


@routes.post(
    "/pipelines/{name}/versions/{version}/use",
    operation_id="usePipelineVersion",
    response_model=operator_models.PipelineVersionInfo,
    responses=ASKED,
)
async def use(request: Request, name: Name, version: Name, wanted: UseIn | None = None) -> Response:
    """New transactions get this version from now on."""
    services = services_of(request)
    given = wanted or UseIn()
    if given.break_glass and not given.reason.strip():
        raise invalid([{"loc": ("body", "reason"), "msg": "breakGlass needs a reason"}])
    store = services.pipelines.acting(caller_of(request).actor)

    def put() -> VersionInfo:
        with translate_outage():
            try:
                return store.use(name, version, reason=given.reason, break_glass=given.break_glass)
            except PipelineUnknown as error:
                raise not_found(f"such version: {error}") from None

    return json_response(version_json(await services.threads.run(put)))


@routes.post(
    "/pipelines/{name}/disable",
    operation_id="disablePipeline",
    response_model=operator_models.PipelineStopped,
)
async def disable(request: Request, name: Name) -> Response:
    """Take no new transactions; those on their way go on."""
    services = services_of(request)
    store = services.pipelines.acting(caller_of(request).actor)

    def put() -> None:
        with translate_outage():
            try:
                store.disable(name)
            except PipelineUnknown:
                raise not_found("such pipeline") from None

    await services.threads.run(put)
    return json_response({"name": name, "disabled": True})


@routes.get("/nodes", operation_id="listNodes", response_model=operator_models.NodesShown)
@needs(Role.VIEWER)
async def nodes(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """Workers that live: where they run, what they offer, how busy they are."""
    services = services_of(request)
    live = services.live
    found = await services.threads.run(live_nodes, live.redis, live.keys)
    page, more = page_of_all(found, lambda each: f"{each.group} {each.name}", cursor, limit)
    shown = [{"group": each.group, "name": each.name, **each.record} for each in page]
    return listed("nodes", shown, cursor=more, limit=limit)


@routes.get("/queues", operation_id="getQueues", response_model=operator_models.QueuesShown)
@needs(Role.VIEWER)
async def queues(request: Request) -> Response:
    """How many transactions are where, and how many bells wait for each node group."""
    services = services_of(request)
    return json_response(await services.threads.run(_queues, services))


@routes.get("/alerts", operation_id="listAlerts", response_model=operator_models.AlertsShown)
@needs(Role.VIEWER)
async def alerts(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """What a person should look at, oldest first."""
    services = services_of(request)

    def read() -> list[dict[str, Any]]:
        with translate_outage():
            return [alert_json(each) for each in services.health.alerts.open_alerts()]

    found = await services.threads.run(read)
    page, more = page_of_all(found, lambda each: f"{each['id']:020d}", cursor, limit)
    return listed("alerts", page, cursor=more, limit=limit)


@routes.post(
    "/alerts/{alertId}/close",
    operation_id="closeAlert",
    response_model=operator_models.AlertClosed,
)
@needs(Role.OPERATOR)
async def close_alert(
    request: Request,
    alert_id: Annotated[AlertId, Path(alias="alertId")],
    wanted: CloseIn,
) -> Response:
    """Close an alert that was dealt with. What one person did alone is closed by another."""
    services, actor = services_of(request), caller_of(request).actor
    close = services.operator.approvals.close_alert
    if not await services.threads.run(close, actor, alert_id, reason=wanted.reason):
        raise not_found("open alert with this id")
    return json_response({"id": alert_id, "closed": True})


def _pipeline(services: Services, name: str) -> dict[str, Any]:
    store = services.pipelines
    with translate_outage():
        try:
            shown = store.show(name)
            versions = store.versions(name)
        except PipelineUnknown:
            raise not_found("such pipeline") from None
    return {
        "name": name,
        "versions": [version_json(each) for each in versions],
        "definition": json.loads(shown.definition.to_json()),
    }


def _queues(services: Services) -> dict[str, Any]:
    live = services.live
    groups = {node.group for node in live_nodes(live.redis, live.keys)}
    groups |= {services.settings.maintenance_group, services.settings.ledger_group}
    return {
        "transactions": live.sizes(),
        "bells": services.node_groups.queues.waiting(sorted(groups)),
    }


def _pipeline_json(info: PipelineInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "versionInUse": info.version_in_use,
        "disabled": info.disabled,
        "versions": info.versions,
        "drafts": info.drafts,
        "updatedAt": time_text(info.updated_at),
    }
