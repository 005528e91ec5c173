"""The client's own name for a transaction: the same request twice is one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, text

from datp_tasks import Pipeline, Request
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import ExternalIdConflict, PipelineDisabled, RequestError, TransactionUnknown
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.eventually import eventually

Data = dict[str, Any]


@pytest.fixture(autouse=True)
def runs(datp: Kit) -> list[str]:
    ran: list[str] = []

    @datp.step("t/run")
    def run(ctx: Any, data: Data) -> None:
        ran.append(ctx.tx_id)

    datp.use(Pipeline("p").step("t/run").build(), Pipeline("q").step("t/run").build())
    return ran


def rows(kit: Kit) -> int:
    with kit.connections.engine.connect() as sql:
        return int(sql.execute(text("SELECT count(*) FROM tx_summary")).scalar_one())


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Many threads start together; what each of them returned or raised."""
    gate = threading.Barrier(count)

    def run(number: int) -> Any:
        gate.wait(30)
        try:
            return work(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_the_same_request_twice_is_one_transaction(datp: Kit, runs: list[str]) -> None:
    data = {"a": 1, "b": [1, 2]}
    first = datp.client.submit("p", data, external_id="o-1", metadata={"m": 1})
    again = datp.client.submit("p", {"b": (1, 2), "a": 1}, external_id="o-1", metadata={"m": 1})
    assert again == Submitted(first.tx_id, Status.SUCCESS, duplicate=True)
    assert runs == [first.tx_id]
    assert rows(datp) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"pipeline": "q"},
        {"input": {"a": 2}},
        {"input": {"a": 1.0}},
        {"input": {"a": True}},
        {"input": {"a": "1"}},
        {"input": {}},
        {"metadata": {"m": 2}},
        {"metadata": None},
    ],
)
def test_another_request_under_the_same_id_is_refused(
    datp: Kit, runs: list[str], other: dict[str, Any]
) -> None:
    request: dict[str, Any] = {"pipeline": "p", "input": {"a": 1}, "metadata": {"m": 1}}
    [first] = datp.client.submit_many([Request(**request, external_id="o-1")])
    assert isinstance(first, Submitted)
    changed = {**request, **other}
    with pytest.raises(ExternalIdConflict) as refused:
        datp.client.submit(
            changed["pipeline"],
            changed["input"],
            metadata=changed["metadata"],
            external_id="o-1",
        )
    assert str(refused.value) == (
        f"external id 'o-1' was already used for another request, transaction {first.tx_id}"
    )
    assert runs == [first.tx_id]
    assert rows(datp) == 1


def test_a_new_version_of_the_pipeline_is_still_the_same_request(datp: Kit) -> None:
    first = datp.client.submit("p", {}, external_id="o-1")
    datp.use(Pipeline("p").step("t/run").step("t/run").build())
    assert datp.client.submit("p", {}, external_id="o-1").tx_id == first.tx_id


def test_owners_do_not_share_their_ids(datp: Kit, runs: list[str]) -> None:
    one = datp.client.submit("p", {}, owner="one", external_id="o-1")
    two = datp.client.submit("p", {}, owner="two", external_id="o-1")
    assert one.tx_id != two.tx_id
    assert len(runs) == 2
    assert datp.client.find("one", "o-1").tx_id == one.tx_id
    with pytest.raises(TransactionUnknown, match="one has no transaction with external id 'o-2'"):
        datp.client.find("one", "o-2")


def test_the_id_stays_used_when_redis_has_forgotten_it(datp: Kit) -> None:
    first = datp.client.submit("p", {}, external_id="o-1")
    datp.advance(days=30)
    for key in datp.connections.redis.scan_iter(match=f"{datp.settings.key_prefix}:*"):
        datp.connections.redis.delete(key)
    assert datp.client.submit("p", {}, external_id="o-1").tx_id == first.tx_id


def test_one_batch_with_the_same_id_several_times(datp: Kit, runs: list[str]) -> None:
    requests = [Request(pipeline="p", input={"n": n}, external_id="o-1") for n in (1, 1, 2, 1)]
    first, again, other, third = datp.client.submit_many(requests)
    assert isinstance(first, Submitted)
    assert isinstance(again, Submitted)
    assert isinstance(third, Submitted)
    assert isinstance(other, ExternalIdConflict)
    assert {first.tx_id, again.tx_id, third.tx_id} == {first.tx_id}
    assert [each.duplicate for each in (first, again, third)] == [False, True, True]
    assert runs == [first.tx_id]


def test_twenty_threads_with_one_id_make_one_transaction(datp: Kit, runs: list[str]) -> None:
    for number in range(5):
        answers = at_once(
            20,
            lambda _, n=number: datp.client.submit("p", {"n": 1}, external_id=f"o-{n}"),  # type: ignore[misc]
        )
        assert {type(answer) for answer in answers} == {Submitted}, answers
        assert len({answer.tx_id for answer in answers}) == 1
        assert [answer.duplicate for answer in answers].count(False) == 1
    assert len(runs) == len(set(runs)) == 5
    assert rows(datp) == 5


def test_twenty_threads_with_different_requests_under_one_id_have_one_winner(
    datp: Kit, runs: list[str]
) -> None:
    answers = at_once(20, lambda n: datp.client.submit("p", {"n": n}, external_id="o-1"))
    winners = [answer for answer in answers if isinstance(answer, Submitted)]
    losers = [answer for answer in answers if isinstance(answer, ExternalIdConflict)]
    assert (len(winners), len(losers)) == (1, 19)
    assert runs == [winners[0].tx_id]
    assert all(winners[0].tx_id in str(loser) for loser in losers)


def test_batches_that_name_the_same_ids_in_another_order_do_not_block_each_other(
    datp: Kit,
) -> None:
    """Both are held up half-way by a third; what they have by then must not be crosswise."""
    datp.lose_bells()
    requests = [Request(pipeline="p", input={"n": n}, external_id=f"o-{n}") for n in range(20)]
    engine = datp.connections.engine
    with engine.connect() as third, ThreadPoolExecutor(2) as pool:
        third.execute(
            text(
                "INSERT INTO tx_summary (tx_id, owner, external_id, fingerprint, pipeline, "
                "version, status, input, created_at) "
                "VALUES ('t', 'local', 'o-10', 'f', 'p', 'v', 'queued', '{}', now())"
            )
        )
        both = [pool.submit(datp.client.submit_many, batch) for batch in (requests, requests[::-1])]
        eventually(lambda: waiting_for_locks(engine) == 2)
        third.rollback()
        answers, backwards = (each.result(30) for each in both)
    txs = [each.tx_id for each in answers if isinstance(each, Submitted)]
    assert txs == [each.tx_id for each in backwards[::-1] if isinstance(each, Submitted)]
    summaries = {each.tx_id: each.input["n"] for each in datp.connections.record.summaries(txs)}
    assert [summaries[tx] for tx in txs] == list(range(20))


def waiting_for_locks(engine: Engine) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with engine.connect() as sql:
        return int(sql.execute(text(query)).scalar_one())


def test_a_replay_is_found_although_its_pipeline_was_disabled_meanwhile(
    datp: Kit, runs: list[str]
) -> None:
    """A client that is told "refused" pays elsewhere, and the first payment runs all the same."""
    first = datp.client.submit("p", {"a": 1}, external_id="o-1")
    datp.connections.pipelines.disable("p")
    eventually(lambda: isinstance(refusal_of(datp, "o-2"), PipelineDisabled))
    again = datp.client.submit("p", {"a": 1}, external_id="o-1")
    assert (again.tx_id, again.duplicate) == (first.tx_id, True)
    with pytest.raises(ExternalIdConflict):
        datp.client.submit("p", {"a": 2}, external_id="o-1")
    assert runs == [first.tx_id]


def refusal_of(kit: Kit, external_id: str) -> object:
    return kit.client.submit_many([Request(pipeline="p", input={}, external_id=external_id)])[0]


@pytest.mark.parametrize(
    ("change", "request_fields"),
    [
        ({"input_bytes_max": 1_024}, {"input": {"a": "x" * 2_000}}),
        ({"client.requests.DEPTH_MAX": 2}, {"input": {"a": [[[1]]]}}),
        ({"client.requests.EXTERNAL_ID_CHARS_MAX": 8}, {"external_id": "o" * 20}),
        ({"timeouts.expiry.EXPIRES_S_MAX": 60}, {"expires_in_s": 600}),
        ({"outbound.addresses.PUBLIC_SCHEMES": ("http",)}, {"webhook": "https://example.com/x"}),
    ],
    ids=lambda value: next(iter(value)) if len(value) == 1 else None,
)
def test_a_replay_is_found_although_a_limit_was_lowered_meanwhile(
    datp: Kit,
    change: dict[str, Any],
    request_fields: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A setting (of another process of a rolling restart), or a constant (of a newer release)."""
    request = Request(**({"pipeline": "p", "input": {}, "external_id": "o-1"} | request_fields))
    [first] = datp.client.submit_many([request])
    assert isinstance(first, Submitted)
    acceptor = datp.client._acceptor
    settings = {name: value for name, value in change.items() if "." not in name}
    for name, value in change.items():
        if name not in settings:
            monkeypatch.setattr(f"datp_tasks.{name}", value)
    preparer = replace(acceptor.preparer, settings=replace(datp.settings, **settings))
    lowered = replace(acceptor, preparer=preparer)
    [again] = lowered.submit_many([request])
    assert isinstance(again, Submitted)
    assert (again.tx_id, again.duplicate) == (first.tx_id, True)
    [other] = lowered.submit_many([replace(request, metadata={"m": 1})])
    assert isinstance(other, ExternalIdConflict)
    [fresh] = lowered.submit_many([replace(request, external_id=f"n{request.external_id}"[:40])])
    assert isinstance(fresh, RequestError) and not isinstance(fresh, ExternalIdConflict)


@pytest.mark.kit(keep_summaries_days=2, state_ttl_s=1)
def test_an_id_is_free_again_when_its_transaction_is_no_longer_kept(
    datp: Kit, runs: list[str]
) -> None:
    first = datp.client.submit("p", {"a": 1}, external_id="o-1").tx_id
    datp.advance(days=1)
    with pytest.raises(ExternalIdConflict):
        datp.client.submit("p", {"a": 2}, external_id="o-1")
    datp.connections.redis.delete(datp.connections.live.keys.state(first))
    datp.advance(days=2)
    again = datp.client.submit("p", {"a": 2}, external_id="o-1")
    assert not again.duplicate and again.tx_id != first
