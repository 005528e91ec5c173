"""The client for programs that reach DATP Tasks by HTTP only: a URL and a key are all it needs.

`HttpClient` is for threads, `AsyncHttpClient` for event loops; both send what `operations`
describes and try again what is safe to try again. `verify_webhook` checks what the server sends
to you. Install it with `pip install "datp-tasks[http]"`.
"""

from __future__ import annotations

from datp_tasks.http.api_error import ApiError
from datp_tasks.http.async_client import AsyncHttpClient
from datp_tasks.http.flows import RetryPolicy
from datp_tasks.http.replies import BulkAnswer, FeedEvent, Receipt, RemoteTransaction
from datp_tasks.http.sync_client import HttpClient
from datp_tasks.http.webhook_check import WebhookForged, verify_webhook

__all__ = [
    "ApiError",
    "AsyncHttpClient",
    "BulkAnswer",
    "FeedEvent",
    "HttpClient",
    "Receipt",
    "RemoteTransaction",
    "RetryPolicy",
    "WebhookForged",
    "verify_webhook",
]
