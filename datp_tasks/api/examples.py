"""Examples for the OpenAPI document: what each operation is sent, and what it answers.

Requests are written here. Answers are made from their schemas, with a value for each field by its
name, so that they have every field and cannot fall behind the schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datp_tasks.api.models import EXAMPLE_ID

Schema = Mapping[str, Any]

AT = "2027-01-31T12:00:00Z"
VERSION = "574791cd60892a1e"
HASH = "574791cd60892a1e9d2f0c4b7a8e6d5c3b2a19080706050403020100ffeeddcc"
DEFINITION = {"pipeline": "transfer", "steps": [{"type": "bank/debit"}, {"type": "bank/credit"}]}
TRANSFER = {"from": "ann", "to": "bob", "amount": "10.00"}
REASON = {"reason": "the bank confirmed it by telephone"}
SUBMIT = {"pipeline": "transfer", "input": TRANSFER, "externalId": "order-4711"}
WHERE = {"status": "sleeping", "pipeline": "transfer"}

REQUESTS: dict[str, Any] = {
    "submitTransactions": {"transactions": [SUBMIT, {**SUBMIT, "externalId": "order-4712"}]},
    "submitTransaction": SUBMIT,
    "cancelTransaction": {"reason": "the customer changed their mind"},
    "setSwitch": {"value": "approved"},
    "submitBatch": {"service": "bank", "payload": "eyJiYXRjaCI6IDF9", "batchId": "batch-1"},
    "addService": {"service": "bank", "kind": "sawtooth", "url": "http://ledger.example.com"},
    "parkBatch": REASON,
    "resumeBatch": REASON,
    "resubmitBatch": REASON,
    "resolveBatch": {"state": "COMMITTED", **REASON},
    "addWebhookEndpoint": {
        "url": "https://shop.example.com/hooks",
        "types": ["transaction.completed"],
    },
    "changeWebhookEndpoint": {"enabled": False},
    "rotateWebhookSecret": {"overlapSeconds": 86_400},
    "replayWebhookEvents": {"from": "2027-01-31T00:00:00Z", "to": AT},
    "resolveTransaction": {"decision": "done", "output": {"booking": "b-1"}, **REASON},
    "retryTransaction": REASON,
    "unmaskTransaction": REASON,
    "applyPipeline": {"definition": DEFINITION},
    "usePipelineVersion": {"reason": "release 12"},
    "closeAlert": REASON,
    "approveRequest": {"note": "checked against the statement"},
    "rejectRequest": {"note": "the amount is wrong"},
    "createKey": {"owner": "shop", "grants": ["submit:transfer", "read"], "name": "web shop"},
    "revokeKey": {"reason": "it was in a log"},
    "setOwnerLimits": {"requestsPerSecond": 50, "burstMax": 100, "inFlightMax": 10_000},
    "previewBulkAction": {"action": "wake", "where": WHERE},
    "actOnTransactions": {
        "action": "wake",
        "where": WHERE,
        "expectedCount": 1,
        "selection": "9d2f0c4b7a8e6d5c",
        "reason": "the bank is back",
    },
    "setGroup": {"values": {"concurrency": 4}, "reason": "more load at noon"},
    "checkPipeline": {"definition": DEFINITION},
    "commitPipeline": {"comment": "credit after debit"},
    "importPipeline": {
        "format": "datp-pipeline-1",
        "name": "transfer",
        "version": VERSION,
        "contentHash": HASH,
        "comment": "credit after debit",
        "definition": DEFINITION,
    },
    "clonePipeline": {"name": "transfer-abroad"},
    "submitBulkTransfer": {"pipeline": "bulk-transfer", "transfers": [SUBMIT]},
    "cancelBulkTransfer": {"reason": "the wrong file"},
    "applyMapping": {"definition": {"mapping": "to-bank", "fields": {"iban": {"from": "account"}}}},
    "commitMapping": {"comment": "another field of the bank"},
    "useMapping": {"reason": "release 12"},
    "setRetentionRule": {"days": 400, "reason": "contract 7"},
    "testPipeline": {"cases": ["a transfer that succeeds"]},
    "rotateOwnerSecret": {"overlapSeconds": 86_400},
    "startAudit": {"sample": 1_000},
    "previewErasure": {"subject": {"pointer": "/customer", "value": "ann"}},
    "startErasure": {
        "subject": {"pointer": "/customer", "value": "ann"},
        "reason": "request 7 of the data protection officer",
    },
    "setSecret": {"value": "a token of the bank"},
    "startOriginal": {"data": TRANSFER, "metadata": {"externalId": "order-4711"}},
}

#: By the name of a field; `Schema.field` where a schema means something else by it.
VALUES: dict[str, Any] = {
    "action": "resolve.done",
    "actor": "key k_4711",
    "address": "192.0.2.7",
    "answer": "It sleeps until the switch kyc is set.",
    "appVersion": "1.0.0",
    "attempts": 1,
    "batchId": "batch-1",
    "bells": {"master": 0},
    "buildTime": AT,
    "bulkId": EXAMPLE_ID,
    "by": "key k_4711",
    "cancel": None,
    "CancelledTransfer.cancel": "cancelled",
    "cause": "switch",
    "claimant": "worker-1",
    "comment": "credit after debit",
    "completionTime": AT,
    "contentHash": HASH,
    "cursor": "00000000000004711",
    "data": {"booking": "b-1"},
    "FeedEventShown.data": {"txId": EXAMPLE_ID, "status": "success"},
    "CloudEvent.data": {"txId": EXAMPLE_ID, "status": "success"},
    "datpVersion": "1.0.0",
    "decision": "approve",
    "defaultDefinition": {"type": "util/delay", "params": {"seconds": 60}},
    "definition": DEFINITION,
    "delivery": "msg_4711",
    "description": "End of every transfer",
    "detail": "resolve.done of this transaction needs another person; request 7 is open",
    "details": {"decision": "done"},
    "diff": "--- 574791cd\n+++ 9d2f0c4b\n@@ -1 +1 @@\n-  type: bank/debit\n+  type: bank/credit\n",
    "disabledReason": None,
    "endpointId": "we_4711",
    "error": None,
    "errors": [],
    "externalId": "order-4711",
    "extra": "",
    "fields": {},
    "format": "datp-pipeline-1",
    "gauges": {"queued": 3.0},
    "group": "master",
    "hash": HASH,
    "head": "batch-1",
    "headState": "SUBMITTED",
    "href": "/v1/approvals/7",
    "id": "k_4711",
    "EndpointShown.id": "we_4711",
    "EndpointMade.id": "we_4711",
    "SecretRotated.id": "we_4711",
    "DeliveryShown.id": "msg_4711",
    "DeliveryWithAttempts.id": "msg_4711",
    "FeedEventShown.id": f"{EXAMPLE_ID}_2",
    "CloudEvent.id": f"{EXAMPLE_ID}_2",
    "input": TRANSFER,
    "inputSchema": {"type": "object", "required": ["from", "to", "amount"]},
    "key": "datp_4711_this-is-shown-once",
    "keyId": "k_4711",
    "kind": "completed",
    "ServiceShown.kind": "sawtooth",
    "AlertShown.kind": "in-doubt",
    "kinds": ["sawtooth"],
    "lastError": None,
    "lastUpdated": AT,
    "level": "info",
    "metadata": {"shop": "12"},
    "name": "transfer",
    "KeyShown.name": "web shop",
    "KeyMade.name": "web shop",
    "GroupShown.name": "master",
    "NodeShown.name": "worker-1",
    "StepTypeShown.name": "util/delay",
    "nextCursor": None,
    "FeedPageShown.nextCursor": "00000000000004711",
    "node": "worker-1",
    "note": None,
    "notifiedTime": None,
    "onCrash": "rerun",
    "origin": "req_0123456789abcdef 192.0.2.7",
    "output": {"booking": "b-1"},
    "owner": "shop",
    "parameters": {"type": "object", "properties": {"seconds": {"type": "number"}}},
    "params": {"decision": "done"},
    "payload": {"step": "debit"},
    "pipeline": "transfer",
    "place": "transfer/1",
    "postgresql": "ok",
    "problem": None,
    "progress": {"step": "debit"},
    "progressReport": {"step": "debit"},
    "reason": "the bank confirmed it by telephone",
    "receipt": None,
    "redis": "ok",
    "requestId": "req_0123456789abcdef",
    "secret": "whsec_shown-once",
    "ServiceShown.secret": "bank",
    "selection": "9d2f0c4b7a8e6d5c",
    "service": "bank",
    "sizes": {"queued": 3},
    "source": "/datp/owners/shop",
    "state": "COMMITTED",
    "StateShown.state": {"data": TRANSFER},
    "ReplayShown.state": None,
    "ApprovalShown.state": "open",
    "status": "success",
    "Health.status": "ok",
    "Readiness.status": "ok",
    "HealthCheck.status": "up",
    "step": "transfer/1",
    "stepType": "bank/debit",
    "subject": EXAMPLE_ID,
    "submittedBy": "key k_4711",
    "subsystem": "datp",
    "summary": "A transaction waits for a decision.",
    "switches": {"kyc": "approved"},
    "text": "debited",
    "transactionId": "b-1",
    "transactionStatus": "queued",
    "BulkResult.status": 202,
    "transactionType": "transfer",
    "QueuesShown.transactions": {"queuedZ": 3},
    "txId": EXAMPLE_ID,
    "type": "transaction.completed",
    "url": "https://shop.example.com/hooks",
    "ServiceShown.url": "http://ledger.example.com",
    "values": {"concurrency": 4},
    "version": VERSION,
    "versionInUse": VERSION,
    "wakeSwitch": "kyc",
    "webhook": "https://shop.example.com/hooks",
    "what": "woken",
    "where": WHERE,
    "why": "a worker was lost in the middle of the step",
    "xact": "4711",
}
#: What a field without a value of its own is, by its type.
BY_TYPE: dict[str, Any] = {
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "object": {},
    "array": [],
    "null": None,
}
BY_FORMAT = {"date-time": AT}


class Examples:
    """Makes answers from the schemas of a document."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas

    def add_to(self, operation: dict[str, Any]) -> None:
        """Put examples into an operation, where it sends or answers JSON."""
        for content in _json_of(operation.get("requestBody", {})):
            if operation["operationId"] in REQUESTS:
                content["example"] = REQUESTS[operation["operationId"]]
        for code, answer in operation["responses"].items():
            if code < "300":
                for content in _json_of(answer):
                    content["example"] = self.of(content["schema"], "")

    def add_to_webhook(self, operation: dict[str, Any]) -> None:
        """What is sent to a receiver is made as answers are."""
        for content in _json_of(operation["requestBody"]):
            content["example"] = self.of(content["schema"], "")

    def of(self, schema: Schema, within: str) -> Any:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self.of(self._schemas[name], name)
        several = schema.get("anyOf") or schema.get("oneOf")
        if several:
            return self.of(several[0], within)
        if "properties" in schema:
            return {name: self._field(name, each, within) for name, each in _fields(schema)}
        if schema.get("type") == "array":
            return [self.of(schema.get("items", {}), within)]
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        if schema.get("format") in BY_FORMAT:
            return BY_FORMAT[schema["format"]]
        return BY_TYPE.get(schema.get("type", "null"), "text")

    def _field(self, name: str, schema: Schema, within: str) -> Any:
        own = VALUES.get(f"{within}.{name}", VALUES.get(name, self))
        if own is not self and (f"{within}.{name}" in VALUES or _fits(schema, own)):
            return own
        return self.of(schema, within)


def _fields(schema: Schema) -> list[tuple[str, Schema]]:
    fields: Mapping[str, Schema] = schema["properties"]
    return list(fields.items())


def _fits(schema: Schema, value: Any) -> bool:
    """Whether a value by name is of a type that the field takes; another field may be so called."""
    kinds = {str(each.get("type")) for each in (schema, *schema.get("anyOf", ()))}
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if "anyOf" not in schema and "type" not in schema and "$ref" not in schema:
        return True
    names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}
    names |= {list: "array", type(None): "null"}
    return names[type(value)] in kinds


def _json_of(described: Any) -> list[dict[str, Any]]:
    found = described.get("content", {}).get("application/json")
    return [found] if found else []
