"""The client for programs that reach DATP Tasks by HTTP only: a URL and a key are all it needs.

`ApiClient` is for threads, `AsyncApiClient` for event loops; both send what `operations`
describes and try again what is safe to try again. `verify_webhook` checks what the server sends
to you. Install it with `pip install "datp-tasks[http]"`.
"""

from __future__ import annotations

from datp_tasks.http.api_error import ApiError
from datp_tasks.http.async_client import AsyncApiClient
from datp_tasks.http.flows import CallRetry
from datp_tasks.http.replies import (
    BulkAnswer,
    BulkReceipt,
    FeedEvent,
    Receipt,
    RemoteBulkTransfer,
    RemoteTransaction,
    RemoteTransfer,
)
from datp_tasks.http.sync_client import ApiClient
from datp_tasks.http.webhook_check import WebhookForged, verify_webhook

__all__ = [
    "ApiClient",
    "ApiError",
    "AsyncApiClient",
    "BulkAnswer",
    "BulkReceipt",
    "CallRetry",
    "FeedEvent",
    "Receipt",
    "RemoteBulkTransfer",
    "RemoteTransaction",
    "RemoteTransfer",
    "WebhookForged",
    "verify_webhook",
]
