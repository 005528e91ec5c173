"""What commands make of answers of the API, and of proxies before it."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks.cli.remote_calls import RemoteCalls
from datp_tasks.cli.remote_reports import RemoteAlerts
from datp_tasks.cli.remote_sealing import RemoteRetention, RemoteSecrets
from datp_tasks.http.api_error import ApiError, refused
from datp_tasks.model.actor import LOCAL


class ProxyAlone(RemoteCalls):
    """The API is gone; a proxy answers with a page of its own."""

    def __init__(self) -> None: ...

    def send(self, *path: Any, **options: Any) -> Any:
        raise refused(404, {}, b"<html>not found</html>")


class TwoPages(RemoteCalls):
    def __init__(self) -> None: ...

    def get(self, *path: str, **params: Any) -> Any:
        number = 2 if params["cursor"] else 1
        alert = {"id": number, "kind": "k", "subject": "s", "summary": "", "createdAt": MOMENT}
        return {"alerts": [alert], "nextCursor": "more" if number == 1 else None}


MOMENT = "2027-01-01T00:00:00+00:00"


def test_a_404_of_a_proxy_does_not_say_that_something_is_not_there() -> None:
    with pytest.raises(ApiError):
        RemoteRetention(ProxyAlone()).remove("owner", "far", actor=LOCAL, reason="over")
    with pytest.raises(ApiError):
        RemoteSecrets(ProxyAlone()).put("far", "s3cret", actor=LOCAL, must_exist=True)


def test_alerts_of_all_pages_are_shown() -> None:
    assert [each.id for each in RemoteAlerts(TwoPages()).open_alerts()] == [1, 2]
