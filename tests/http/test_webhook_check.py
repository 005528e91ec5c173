"""What a receiver accepts as a webhook of ours, and what it refuses."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
import standardwebhooks

from datp_tasks.http import WebhookForged, verify_webhook
from datp_tasks.webhooks.signing import signed_headers

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, so").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of the same size!").decode()
BODY = json.dumps({"txId": "t00-1", "status": "success"}).encode()
NOW_S = 1_800_000_000


def headers(secret: str = SECRET, *, at_s: int = NOW_S, body: bytes = BODY) -> dict[str, str]:
    return signed_headers("msg_1", at_s, body, [secret])


def test_what_the_sender_signs_is_accepted() -> None:
    assert verify_webhook(headers(), BODY, SECRET, now_s=NOW_S)["txId"] == "t00-1"


def test_what_another_library_signs_is_accepted() -> None:
    sent = datetime.fromtimestamp(NOW_S, UTC)
    signature = standardwebhooks.Webhook(SECRET).sign("msg_1", sent, BODY.decode())
    given = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(NOW_S),
        "Webhook-Signature": signature,
    }
    assert verify_webhook(given, BODY, SECRET, now_s=NOW_S)["status"] == "success"


def test_both_secrets_of_a_rotation_are_accepted() -> None:
    for signed_by in (SECRET, OTHER):
        verify_webhook(headers(signed_by), BODY, [OTHER, SECRET], now_s=NOW_S)


@pytest.mark.parametrize(
    ("given", "body", "reason"),
    [
        (headers(OTHER), BODY, "No signature fits"),
        (headers(), BODY.replace(b"success", b"failed "), "No signature fits"),
        (headers() | {"webhook-id": "msg_2"}, BODY, "No signature fits"),
        (headers() | {"webhook-timestamp": str(NOW_S + 1)}, BODY, "No signature fits"),
        (headers() | {"webhook-signature": ""}, BODY, "No signature fits"),
        (headers() | {"webhook-signature": "v2,abc"}, BODY, "No signature fits"),
        (headers() | {"webhook-timestamp": "soon"}, BODY, "not a number"),
        (headers(at_s=NOW_S - 301), BODY, "301 s from now"),
        (headers(at_s=NOW_S + 301), BODY, "301 s from now"),
        ({}, BODY, "webhook-id"),
        (headers(body=b"[]"), b"[]", "not a JSON object"),
        (headers(body=b"x"), b"x", "not JSON"),
    ],
)
def test_what_is_refused(given: dict[str, str], body: bytes, reason: str) -> None:
    with pytest.raises(WebhookForged, match=reason):
        verify_webhook(given, body, SECRET, now_s=NOW_S)


@pytest.mark.parametrize("secret", ["whsec_not base64", "whsec_ä", "whsec_", ""])
def test_a_secret_that_is_none_is_a_sentence(secret: str) -> None:
    """With an empty one anyone could sign."""
    given = headers("whsec_") if secret in ("", "whsec_") else headers()
    with pytest.raises(WebhookForged, match="whsec_<base64>"):
        verify_webhook(given, BODY, secret, now_s=NOW_S)
