"""Routes of API keys and of the limits of their owners; an owner sees its own keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import (
    LIMIT_MAX,
    Cursor,
    Limit,
    listed,
    page_of_more,
    read_moment_cursor,
)
from datp_tasks.api.models import Given, Long, Paged, Sent, Text
from datp_tasks.api.once import keeps
from datp_tasks.api.problems import forbidden, not_found
from datp_tasks.api.routing import grants, json_response, needs, router
from datp_tasks.api.serializers import key_json
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.errors import KeyUnknown
from datp_tasks.model.actor import Role
from datp_tasks.model.grants import Grants
from datp_tasks.model.rights import check_read
from datp_tasks.record.api_keys import ApiKey, NewKey, OwnerLimits
from datp_tasks.record.database import translate_outage

own = router("/v1", "keys")
routes = router("/v1", "operator", role=Role.ADMIN)

KeyId = Annotated[str, Path(alias="keyId", max_length=100)]
Owner = Annotated[str, Path(max_length=64)]
DAY_S = 86_400
KEY_EXPIRES_S_MAX = 36_500 * DAY_S


class KeyIn(Sent):
    owner: Text
    role: Annotated[
        Role | None,
        Field(strict=False, description="For an operator: it sees every owner. null: a client's."),
    ] = None
    grants: Annotated[
        list[Text] | None,
        Field(
            max_length=100,
            description="What it may do, instead of what is safe by default.",
            examples=[["submit:transfer", "read"]],
        ),
    ] = None
    name: Annotated[Text | None, Field(description="What it is for, for people.")] = None
    expires_in_seconds: Annotated[float | None, Field(gt=0, le=KEY_EXPIRES_S_MAX)] = None


class RevokeIn(Sent):
    reason: Long | None = None


class LimitsIn(Sent):
    """What is null is as the settings say."""

    requests_per_second: Annotated[float | None, Field(gt=0, le=1e9)] = None
    burst_max: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    in_flight_max: Annotated[int | None, Field(ge=0, lt=2**31)] = None


class KeyShown(Given):
    id: str
    owner: str
    role: Role | None
    grants: list[str] | None
    name: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class KeysShown(Paged):
    keys: list[KeyShown]


class KeyMade(KeyShown):
    key: Annotated[str, Field(description="The key itself: shown now and never again.")]


class OwnerLimitsShown(Given):
    owner: str
    requests_per_second: float | None
    burst_max: int | None
    in_flight_max: int | None


@own.get("/keys", operation_id="listKeys", response_model=KeysShown)
@grants("read")
async def keys(
    request: Request,
    owner: Annotated[str | None, Query(max_length=64)] = None,
    limit: Limit = LIMIT_MAX,
    cursor: Cursor = None,
) -> Response:
    """Keys without their secrets, the oldest first; a client's key sees those of its owner."""
    services, caller = services_of(request), caller_of(request)
    check_read(caller.actor)
    if not caller.is_operator:
        if owner not in (None, caller.owner):
            raise forbidden("A client's key sees the keys of its own owner.")
        owner = caller.owner

    after = read_moment_cursor(cursor)

    def read() -> list[ApiKey]:
        with translate_outage():
            return services.callers.keys.list(owner, after=after, rows_max=limit + 1)

    found = await services.threads.run(read)
    page, more = page_of_more(found, lambda each: (each.created_at.isoformat(), each.id), limit)
    return listed("keys", [key_json(each) for each in page], cursor=more, limit=limit)


@routes.post("/keys", status_code=201, response_model=KeyMade)
@keeps("nothing")
async def create_key(request: Request, wanted: KeyIn) -> Response:
    """Make a key. Only a hash of it is stored, so this answer is the only one that shows it."""
    services, actor = services_of(request), caller_of(request).actor

    def make() -> NewKey:
        grants = None if wanted.grants is None else Grants.parse(wanted.grants)
        with translate_outage():
            return services.callers.keys.create(
                wanted.owner,
                wanted.role,
                actor=actor,
                grants=grants,
                name=wanted.name,
                expires_in_s=wanted.expires_in_seconds,
            )

    made = await services.threads.run(make)
    return json_response({**key_json(made.key), "key": made.text}, 201)


@own.post("/keys/{keyId}/revoke", response_model=KeyShown)
async def revoke_key(request: Request, key_id: KeyId, wanted: RevokeIn | None = None) -> Response:
    """End a key: an admin any of them, a client's key only itself."""
    services, actor = services_of(request), caller_of(request).actor
    if not actor.has(Role.ADMIN) and actor.key_id != key_id:
        raise forbidden("This needs a key with the role admin, or the key itself.")
    reason = (wanted or RevokeIn()).reason

    def revoke() -> ApiKey:
        with translate_outage():
            try:
                services.callers.keys.revoke(key_id, actor=actor, reason=reason)
                return services.callers.keys.one(key_id)
            except KeyUnknown:
                raise not_found("such key") from None

    return json_response(key_json(await services.threads.run(revoke)))


@routes.get("/owners/{owner}/limits", response_model=OwnerLimitsShown)
@needs(Role.VIEWER)
async def get_owner_limits(request: Request, owner: Owner) -> Response:
    """What an owner may do; null is as the settings say."""
    services = services_of(request)

    def read() -> OwnerLimits:
        with translate_outage():
            return services.callers.keys.limits(owner)

    return json_response(_limits_json(owner, await services.threads.run(read)))


@routes.put("/owners/{owner}/limits", response_model=OwnerLimitsShown)
async def set_owner_limits(request: Request, owner: Owner, wanted: LimitsIn) -> Response:
    """Say what an owner may do; it counts within a second."""
    services, actor = services_of(request), caller_of(request).actor
    limits = OwnerLimits(
        requests_per_s=wanted.requests_per_second,
        burst_max=wanted.burst_max,
        in_flight_max=wanted.in_flight_max,
    )

    def put() -> None:
        with translate_outage():
            services.callers.keys.set_limits(owner, limits, actor=actor)

    await services.threads.run(put)
    return json_response(_limits_json(owner, limits))


def _limits_json(owner: str, limits: OwnerLimits) -> dict[str, Any]:
    return {
        "owner": owner,
        "requestsPerSecond": limits.requests_per_s,
        "burstMax": limits.burst_max,
        "inFlightMax": limits.in_flight_max,
    }
