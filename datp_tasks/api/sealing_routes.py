"""Routes of what is sealed: names of secrets, and which key of the ring seals how much.

No value of a secret and no key is ever shown.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.models import Given, Paged, Sent
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import json_response, router
from datp_tasks.api.serializers import time_text
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.errors import SecretUnknown
from datp_tasks.model.actor import Role
from datp_tasks.record.rekeying import Rekeying, ring_use
from datp_tasks.record.sealed_secrets import NAME, VALUE_CHARS_MAX
from datp_tasks.seals.keyring import needed

routes = router("/v1", "operator", role=Role.ADMIN)

Name = Annotated[
    str, Path(pattern=f"^{NAME.pattern}$", description="As pipelines name it: {secret: NAME}.")
]


class SecretIn(Sent):
    value: Annotated[
        str,
        Field(
            min_length=1,
            max_length=VALUE_CHARS_MAX,
            pattern=r"^[^\x00]+$",
            description="It is sealed, and never shown again.",
        ),
    ]
    must_exist: Annotated[
        bool, Field(description="Only a new value for one that there is; else 404.")
    ] = False


class SecretShown(Given):
    name: str
    key: Annotated[str, Field(description="The key of the ring that it is sealed under.")]
    changed_at: datetime


class SecretsShown(Paged):
    secrets: list[SecretShown]


class SecretStored(Given):
    name: str
    new: Annotated[bool, Field(description="false: it had a value, which is replaced.")]


class SecretGone(Given):
    name: str
    removed: bool


class RingKeyShown(Given):
    key: Annotated[str, Field(description="Its id; (plain): rows from before the key ring.")]
    active: bool
    known: Annotated[bool, Field(description="Whether this process has it in its ring.")]
    rows: Annotated[int, Field(description="How many rows are sealed under it.")]


class KeyRingShown(Given):
    keys: list[RingKeyShown]


@routes.get("/secrets", operation_id="listSecrets", response_model=SecretsShown)
async def secrets(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """The names of the secrets; values are never shown."""
    services = services_of(request)
    found = await services.threads.run(services.callers.secrets.list)
    page, more = page_of_all(found, lambda each: each.name, cursor, limit)
    shown = [
        {"name": each.name, "key": each.key_id, "changedAt": time_text(each.changed_at)}
        for each in page
    ]
    return listed("secrets", shown, cursor=more, limit=limit)


@routes.put("/secrets/{name}", operation_id="setSecret", response_model=SecretStored)
async def set_secret(request: Request, name: Name, wanted: SecretIn) -> Response:
    """Store a secret, or give it a new value; workers use it within seconds."""
    services, actor = services_of(request), caller_of(request).actor
    put = partial(services.callers.secrets.put, name, wanted.value, actor=actor)
    try:
        is_new = await services.threads.run(partial(put, must_exist=wanted.must_exist))
    except SecretUnknown:
        raise not_found("such secret") from None
    return json_response({"name": name, "new": is_new})


@routes.delete("/secrets/{name}", operation_id="deleteSecret", response_model=SecretGone)
async def delete_secret(request: Request, name: Name) -> Response:
    """Forget a secret; steps that name it fail from then on."""
    services, actor = services_of(request), caller_of(request).actor
    try:
        await services.threads.run(partial(services.callers.secrets.remove, name, actor=actor))
    except SecretUnknown:
        raise not_found("such secret") from None
    return json_response({"name": name, "removed": True})


@routes.get("/key-ring", operation_id="getKeyRing", response_model=KeyRingShown)
async def key_ring(request: Request) -> Response:
    """The ids of the keys, and how many rows each seals; never a key."""
    services = services_of(request)
    ring = needed(services.transactions.vault.ring, "the key ring")

    def read() -> list[dict[str, Any]]:
        return ring_use(ring, Rekeying(services.transactions.record.engine, ring).usage())

    return json_response({"keys": await services.threads.run(read)})
