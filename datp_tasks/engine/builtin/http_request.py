"""`http/request`: ask another service and pass its answer on.

params:  method: POST                          # GET unless given
         url: https://bank.example/v1/transfers/{{id}}
         headers: {X-Branch: "{{branch}}"}
         query: {verbose: "true"}
         body: data                            # the whole input, or an object with templates
         timeoutSeconds: 10                    # for the whole exchange
         expect: [200, 201]                    # "2xx" unless given
         failOn: [404, 422]                    # "4xx" but 408, 409, 425 and 429 unless given
         into: response                        # {status, body} goes into this field
Every attempt sends the same Idempotency-Key. Anything that is neither expected nor a failure (5xx,
a timeout, a redirect) is raised, so that the retry policy of the step decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from datp_tasks.engine.builtin.http_params import KNOWN, matches, params_mistakes, request_url
from datp_tasks.engine.builtin.params import SECONDS, schema_of, told
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Fail
from datp_tasks.model.paths import FieldMissing, fill, render
from datp_tasks.model.payload import NotJson, encode, parse
from datp_tasks.outbound.address_guard import AnyAddress
from datp_tasks.outbound.http_client import HttpClient, Manners
from datp_tasks.outbound.messages import HttpRequest, Response
from datp_tasks.outbound.response_reader import BodyLimits

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

RESPONSE_BYTES_MAX = 256 * 1024
TIMEOUT_S = 10.0
CONNECT_S = 5.0
EXPECT = ("2xx",)
#: These say "later", not "no"; 409 is also how services refuse two requests of one key at once.
LATER = (408, 409, 425, 429)


class UnexpectedResponse(Exception):
    """The service answered, but not with what was expected; trying again may help."""


class NoAnswer(Exception):
    """No whole answer came, or not in time; trying again may help."""


#: The URLs are written by the authors of pipelines, and only parts of a path come from data. No
#: connection is kept, so nothing of one transaction can be read by the next.
@cache
def _client(hosts: tuple[str, ...]) -> HttpClient:
    manners = Manners(connect_s=CONNECT_S, body=BodyLimits(bytes_max=RESPONSE_BYTES_MAX))
    return HttpClient(AnyAddress(hosts), manners)


@step(
    "http/request",
    description="Sends an HTTP request and passes the answer on.",
    parameters=schema_of(KNOWN, "url", timeoutSeconds=SECONDS),
    default={"method": "POST", "url": "https://service.example/v1/things", "body": "data"},
    retry={"max_attempts": 5, "first_s": 1, "factor": 2},
    timeout_s=310,
)
async def http_request(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    params = ctx.params
    request = _request(params, data, ctx.idempotency_key)
    timeout_s = params.get("timeoutSeconds", TIMEOUT_S)
    outcome = await _client(ctx.http_hosts).send(request, timeout_s)
    host = urlsplit(request.url).hostname
    if not isinstance(outcome, Response):
        # Not a TimeoutError: that one says that the step as a whole ran too long.
        raise NoAnswer(f"{request.method} {host}: {outcome.reason}")
    status, where = outcome.status, f"{request.method} {host} answered {outcome.status}"
    if outcome.headers.get("content-encoding", "identity") != "identity":
        raise UnexpectedResponse(f"{where}, compressed, though that was not asked for")
    if matches(status, params.get("expect", EXPECT)):
        body = _body(outcome, where)
        return {**data, params.get("into", "response"): {"status": status, "body": body}}
    excerpt = told(ctx, outcome.body[:200].decode(errors="replace"), 200)
    if _is_failure(status, params.get("failOn")):
        raise Fail(f"{where}: {excerpt}", {"status": status})
    raise UnexpectedResponse(f"{where}: {excerpt}")


@http_request.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    return params_mistakes(params)


def _is_failure(status: int, fail_on: Any) -> bool:
    if fail_on is None:
        return 400 <= status < 500 and status not in LATER
    return matches(status, fail_on)


def _request(params: Mapping[str, Any], data: dict[str, Any], key: str) -> HttpRequest:
    try:
        headers = {name: render(text, data) for name, text in params.get("headers", {}).items()}
        query = {name: render(str(text), data) for name, text in params.get("query", {}).items()}
        body = params.get("body")
        content = None if body is None else encode(data if body == "data" else fill(body, data))
        url = request_url(params["url"], data, query)
    except (FieldMissing, ValueError) as problem:
        # The same input gives the same request, so another attempt cannot help.
        raise Fail(f"the request cannot be built: {problem}") from None
    for name, text in headers.items():
        if any(ord(each) < 32 or ord(each) > 126 for each in text):
            raise Fail(f"the request cannot be built: the header {name} must be plain ASCII")
    merged = {"accept": "application/json", "user-agent": "datp-tasks"}
    if content is not None:
        merged["content-type"] = "application/json"
    merged |= {name.lower(): text for name, text in headers.items()}
    merged["idempotency-key"] = key
    return HttpRequest(
        method=params.get("method", "GET"),
        url=url,
        headers=merged,
        content=b"" if content is None else content.encode(),
    )


def _body(response: Response, where: str) -> Any:
    """JSON as a value, other text as text, nothing as null."""
    if not response.body:
        return None
    try:
        if "json" in response.headers.get("content-type", "").lower():
            return parse(response.body, what="the body", bytes_max=RESPONSE_BYTES_MAX)
        return response.body.decode()
    except (NotJson, UnicodeDecodeError) as problem:
        raise UnexpectedResponse(f"{where}, but {problem}") from None
