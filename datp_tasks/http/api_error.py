"""What the API refused, or that it could not be reached: one error with all that a program asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datp_tasks.errors import DatpError

#: The last part of `type` in a problem document.
KIND_PREFIX = "urn:datp:problem:"
#: Asked again without a problem document that says so: the server, or a proxy before it, was busy.
RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
UNREACHABLE = "unreachable"


class ApiError(DatpError):
    """The API answered with a problem (RFC 9457), or did not answer at all (`status` is 0)."""

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        kind: str,
        retryable: bool,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        document: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        #: What stays the same from release to release: `external-id-conflict`, `limited`, …
        self.kind = kind
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.document = dict(document or {})

    @property
    def mistakes(self) -> list[dict[str, str]]:
        """Each place (a JSON pointer) of the request that is wrong, and why."""
        return list(self.document.get("errors") or [])


def unreachable(reason: str) -> ApiError:
    """No answer: what was sent may have arrived."""
    detail = f"The API did not answer: {reason}."
    return ApiError(detail, status=0, kind=UNREACHABLE, retryable=True)


def redirected(status: int, headers: Mapping[str, str]) -> ApiError:
    """Not followed: a key goes only to the URL that it was given with."""
    where = headers.get("location", "another URL")
    detail = f"The API answered {status} and points to {where}: is the URL right?"
    return ApiError(detail, status=status, kind=f"http-{status}", retryable=False)


def refused(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer of 400 and above stands for, whatever its body is."""
    document = _document(body)
    kind = str(document.get("type", "")).removeprefix(KIND_PREFIX) or f"http-{status}"
    detail = str(document.get("detail") or document.get("title") or f"The API answered {status}.")
    retryable = document.get("retryable")
    return ApiError(
        detail,
        status=status,
        kind=kind,
        retryable=retryable if isinstance(retryable, bool) else status in RETRYABLE_STATUSES,
        request_id=document.get("requestId") or headers.get("request-id"),
        retry_after_s=_seconds(headers.get("retry-after")),
        document=document,
    )


def _document(body: bytes) -> dict[str, Any]:
    """The problem, or nothing: a proxy answers with a page of its own."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str | None) -> float | None:
    """`Retry-After` as a number of seconds; a date there is left to our own waiting time."""
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
