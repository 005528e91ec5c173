"""The catalogue of problems: each kind that the API can answer with, what it means and what to do.

`docs/problems.md` is made from it (`python -m tools.problems`), and a test compares the two. A kind
and its title never change once they are published; the detail of an answer is for people.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "urn:datp:problem:"


@dataclass(frozen=True, slots=True)
class ProblemType:
    kind: str
    #: Which of them it is depends on the place of the mistake.
    statuses: tuple[int, ...]
    title: str
    #: What happened, and what the client does now.
    advice: str
    #: The same request can succeed later, without a change.
    retryable: bool = False

    @property
    def uri(self) -> str:
        return PREFIX + self.kind


def _type(
    kind: str, status: int | tuple[int, ...], title: str, advice: str, *, retryable: bool = False
) -> ProblemType:
    statuses = status if isinstance(status, tuple) else (status,)
    return ProblemType(kind, statuses, title, advice, retryable)


CATALOGUE = (
    # The request itself.
    _type(
        "request-invalid",
        (400, 422),
        "The request does not fit",
        "`errors` names each mistake with its place; mend the request. Nothing was done.",
    ),
    _type(
        "not-json",
        (400, 415),
        "The body is not JSON",
        "Send JSON without NaN and duplicate keys, with `Content-Type: application/json`.",
    ),
    _type("encoded", 415, "The body is compressed", "Send it as it is."),
    _type(
        "too-large",
        (413, 414, 431),
        "The request is too large",
        "The detail says which part, and its limit. Split a bulk; the connection is closed.",
    ),
    _type(
        "too-slow",
        408,
        "The request did not arrive in time",
        "Send it again on a new connection; nothing was done.",
        retryable=True,
    ),
    _type(
        "method-not-allowed",
        405,
        "The method is not possible here",
        "`Allow` names the methods of this path.",
    ),
    _type(
        "not-found",
        404,
        "There is no such thing",
        "Check the id and the key: what belongs to another owner looks the same.",
    ),
    _type("not-a-form", 415, "The body is not a form", "Send the form of the page."),
    _type(
        "cursor-too-old",
        410,
        "What came after the cursor may be dropped by now",
        "Begin anew without a cursor, and compare with what you have.",
    ),
    # Who asks.
    _type(
        "unauthorized",
        401,
        "A valid key is missing",
        "Send `Authorization: Bearer datp_…` with a key that has not expired and is not revoked.",
    ),
    _type(
        "forbidden",
        403,
        "The key may not do this",
        "The detail names the role or the grant; ask an admin for a key that has it.",
    ),
    # Once, and not twice.
    _type(
        "external-id-conflict",
        409,
        "The external id belongs to another request",
        "The detail names the transaction that has it. Use a new id for a new request.",
    ),
    _type(
        "external-id-invalid",
        422,
        "The external id is not acceptable",
        "Use printable ASCII without spaces, as long as the detail allows.",
    ),
    _type(
        "idempotency-key-invalid",
        422,
        "The Idempotency-Key is not acceptable",
        "Use 1 to 255 printable ASCII characters without spaces.",
    ),
    _type(
        "idempotency-key-reused",
        422,
        "The Idempotency-Key belongs to another request",
        "Use a new key for a new request; nothing was done.",
    ),
    _type(
        "idempotency-key-in-use",
        409,
        "The first request with this Idempotency-Key is not over",
        "Send the same request again after `Retry-After` to get its answer.",
        retryable=True,
    ),
    _type(
        "idempotency-answer-gone",
        409,
        "The action was done; its answer is not kept",
        "Answers with secrets are shown once. Look the thing up, or make a new one.",
    ),
    _type(
        "precondition-failed",
        412,
        "The transaction has changed",
        "It is not as `If-Match` says any more. Read it again, and decide again.",
    ),
    # Transactions.
    _type(
        "input-invalid",
        422,
        "The input is not acceptable",
        "`errors` has a JSON pointer to each mistake: it is no JSON that can be kept exactly, or "
        "does not fit the schema of the pipeline (`GET /v1/pipelines/{name}/schema`).",
    ),
    _type("expiry-invalid", 422, "The expiry is not acceptable", "The detail says why."),
    _type("switch-invalid", 422, "The switch is not acceptable", "The detail says why."),
    _type(
        "pipeline-unknown",
        422,
        "There is no such pipeline",
        "Check the name; an operator applies pipelines with `datp pipelines apply`.",
    ),
    _type(
        "pipeline-disabled",
        409,
        "The pipeline takes no new transactions",
        "Ask its operator; what was accepted before goes on.",
    ),
    _type(
        "pipeline-not-startable",
        422,
        "Only other pipelines call this one",
        "Start the pipeline that calls it.",
    ),
    _type("pipeline-invalid", 422, "The pipeline is not acceptable", "The detail names mistakes."),
    _type(
        "transaction-final",
        409,
        "The transaction has ended",
        "Read how; nothing can be done to it any more.",
    ),
    _type(
        "transaction-busy",
        409,
        "The transaction does not allow it now",
        "The detail says what it is doing. Read it again, and decide again.",
        retryable=True,
    ),
    _type(
        "decision-invalid",
        422,
        "The decision does not fit",
        "The detail says which decisions the step allows.",
    ),
    _type(
        "cases-not-run",
        409,
        "The test cases could not be run",
        "The detail says why: the server cannot start servers for them, or they took too long.",
    ),
    _type(
        "cases-busy",
        409,
        "Other test cases are being run",
        "A process of the API runs one set of test cases at a time. Try again in a minute.",
        retryable=True,
    ),
    _type(
        "version-kept",
        409,
        "The version stays",
        "Only a draft that was never in use can be deleted.",
    ),
    # Filters, groups and keys.
    _type("filter-invalid", 422, "The filter is not acceptable", "The detail names the filters."),
    _type("group-invalid", 422, "The node group is not acceptable", "The detail says why."),
    _type("key-invalid", 422, "The key is not acceptable", "The detail says why."),
    # Approvals, batches, webhooks.
    _type(
        "approval-over",
        409,
        "The request was decided",
        "Read it: it was approved, rejected or late.",
    ),
    _type(
        "subject-moved",
        409,
        "The subject has changed since it was asked for",
        "Look at it again, and ask again.",
    ),
    _type(
        "run-under-way",
        409,
        "One of its kind is running",
        "Wait until it is over, and start yours then.",
        retryable=True,
    ),
    _type(
        "role-too-weak",
        409,
        "The database role of the server may not do this",
        "Run the command that the detail names where the database is.",
    ),
    _type("service-unknown", 422, "There is no such ledger service", "Check its name."),
    _type("batch-invalid", 422, "The batch is not acceptable", "The detail says why."),
    _type(
        "batch-conflict",
        409,
        "The batch id belongs to other bytes",
        "Use a new id for other bytes.",
    ),
    _type(
        "batch-busy",
        409,
        "The batch does not allow it now",
        "The detail says what it is doing.",
        retryable=True,
    ),
    _type(
        "batch-limit",
        429,
        "Too many batches of the owner wait",
        "Wait until some are final.",
        retryable=True,
    ),
    _type("webhook-invalid", 422, "The webhook's URL is not acceptable", "The detail says why."),
    _type(
        "webhook-busy",
        409,
        "The delivery does not allow it now",
        "It is being sent, or waits for its turn.",
        retryable=True,
    ),
    _type(
        "webhook-erased",
        409,
        "What the delivery said was erased",
        "It cannot be sent again.",
    ),
    # Limits and outages: `Retry-After` says when to ask again.
    _type(
        "limited",
        429,
        "Too often, or too much at once",
        "Wait for `Retry-After`. `RateLimit` says how much is left.",
        retryable=True,
    ),
    _type(
        "busy",
        503,
        "The server has more to do than it can",
        "Wait for `Retry-After`. With an external id or an Idempotency-Key it is safe to repeat.",
        retryable=True,
    ),
    _type(
        "record-unavailable",
        503,
        "PostgreSQL is unavailable",
        "Wait for `Retry-After`. Whether a request was accepted is not known: repeat it with its "
        "external id.",
        retryable=True,
    ),
    _type(
        "redis-unavailable",
        503,
        "Redis is unavailable",
        "Wait for `Retry-After`. What was accepted is not lost.",
        retryable=True,
    ),
    _type(
        "sealing-unavailable",
        503,
        "Payloads cannot be sealed or opened now",
        "Wait for `Retry-After`; an operator looks at the key ring.",
        retryable=True,
    ),
    _type(
        "internal-error",
        500,
        "The server made a mistake",
        "Tell the operator the `errorId`: the log says more. Whether something was done is not "
        "known: with an external id or an Idempotency-Key it is safe to repeat.",
        retryable=True,
    ),
)
TYPES = {each.kind: each for each in CATALOGUE}
