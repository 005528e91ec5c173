"""Every error of the API as a problem document (RFC 9457): what happened, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from datp_tasks import errors
from datp_tasks.api.batcher import TooMany
from datp_tasks.api.problem_types import TYPES
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.notes import new_error_id
from datp_tasks.model.payload import encode
from datp_tasks.operator.erase import RoleTooWeak
from datp_tasks.record.operator_runs import RunUnderWay
from datp_tasks.record.sql_errors import OperationalError, PoolTimeout

log = logging.getLogger("datp.api")

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
_LATER = {"Retry-After": str(RETRY_AFTER_S)}

#: Error -> status and the last part of its type; of a class and its base the class is meant.
KINDS: dict[type[Exception], tuple[int, str]] = {
    errors.DatabaseUnavailable: (503, "record-unavailable"),
    errors.CannotSeal: (503, "sealing-unavailable"),
    errors.SealError: (503, "sealing-unavailable"),
    errors.ExternalIdConflict: (409, "external-id-conflict"),
    errors.NotGranted: (403, "forbidden"),
    errors.InputInvalid: (422, "input-invalid"),
    errors.ExternalIdInvalid: (422, "external-id-invalid"),
    errors.ExpiryInvalid: (422, "expiry-invalid"),
    errors.CursorTooOld: (410, "cursor-too-old"),
    errors.SwitchInvalid: (422, "switch-invalid"),
    errors.RequestError: (422, "request-invalid"),
    errors.PipelineUnknown: (422, "pipeline-unknown"),
    errors.PipelineDisabled: (409, "pipeline-disabled"),
    errors.PipelineNotStartable: (422, "pipeline-not-startable"),
    errors.VersionKept: (409, "version-kept"),
    errors.PipelineError: (422, "pipeline-invalid"),
    errors.TransactionUnknown: (404, "not-found"),
    errors.TransactionFinal: (409, "transaction-final"),
    errors.TransactionError: (409, "transaction-busy"),
    errors.ServiceUnknown: (422, "service-unknown"),
    errors.BatchUnknown: (404, "not-found"),
    errors.BatchConflict: (409, "batch-conflict"),
    errors.BatchBusy: (409, "batch-busy"),
    errors.BatchLimit: (429, "batch-limit"),
    errors.LedgerError: (422, "batch-invalid"),
    errors.DecisionInvalid: (422, "decision-invalid"),
    errors.ApprovalUnknown: (404, "not-found"),
    errors.ApprovalForbidden: (403, "forbidden"),
    errors.ApprovalOver: (409, "approval-over"),
    errors.SubjectMoved: (409, "subject-moved"),
    RunUnderWay: (409, "run-under-way"),
    RoleTooWeak: (409, "role-too-weak"),
    errors.FilterInvalid: (422, "filter-invalid"),
    errors.GroupInvalid: (422, "group-invalid"),
    errors.KeyInvalid: (422, "key-invalid"),
    errors.KeyUnknown: (404, "not-found"),
    errors.WebhookInvalid: (422, "webhook-invalid"),
    errors.WebhookUnknown: (404, "not-found"),
    errors.WebhookBusy: (409, "webhook-busy"),
    errors.WebhookErased: (409, "webhook-erased"),
    RedisError: (503, "redis-unavailable"),
    PoolTimeout: (503, "busy"),
    TooMany: (503, "busy"),
}
#: What is shown instead of the text of an error that is not ours.
SHOWN = {
    "redis-unavailable": "Redis does not answer. Ask again later.",
    "sealing-unavailable": "The server cannot seal or open payloads now. Ask again later.",
    "busy": "The server has more to do than it can. Ask again later.",
}


#: By the type of a mistake: what the library that checks says less well.
WORDS = {
    "extra_forbidden": "there is no such field here; /openapi.json names those that there are",
    "missing": "this field is needed, and is not there",
}


class Problem(HTTPException):
    """An error that knows how it is shown."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.kind = kind
        self.members = members

    def document(self, request_id: str | None = None) -> dict[str, Any]:
        kind = TYPES[self.kind]
        about = {"requestId": request_id} if request_id else {}
        return {
            "type": kind.uri,
            "title": kind.title,
            "status": self.status_code,
            "detail": self.detail,
            "retryable": kind.retryable,
            **about,
            **self.members,
        }

    def response(self, request_id: str) -> Response:
        return Response(
            encode(self.document(request_id)),
            self.status_code,
            headers=dict(self.headers or {}),
            media_type=MEDIA_TYPE,
        )


def not_found(what: str) -> Problem:
    """Also for what belongs to another owner: that it exists is not told."""
    return Problem(404, "not-found", f"There is no {what}.")


def forbidden(detail: str) -> Problem:
    return Problem(403, "forbidden", detail)


def limited(detail: str, wait_s: float) -> Problem:
    seconds = max(1, -(-int(wait_s * 1_000) // 1_000))
    return Problem(429, "limited", detail, headers={"Retry-After": str(seconds)})


def approval_needed(error: errors.ApprovalNeeded) -> Response:
    """Nothing is wrong: it is stored, and done when another person agrees."""
    place = f"/v1/approvals/{error.approval_id}"
    document = {"approval": error.approval_id, "href": place, "detail": str(error)}
    return Response(
        encode(document), 202, headers={"Location": place}, media_type="application/json"
    )


def problem_of(error: Exception) -> Problem:
    """How an error is shown; an unexpected one is shown without its text."""
    if isinstance(error, Problem):
        return error
    known = _kind_of(error)
    if known:
        status, kind = known
        detail = SHOWN.get(kind) or str(error)
        if status == 503:
            return unavailable(kind, detail, error)
        problem = Problem(status, kind, detail)
        if isinstance(error, errors.InputInvalid) and error.mistakes:
            problem.members["errors"] = [
                {"pointer": f"#/body{place}", "detail": mistake}
                for place, mistake in error.mistakes
            ]
        return problem
    if isinstance(error, OperationalError):
        return unavailable("busy", SHOWN["busy"], error)
    number = new_error_id()
    log.error("request failed, error %s", number, exc_info=error)
    detail = f"The server made a mistake; its log says more under {number}."
    return Problem(500, "internal-error", detail, errorId=number)


def _kind_of(error: Exception) -> tuple[int, str] | None:
    return next((KINDS[each] for each in type(error).__mro__ if each in KINDS), None)


def status_of(error: Exception) -> int:
    """The status of its problem, for those who may raise it again: nothing is logged yet."""
    if isinstance(error, Problem):
        return error.status_code
    known = _kind_of(error)
    return known[0] if known else 500


def unavailable(kind: str, detail: str, error: Exception) -> Problem:
    """A server behind this one does not answer. What its library said is for the log only."""
    if isinstance(error, TooMany):
        return Problem(503, kind, detail, headers=_LATER)
    number = new_error_id()
    reason = getattr(error, "reason", "") or str(getattr(error, "orig", error)).strip()
    log.error("request refused as %s, error %s: %s", kind, number, reason)
    return Problem(503, kind, detail, headers=_LATER, errorId=number)


def answer_of(request: Request, error: Exception) -> Response:
    """What a request is answered with that failed in this way."""
    request_id: str = request.state.request_id
    match error:
        case errors.ApprovalNeeded():
            return approval_needed(error)
        case RequestValidationError():
            return invalid(error.errors()).response(request_id)
        case HTTPException():
            return _of_framework(request, error).response(request_id)
        case _:
            return problem_of(error).response(request_id)


def install(app: FastAPI) -> None:
    """Every way in which a request can fail ends in a problem document."""

    async def answer(request: Request, error: Exception) -> Response:
        return answer_of(request, error)

    kinds: tuple[type[Exception], ...] = (
        *(HTTPException, RequestValidationError, errors.DatpError, OperationalError),
        *KINDS,
    )
    for kind in kinds:
        app.add_exception_handler(kind, answer)


def mistakes_of(error: ValidationError) -> list[Any]:
    """What is wrong with a body that was checked without the framework."""
    found = error.errors(include_url=False, include_input=False)
    return [{**each, "loc": ("body", *each["loc"])} for each in found]


def invalid(found: Any) -> Problem:
    """What does not fit the schema, each mistake with its place (a JSON pointer)."""
    mistakes = [
        {
            "pointer": _pointer(each["loc"]),
            "detail": WORDS.get(each.get("type", ""), str(each["msg"])),
        }
        for each in list(found)[:20]
    ]
    first = f"{mistakes[0]['pointer']}: {mistakes[0]['detail']}" if mistakes else "invalid"
    return Problem(422, "request-invalid", f"The request is not valid. {first}", errors=mistakes)


def _of_framework(request: Request, error: HTTPException) -> Problem:
    if isinstance(error, Problem):
        return error
    kinds = {404: "not-found", 405: "method-not-allowed"}
    details = {
        404: f"There is nothing at {request.url.path:.200}.",
        405: f"{request.method} is not possible here.",
    }
    status = error.status_code
    kind = kinds.get(status, "request-invalid")
    detail = details.get(status, str(error.detail))
    headers = _allowed(request) if status == 405 else error.headers
    return Problem(status, kind, detail, headers=headers)


def _allowed(request: Request) -> dict[str, str]:
    """The methods of all routes with this path; the framework tells those of the first one."""
    methods = {
        method
        for router in request.app.state.routers
        for route in router.routes
        if route.path_regex.match(request.url.path)
        for method in route.methods
    }
    return {"Allow": ", ".join(sorted(methods)) or "GET"}


def _pointer(place: Any) -> str:
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in place]
    return "#/" + "/".join(part[:100] for part in parts)
