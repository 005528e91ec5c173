"""Accepting requests in batches, so that one that the database refuses does not break the rest."""

from __future__ import annotations

from collections.abc import Sequence

from datp_tasks.client.client import Client
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.record.sql_errors import DBAPIError, OperationalError

Accepted = Submitted | Exception


def accept_bulk(client: Client, wanted: Sequence[Request], *, batch_max: int) -> Sequence[Accepted]:
    """In as many batches as it takes. What is committed stays so if PostgreSQL becomes unavailable
    half-way: each of the others then has the error as its answer."""
    answers: list[Accepted] = []
    for start in range(0, len(wanted), batch_max):
        batch = wanted[start : start + batch_max]
        try:
            answers += accept(client, batch)
        except Exception as error:
            if start == 0:
                raise
            answers += [error] * len(batch)
    return answers


def accept(client: Client, wanted: Sequence[Request]) -> Sequence[Accepted]:
    """Commit one batch; if the database cannot take one of them, the others do not suffer."""
    try:
        return client.submit_many(wanted)
    except DBAPIError as error:
        if isinstance(error, OperationalError):
            raise
        if len(wanted) == 1:
            return [error]
    # The statement failed as a whole, so nothing of it was stored.
    return [accept(client, [each])[0] for each in wanted]
