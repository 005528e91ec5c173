"""What was erased is nowhere any more; what happened and when still is, and is still sound."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from datp_tasks import Fail, Pipeline, Sleep, failpoints
from datp_tasks.cli import action_list
from datp_tasks.cli import erase as cli
from datp_tasks.errors import (
    ApprovalNeeded,
    ExternalIdConflict,
    FilterInvalid,
    SubjectMoved,
    WebhookErased,
)
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import ApprovalState
from datp_tasks.model.journal import chained_hash, content_hash
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.erase import ERASED, NOT_ARCHIVED, Chosen
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.record.operator_actions import record_action
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World

#: What is looked for after it was erased, in every place.
SECRET = "ann-of-cleves"
ANN = Chosen(subject=f"/customer={SECRET}")
SUBJECT_OF_ALL = {"customer": SECRET}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def world(datp_servers: Servers, folder: Path) -> Iterator[World]:
    kit = Kit(datp_servers, journal_dir=str(folder), webhook_private_hosts=("127.0.0.1",))
    world = World(kit)

    @kit.step("t/tell", transactional=True)
    def tell(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        ctx.progress({"seen": data["customer"]})
        return {**data, "told": data["customer"]}

    @kit.step("t/break")
    def break_(ctx: Any, data: dict[str, Any]) -> None:
        raise Fail(f"{data['customer']} has no money")

    @kit.step("t/await")
    def wait(ctx: Any, data: dict[str, Any]) -> Any:
        value = ctx.switch("kyc")
        return Sleep(switch="kyc", seconds=86_400) if value is None else {**data, "kyc": value}

    kit.use(
        Pipeline("tell").step("t/tell").step("t/await").step("t/book").build(),
        Pipeline("break").step("t/book").step("t/break").build(),
    )
    yield world
    assert world.faults() == {}
    kit.close()


def ended(world: World, pipeline: str = "tell", **options: Any) -> str:
    """With the secret everywhere: input, metadata, progress, switch, effect, output, notes."""
    metadata = {"of": SECRET}
    data = {**SUBJECT_OF_ALL, "amount": 5}
    tx_id = world.kit.submit(pipeline, data, metadata=metadata, **options)
    if pipeline == "tell":
        world.kit.client.set_switch(tx_id, "kyc", f"seen {SECRET}")
    assert world.kit.status(tx_id).is_final
    return tx_id


def settled(world: World, *pipelines: str) -> list[str]:
    tx_ids = [ended(world, pipeline) for pipeline in pipelines or ("tell",)]
    world.kit.clock.advance(seconds=61)
    world.archive()
    return tx_ids


def erase(world: World, chosen: Chosen = ANN, reason: str = "request 7") -> list[ActionResult]:
    eraser = world.kit.operator.eraser
    tx_ids = [tx for page in eraser.search.choose(chosen) for tx in page]
    permit = eraser.permit(chosen, reason=reason, actor=Actor(name="cli:ops"))
    return list(eraser.erase(tx_ids, permit))


# Where it may be: every table, every key, every file.


def dumped_tables(world: World) -> dict[str, str]:
    found: dict[str, str] = {}
    with world.kit.connections.engine.connect() as connection:
        tables = connection.exec_driver_sql(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        cursor = connection.connection.driver_connection.cursor()  # type: ignore[union-attr]
        for (table,) in tables.all():
            text = io.StringIO()
            cursor.copy_expert(f'COPY "{table}" TO STDOUT', text)
            found[table] = text.getvalue()
    return found


def dumped_keys(world: World) -> dict[str, bytes]:
    """DUMP compresses: each key is read by its type."""
    redis = world.kit.connections.redis
    read: dict[Any, Any] = {
        "string": redis.get,
        "hash": redis.hgetall,
        "list": lambda key: redis.lrange(key, 0, -1),
        "set": redis.smembers,
        "zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
        "stream": redis.xrange,
    }
    keys = list(redis.scan_iter(match=f"{world.kit.settings.key_prefix}*", count=1_000))
    return {key: repr(read[redis.type(key)](key)).encode() for key in keys}


def dumped_files(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path.name: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in files
    }


def where(world: World, folder: Path, text: str = SECRET) -> set[str]:
    tables = {name for name, dump in dumped_tables(world).items() if text in dump}
    places = {**dumped_keys(world), **dumped_files(folder)}
    return tables | {name for name, dump in places.items() if text.encode() in dump}


def everywhere(world: World, tx_id: str) -> None:
    """What no pipeline of a test leaves: deliveries, batches, alerts, notes of operators."""
    world.sql(
        """
        WITH a AS (
            INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload,
                state, begun_at, next_at, created_at, finished_at, last_error)
            VALUES ('msg_1', :tx, 9, 'final', 'local', 'http://h/?c=' || :s, 'http://h/' || :s,
                '{"data": "' || :s || '"}', 'dead', now(), now(), now(), now(), :s)
        ), b AS (
            INSERT INTO webhook_attempt (delivery_id, attempt, sender, begun_at, error)
            VALUES ('msg_1', 1, 's', now(), :s)
        ), c AS (
            INSERT INTO ledger_service (service_id, kind, url, created_at)
            VALUES ('s', 'sawtooth', 'u', now())
        ), d AS (
            INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload, state,
                next_at, tx_id, created_at, final_at, receipt, note)
            VALUES ('s', 'b', 1, 'local', 'f', convert_to(:s, 'UTF8'), 'COMMITTED', 'infinity',
                :tx, now(), now(), json_build_object('of', :s), :s)
        ), e AS (
            INSERT INTO batch_attempt (service_id, batch_id, attempt, epoch, sender, begun_at, note)
            VALUES ('s', 'b', 1, 1, 's', now(), :s)
        ), f AS (
            INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
            VALUES ('s', 'b', 'NEW', 's', :s, now())
        ), g AS (
            INSERT INTO alert (kind, subject, summary) VALUES ('lost', :tx, :s), ('x', 's/b', :s)
        ), h AS (
            INSERT INTO approval (action, subject, params, params_hash, version, requested_by,
                requester, reason, note, needed, role, persons, state, created_at, expires_at,
                decided_at)
            SELECT v.action, v.subject, v.params, 'h', '1', 'ann', 'key ann', :s, :s, 1, 'approver',
                '[]', 'rejected', now(), now(), now()
            FROM (VALUES ('resolve.done', :tx, json_build_object('output', :s)),
                         ('step', :tx, json_build_object('note', :s)),
                         ('batch.resolve', 's/b', '{}')) AS v (action, subject, params)
            RETURNING id
        ), i AS (
            INSERT INTO approval_decision (approval_id, requested_by, decided_by, actor, role,
                decision, note, created_at)
            SELECT id, 'ann', 'bob', 'key bob', 'approver', 'reject', :s, now() FROM h
        ), j AS (
            INSERT INTO operator_action (actor, action, subject, reason)
            SELECT 'ann', 'approval.ask', 'approval ' || id, :s FROM h
        ), k AS (
            INSERT INTO alert (kind, subject, summary)
            SELECT 'break-glass', 'approval ' || id, :s FROM h
        ), l AS (
            UPDATE tx_summary SET stop_request = 'cancel ' || :s WHERE tx_id = :tx
        )
        INSERT INTO operator_action (actor, action, subject, reason, details)
        VALUES ('o', 'resolve', :tx, :s, json_build_object('output', :s)),
               ('o', 'batch.park', 's/b', :s, NULL)
        """,
        tx=tx_id,
        s=SECRET,
    )


def test_after_erasing_a_dump_of_everything_has_the_text_nowhere(
    world: World, folder: Path
) -> None:
    tx_id, failed = settled(world, "tell", "break")
    other = world.kit.submit("quick", {"customer": "bob"})
    everywhere(world, tx_id)
    # COPY writes bytes as hex.
    places = where(world, folder) | where(world, folder, SECRET.encode().hex())
    assert {
        *("tx_summary", "tx_state", "tx_journal", "tx_state_change", "step_effect", "tx_event"),
        *("webhook_delivery", "webhook_attempt", "ledger_batch", "batch_attempt", "batch_status"),
        *("alert", "operator_action", "tx_signal", "approval", "approval_decision"),
    } <= places
    assert any("stateH" in place for place in places)
    assert any(place.endswith(".gz") for place in places)

    assert {done.tx_id: done.what for done in erase(world)} == {tx_id: ERASED, failed: ERASED}

    assert where(world, folder) == set()
    assert where(world, folder, SECRET.encode().hex()) == set()
    assert world.faults() == {}
    assert world.kit.status(other).input == {"customer": "bob"}


def test_what_happened_and_when_stays(world: World) -> None:
    [tx_id] = settled(world)
    everywhere(world, tx_id)
    kinds = [entry.kind for entry in world.entries(tx_id)]
    before = world.kit.status(tx_id)
    hashes = [row.hash for row in world.journal(tx_id)]
    texts = [row.entries for row in world.journal(tx_id)]
    erase(world)
    after = world.kit.status(tx_id)
    assert (after.status, after.created_at, after.completed_at, after.sequence) == (
        *(before.status, before.created_at, before.completed_at, before.sequence),
    )
    assert (after.input, after.output, after.metadata, after.progress) == ({}, None, None, None)
    assert after.note == "its data were erased"
    assert [entry.kind for entry in world.entries(tx_id)] == kinds
    rows = world.journal(tx_id)
    assert [row.hash for row in rows] == hashes
    # With a copy of the content both hashes can be shown to be those of the content.
    assert [row.content_hash for row in rows] == [content_hash(text) for text in texts]
    assert chained_hash("", tx_id, texts[0]) == rows[0].hash
    [effect] = world.sql("SELECT step_key FROM step_effect WHERE tx_id = :tx", tx=tx_id)
    assert effect.step_key.startswith(tx_id)
    [batch] = world.sql("SELECT state, fingerprint, receipt FROM ledger_batch")
    assert (batch.state, batch.fingerprint) == ("COMMITTED", "f")
    assert len(world.sql("SELECT 1 FROM webhook_attempt")) == 1


def test_the_audit_table_tells_who_erased_what_and_why_but_not_the_text(world: World) -> None:
    [tx_id] = settled(world)
    erase(world)
    [row] = world.sql(
        "SELECT actor, reason, details::text FROM operator_action WHERE action = 'erase'"
    )
    assert (row.actor, row.reason) == ("cli:ops", "request 7")
    assert tx_id in row.details
    assert "/customer" in row.details
    assert SECRET not in row.details


def test_a_reason_that_names_what_is_erased_is_refused(world: World) -> None:
    with pytest.raises(FilterInvalid, match="names the value"):
        erase(world, reason=f"{SECRET.upper()} asked for it")
    with pytest.raises(FilterInvalid, match="needs a reason"):
        erase(world, reason=" ")


def test_the_same_request_is_still_answered_with_the_first_transaction(world: World) -> None:
    tx_id = ended(world, "break", external_id="invoice-1")
    world.kit.clock.advance(seconds=61)
    world.archive()
    assert [done.ok for done in erase(world, Chosen(owner="local", external_id="invoice-1"))] == [
        True
    ]
    assert ended(world, "break", external_id="invoice-1") == tx_id
    with pytest.raises(ExternalIdConflict):
        world.kit.submit("break", {"customer": "other"}, external_id="invoice-1")


def test_an_owner_is_erased_with_all_it_sent_and_no_other_is(world: World, folder: Path) -> None:
    mine = ended(world, "break", owner="acme")
    other = ended(world, "break", owner="zoo")
    world.sql(
        """
        WITH c AS (INSERT INTO ledger_service (service_id, kind, url, created_at)
                   VALUES ('s', 'sawtooth', 'u', now()))
        INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload, state,
                                  next_at, created_at, final_at)
        SELECT 's', 'b' || n, n, CASE WHEN n < 3 THEN 'acme' ELSE 'zoo' END, 'f',
               'text', 'COMMITTED', 'infinity', now(), now() FROM generate_series(1, 4) n
        """
    )
    world.sql(
        """
        INSERT INTO idempotency_key (owner, key, request_hash, begun_at, held_until, status,
                                     headers, body)
        SELECT owner, status::text, '', now(), now(), status, '{}', 'it quotes what was sent'
        FROM (VALUES ('acme', 422), ('acme', 207), ('acme', 200), ('zoo', 422), ('zoo', 207))
             AS v (owner, status)
        """
    )
    world.kit.clock.advance(seconds=61)
    world.archive()
    acme = Chosen(owner="acme")
    assert [(done.tx_id, done.ok) for done in erase(world, acme)] == [(mine, True)]
    eraser = world.kit.operator.eraser
    permit = eraser.permit(acme, reason="left", actor=Actor(name="x"))
    assert eraser.erase_batches(permit) == 2
    assert eraser.erase_batches(permit) == 0
    assert (eraser.erase_answers(permit), eraser.erase_answers(permit)) == (2, 0)
    kept = world.sql("SELECT owner, key FROM idempotency_key ORDER BY 1, 2")
    assert [tuple(row) for row in kept] == [("acme", "200"), ("zoo", "207"), ("zoo", "422")]
    left = world.sql("SELECT batch_id FROM ledger_batch WHERE payload <> '' ORDER BY 1")
    assert [row.batch_id for row in left] == ["b3", "b4"]
    assert world.kit.status(other).input["customer"] == SECRET


@pytest.mark.parametrize(
    ("subject", "matches"),
    [
        ("/customer=ann", True),
        ("/customer=an", False),
        ("/people/1/id=7", True),
        ("/people/2/id=7", False),
        ("/a~1b=x", True),
        ("/flag=true", True),
        ("/gone=null", False),
    ],
)
def test_a_subject_is_a_pointer_and_a_value(subject: str, matches: bool) -> None:
    document = {
        "customer": "ann",
        "people": [{"id": 6}, {"id": 7}],
        "a/b": "x",
        "flag": True,
        "gone": None,
    }
    assert Chosen(subject=subject).matches([{}, document]) is matches


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subject": "customer=ann"},
        {"subject": "/customer"},
        {"subject": "/customer="},
        {"external_id": "1"},
        {"external_id": "1", "owner": "o", "subject": "/a=b"},
    ],
)
def test_what_is_meant_must_be_clear(options: dict[str, Any]) -> None:
    with pytest.raises(FilterInvalid):
        Chosen(**options)


# What cannot be erased now.


def refusal(world: World) -> str:
    [done] = erase(world)
    assert not done.ok
    return done.what


def test_what_goes_on_is_refused_and_nothing_of_it_is_lost(world: World, folder: Path) -> None:
    tx_id = world.kit.submit("tell", dict(SUBJECT_OF_ALL))
    world.archive()
    before = where(world, folder)
    assert "only what has ended" in refusal(world)
    assert where(world, folder) == before
    world.kit.client.set_switch(tx_id, "kyc", "ok")
    assert world.kit.status(tx_id).status == "success"


def test_what_is_not_archived_yet_is_refused_until_it_is(world: World, folder: Path) -> None:
    ended(world)
    assert refusal(world) == NOT_ARCHIVED
    world.kit.clock.advance(seconds=61)
    world.archive()
    assert [done.ok for done in erase(world)] == [True]
    assert where(world, folder) == set()


def test_what_is_still_to_be_told_is_refused(world: World) -> None:
    [tx_id] = settled(world)
    everywhere(world, tx_id)
    world.sql("UPDATE webhook_delivery SET state = 'pending', finished_at = NULL")
    assert "still to be delivered" in refusal(world)
    world.sql("UPDATE webhook_delivery SET state = 'dead', finished_at = now()")
    assert [done.ok for done in erase(world)] == [True]


def test_what_waits_for_a_ledger_is_refused(world: World) -> None:
    [tx_id] = settled(world)
    everywhere(world, tx_id)
    world.sql("UPDATE ledger_batch SET state = 'PARKED', final_at = NULL")
    assert "s/b is not final" in refusal(world)
    world.sql("UPDATE ledger_batch SET state = 'COMMITTED', final_at = now()")
    assert [done.ok for done in erase(world)] == [True]


def test_what_does_not_fit_is_not_hidden_by_erasing(world: World) -> None:
    [tx_id] = settled(world)
    [row] = world.journal(tx_id)[-1:]
    change = "UPDATE tx_journal SET entries = :text WHERE tx_id = :tx AND number = :number"
    at = {"tx": tx_id, "number": row.number}
    world.sql(change, text=row.entries.replace("amount", "amounts"), **at)
    assert "was altered" in refusal(world)
    world.sql(change, text=row.entries, **at)
    assert [done.ok for done in erase(world)] == [True]


def test_an_erased_delivery_is_not_sent_again(world: World) -> None:
    [tx_id] = settled(world)
    everywhere(world, tx_id)
    erase(world)
    store = world.kit.connections.webhooks.store
    with pytest.raises(WebhookErased, match="erased"):
        store.redeliver("msg_1")
    assert store.redeliver_dead() == []


# What is left is as tamper-proof as what was.


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE tx_journal SET entries = replace(entries, 'final', 'step')", "was altered"),
        ("UPDATE tx_journal SET content_hash = hash", "was altered"),
        ("UPDATE tx_journal SET hash = content_hash", "was altered"),
        ("DELETE FROM tx_journal WHERE number = 1", "is missing"),
        ("UPDATE tx_summary SET erased_at = NULL", "was erased, and it was not"),
        ("UPDATE tx_summary SET output = '{\"a\": 1}'", "its summary is not erased"),
    ],
)
def test_a_change_of_what_is_left_is_found(world: World, change: str, fault: str) -> None:
    tx_id = world.kit.submit("tell", dict(SUBJECT_OF_ALL))
    world.archive()
    world.kit.client.set_switch(tx_id, "kyc", "ok")
    world.kit.clock.advance(seconds=61)
    world.archive()
    assert len(world.journal(tx_id)) > 1
    erase(world)
    assert world.faults() == {}
    saved = {name: world.sql(f"SELECT * FROM {name}") for name in ("tx_summary", "tx_journal")}
    world.sql(change)
    [faults] = world.faults().values()
    assert any(fault in each for each in faults), faults
    for name, rows in saved.items():
        world.sql(f"DELETE FROM {name}")
        for row in rows:
            columns = ", ".join(row._fields)
            values = ", ".join(f":{field}" for field in row._fields)
            world.sql(f"INSERT INTO {name} ({columns}) VALUES ({values})", **row._mapping)


# Crashes.


@pytest.mark.parametrize("point", ["before_rename", "after_files", "before_sql", "after_sql"])
def test_a_run_that_was_cut_off_is_finished_by_the_same_command(
    world: World, folder: Path, point: str
) -> None:
    settled(world, "tell", "break")
    failpoints.arm(f"erase.{point}", "crash")
    with pytest.raises(SimulatedCrash):
        erase(world)
    assert world.faults() == {}
    erase(world)
    assert where(world, folder) == set()
    assert [path.name for path in folder.iterdir() if path.suffix == ".new"] == []


def test_a_loss_of_redis_does_not_bring_back_what_was_erased(world: World, folder: Path) -> None:
    [tx_id] = settled(world)
    erase(world)
    world.wipe()
    rebuilder, record = world.kit.connections.recovery.rebuilder, world.kit.connections.record
    assert rebuilder.rebuild_finals(record.summaries([tx_id])) == 0
    world.kit.recover()
    world.kit.clock.advance(seconds=61)
    world.archive()
    assert where(world, folder) == set()
    assert world.archived(tx_id) is None


def test_the_files_of_another_host_are_erased_by_a_command_of_its_own(
    world: World, folder: Path
) -> None:
    settled(world)
    kept = folder.rename(folder.with_name("other-host"))
    erase(world)
    kept.rename(folder)
    assert where(world, folder) != set()
    assert world.kit.operator.eraser.erase_files() == []
    assert where(world, folder) == set()


def test_a_damaged_file_is_named_and_nothing_is_erased(world: World, folder: Path) -> None:
    settled(world)
    [path] = folder.glob("*.gz")
    path.write_bytes(path.read_bytes() + b"no gzip at all")
    assert path.name in refusal(world)
    path.unlink()
    assert [done.ok for done in erase(world)] == [True]


def test_files_of_the_journal_are_for_their_user_only(world: World, folder: Path) -> None:
    settled(world)
    erase(world)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}
    assert modes.pop(folder.name) == 0o700
    assert set(modes.values()) == {0o600}


# As people type it.


def test_the_command_erases_and_tells_what_it_could_not(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [tx_id] = settled(world)
    open_ = world.kit.submit("tell", dict(SUBJECT_OF_ALL))
    context = SimpleNamespace(operator=world.kit.operator, actor=Actor(name="cli ops"))
    monkeypatch.setattr(cli, "connect", lambda: context)
    app = typer.Typer()
    cli.add_commands(app)

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["--subject", f"/customer={SECRET}", *words])

    assert run("--dry-run").output == "2 would go\n"
    assert isinstance(run("--yes").exception, FilterInvalid)
    assert run("--reason", "request 7").exit_code == 1
    assert not world.kit.status(tx_id).erased_at
    done = run("--reason", "request 7", "--yes", "--json")
    assert done.exit_code == cli.SOME_FAILED
    found = json.loads(done.output)
    assert (found["erased"], [each["txId"] for each in found["refused"]]) == (1, [open_])
    assert found["refusedCount"] == 1
    assert world.kit.status(tx_id).erased_at
    world.kit.client.set_switch(open_, "kyc", "ok")
    world.kit.clock.advance(seconds=61)
    world.archive()
    assert "1 of 1 erased" in run("--reason", "request 7", "--yes").output
    assert where(world, folder) == set()


# Two people.

ANN_ASKS = Actor(name="key ann1", owner="ann", role=Role.ADMIN)
BOB_AGREES = Actor(name="key bob1", owner="bob", role=Role.APPROVER)


@pytest.fixture
def strict(datp_servers: Servers, tmp_path: Path) -> Iterator[World]:
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{action: pipeline.use, approvals: 0}]")
    kit = Kit(datp_servers, policy_file=str(file))
    yield World(kit)
    kit.close()


def asked(world: World, chosen: Chosen = ANN) -> int:
    with pytest.raises(ApprovalNeeded) as needed:
        world.kit.operator.eraser.permit(chosen, reason="request 7", actor=ANN_ASKS)
    return needed.value.approval_id


def test_erasing_takes_another_person_for_each_run(strict: World) -> None:
    tx_id = strict.kit.run("quick", dict(SUBJECT_OF_ALL)).tx_id
    strict.kit.clock.advance(seconds=61)
    strict.archive()
    eraser = strict.kit.operator.eraser
    number = asked(strict)
    assert asked(strict) == number
    assert not strict.kit.status(tx_id).erased_at
    strict.kit.operator.approvals.approve(number, BOB_AGREES)
    # It is about this choice, and no other.
    assert asked(strict, Chosen(subject="/customer=bob")) != number
    permit = eraser.permit(ANN, reason="request 7", actor=ANN_ASKS)
    assert [done.what for done in eraser.erase([tx_id], permit)] == [ERASED]
    [noted] = strict.sql("SELECT details FROM operator_action WHERE action = 'erase'")
    details = json.loads(noted.details)
    assert (details["approval"], details["requestedBy"]) == (number, "key ann1")
    assert asked(strict) != number
    assert SECRET not in dumped_tables(strict)["approval"]


@pytest.mark.parametrize(
    "change", ["params = '{}'", "needed = 2", "role = 'operator'", "asked_hash = repeat('0', 64)"]
)
def test_an_approval_to_erase_whose_row_was_altered_is_not_used(strict: World, change: str) -> None:
    number = asked(strict)
    strict.kit.operator.approvals.approve(number, BOB_AGREES)
    strict.sql(f"UPDATE approval SET {change} WHERE id = :id", id=number)
    with pytest.raises(SubjectMoved, match="not what was asked for"):
        strict.kit.operator.eraser.permit(ANN, reason="request 7", actor=ANN_ASKS)
    assert strict.kit.operator.approvals.store.one(number).state is ApprovalState.APPROVED


@pytest.mark.parametrize("job_comes_by", [True, False])
def test_an_approval_to_erase_that_is_not_used_in_time_is_over(
    strict: World, job_comes_by: bool
) -> None:
    kit = strict.kit
    approvals = kit.operator.approvals
    number = asked(strict)
    kit.clock.advance(seconds=82_800)
    approvals.approve(number, BOB_AGREES)
    # Good for a day from the consent on, also when the request itself would be over.
    kit.clock.advance(seconds=82_800)
    kit.run_job("approvals")
    assert approvals.store.one(number).state is ApprovalState.APPROVED
    kit.clock.advance(seconds=7_200)
    if job_comes_by:
        kit.run_job("approvals")
        assert approvals.store.one(number).state is ApprovalState.EXPIRED
    again = asked(strict)
    assert again != number
    assert "not used in time" in (approvals.store.one(number).note or "")
    approvals.approve(again, BOB_AGREES)
    assert kit.operator.eraser.permit(ANN, reason="request 7", actor=ANN_ASKS)


def test_the_chain_of_the_audit_stays_whole_when_a_sealed_row_is_erased(
    strict: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = strict.kit
    tx_id = kit.run("quick", dict(SUBJECT_OF_ALL)).tx_id
    engine = kit.connections.engine
    record_action(engine, actor=ANN_ASKS, action="resolve", subject=tx_id, reason=SECRET)
    record_action(engine, actor=ANN_ASKS, action="key.create", subject="k1", reason="for acme")
    kit.run_job("audit_sealer")
    kit.clock.advance(seconds=61)
    strict.archive()
    kit.operator.approvals.approve(asked(strict), BOB_AGREES)
    permit = kit.operator.eraser.permit(ANN, reason="request 7", actor=ANN_ASKS)
    list(kit.operator.eraser.erase([tx_id], permit))
    kit.run_job("audit_sealer")
    assert SECRET not in dumped_tables(strict)["operator_action"]
    monkeypatch.setattr(
        action_list, "connect", lambda: SimpleNamespace(audit_chain=AuditChain(engine))
    )
    app = typer.Typer()
    app.command()(action_list.actions)
    shown = CliRunner().invoke(app, ["--json"], catch_exceptions=False)
    assert (shown.exit_code, json.loads(shown.output)["faults"]) == (0, [])
    # What only looks erased was altered: its subject is not erased.
    strict.sql(
        """
        UPDATE operator_action SET reason = NULL, details = json_build_object(
            'erased', encode(sha256(''), 'hex'),
            'erasedReason', encode(sha256(convert_to(reason, 'UTF8')), 'hex'))
        WHERE subject = 'k1'
        """
    )
    forged = CliRunner().invoke(app, ["--json"], catch_exceptions=False)
    [fault] = json.loads(forged.output)["faults"]
    assert (forged.exit_code, "what it is about is not erased" in fault) == (5, True)
