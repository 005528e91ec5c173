"""Stop requests: their kinds, and the text that Redis, the journal and SQL keep of them."""

from __future__ import annotations

import pytest

from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopKind, StopRequest


@pytest.mark.parametrize(
    ("request_", "kind", "status", "text"),
    [
        (StopRequest.cancel("why: so"), StopKind.CANCEL, Status.CANCELLED, "cancelled:why: so"),
        (StopRequest.expiry("too late"), StopKind.EXPIRY, Status.EXPIRED, "expired:too late"),
    ],
    ids=["cancel", "expiry"],
)
def test_a_request_keeps_its_kind_and_reason_in_its_text(
    request_: StopRequest, kind: StopKind, status: Status, text: str
) -> None:
    assert (request_.kind, request_.status, request_.to_text()) == (kind, status, text)
    assert StopRequest.from_text(text) == request_


@pytest.mark.parametrize("text", ["enough", "note: enough", ""])
def test_a_text_without_a_status_is_the_reason_of_a_client(text: str) -> None:
    assert StopRequest.from_text(text) == StopRequest.cancel(text)
