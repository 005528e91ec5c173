"""Whether a webhook really comes from the server that has your secret (Standard Webhooks 1.0)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from datp_tasks.errors import DatpError

SECRET_PREFIX = "whsec_"
VERSION = "v1,"
#: How far the clocks of sender and receiver may be apart; an older one may be a replay.
TOLERANCE_S = 300


class WebhookForged(DatpError):
    """The webhook is not from the holder of the secret, was changed on its way, or is too old."""


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance_s: float = TOLERANCE_S,
    now_s: float | None = None,
) -> dict[str, Any]:
    """The body as JSON, if one of the secrets has signed it; else WebhookForged.

    `body` is what arrived, byte by byte. Several secrets are for the time of a rotation. Keep
    `webhook-id` of what you have handled: the same one may arrive more than once.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, sent, signed = (
            given["webhook-id"],
            given["webhook-timestamp"],
            given["webhook-signature"],
        )
    except KeyError as error:
        raise WebhookForged(f"The header {error} is missing.") from None
    _refuse_old(sent, tolerance_s, time.time() if now_s is None else now_s)
    content = b".".join((message_id.encode(), sent.encode(), body))
    known = [secrets] if isinstance(secrets, str) else secrets
    good = [_signature(secret, content) for secret in known]
    found = [part.removeprefix(VERSION).encode() for part in signed.split() if VERSION in part]
    # Every pair is compared in full, so that the time taken tells nothing about a secret.
    if not any([hmac.compare_digest(a, b) for a in good for b in found]):
        raise WebhookForged("No signature fits: another secret, or the body was changed.")
    try:
        document = json.loads(body)
    except ValueError:
        raise WebhookForged("The body is not JSON.") from None
    if not isinstance(document, dict):
        raise WebhookForged("The body is not a JSON object.")
    return document


def _refuse_old(sent: str, tolerance_s: float, now_s: float) -> None:
    try:
        distance_s = abs(now_s - int(sent))
    except ValueError:
        raise WebhookForged("The header webhook-timestamp is not a number.") from None
    if distance_s > tolerance_s:
        raise WebhookForged(f"It was sent {distance_s:.0f} s from now, over {tolerance_s:g} s.")


def _signature(secret: str, content: bytes) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key:
        # With an empty secret anyone could sign.
        raise WebhookForged("The secret is not of the form whsec_<base64>.")
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest())
