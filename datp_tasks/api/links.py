"""Links of the OpenAPI document: where an answer leads, by the id that it shows."""

from __future__ import annotations

from typing import Any

#: By operation and status: the operations that take an id from its answer, the name of their
#: parameter, and where in the answer the id is.
TX = ("txId", "/txId")
ON_TRANSACTION = (
    "getTransaction",
    "listTransactionEvents",
    "cancelTransaction",
    "wakeTransaction",
    "getTransactionState",
    "getTransactionJournal",
    "explainTransaction",
    "replayTransaction",
    "retryTransaction",
    "resolveTransaction",
)
ON_BULK = ("getBulkTransfer", "cancelBulkTransfer")
ON_ENDPOINT = (
    "getWebhookEndpoint",
    "changeWebhookEndpoint",
    "rotateWebhookSecret",
    "testWebhookEndpoint",
    "replayWebhookEvents",
    "listEndpointDeliveries",
    "removeWebhookEndpoint",
)
LINKS: dict[tuple[str, str], tuple[tuple[tuple[str, ...], str, str], ...]] = {
    ("submitTransaction", "202"): ((ON_TRANSACTION, *TX),),
    ("submitTransaction", "200"): ((ON_TRANSACTION, *TX),),
    ("submitBulkTransfer", "202"): ((ON_BULK, "txId", "/bulkId"),),
    ("submitBulkTransfer", "200"): ((ON_BULK, "txId", "/bulkId"),),
    ("addWebhookEndpoint", "201"): ((ON_ENDPOINT, "id", "/id"),),
    ("testWebhookEndpoint", "202"): ((("getDelivery", "redeliverWebhook"), "id", "/delivery"),),
    ("startAudit", "202"): ((("getAudit",), "number", "/id"),),
    ("createKey", "201"): ((("revokeKey",), "keyId", "/id"),),
    ("applyPipeline", "201"): (
        (("getPipeline", "getInputSchema", "disablePipeline"), "name", "/name"),
    ),
}


def add_links(name: str, responses: dict[str, Any]) -> None:
    for code, response in responses.items():
        found = {
            target: {
                "operationId": target,
                "parameters": {parameter: f"$response.body#{place}"},
            }
            for targets, parameter, place in LINKS.get((name, code), ())
            for target in targets
        }
        if found:
            response["links"] = found
