"""Put events into the queue of webhooks, for owners that have endpoints.

Moves:    nothing of a transaction; makes deliveries of events that are committed.
Knows:    where each endpoint stands in the feed.
Bound:    `ENDPOINTS_MAX` endpoints a run, `ROWS_MAX` events of each.
Overlap:  harmless: an endpoint's row is locked while it is fed, and passed over by others.
Crash:    deliveries and the place of their endpoint are one commit; those that were not placed in
          Redis are found overdue by the webhook sender.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.webhooks.endpoint_service import EndpointService

#: Endpoints with news that one run looks after; the next one does the others.
ENDPOINTS_MAX = 200
#: Events of one endpoint in one commit.
ROWS_MAX = 500


@dataclass(frozen=True, slots=True)
class Result:
    #: Endpoints that had news, and deliveries that were made for them.
    endpoints: int
    deliveries: int


def run_once(endpoints: EndpointService, *, endpoints_max: int, rows_max: int) -> Result:
    fed = endpoints.feed(endpoints_max=endpoints_max, rows_max=rows_max)
    return Result(endpoints=fed.endpoints, deliveries=fed.deliveries)
