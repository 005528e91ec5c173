from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

from tests.client.django_shop.models import Order

#: One for the whole process; the test puts it here.
clients: list[Any] = []


@transaction.atomic  # type: ignore[untyped-decorator]
def order(request: HttpRequest, number: str) -> JsonResponse:
    """An order and its payment, or neither."""
    submitted = clients[0].submit_in(connection, "p", {"order": number}, external_id=number)
    Order.objects.create(number=number, tx_id=submitted.tx_id)
    if "refuse" in request.GET:
        raise ValueError("the shop changes its mind")
    return JsonResponse({"txId": submitted.tx_id})


urlpatterns = [path("orders/<str:number>", order)]
