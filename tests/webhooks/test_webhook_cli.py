"""`datp webhooks` as people type it."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from datp_tasks.cli import webhooks as webhooks_cli
from datp_tasks.errors import WebhookUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.testing import Kit
from tests.support.command_parts import command_parts
from tests.support.receiver import Receiver, answers


@pytest.fixture(autouse=True)
def connected(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    context = command_parts(kit, actor=Actor(name="ann"))
    monkeypatch.setattr(webhooks_cli, "connect", lambda: context)
    monkeypatch.setenv("COLUMNS", "250")


def run(*words: str) -> str:
    result = CliRunner().invoke(webhooks_cli.app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def dead_letter(kit: Kit, receiver: Receiver) -> str:
    receiver.plan("/gone", answers(410, body=b"nobody home"))
    kit.run("pay", {"amount": 7}, webhook=receiver.url("/gone"))
    kit.run_job("webhook_sender")
    return receiver.got[-1].id


def test_there_is_nothing_to_show_at_first() -> None:
    assert run("list") == "no such deliveries\n"
    assert json.loads(run("list", "--state", "all", "--json")) == []


def test_dead_letters_are_listed_shown_and_sent_again(kit: Kit, receiver: Receiver) -> None:
    id = dead_letter(kit, receiver)
    assert id in run("list")
    assert "answered 410: nobody home" in run("list")
    (listed,) = json.loads(run("list", "--json"))
    assert (listed["id"], listed["state"], listed["attempts"]) == (id, "dead", 1)
    shown = json.loads(run("show", id, "--json"))
    assert json.loads(shown["payload"])["data"]["output"] == {"paid": 7}
    assert [each["httpStatus"] for each in shown["log"]] == [410]
    assert '"paid":7' in run("show", id)
    assert run("redeliver", id) == f"{id} is sent again\n"
    kit.run_job("webhook_sender")
    assert run("list") == "no such deliveries\n"
    assert [got.id for got in receiver.got] == [id, id]
    with kit.connections.engine.connect() as sql:
        noted = sql.execute(text("SELECT action, subject FROM operator_action")).all()
    assert [tuple(row) for row in noted][-1] == ("webhook.redeliver", id)


def test_all_dead_letters_can_be_sent_again(kit: Kit, receiver: Receiver) -> None:
    for _ in range(3):
        dead_letter(kit, receiver)
    assert run("redeliver", "--dead") == "3 deliveries are sent again\n"
    kit.run_job("webhook_sender")
    assert len(receiver.got) == 6


def test_a_delivery_that_is_not_there_is_an_error() -> None:
    with pytest.raises(WebhookUnknown):
        run("show", "msg_nothing")


def test_secrets_are_shown_and_rotated() -> None:
    first = run("secrets", "show", "--owner", "ann").split()[0]
    assert first.startswith("whsec_")
    second = run("secrets", "rotate", "--owner", "ann").strip()
    shown = json.loads(run("secrets", "show", "--owner", "ann", "--json"))
    assert [each["secret"] for each in shown] == [second, first]
    assert shown[0]["retiredAt"] is None and shown[1]["retiredAt"] is not None
