"""`submit_in` in a Django project: the order and its payment are one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import django
import pytest
from django.test import Client as Browser

from datp_tasks import Pipeline
from datp_tasks.errors import CallerTransactionUnfit
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit
from tests.support.eventually import eventually

Data = dict[str, Any]


@pytest.fixture
def rung(datp: Kit) -> list[str]:
    return []


@pytest.fixture
def shop(datp: Kit, rung: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    # Taken back: a worker that another test starts with them would look for this shop.
    monkeypatch.setenv("SHOP_DATABASE_URL", datp.settings.database_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.client.django_shop.settings")
    django.setup()
    from django.db import connection

    from tests.client.django_shop.models import Order
    from tests.client.django_shop.urls import clients

    datp.use(Pipeline("p").step("util/fixed-reply", params={"output": {"paid": True}}).build())

    def send(step_type: str, pairs: list[tuple[str, int]], **_: Any) -> None:
        rung.extend(tx_id for tx_id, _ in pairs)

    client = make_client(Container.open(datp.settings, clock=datp.clock, send=send))
    clients[:] = [client]
    with connection.schema_editor() as schema:
        schema.create_model(Order)
    yield Browser(raise_request_exception=False)
    with connection.schema_editor() as schema:
        schema.delete_model(Order)
    connection.close()
    client.close()


def orders() -> list[tuple[str, str]]:
    from tests.client.django_shop.models import Order

    return list(Order.objects.values_list("number", "tx_id"))


def test_a_view_commits_the_order_and_its_payment(
    datp: Kit, shop: Browser, rung: list[str]
) -> None:
    tx_id = shop.get("/orders/o1").json()["txId"]
    eventually(lambda: rung == [tx_id])
    assert orders() == [("o1", tx_id)]
    datp.ring_together([tx_id])
    assert datp.status(tx_id).output == {"paid": True}


def test_a_view_that_fails_leaves_neither(datp: Kit, shop: Browser, rung: list[str]) -> None:
    assert shop.get("/orders/o1?refuse=1").status_code == 500
    datp.recover()
    assert (orders(), rung, datp.connections.record.count()) == ([], [], 0)
    # The number is free again.
    assert shop.get("/orders/o1").status_code == 200


def test_an_inner_block_that_is_rolled_back_takes_its_payment_along(
    datp: Kit, shop: Browser, rung: list[str]
) -> None:
    from django.db import connection, transaction

    from tests.client.django_shop.urls import clients

    with transaction.atomic():
        kept = clients[0].submit_in(connection, "p", {"n": 1})
        with suppress(KeyError), transaction.atomic():
            clients[0].submit_in(connection, "p", {"n": 2})
            raise KeyError
    eventually(lambda: rung == [kept.tx_id])
    assert datp.connections.record.count() == 1


def test_outside_of_atomic_and_in_another_database_it_is_refused(shop: Browser) -> None:
    from django.db import connection, connections, transaction

    from tests.client.django_shop.urls import clients

    with pytest.raises(CallerTransactionUnfit, match="autocommit"):
        clients[0].submit_in(connection, "p", {})
    with (
        transaction.atomic(using="elsewhere"),
        pytest.raises(CallerTransactionUnfit, match="sqlite"),
    ):
        clients[0].submit_in(connections["elsewhere"], "p", {})
