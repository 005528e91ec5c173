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

import asyncio
import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from datp_tasks.engine.builtin.http_params import matches, params_mistakes, request_url
from datp_tasks.engine.builtin.params import shown
from datp_tasks.engine.builtin.paths import FieldMissing, fill, render
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Fail
from datp_tasks.model.payload import NotJson, encode, parse

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

RESPONSE_BYTES_MAX = 256 * 1024
TIMEOUT_S = 10.0
EXPECT = ("2xx",)
#: These say "later", not "no"; 409 is also how services refuse two requests of one key at once.
LATER = (408, 409, 425, 429)


class UnexpectedResponse(Exception):
    """The service answered, but not with what was expected; trying again may help."""


class NoAnswer(Exception):
    """The whole answer did not come in time; trying again may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    content_type: str
    content: bytes


@step(
    "http/request",
    description="Sends an HTTP request and passes the answer on.",
    retry={"max_attempts": 5, "first_s": 1, "factor": 2},
    timeout_s=310,
)
async def http_request(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    params = ctx.params
    request = _request(params, data, ctx.idempotency_key)
    timeout_s = params.get("timeoutSeconds", TIMEOUT_S)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _exchange(request)
    except TimeoutError:
        # Not a TimeoutError again: that one says that the step as a whole ran too long.
        raise NoAnswer(f"{request.url.host} did not answer within {timeout_s} s") from None
    where = f"{request.method} {request.url.host} answered {answer.status}"
    if matches(answer.status, params.get("expect", EXPECT)):
        body = _body(answer, where)
        return {**data, params.get("into", "response"): {"status": answer.status, "body": body}}
    excerpt = shown(answer.content[:200].decode(errors="replace"), 200)
    if _is_failure(answer.status, params.get("failOn")):
        raise Fail(f"{where}: {excerpt}", {"status": answer.status})
    raise UnexpectedResponse(f"{where}: {excerpt}")


@http_request.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    return params_mistakes(params)


def _is_failure(status: int, fail_on: Any) -> bool:
    if fail_on is None:
        return 400 <= status < 500 and status not in LATER
    return matches(status, fail_on)


def _request(params: Mapping[str, Any], data: dict[str, Any], key: str) -> httpx.Request:
    try:
        headers = {name: render(text, data) for name, text in params.get("headers", {}).items()}
        query = {name: render(str(text), data) for name, text in params.get("query", {}).items()}
        body = params.get("body")
        content = None if body is None else encode(data if body == "data" else fill(body, data))
        url = httpx.URL(request_url(params["url"], data))
        url = url.copy_merge_params(query) if query else url
    except (FieldMissing, ValueError, httpx.InvalidURL) as problem:
        # The same input gives the same request, so another attempt cannot help.
        raise Fail(f"the request cannot be built: {problem}") from None
    for name, text in headers.items():
        if any(ord(each) < 32 or ord(each) > 126 for each in text):
            raise Fail(f"the request cannot be built: the header {name} must be plain ASCII")
    defaults = {"Accept": "application/json", "User-Agent": "datp-tasks"}
    if content is not None:
        defaults["Content-Type"] = "application/json"
    # Compressed answers are not asked for: a few bytes could unfold into a full memory.
    ours = {"Accept-Encoding": "identity", "Idempotency-Key": key}
    merged = httpx.Headers(defaults)
    merged.update(headers)
    merged.update(ours)
    return httpx.Request(params.get("method", "GET"), url, headers=merged, content=content)


async def _exchange(request: httpx.Request) -> Answer:
    # A client of its own for each request: cookies must not leak between transactions.
    async with httpx.AsyncClient(
        verify=_tls(), trust_env=False, follow_redirects=False, timeout=None
    ) as client:
        response = await client.send(request, stream=True)
        try:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise UnexpectedResponse("the answer is compressed, though that was not asked for")
            content = bytearray()
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > RESPONSE_BYTES_MAX:
                    raise UnexpectedResponse(
                        f"the answer is longer than {RESPONSE_BYTES_MAX} bytes"
                    )
        finally:
            await response.aclose()
    content_type = response.headers.get("Content-Type", "")
    return Answer(status=response.status_code, content_type=content_type, content=bytes(content))


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes long, so it is done once."""
    return httpx.create_ssl_context(trust_env=False)


def _body(answer: Answer, where: str) -> Any:
    """JSON as a value, other text as text, nothing as null."""
    if not answer.content:
        return None
    try:
        if "json" in answer.content_type.lower():
            return parse(answer.content, what="the body", bytes_max=RESPONSE_BYTES_MAX)
        return answer.content.decode()
    except (NotJson, UnicodeDecodeError) as problem:
        raise UnexpectedResponse(f"{where}, but {problem}") from None
