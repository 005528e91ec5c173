"""Routes of node groups: what they are told, and how their workers stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.models import Given, Long, Paged, Sent
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.serializers import group_json
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.node_groups import LIMITS, NodeGroup
from datp_tasks.record.database import translate_outage

routes = router("/v1", "operator", role=Role.OPERATOR)

Name = Annotated[str, Path(max_length=200)]


class GroupIn(Sent):
    values: Annotated[
        dict[str, int | None],
        Field(
            min_length=1,
            description=f"Names: {', '.join(LIMITS)}. null: the default again.",
            examples=[{"concurrency": 4}],
        ),
    ]
    reason: Long | None = None


class GroupShown(Given):
    name: str
    values: Annotated[dict[str, int], Field(description="What was decided; others are default.")]
    roles: list[str]
    stopped: bool
    nodes: Annotated[int, Field(description="Live workers.")]
    busy: int
    transactions_per_s: float
    waiting: Annotated[int | None, Field(description="Messages; null: the broker is unavailable.")]


class GroupsShown(Paged):
    groups: list[GroupShown]


@routes.get("/groups", operation_id="listGroups", response_model=GroupsShown)
@needs(Role.VIEWER)
async def groups(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """Every group that was told something, or that has a live worker, by name."""
    services = services_of(request)
    found = await services.threads.run(all_groups, services)
    page, more = page_of_all(found, lambda each: each["name"], cursor, limit)
    return listed("groups", page, cursor=more, limit=limit)


@routes.get("/groups/{name}", operation_id="getGroup", response_model=GroupShown)
@needs(Role.VIEWER)
async def group(request: Request, name: Name) -> Response:
    """One group; one that was told nothing and has no worker is all default."""
    services = services_of(request)
    return json_response(await services.threads.run(one_group, services, name))


@routes.patch("/groups/{name}", response_model=GroupShown)
async def set_group(request: Request, name: Name, wanted: GroupIn) -> Response:
    """Change values of a group; its workers follow within seconds. `concurrency: 0` stops it."""
    services, actor = services_of(request), caller_of(request).actor

    def put() -> dict[str, Any]:
        change_group(services, name, wanted.values, actor=actor, reason=wanted.reason)
        return one_group(services, name)

    return json_response(await services.threads.run(put))


def change_group(
    services: Services,
    name: str,
    values: Mapping[str, int | None],
    *,
    actor: Actor,
    reason: str | None,
    seen: Mapping[str, int | None] | None = None,
) -> None:
    """Change values of a group and tell its workers. In a thread.

    With `seen`, SubjectMoved is raised if a value is not as the caller has seen it.
    """
    with translate_outage():
        services.node_groups.store.set(
            name,
            values,
            actor=actor,
            reason=reason,
            maintenance_group=services.settings.maintenance_group,
            seen=seen,
        )
    services.node_groups.queues.tell_workers()


def all_groups(services: Services) -> list[dict[str, Any]]:
    with translate_outage():
        known = services.node_groups.store.list()
    nodes = services.node_groups.nodes()
    names = sorted(known.keys() | {node.group for node in nodes})
    waiting = services.node_groups.queues.waiting(names)
    return [
        {**group_json(known.get(name, NodeGroup(name, {})), nodes), "waiting": waiting.get(name)}
        for name in names
    ]


def one_group(services: Services, name: str) -> dict[str, Any]:
    with translate_outage():
        known = services.node_groups.store.list().get(name, NodeGroup(name, {}))
    waiting = services.node_groups.queues.waiting([name]).get(name)
    return {**group_json(known, services.node_groups.nodes()), "waiting": waiting}
