"""What one API process counts about itself, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class Meter:
    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "datp_api_requests",
            "Requests that were answered, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        #: Looked up once: there are as many as there are routes with their statuses.
        self._counts: dict[tuple[str, str, int], Counter] = {}
        Gauge(
            "datp_api_long_polls", "Long polls that wait now.", registry=self.registry
        ).set_function(waiting)

    def answered(self, method: str, route: str, status: int) -> None:
        which = method, route, status
        count = self._counts.get(which)
        if count is None:
            count = self._counts[which] = self._requests.labels(method, route, str(status))
        count.inc()
