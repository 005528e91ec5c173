"""Signatures as Standard Webhooks 1.0 has them, so that receivers can use any library for it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

from datp_tasks.record.webhooks import SECRET_PREFIX


def signed_headers(
    message_id: str, timestamp_s: int, body: bytes, secrets: Sequence[str]
) -> dict[str, str]:
    """The three headers; one signature for each secret, so that a receiver may know any of them."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp_s, body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
