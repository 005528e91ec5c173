"""Node groups in SQL and Redis, on the command line, and which group does which job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import typer
from sqlalchemy.exc import IntegrityError
from typer.testing import CliRunner, Result

from datp_tasks.bells.broker import make_celery
from datp_tasks.bells.group_queues import GroupQueues
from datp_tasks.cli import groups as groups_cli
from datp_tasks.cli import nodes as nodes_cli
from datp_tasks.errors import GroupInvalid
from datp_tasks.jobs import archiver, schedule
from datp_tasks.live.connect import make_redis
from datp_tasks.live.group_copy import GroupCopy
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.local.ports import HOST, pick_free_port
from datp_tasks.model.actor import Actor
from datp_tasks.model.node_groups import LIMITS, NodeGroup
from datp_tasks.record.groups import GroupStore
from datp_tasks.runtime import ledger_place
from datp_tasks.runtime.group_book import GroupBook
from datp_tasks.testing import Kit
from datp_tasks.webhooks.send_bell import SEND_TASK
from datp_tasks.webhooks.sender import Pace
from datp_tasks.webhooks.webhook_service import WebhookService
from tests.support.command_parts import command_parts


@pytest.fixture
def groups(datp: Kit) -> GroupStore:
    return datp.connections.groups


def sql(datp: Kit, statement: str) -> list[Any]:
    with datp.connections.engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return list(result) if result.returns_rows else []


# The record and its copy.


def test_values_are_kept_until_they_are_set_back(groups: GroupStore) -> None:
    groups.set("kyc", {"concurrency": 4, "archiveBatchSize": 100}, actor=Actor(name="ann"))
    groups.set("kyc", {"concurrency": 0}, actor=Actor(name="ann"))
    assert groups.list() == {"kyc": NodeGroup("kyc", {"concurrency": 0, "archiveBatchSize": 100})}
    assert groups.current() == groups.list()
    after = groups.set("kyc", {"concurrency": None}, actor=Actor(name="ann"))
    assert (after.concurrency, after.is_stopped, after.roles) == (None, False, ["archiving"])


def test_every_change_is_noted_with_who_and_why(datp: Kit, groups: GroupStore) -> None:
    groups.set("kyc", {"concurrency": 4}, actor=Actor(name="ann"), reason="end of month")
    groups.set("kyc", {"concurrency": 1}, actor=Actor(name="bob"))
    rows = sql(datp, "SELECT actor, action, subject, reason, details FROM operator_action")
    assert [(row.actor, row.action, row.subject, row.reason) for row in rows] == [
        ("ann", "set group", "kyc", "end of month"),
        ("bob", "set group", "kyc", None),
    ]
    assert json.loads(rows[1].details) == {
        "before": {"concurrency": 4},
        "after": {"concurrency": 1},
    }


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("KYC", {"concurrency": 1}, "'KYC' is not the name of a node group"),
        ("kyc", {"concurrency": -1}, "concurrency must be from 0 to 1000, was -1"),
        ("kyc", {"ledger": 2}, "ledger must be from 0 to 1, was 2"),
        ("kyc", {"workers": 2}, "a node group has no 'workers'; it has concurrency, "),
        ("master", {"concurrency": 0}, "master takes the messages of beat"),
    ],
)
def test_what_cannot_be_is_refused(
    groups: GroupStore, name: str, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(GroupInvalid, match=message):
        groups.set(name, changes, actor=Actor(name="ann"), maintenance_group="master")
    assert groups.list() == {}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_sql_refuses_a_negative_value_by_itself(datp: Kit, limit: Any) -> None:
    with pytest.raises(IntegrityError):
        sql(datp, f"INSERT INTO node_group (name, {limit.column}) VALUES ('kyc', -1)")


def test_a_copy_that_redis_lost_is_not_taken_for_nothing(datp: Kit, groups: GroupStore) -> None:
    groups.set("kyc", {"concurrency": 0}, actor=Actor(name="ann"))
    keys = datp.connections.live.keys
    for lost in ("nodeGroups", "nodeGroupH:kyc"):
        datp.connections.redis.delete(keys.outside(lost))
        assert groups.current()["kyc"].is_stopped
    sql(datp, "UPDATE node_group SET concurrency = 3")
    assert groups.current()["kyc"].concurrency == 0
    assert datp.run_job("group_cache").refreshed == 1
    assert groups.current()["kyc"].concurrency == 3


# Who does which job.


@pytest.fixture
def passed(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Jobs that were passed on, and where to."""
    sent: list[tuple[str, str]] = []

    def send_task(name: str, args: tuple[bool], queue: str, priority: int, **_: int) -> None:
        assert (args, priority) == ((True,), 0)
        sent.append((name.removeprefix(schedule.TASK_PREFIX), queue))

    monkeypatch.setattr(datp.celery, "send_task", send_task)
    monkeypatch.setattr(datp.process.info, "served", frozenset({"master"}))
    return sent


def test_a_ledger_job_goes_to_a_group_of_ledger_workers_that_lives(
    datp: Kit, passed: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_place, "EVERY_S", 0.0)
    settings = datp.settings
    register = NodeRegister(
        datp.connections.live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
    )
    assert datp.process.jobs.run("claim_queuer") is not None
    register.write("n1", ["ledger"], {})
    assert datp.process.jobs.run("batch_poller") is None
    # It falls silent: a message would wait there for ever.
    datp.clock.advance(seconds=settings.node_stale_ms / 1_000 + 1)
    assert datp.process.jobs.run("batch_poller") is not None
    assert passed == [("batch_poller", "ledger")]


def test_a_role_that_no_group_was_given_stays_with_the_worker_that_gets_the_job(
    datp: Kit, passed: list[tuple[str, str]]
) -> None:
    for job in ("archiver", "sleeper", "reaper", "watcher"):
        assert datp.process.jobs.run(job) is not None
    assert passed == []


def test_a_job_goes_to_the_group_that_has_its_role(
    datp: Kit, groups: GroupStore, passed: list[tuple[str, str]]
) -> None:
    groups.set("night", {"archiveBatchSize": 7, "wakeupBatchSize": 0}, actor=Actor(name="ann"))
    assert datp.process.jobs.run("archiver") is None
    assert datp.process.jobs.run("sleeper") is not None
    assert datp.process.jobs.run("reaper") is not None
    assert passed == [("archiver", "night")]
    # Passed on twice it would never be done.
    assert datp.process.jobs.run("archiver", passed_on=True) is not None
    assert passed == [("archiver", "night")]


def test_a_stopped_group_has_no_role(
    datp: Kit, groups: GroupStore, passed: list[tuple[str, str]]
) -> None:
    groups.set("night", {"archiveBatchSize": 7, "concurrency": 0}, actor=Actor(name="ann"))
    assert datp.process.jobs.run("archiver") is not None
    assert passed == []


def test_the_batch_of_the_group_is_that_of_the_job(
    datp: Kit, groups: GroupStore, passed: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def run_once(*_: Any, limits: archiver.Limits) -> int:
        seen.append(limits.states_max)
        return 1

    monkeypatch.setattr(archiver, "run_once", run_once)
    groups.set("master", {"archiveBatchSize": 7}, actor=Actor(name="ann"))
    assert datp.process.jobs.run("archiver") == 1
    assert (seen, passed) == ([7], [])
    assert datp.settings.archiver_batch_max != 7


def test_webhooks_are_sent_at_the_pace_of_the_group(
    datp: Kit, groups: GroupStore, passed: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Pace] = []
    monkeypatch.setattr(WebhookService, "run", lambda service, pace: seen.append(pace))
    groups.set("master", {"webhookWorkers": 3, "webhookPause": 9}, actor=Actor(name="ann"))
    expected = replace(Pace.of(datp.settings), workers=3, pause_ms=9)
    assert datp.process.jobs.run("webhook_sender") is not None
    assert datp.process.jobs.run_webhooks() is not None
    assert (seen, passed) == ([expected, expected], [])
    groups.set("night", {"webhookWorkers": 1}, actor=Actor(name="ann"))
    groups.set("master", {"webhookWorkers": 0}, actor=Actor(name="ann"))
    assert datp.process.jobs.run_webhooks() is None
    assert passed == [(SEND_TASK, "night")]


def test_every_value_that_stands_for_a_setting_names_one(datp: Kit) -> None:
    for limit in LIMITS.values():
        assert not limit.setting or hasattr(datp.settings, limit.setting), limit
    assert set(schedule.ROLES) <= set(schedule.JOBS)


def test_an_outage_keeps_the_last_answer(datp: Kit, groups: GroupStore) -> None:
    groups.set("night", {"ledger": 1}, actor=Actor(name="ann"))
    book = GroupBook(groups, every_s=0)
    assert book.holders("ledger") == ["night"]
    nobody = make_redis(replace(datp.settings, redis_url=f"redis://{HOST}:{pick_free_port()}/0"))
    keys = datp.connections.live.keys
    book._store = GroupStore(datp.connections.engine, GroupCopy(nobody, keys), datp.clock)
    assert book.holders("ledger") == ["night"]


# The command line.


@pytest.fixture
def run(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Any:
    queues = GroupQueues(make_celery(datp.settings))
    context = command_parts(datp, actor=Actor(name="ann"), group_queues=queues)
    monkeypatch.setattr(groups_cli, "connect", lambda: context)
    monkeypatch.setattr(nodes_cli, "connect", lambda: context)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str, fails: bool = False) -> Result:
        app = typer.Typer()
        app.add_typer(groups_cli.app, name="groups")
        nodes_cli.add_commands(app)
        return CliRunner().invoke(app, list(words), catch_exceptions=fails)

    return run


def register_node(datp: Kit, group: str = "kyc") -> None:
    now_ms = datp.connections.live.server_now_ms()
    register = NodeRegister(datp.connections.live, stale_ms=6_000, grace_ms=3_000)
    load = {"slots": 1, "busy": 1, "busyShare": 0.5, "hopsPerS": 2.0, "transactionsPerS": 40.5}
    record = {"joinedMs": now_ms - 90_000, "version": "1.2", "build": "b7", "load": load}
    register.write("n1", [group], {**record, "worker": "kyc@host", "stepTypes": ["a/b"]})


def test_groups_are_set_listed_and_shown(datp: Kit, run: Any) -> None:
    register_node(datp)
    assert run("groups", "set", "kyc", "concurrency=0", "webhookWorkers=5").exit_code == 0
    run("groups", "set", "night", "archiveBatchSize=100", "--reason", "quiet hours")
    listed = run("groups", "list").output
    assert "stopped" in listed and "archiving" in listed and "40.5" in listed
    found = json.loads(run("groups", "list", "--json").output)
    assert [each["name"] for each in found] == ["kyc", "night"]
    assert found[0]["values"] == {"concurrency": 0, "webhookWorkers": 5}
    assert (found[0]["stopped"], found[0]["roles"], found[0]["nodes"]) == (True, ["webhooks"], 1)
    shown = json.loads(run("groups", "show", "kyc", "--json").output)
    assert (shown["busy"], shown["messages"]) == (1, 0)
    assert "webhookPauseBusy" in run("groups", "show", "kyc").output
    run("groups", "set", "kyc", "concurrency=default")
    assert json.loads(run("groups", "show", "kyc", "--json").output)["stopped"] is False


@pytest.mark.parametrize("words", ["concurrency", "concurrency=many", "concurrency=-1", "x=1"])
def test_a_value_that_is_none_is_refused_on_the_command_line(run: Any, words: str) -> None:
    result = run("groups", "set", "kyc", words, fails=True)
    assert isinstance(result.exception, GroupInvalid)


def test_nodes_are_listed_with_build_load_and_step_types(datp: Kit, run: Any) -> None:
    nobody = run("nodes")
    assert (nobody.exit_code, nobody.output.strip()) == (3, "no node is alive")
    register_node(datp)
    output = run("nodes", "--steps").output
    for word in ("kyc", "n1", "kyc@host", "1.2", "b7", "90 s", "1/1 (50%)", "40.5", "a/b"):
        assert word in output
    [found] = json.loads(run("nodes", "--group", "kyc", "--json").output)
    assert (found["group"], found["stepTypes"]) == ("kyc", ["a/b"])
    assert run("nodes", "--group", "north").exit_code == 3
    datp.clock.advance(seconds=7)
    assert run("nodes").exit_code == 3
