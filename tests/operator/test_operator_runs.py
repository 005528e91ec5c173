"""Audits and erasures that are ordered by a request and done in parts by a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from datp_tasks import Pipeline
from datp_tasks.errors import ApprovalNeeded, DatabaseUnavailable, FilterInvalid
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor, Role
from datp_tasks.operator import audit, erase, runs
from datp_tasks.operator.erase import Chosen, RoleTooWeak
from datp_tasks.record.erasure import Erasure
from datp_tasks.record.operator_runs import OperatorRun, RunState, RunUnderWay
from datp_tasks.testing import Kit

ANN = Actor(name="key k1", owner="ann", role=Role.ADMIN, key_id="k1", request_id="r1")
BOB = Actor(name="key k2", owner="bob", role=Role.ADMIN)
SECRET = "ann-of-cleves"
BY_SUBJECT = Chosen(subject=f"/customer={SECRET}")


@pytest.fixture(autouse=True)
def small_parts(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two transactions each, so that five of them are three parts."""
    monkeypatch.setattr(audit, "AUDIT_BATCH", 2)
    monkeypatch.setattr(erase, "PAGE", 2)

    @datp.step("t/keep")
    def keep(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return data

    datp.use(Pipeline("p").step("t/keep").build())


def ended(kit: Kit, *customers: str, owner: str = "shop") -> list[str]:
    found = [kit.submit("p", {"customer": each}, owner=owner) for each in customers]
    # Archived, so that they may be erased.
    kit.advance(seconds=61)
    kit.advance(seconds=61)
    return sorted(found)


def went_on(kit: Kit, run: OperatorRun) -> OperatorRun:
    kit.run_job("operator_runs")
    found = kit.operator.runs.one(run.kind, run.id)
    assert found is not None
    return found


def erase_rows(kit: Kit) -> list[Any]:
    with kit.connections.engine.connect() as sql:
        query = "SELECT actor, key_id, action, details::text FROM operator_action ORDER BY id"
        return [row for row in sql.execute(text(query)) if row.action.startswith("erase")]


def tables_with(kit: Kit, words: str) -> list[str]:
    with kit.connections.engine.connect() as sql:
        names = sql.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))
        return [
            name
            for (name,) in names.all()
            if sql.execute(
                text(f'SELECT count(*) FROM "{name}" t WHERE t::text LIKE :words'),
                {"words": f"%{words}%"},
            ).scalar_one()
        ]


# Audits.


def test_an_audit_looks_at_all_in_parts_and_names_what_does_not_fit(datp: Kit) -> None:
    tx_ids = ended(datp, *"abcde")
    with datp.connections.engine.begin() as sql:
        broken = text("UPDATE tx_journal SET hash = 'x' WHERE tx_id = :id AND number = 1")
        sql.execute(broken, {"id": tx_ids[4]})
    run = datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    assert (run.state, run.params["total"], run.progress["audited"]) == (RunState.RUNNING, 5, 0)
    done = went_on(datp, run)
    assert (done.state, done.progress["audited"], done.progress["wrong"]) == (RunState.DONE, 5, 1)
    (misfit,) = done.progress["named"]
    assert misfit == {"txId": tx_ids[4], "faults": ["row 1 of its journal was altered"]}
    with datp.connections.engine.begin() as sql:
        sql.execute(text("DELETE FROM tx_journal WHERE tx_id = :id"), {"id": tx_ids[4]})


def test_a_part_that_was_not_kept_is_repeated_and_counted_once(datp: Kit) -> None:
    ended(datp, *"abcde")
    run = datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    datp.crash_at("operator_run.after_part", nth=2)
    with pytest.raises(SimulatedCrash):
        datp.run_job("operator_runs")
    kept = datp.operator.runs.one("audit", run.id)
    assert kept is not None and kept.progress["audited"] == 2
    done = went_on(datp, run)
    assert (done.state, done.progress["audited"]) == (RunState.DONE, 5)


def test_a_sample_is_that_of_its_seed_and_drawn_once(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(datp, *"abcde")
    looked_at: list[str] = []
    drawn: list[int] = []
    page, draw = audit.Auditor.audit_page, audit.chosen_places

    def noted(auditor: audit.Auditor, *place: Any) -> Any:
        replays, following = page(auditor, *place)
        looked_at.extend(each.tx_id for each in replays)
        return replays, following

    def counted(total: int, *wanted: Any) -> Any:
        drawn.append(total)
        return draw(total, *wanted)

    expected = [each.tx_id for each in datp.operator.audit(sample=3, seed=7)]
    monkeypatch.setattr(audit.Auditor, "audit_page", noted)
    monkeypatch.setattr(runs, "chosen_places", counted)
    run = datp.operator.runs.start_audit(sample=3, seed=7, actor=ANN)
    assert went_on(datp, run).progress["audited"] == 3
    assert (looked_at, drawn) == (expected, [5])
    # All need not be drawn.
    assert draw(5, 5, 0) is None


def kill_connections(kit: Kit) -> None:
    """All that the product has to PostgreSQL."""
    with create_engine(kit.settings.database_url).connect() as other:
        other.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_run_whose_connections_are_lost_between_two_parts_goes_on_later(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx_ids = ended(datp, SECRET, SECRET, SECRET)
    run = datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    reached: list[str] = []

    def kill(point: str) -> None:
        reached.append(point)
        if len(reached) == 1:
            kill_connections(datp)

    monkeypatch.setattr(runs, "reach", kill)
    with pytest.raises(DatabaseUnavailable):
        datp.run_job("operator_runs")
    found = datp.operator.runs.one("erasure", run.id)
    assert found is not None and found.state is RunState.RUNNING
    assert went_on(datp, run).state is RunState.DONE
    assert all(datp.status(tx).erased_at for tx in tx_ids)


@pytest.mark.kit(sql_statement_timeout_s=0.3)
def test_a_lock_that_is_held_too_long_ends_no_run(datp: Kit) -> None:
    ended(datp, "a")
    run = datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    with create_engine(datp.settings.database_url).begin() as other:
        other.exec_driver_sql("LOCK TABLE tx_journal")
        assert went_on(datp, run).state is RunState.RUNNING
    assert went_on(datp, run).state is RunState.DONE


def test_both_kinds_have_their_turn_however_short_the_time_is(datp: Kit) -> None:
    ended(datp, *"abc")
    datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    assert datp.operator.runs.go_on(run_s=0.0) == 2


def test_a_run_that_dies_at_every_start_is_ended(datp: Kit) -> None:
    ended(datp, "a")
    run = datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    for _ in range(runs.STARTS_MAX):
        datp.crash_at("operator_run.after_part")
        with pytest.raises(SimulatedCrash):
            datp.run_job("operator_runs")
    failed = went_on(datp, run)
    assert failed.state is RunState.FAILED
    assert failed.note is not None and "without getting any further" in failed.note


def test_a_second_worker_takes_no_progress_back(datp: Kit) -> None:
    ended(datp, *"abcde")
    run = datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    store = datp.operator.runs._store
    ahead = {**run.progress, "audited": 4}
    assert store.set_progress(run, run.progress, ahead)
    assert not store.set_progress(run, run.progress, {**run.progress, "audited": 2})
    assert not store.end(run, RunState.DONE, run.progress, run.progress, None)
    kept = datp.operator.runs.one("audit", run.id)
    assert kept is not None and (kept.state, kept.progress["audited"]) == (RunState.RUNNING, 4)


def test_there_is_one_at_a_time_and_one_process_works_on_it(datp: Kit) -> None:
    ended(datp, *"abc")
    runs = datp.operator.runs
    run = runs.start_audit(sample=None, seed=0, actor=ANN)
    with pytest.raises(RunUnderWay, match="GET /v1/audits"):
        runs.start_audit(sample=None, seed=1, actor=BOB)
    with runs._store.held("audit") as held:
        assert held is not None and held.id == run.id
        assert datp.run_job("operator_runs").parts == 0
    assert went_on(datp, run).state is RunState.DONE
    assert datp.run_job("operator_runs").parts == 0
    runs.start_audit(sample=None, seed=1, actor=BOB)


def test_the_connection_that_holds_a_run_writes_nothing(datp: Kit) -> None:
    """The event feed would wait for its end."""
    datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL AND datname = current_database()"
    )
    with datp.operator.runs._store.held("audit"), datp.connections.engine.connect() as sql:
        assert sql.execute(text(query)).scalar_one() == 0


# Erasures.


def test_what_was_ordered_is_erased_in_parts_and_the_value_rests_nowhere(datp: Kit) -> None:
    tx_ids = ended(datp, SECRET, "b", SECRET, "d", SECRET)
    run = datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    assert run.subject is not None and SECRET not in json.dumps(dict(run.subject))
    assert "operator_run" not in tables_with(datp, SECRET)
    done = went_on(datp, run)
    assert (done.state, done.progress["erased"], done.progress["refused"]) == (
        *(RunState.DONE, 3, 0),
    )
    assert done.subject is None
    assert tables_with(datp, SECRET) == []
    gone = [tx for tx in tx_ids if datp.status(tx).erased_at]
    assert len(gone) == 3
    start, *rows = erase_rows(datp)
    assert (start.action, start.actor, start.key_id) == ("erase.start", "key k1", "k1")
    assert {row.actor for row in rows} == {"key k1"}
    assert all(json.loads(row.details)["run"] == run.id for row in rows)


def test_all_of_an_owner_and_one_external_id(datp: Kit) -> None:
    ended(datp, "a", "b", "c")
    (other,) = ended(datp, "a", owner="other")
    one = datp.submit("p", {"customer": "e"}, owner="other", external_id="o1")
    datp.advance(seconds=61)
    datp.advance(seconds=61)
    runs = datp.operator.runs
    by_id = Chosen(owner="other", external_id="o1")
    assert (
        runs.preview_erasure(by_id, actor=ANN).count,
        runs.preview_erasure(BY_SUBJECT, actor=ANN).count,
    ) == (1, 0)
    first = went_on(datp, runs.start_erasure(by_id, reason="r", actor=ANN))
    assert first.progress["erased"] == 1 and datp.status(one).erased_at
    whole = Chosen(owner="shop")
    assert runs.preview_erasure(whole, actor=ANN).count == 3
    done = went_on(datp, runs.start_erasure(whole, reason="r", actor=ANN))
    assert done.progress["erased"] == 3
    assert datp.status(other).erased_at is None


def test_a_preview_of_very_many_says_that_there_are_more(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(datp, "a", "b", "c")
    monkeypatch.setattr("datp_tasks.operator.runs.LOOKED_MAX", 2)
    monkeypatch.setattr("datp_tasks.operator.runs.PAGE", 2)
    found = datp.operator.runs.preview_erasure(Chosen(owner="shop"), actor=ANN)
    assert (found.count, found.more) == (2, True)


def test_what_cannot_be_erased_is_named_and_the_rest_is_erased(datp: Kit) -> None:
    ended(datp, SECRET)
    open_one = datp.submit("p", {"customer": SECRET}, owner="shop")
    run = datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    done = went_on(datp, run)
    assert (done.progress["erased"], done.progress["refused"]) == (1, 1)
    (refusal,) = done.progress["named"]
    assert refusal["txId"] == open_one and "again" in refusal["why"]


def test_a_run_that_was_cut_off_needs_no_second_order(datp: Kit) -> None:
    ended(datp, SECRET, SECRET, SECRET)
    run = datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    datp.crash_at("erase.after_files")
    with pytest.raises(SimulatedCrash):
        datp.run_job("operator_runs")
    done = went_on(datp, run)
    assert (done.state, done.progress["erased"]) == (RunState.DONE, 3)
    assert tables_with(datp, SECRET) == []


def test_what_was_erased_is_counted_also_if_its_part_was_not_kept(datp: Kit) -> None:
    ended(datp, SECRET, SECRET, SECRET)
    run = datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    datp.crash_at("operator_run.after_part")
    with pytest.raises(SimulatedCrash):
        datp.run_job("operator_runs")
    done = went_on(datp, run)
    assert (done.state, done.progress["erased"]) == (RunState.DONE, 3)


def test_an_order_that_lost_its_hash_does_not_become_one_of_the_whole_owner(datp: Kit) -> None:
    (tx_id,) = ended(datp, "somebody-else")
    chosen = Chosen(owner="shop", subject=f"/customer={SECRET}")
    run = datp.operator.runs.start_erasure(chosen, reason="request 7", actor=ANN)
    with datp.connections.engine.begin() as sql:
        sql.execute(text("UPDATE operator_run SET subject = NULL"))
    failed = went_on(datp, run)
    assert failed.state is RunState.FAILED and failed.note is not None
    assert "order it again" in failed.note
    assert datp.status(tx_id).erased_at is None


def test_who_counts_by_a_subject_is_audited_without_the_value(datp: Kit) -> None:
    ended(datp, SECRET)
    datp.operator.runs.preview_erasure(BY_SUBJECT, actor=ANN)
    (row,) = erase_rows(datp)
    assert (row.action, row.key_id) == ("erase.preview", "k1")
    assert json.loads(row.details)["subject"] == "/customer" and SECRET not in row.details


def test_a_reason_that_names_the_value_is_refused(datp: Kit) -> None:
    with pytest.raises(FilterInvalid, match="names the value"):
        datp.operator.runs.start_erasure(BY_SUBJECT, reason=f"{SECRET} asked", actor=ANN)


def test_a_role_that_may_not_erase_is_told_and_nothing_is_ordered(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(datp, SECRET)
    run = datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    monkeypatch.setattr(Erasure, "may_erase", lambda _: False)
    failed = went_on(datp, run)
    assert failed.state is RunState.FAILED
    assert failed.note is not None and "datp erase" in failed.note
    assert failed.subject is None
    with pytest.raises(RoleTooWeak, match="the role that owns the tables"):
        datp.operator.runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    assert len(datp.operator.runs.page("erasure", before=None, rows_max=9)) == 1


def test_an_unexpected_fault_ends_it_and_tells_where_to_look(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(datp, "a")
    run = datp.operator.runs.start_audit(sample=None, seed=0, actor=ANN)

    def broken(*_: Any) -> None:
        raise ValueError("a secret text")

    monkeypatch.setattr(audit.Auditor, "audit_page", broken)
    failed = went_on(datp, run)
    assert failed.state is RunState.FAILED
    assert failed.note is not None and "the log says why" in failed.note
    assert "secret" not in failed.note


@pytest.mark.kit(policy_file=str(Path(__file__).with_name("two_persons_to_erase.yaml")))
def test_where_two_must_agree_it_begins_after_the_second(datp: Kit) -> None:
    ended(datp, SECRET)
    runs = datp.operator.runs
    with pytest.raises(ApprovalNeeded) as needed:
        runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    assert runs.page("erasure", before=None, rows_max=9) == []
    datp.operator.approvals.approve(needed.value.approval_id, BOB)
    run = runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
    assert run.params["allowed"]["approval"] == needed.value.approval_id
    assert went_on(datp, run).progress["erased"] == 1
    with datp.connections.engine.begin() as sql:
        # An order that no one has agreed to.
        forged_row = text(
            "INSERT INTO operator_run (kind, params, progress, reason, requester, created_at) "
            "SELECT kind, cast(:params AS json), cast(:progress AS json), reason, requester, "
            "created_at FROM operator_run"
        )
        params = {"chosen": {"owner": "shop"}, "allowed": {}}
        progress = {"after": "", "erased": 0, "refused": 0, "named": []}
        said = {"params": json.dumps(params), "progress": json.dumps(progress)}
        sql.execute(forged_row, said)
    datp.run_job("operator_runs")
    forged, _ = runs.page("erasure", before=None, rows_max=9)
    assert forged.state is RunState.FAILED and "approval" in (forged.note or "")
    # It is used up.
    with pytest.raises(ApprovalNeeded):
        runs.start_erasure(BY_SUBJECT, reason="request 7", actor=ANN)
