"""Redis or PostgreSQL away: what was accepted is not lost, and what was not is said so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from datp_tasks import Client, Pipeline, Request, Settings
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import DatabaseUnavailable, DatpError, PipelineDisabled, PipelineUnknown
from datp_tasks.model.status import Status
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit

PASSWORD = "hunter2-very-secret"


@pytest.fixture
def nobodys_port() -> Iterator[int]:
    """A port at which nobody listens, and nobody else will meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(autouse=True)
def pipelines(datp: Kit) -> None:
    datp.use(Pipeline("p").step("util/fixed-reply", params={"output": {"ok": 1}}).build())


def client_of(kit: Kit, **changes: Any) -> Client:
    settings: Settings = replace(kit.settings, **changes)
    return make_client(Container.open(settings, clock=kit.clock, send=kit.send))


def rows(kit: Kit) -> int:
    with kit.connections.engine.connect() as sql:
        return int(sql.execute(text("SELECT count(*) FROM tx_summary")).scalar_one())


def test_without_redis_a_request_is_accepted_and_placed_later(datp: Kit, nobodys_port: int) -> None:
    with client_of(datp, redis_url=f"redis://127.0.0.1:{nobodys_port}/0") as client:
        submitted = client.submit("p", {"n": 1}, external_id="o-1")
        assert submitted == Submitted(submitted.tx_id, Status.QUEUED)
        # The same again, as a client does that is not sure.
        again = client.submit("p", {"n": 1}, external_id="o-1")
        assert (again.tx_id, again.duplicate) == (submitted.tx_id, True)
        many = client.submit_many([Request(pipeline="p", input={"n": n}) for n in range(20)])
    assert rows(datp) == 21
    assert datp.connections.live.fields_many([submitted.tx_id]) == [{}]
    datp.recover()
    assert datp.status(submitted.tx_id).output == {"ok": 1}
    assert {datp.status(each.tx_id).status for each in many if isinstance(each, Submitted)} == {
        Status.SUCCESS
    }


def test_without_redis_bad_requests_are_still_told_from_good_ones(
    datp: Kit, nobodys_port: int
) -> None:
    datp.use(Pipeline("off").step("util/fixed-reply", params={"output": {}}).build())
    datp.connections.pipelines.disable("off")
    with client_of(datp, redis_url=f"redis://127.0.0.1:{nobodys_port}/0") as client:
        with pytest.raises(PipelineUnknown):
            client.submit("nope", {})
        with pytest.raises(PipelineDisabled):
            client.submit("off", {})
    assert rows(datp) == 0


def test_without_redis_the_status_is_what_the_record_says(datp: Kit, nobodys_port: int) -> None:
    ended = datp.run("p", {}).tx_id
    with client_of(datp, redis_url=f"redis://127.0.0.1:{nobodys_port}/0") as client:
        assert client.status(ended).status is Status.SUCCESS
        assert client.wait(ended, timeout_s=5).output == {"ok": 1}
        waiting = client.submit("p", {}).tx_id
        assert client.status(waiting).status is Status.QUEUED


def test_without_the_broker_a_request_is_accepted_and_rung_later(
    datp: Kit, nobodys_port: int
) -> None:
    settings = replace(datp.settings, broker_url=f"redis://127.0.0.1:{nobodys_port}/0")
    with make_client(Container.open(settings, clock=datp.clock)) as client:
        tx_id = client.submit("p", {}).tx_id
    assert datp.status(tx_id).status is Status.QUEUED
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS


def test_without_sql_nothing_is_accepted_and_the_error_says_what_is_unavailable(
    datp: Kit, nobodys_port: int
) -> None:
    url = make_url(datp.settings.database_url).set(
        host="127.0.0.1", port=nobodys_port, password=PASSWORD
    )
    changed = url.render_as_string(hide_password=False)
    with client_of(datp, database_url=changed) as client:
        for ask in (
            lambda: client.submit("p", {}),
            lambda: client.submit_many([Request(pipeline="p", input={})]),
            lambda: client.status("t00-" + "0" * 32),
            lambda: client.find("local", "o-1"),
        ):
            with pytest.raises(DatpError) as refused:
                ask()
            message = str(refused.value)
            assert "PostgreSQL" in message
            # Where it looked is for operators: the message may reach a client.
            assert str(nobodys_port) not in message
            assert isinstance(refused.value, DatabaseUnavailable)
            assert str(nobodys_port) in refused.value.reason
            assert PASSWORD not in message
    assert rows(datp) == 0
    assert datp.connections.live.sizes()["queuedZ"] == 0
    assert datp.send.rung == []


def test_a_connection_that_breaks_while_a_request_is_accepted_is_tried_again(datp: Kit) -> None:
    """The server ends idle connections, as after a restart or a failover."""
    assert datp.run("p", {}).status is Status.SUCCESS
    with datp.connections.engine.connect() as sql:
        sql.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    before = rows(datp)
    submitted = datp.client.submit_many([Request(pipeline="p", input={"n": n}) for n in range(3)])
    assert all(isinstance(each, Submitted) for each in submitted)
    assert rows(datp) == before + 3
