"""What a client may send, what is refused, and that a refusal stores nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Pipeline, Request
from datp_tasks.bells.ringer import Ringer
from datp_tasks.client import submit
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import (
    DatpError,
    ExternalIdInvalid,
    InputInvalid,
    PipelineDisabled,
    PipelineNotStartable,
    PipelineUnknown,
    RequestError,
)
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Acceptance, Existing
from datp_tasks.record.transactions import Record
from datp_tasks.testing import Kit

Data = dict[str, Any]


def nested(depth: int) -> Data:
    data: Data = {}
    for _ in range(depth - 1):
        data = {"a": data}
    return data


def of_size(size: int) -> Data:
    """An object of exactly so many bytes of JSON."""
    return {"a": "x" * (size - len('{"a":""}'))}


def stored(kit: Kit) -> tuple[int, int]:
    """Rows in the record, and keys in Redis that belong to transactions."""
    with kit.connections.engine.connect() as sql:
        rows = sql.execute(text("SELECT count(*) FROM tx_summary")).scalar_one()
    pattern = f"{kit.settings.key_prefix}:{{[0-9][0-9]}}:*"
    return rows, sum(1 for _ in kit.connections.redis.scan_iter(match=pattern, count=1_000))


@pytest.fixture(autouse=True)
def pipelines(datp: Kit) -> None:
    reply = {"params": {"output": {"ok": 1}}}
    datp.use(
        Pipeline("p").step("util/fixed-reply", **reply).build(),  # type: ignore[arg-type]
        Pipeline("off").step("util/fixed-reply", **reply).build(),  # type: ignore[arg-type]
        Pipeline("child", startable=False)
        .step("util/fixed-reply", **reply)  # type: ignore[arg-type]
        .build(),
    )
    datp.connections.pipelines.disable("off")


BAD: list[tuple[str, dict[str, Any], type[DatpError], str]] = [
    ("unknown pipeline", {"pipeline": "nope"}, PipelineUnknown, "no pipeline 'nope'"),
    ("pipeline name", {"pipeline": "No Such\x00"}, PipelineUnknown, "no pipeline"),
    ("pipeline type", {"pipeline": None}, PipelineUnknown, "no pipeline None"),
    ("disabled pipeline", {"pipeline": "off"}, PipelineDisabled, "off is disabled"),
    ("child pipeline", {"pipeline": "child"}, PipelineNotStartable, "cannot start child"),
    ("list", {"input": [1]}, InputInvalid, "input must be a JSON object, was a list"),
    ("null", {"input": None}, InputInvalid, "input must be a JSON object, was null"),
    ("text", {"input": "{}"}, InputInvalid, "input must be a JSON object, was a string"),
    ("too large", {"input": of_size(262_145)}, InputInvalid, "262145 bytes of JSON; 262144 are"),
    ("too deep", {"input": nested(33)}, InputInvalid, "nested too deeply"),
    ("NaN", {"input": {"a": math.nan}}, InputInvalid, "input.a is nan"),
    ("infinity", {"input": {"a": [math.inf]}}, InputInvalid, "input.a[0] is inf"),
    ("U+0000", {"input": {"a": "x\x00"}}, InputInvalid, "U+0000"),
    ("U+0000 in a key", {"input": {"x\x00": 1}}, InputInvalid, "U+0000"),
    ("surrogate", {"input": {"a": "\ud800"}}, InputInvalid, "surrogate"),
    ("Decimal", {"input": {"a": Decimal("1.1")}}, InputInvalid, "send money as a string"),
    ("number as key", {"input": {"a": {1: 2}}}, InputInvalid, "keys must be strings"),
    ("endless number", {"input": {"a": 10**5_000}}, InputInvalid, "more digits"),
    ("empty external id", {"external_id": ""}, ExternalIdInvalid, "an external id is 1 to 64"),
    ("long external id", {"external_id": "x" * 65}, ExternalIdInvalid, "1 to 64"),
    ("space in external id", {"external_id": "a b"}, ExternalIdInvalid, "without spaces"),
    ("newline in external id", {"external_id": "a\n"}, ExternalIdInvalid, "printable"),
    ("foreign external id", {"external_id": "ü"}, ExternalIdInvalid, "printable ASCII"),
    ("number as external id", {"external_id": 5}, ExternalIdInvalid, "was 5"),
    ("empty owner", {"owner": ""}, RequestError, "an owner is 1 to 64"),
    ("long owner", {"owner": "x" * 65}, RequestError, "an owner is 1 to 64"),
    ("colon in owner", {"owner": "a:b"}, RequestError, "an owner is 1 to 64"),
    ("no owner", {"owner": None}, RequestError, "was None"),
    ("metadata list", {"metadata": [1]}, InputInvalid, "metadata must be a JSON object"),
    ("empty metadata list", {"metadata": []}, InputInvalid, "metadata must be a JSON object"),
    ("metadata NaN", {"metadata": {"a": math.nan}}, InputInvalid, "metadata.a is nan"),
    ("large metadata", {"metadata": of_size(16_385)}, InputInvalid, "16384 are allowed"),
]


@pytest.mark.parametrize(
    ("request_", "error", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_a_bad_request_is_refused_by_name_and_nothing_is_stored(
    datp: Kit, request_: dict[str, Any], error: type[DatpError], message: str
) -> None:
    given: dict[str, Any] = {"pipeline": "p", "input": {}, **request_}
    with pytest.raises(error) as refused:
        datp.client.submit(given.pop("pipeline"), given.pop("input"), **given)
    assert type(refused.value) is error
    assert message in str(refused.value)
    assert len(str(refused.value)) < 1_000
    assert stored(datp) == (0, 0)
    assert datp.send.rung == []


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("the largest input", {"input": of_size(262_144)}),
    ("the deepest input", {"input": nested(32)}),
    ("large numbers", {"input": {"n": -(2**70), "f": 0.1, "e": 1e300}}),
    ("any text", {"input": {"ключ": "значение 💶 \u2028 '\";--"}}),
    ("tuples", {"input": {"a": (1, 2)}}),
    ("the longest external id", {"external_id": "!" * 64}),
    ("an odd external id", {"external_id": "{07}:*%s'\"\\"}),
    ("an address as owner", {"owner": "someone@example.com"}),
    ("the largest metadata", {"metadata": of_size(16_384)}),
    ("empty metadata", {"metadata": {}}),
]


@pytest.mark.parametrize("request_", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_what_is_allowed_comes_back_as_it_was_sent(datp: Kit, request_: dict[str, Any]) -> None:
    given: dict[str, Any] = {"input": {}, **request_}
    data = given.pop("input")
    submitted = datp.client.submit("p", data, **given)
    assert (submitted.status, submitted.duplicate) == (Status.QUEUED, False)
    summary = datp.status(submitted.tx_id)
    assert summary.status is Status.SUCCESS
    assert summary.input == {k: list(v) if isinstance(v, tuple) else v for k, v in data.items()}
    assert summary.owner == given.get("owner", "local")
    assert summary.external_id == given.get("external_id")
    assert (summary.metadata or {}) == given.get("metadata", {})


def test_the_caller_may_change_its_data_afterwards(datp: Kit) -> None:
    datp.lose_bells()
    data = {"list": [1]}
    tx_id = datp.submit("p", data)
    data["list"].append(2)
    assert datp.status(tx_id).input == {"list": [1]}


def test_transaction_ids_name_their_shard_and_differ(datp: Kit) -> None:
    datp.lose_bells()
    txs = [datp.submit("p", {}) for _ in range(50)]
    assert len(set(txs)) == 50
    assert all(0 <= int(tx[1:3]) < datp.settings.shards for tx in txs)


def test_what_is_accepted_together_lies_in_few_shards_which_differ_each_time(datp: Kit) -> None:
    datp.lose_bells()
    many = [Request(pipeline="p", input={}, external_id=f"e-{n}") for n in range(250)]
    shards = [answer.tx_id[1:3] for answer in answers_of(datp, many)]
    assert len(set(shards)) == 3
    assert all(len(set(shards[start : start + 100])) == 1 for start in (0, 100, 200))

    lone = {answers_of(datp, [Request(pipeline="p", input={})])[0].tx_id[1:3] for _ in range(100)}
    assert len(lone) > 8


@pytest.fixture
def sizes(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many each commit accepts: five at most, and two of many at first."""
    datp.lose_bells()
    monkeypatch.setattr(submit, "FIRST_BATCH_MAX", 2)
    monkeypatch.setattr(submit, "BATCH_MAX", 5)
    found: list[int] = []
    accept = Record.accept_many

    def accept_many(record: Record, wanted: Sequence[Acceptance]) -> list[Existing | None]:
        found.append(len(wanted))
        return accept(record, wanted)

    monkeypatch.setattr(Record, "accept_many", accept_many)
    return found


def test_the_first_of_many_are_accepted_in_small_batches(datp: Kit, sizes: list[int]) -> None:
    """Workers begin with those while the others are accepted."""
    many = [Request(pipeline="p", input={"n": n}) for n in range(17)]
    answers = answers_of(datp, many)
    assert sizes == [2, 4, 5, 5, 1]
    inputs = [datp.client.status(answer.tx_id).input for answer in answers]
    assert inputs == [request.input for request in many]

    sizes.clear()
    answers_of(datp, many[:5])
    assert sizes == [5]


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ([True] * 4, [5, 5, 5, 2]),
        ([False, True, True, True], [2, 5, 5, 5]),
        ([False, True, False, False], [2, 5, 5, 5]),
        ([False] * 5, [2, 4, 5, 5, 1]),
    ],
)
def test_while_workers_have_something_to_do_no_batch_is_small(
    datp: Kit,
    sizes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    busy: list[bool],
    expected: list[int],
) -> None:
    answers = iter(busy)
    monkeypatch.setattr(Ringer, "found_busy", property(lambda _: next(answers)))
    answers_of(datp, [Request(pipeline="p", input={"n": n}) for n in range(17)])
    assert sizes == expected


def answers_of(kit: Kit, requests: list[Request]) -> list[Any]:
    return kit.client.submit_many(requests)


def test_thousands_at_once_are_answered_in_order_and_bad_ones_hold_no_other_up(datp: Kit) -> None:
    datp.lose_bells()
    bad: dict[int, tuple[Callable[[int], Request], type[DatpError]]] = {
        0: (lambda n: Request(pipeline="nope", input={}), PipelineUnknown),
        7: (lambda n: Request(pipeline="p", input={"a": math.nan}), InputInvalid),
        499: (lambda n: Request(pipeline="p", input={}, owner=""), RequestError),
        500: (lambda n: Request(pipeline="off", input={}), PipelineDisabled),
        1_234: (lambda n: Request(pipeline="p", input={}, external_id=" "), ExternalIdInvalid),
        1_999: (lambda n: Request(pipeline="p", input={"a": 10**5_000}), InputInvalid),
        2_999: (lambda n: Request(pipeline="child", input={}), PipelineNotStartable),
    }
    requests = [
        bad[n][0](n) if n in bad else Request(pipeline="p", input={"n": n}) for n in range(3_000)
    ]
    answers = answers_of(datp, requests)
    assert len(answers) == 3_000
    for number, answer in enumerate(answers):
        if number in bad:
            assert type(answer) is bad[number][1], number
        else:
            assert isinstance(answer, Submitted), number
    txs = [answer.tx_id for answer in answers if isinstance(answer, Submitted)]
    summaries = {each.tx_id: each for each in datp.connections.record.summaries(txs)}
    numbers = [number for number in range(3_000) if number not in bad]
    assert [summaries[tx].input["n"] for tx in txs] == numbers
    assert datp.connections.live.sizes()["queuedZ"] == 3_000 - len(bad)


def test_nothing_at_once_is_fine(datp: Kit) -> None:
    assert answers_of(datp, []) == []
    assert stored(datp) == (0, 0)


def test_a_batch_runs_like_single_ones(datp: Kit) -> None:
    answers = answers_of(datp, [Request(pipeline="p", input={"n": n}) for n in range(30)])
    assert {datp.status(each.tx_id).status for each in answers} == {Status.SUCCESS}
