"""Pages of what alerts, approvals and rows of the audit are about."""

from __future__ import annotations

from urllib.parse import quote

from datp_tasks.api.console.visit import with_query
from datp_tasks.live.keys import shard_of_tx

#: The first part of an action, or of the kind of an alert -> the page of its subject.
BY_WORD = {
    "pipeline": "/pipelines/{}",
    "mapping": "/mappings/{}",
    "webhook-endpoint": "/endpoints/{}",
    "webhook": "/webhooks/{}",
    "service": "/ledgers?service={}",
    "key": "/audit?keyId={}",
}
GROUPS = "/groups/{}"
#: Whose subject is a group: one action, and alerts of the watcher.
ABOUT_GROUPS = ("set group", "group-without-worker", "node-lost", "queue-long", "queue-grows")
BATCHES = ("batch.", "ledger-batch-")
#: Their subject is not one thing that has a page.
WITHOUT_PAGE = ("webhook.redeliver-dead", "webhook.rotate-secret", "webhook-endpoint.delete")


def page_of_subject(what: str, subject: str) -> str:
    """`what` is an action or the kind of an alert; empty if its subject has no page."""
    if shard_of_tx(subject):
        return f"/transactions/{subject}"
    kind, _, number = subject.partition(" ")
    if kind == "approval" and number.isascii() and number.isdecimal():
        return f"/approvals/{number}"
    service, _, batch_id = subject.partition("/")
    if what.startswith(BATCHES):
        return f"/ledgers/{quote(service, '')}/{quote(batch_id, '')}" if batch_id else ""
    if what in ABOUT_GROUPS:
        return GROUPS.format(quote(subject, ""))
    page = BY_WORD.get(what.partition(".")[0]) if "." in what and what not in WITHOUT_PAGE else None
    return page.format(quote(subject, "")) if page else ""


def page_or_search(what: str, subject: str) -> str:
    """Whatever the search finds, if there is no page that is known to be right."""
    return page_of_subject(what, subject) or with_query("/search", {"q": subject})
