"""The audit is a chain of hashes: what was changed afterwards is named; and rights keep it so."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import ProgrammingError

from datp_tasks.errors import SettingsError
from datp_tasks.model.actor import Actor
from datp_tasks.record.audit_chain import AuditChain, ChainHead
from datp_tasks.record.erasure import Erasure
from datp_tasks.record.operator_actions import note_action, record_action
from datp_tasks.record.table_rights import apply_rights, rights_sql
from datp_tasks.testing import Kit

ANN = Actor(name="key 1f2e", key_id="1f2e", request_id="req_1", address="10.0.0.9")


def act(kit: Kit, number: int) -> None:
    record_action(
        kit.connections.engine,
        actor=ANN,
        action="resolve",
        subject=f"t{number}",
        reason="looked",
        details={"output": {"paid": number}},
    )


def run(kit: Kit, statement: str) -> None:
    with kit.connections.engine.begin() as sql:
        sql.exec_driver_sql(statement)


@pytest.fixture
def chain(datp: Kit) -> AuditChain:
    for number in range(1, 6):
        act(datp, number)
    assert datp.run_job("audit_sealer").sealed == 5
    return AuditChain(datp.connections.engine)


def test_a_chain_that_was_left_alone_is_whole_and_goes_on(datp: Kit, chain: AuditChain) -> None:
    first = chain.verify()
    assert (first.sealed, first.faults) == (5, [])
    act(datp, 6)
    assert [each.position for each in chain.actions(rows_max=2)] == [None, 5]
    assert datp.run_job("audit_sealer").sealed == 1
    assert datp.run_job("audit_sealer").sealed == 0
    assert chain.verify(first.head).faults == []
    newest = chain.actions(subject="t6")[0]
    assert (newest.key_id, newest.request_id, newest.address) == ("1f2e", "req_1", "10.0.0.9")


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("UPDATE operator_action SET reason = 'x' WHERE subject = 't3'", "action 3, or its seal"),
        ("UPDATE operator_action SET address = NULL WHERE subject = 't3'", "action 3, or its seal"),
        ("UPDATE operator_action SET key_id = 'x' WHERE subject = 't3'", "action 3, or its seal"),
        (
            "UPDATE operator_action SET request_id = '' WHERE subject = 't3'",
            "action 3, or its seal",
        ),
        ("UPDATE operator_action SET actor = 'bob' WHERE subject = 't3'", "action 3, or its seal"),
        ("UPDATE operator_action SET details = '{}' WHERE subject = 't3'", "action 3, or its seal"),
        ("DELETE FROM operator_action WHERE subject = 't2'", "action 2 was removed"),
        ("DELETE FROM audit_seal WHERE position = 4", "the seals 4 to 4 were removed"),
        ("UPDATE audit_seal SET hash = 'x' WHERE position = 1", "action 1, or its seal"),
    ],
)
def test_what_was_tampered_with_is_named(
    datp: Kit, chain: AuditChain, tampering: str, fault: str
) -> None:
    with datp.connections.engine.connect() as sql:
        lowest = sql.exec_driver_sql("SELECT min(id) FROM operator_action").scalar_one()
    run(datp, tampering)
    faults = chain.verify().faults
    number = next((word for word in fault.replace(",", "").split() if word.isdecimal()), "")
    wanted = fault.replace(number, str(int(number) + lowest - 1)) if "action" in fault else fault
    assert any(each.startswith(wanted) for each in faults), faults


def test_an_end_that_was_cut_off_is_noticed_by_a_head_that_was_kept(
    datp: Kit, chain: AuditChain
) -> None:
    head = chain.verify().head
    run(datp, "DELETE FROM audit_seal WHERE position > 3")
    run(datp, "DELETE FROM operator_action WHERE subject IN ('t4', 't5')")
    assert chain.verify().faults == []
    assert chain.verify(head).faults == ["the chain ends at 3; it had come to 5"]
    other = ChainHead(2, "0" * 64)
    assert chain.verify(other).faults == ["the seal 2 is not the one that was seen before"]


def test_what_commits_late_is_sealed_later_and_many_may_seal_at_once(datp: Kit) -> None:
    chain = AuditChain(datp.connections.engine)
    with datp.connections.engine.begin() as late:
        note_action(late, actor=ANN, action="resolve", subject="late", reason=None)
        act(datp, 1)
        assert chain.seal(rows_max=10) == 1
    writers = [threading.Thread(target=act, args=(datp, number)) for number in range(8)]
    sealers = [threading.Thread(target=chain.seal, kwargs={"rows_max": 3}) for _ in range(4)]
    for each in (*writers, *sealers):
        each.start()
    for each in (*writers, *sealers):
        each.join()
    while chain.seal(rows_max=100):
        pass
    report = chain.verify()
    assert (report.sealed, report.faults) == (10, [])


def test_the_role_of_the_application_can_add_to_the_audit_and_not_change_it(
    datp: Kit, chain: AuditChain
) -> None:
    role = "datp_app_of_a_test"
    owner = datp.connections.engine
    run(datp, f"DROP ROLE IF EXISTS {role}")
    run(datp, f"CREATE ROLE {role} LOGIN PASSWORD 'apart'")
    url = make_url(datp.settings.database_url).set(username=role, password="apart")
    engine = create_engine(url.set(drivername="postgresql+psycopg2"))
    try:
        apply_rights(owner, role)
        apply_rights(owner, role)
        assert Erasure(owner, datp.clock).may_erase()
        assert not Erasure(engine, datp.clock).may_erase()
        record_action(engine, actor=ANN, action="resolve", subject="app", reason=None)
        assert AuditChain(engine).seal(rows_max=10) == 1
        for table in ("operator_action", "audit_seal"):
            for statement in (
                f"UPDATE {table} SET hash = hash"
                if table == "audit_seal"
                else f"UPDATE {table} SET reason = 'x'",
                f"DELETE FROM {table}",
                f"TRUNCATE {table}",
            ):
                assert refused(engine, statement), statement
        with engine.begin() as sql:
            sql.exec_driver_sql("UPDATE tx_summary SET note = NULL")
    finally:
        engine.dispose()
        run(datp, f"DROP OWNED BY {role}")
        run(datp, f"DROP ROLE {role}")


def refused(engine: Any, statement: str) -> bool:
    try:
        with engine.begin() as sql:
            sql.exec_driver_sql(statement)
    except ProgrammingError as error:
        return "permission denied" in str(error)
    return False


def test_a_role_that_would_need_quotes_is_refused() -> None:
    with pytest.raises(SettingsError):
        rights_sql('x"; DROP TABLE alert; --')
