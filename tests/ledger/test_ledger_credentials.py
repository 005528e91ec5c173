"""A credential goes to the ledger that it is for, and not in the clear."""

from __future__ import annotations

import pytest

from datp_tasks.errors import SettingsError
from datp_tasks.ledger.credentials import Credentials
from datp_tasks.outbound.address_guard import AnyAddress

BY_HOST = '{"a.example": "A", "b.example:8443": "B", "http://c.example:8008": "C"}'


def sent(text: str, url: str) -> str:
    return Credentials(text)(AnyAddress().target_of(url)).get("authorization", "")


@pytest.mark.parametrize(
    ("text", "url", "expected"),
    [
        ("Bearer x", "https://a.example/batches", "Bearer x"),
        ("Bearer x", "http://a.example/batches", ""),
        ("Bearer x", "http://127.0.0.1:8008/batches", "Bearer x"),
        (BY_HOST, "https://a.example/batches", "A"),
        (BY_HOST, "https://A.example:9000/batches", "A"),
        (BY_HOST, "http://a.example/batches", ""),
        (BY_HOST, "https://b.example:8443/batches", "B"),
        (BY_HOST, "https://b.example/batches", ""),
        (BY_HOST, "http://c.example:8008/batches", "C"),
        (BY_HOST, "https://d.example/batches", ""),
        ("", "https://a.example/batches", ""),
    ],
)
def test_a_ledger_gets_its_own_credential_and_no_other(text: str, url: str, expected: str) -> None:
    assert sent(text, url) == expected


@pytest.mark.parametrize("text", ["{nonsense", '{"a": 1}'])
def test_what_is_no_list_of_credentials_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match="DATP_LEDGER__AUTHORIZATION"):
        Credentials(text)
