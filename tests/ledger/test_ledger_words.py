"""The parts without I/O: bytes of batches, addresses, kinds of ledgers, rules and decisions."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from datp_tasks.errors import BatchInvalid
from datp_tasks.ledger import decisions
from datp_tasks.ledger.batch_list import (
    NotABatchList,
    batch_ids,
    derived_id,
    payloads,
    unsigned_batch_list,
)
from datp_tasks.ledger.batch_types import Asked, Begun, Seen
from datp_tasks.ledger.decisions import decide, ended
from datp_tasks.ledger.hosts import url_mistake
from datp_tasks.ledger.kinds import KINDS, RECEIPT_CHARS_MAX
from datp_tasks.ledger.rules import RULES, judge
from datp_tasks.model.ledger_batch import FINAL_STATES, TO_ASK, BatchState, Verdict
from datp_tasks.outbound.messages import Exchange, NoResponse, NotSent, Response
from datp_tasks.settings import Settings

ID = "ab" * 64
HOSTS = ("127.0.0.1", "ledger.example:8008", "[::1]")


def asked(**changes: Any) -> Asked:
    values: dict[str, Any] = {
        "service_id": "c::s",
        "batch_id": ID,
        "kind": "sawtooth",
        "url": "http://127.0.0.1:1",
        "state": BatchState.PENDING,
        "attempts": 1,
        "possible": 1,
        "resubmits": 0,
        "unknown_seen": 0,
        "grace_over": True,
        "swallow_over": True,
    }
    return Asked(**(values | changes))


def begun(**changes: Any) -> Begun:
    values: dict[str, Any] = {
        "service_id": "c::s",
        "batch_id": ID,
        "kind": "sawtooth",
        "url": "http://127.0.0.1:1",
        "payload": b"x",
        "epoch": 1,
        "attempt": 1,
        "possible": 1,
    }
    return Begun(**(values | changes))


# BatchList.


@given(some.binary(max_size=2_000))
def test_a_batch_list_says_its_id_and_what_it_carries(content: bytes) -> None:
    made = unsigned_batch_list(ID, content)
    assert batch_ids(made) == [ID]
    assert payloads(made) == [content]
    assert batch_ids(made + made) == [ID, ID]


@given(some.binary(max_size=300))
def test_bytes_that_are_no_batch_list_are_refused_or_read_but_never_break(data: bytes) -> None:
    try:
        batch_ids(data)
    except NotABatchList:
        return


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_a_batch_list_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(NotABatchList):
        batch_ids(unsigned_batch_list(ID, b"content")[:-cut])


def test_an_id_follows_from_its_key() -> None:
    assert derived_id("tx:0") == derived_id("tx:0")
    assert derived_id("tx:0") != derived_id("tx:1")
    assert len(derived_id("tx:0")) == 128


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"not a list", "not a BatchList"),
        (unsigned_batch_list("short", b""), "128 lowercase hex digits"),
        (unsigned_batch_list(ID.upper(), b""), "128 lowercase hex digits"),
        (unsigned_batch_list(ID, b"") * 2, "must hold one batch, but holds 2"),
    ],
)
def test_a_ledger_takes_one_batch_with_a_proper_id(payload: bytes, problem: str) -> None:
    with pytest.raises(BatchInvalid, match=problem):
        KINDS["sawtooth"].batch_id_of(payload)


# Addresses.


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1",
        "http://127.0.0.1:9999/prefix",
        "https://ledger.example:8008",
        "http://LEDGER.example:8008",
        "http://[::1]:4",
    ],
)
def test_an_address_that_is_named_is_allowed(url: str) -> None:
    assert url_mistake(url, HOSTS) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://ledger.example", "not allowed"),
        ("http://ledger.example:8009", "not allowed"),
        ("http://169.254.169.254", "not allowed"),
        ("http://127.0.0.1.evil.example", "not allowed"),
        ("http://127.0.0.1@evil.example", "name or password"),
        ("http://user:secret@127.0.0.1", "name or password"),
        ("ftp://127.0.0.1", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("http://", "http:// or https://"),
        ("http://127.0.0.1/?a=b", "plain base URL"),
        ("http://127.0.0.1/", "plain base URL"),
        ("http://127.0.0.1/a b", "plain base URL"),
        ("http://127.0.0.1:99999", "not a URL"),
        ("", "must be a URL"),
        (None, "must be a URL"),
        ("http://127.0.0.1/" + "a" * 600, "up to 500 characters"),
    ],
)
def test_an_address_that_is_not_allowed_is_refused_with_a_reason(url: Any, problem: str) -> None:
    assert problem in url_mistake(url, HOSTS)


# Kinds.


def test_sawtooth_requests_are_what_its_rest_api_takes() -> None:
    kind = KINDS["sawtooth"]
    post = kind.submission(begun())
    assert (post.method, post.url) == ("POST", "http://127.0.0.1:1/batches")
    assert post.headers == {"Content-Type": "application/octet-stream"}
    many = [asked(batch_id=f"{n:0128x}", service_id=f"s{n}") for n in range(20)]
    questions = kind.questions(many)
    # Services share a ledger, so they share questions, of up to fifteen ids.
    assert [len(part) for _, part in questions] == [15, 5]
    assert questions[0][0].url.startswith("http://127.0.0.1:1/batch_statuses?id=")
    proof = kind.proof(asked())
    assert proof is not None
    assert proof.url == f"http://127.0.0.1:1/batches/{ID}"


def test_scabbard_requests_go_to_the_service_of_the_circuit() -> None:
    kind = KINDS["scabbard"]
    post = kind.submission(begun(kind="scabbard"))
    assert post.url == "http://127.0.0.1:1/scabbard/c/s/batches"
    two = [asked(kind="scabbard"), asked(kind="scabbard", service_id="c::t")]
    assert [request.url for request, _ in kind.questions(two)] == [
        f"http://127.0.0.1:1/scabbard/c/s/batch_statuses?ids={ID}",
        f"http://127.0.0.1:1/scabbard/c/t/batch_statuses?ids={ID}",
    ]
    assert kind.proof(asked()) is None


def test_answers_are_read_in_the_words_of_each_ledger() -> None:
    reason = {"id": "t", "message": "too little", "extended_data": ""}
    data = {"id": ID, "status": "INVALID", "invalid_transactions": [reason]}
    sawtooth = KINDS["sawtooth"].statuses(Response(200, json.dumps({"data": [data]}).encode()))
    assert sawtooth == {ID: Seen(state=BatchState.INVALID, receipt=data, note="too little")}
    why = {"transaction_id": "t", "error_message": "no", "error_data": []}
    entry = {"id": ID, "status": {"statusType": "Invalid", "message": [why]}}
    scabbard = KINDS["scabbard"].statuses(Response(200, json.dumps([entry]).encode()))
    assert scabbard == {ID: Seen(state=BatchState.INVALID, receipt=entry, note="no")}


ODD = [
    *(b"", b"{", b"null", b"[]", b"{}", b'{"data": 5}', b'{"data": [5, null, {}]}'),
    *(b'[{"id": 1}]', b'[{"status": {}}]', b'[{"id": "x", "status": {"statusType": "Odd"}}]'),
    b'{"data": [{"id": "x", "status": "ODD"}]}',
]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("body", ODD)
def test_an_answer_that_cannot_be_read_says_nothing(kind: str, body: bytes) -> None:
    assert KINDS[kind].statuses(Response(200, body)) == {}
    assert KINDS[kind].statuses(Response(500, b'{"data": []}')) == {}
    assert KINDS[kind].error_code(Response(503, body)) is None


def test_a_receipt_that_cannot_be_stored_is_left_out() -> None:
    for odd in ("x" * RECEIPT_CHARS_MAX, "a\x00b"):
        data = {"id": ID, "status": "COMMITTED", "more": odd}
        body = json.dumps({"data": [data]}).encode()
        receipt = KINDS["sawtooth"].statuses(Response(200, body))[ID].receipt
        assert receipt is not None
        assert set(receipt) == {"id", "dropped"}


# The table of answers.


@pytest.mark.parametrize(
    ("outcome", "code", "verdict", "state"),
    [
        (Response(202), None, "accepted", "PENDING"),
        (Response(200), None, "accepted", "PENDING"),
        (Response(400), 30, "refused", "REFUSED"),
        (Response(400), 34, "refused", "REFUSED"),
        (Response(400), None, "refused", "REFUSED"),
        (Response(401), None, "refused", "DELAYED"),
        (Response(403), None, "refused", "DELAYED"),
        (Response(404), None, "refused", "DELAYED"),
        (Response(408), 19, "refused", "DELAYED"),
        (Response(408), None, "unsure", "UNKNOWN"),
        (Response(413), None, "refused", "REFUSED"),
        (Response(429), 31, "refused", "DELAYED"),
        (Response(429), None, "refused", "DELAYED"),
        (Response(500), 10, "unsure", "UNKNOWN"),
        (Response(503), 15, "refused", "DELAYED"),
        (Response(503), 17, "unsure", "UNKNOWN"),
        (Response(503), 18, "unsure", "UNKNOWN"),
        (Response(503), None, "unsure", "UNKNOWN"),
        (Response(302), None, "unsure", "UNKNOWN"),
        (Response(204), None, "unsure", "UNKNOWN"),
        (Response(502), None, "unsure", "UNKNOWN"),
        (NotSent("refused"), None, "refused", "DELAYED"),
        (NoResponse("reset"), None, "unsure", "UNKNOWN"),
    ],
)
def test_every_answer_has_its_row(
    outcome: Exchange, code: int | None, verdict: str, state: str
) -> None:
    rule = judge(outcome, code)
    assert (rule.verdict, rule.state) == (verdict, state)


@given(some.integers(100, 599), some.none() | some.integers(0, 100))
def test_only_what_the_table_names_may_be_sent_again_without_asking(
    status: int, code: int | None
) -> None:
    rule = judge(Response(status), code)
    named = {(row.status, row.code) for row in RULES if row.verdict is Verdict.REFUSED}
    if rule.verdict is Verdict.REFUSED:
        assert (status, code) in named or (status, None) in named
    assert (rule.state is BatchState.UNKNOWN) == (rule.verdict is Verdict.UNSURE)


def test_delays_grow_to_a_limit_and_are_spread() -> None:
    settings, rng = Settings(), random.Random(1)
    pauses = [
        ended(begun(attempt=n), Response(429), settings, rng).pause_s for n in (1, 2, 3, 8, 900)
    ]
    assert 0.8 <= pauses[0] <= 1.2
    assert 1.6 <= pauses[1] <= 2.4
    assert all(pause <= 36 for pause in pauses)
    assert pauses[3] >= 24
    assert ended(begun(), Response(401), settings, rng).pause_s == settings.ledger_long_delay_s


# Decisions about what a ledger says.


@given(
    some.sampled_from(sorted(TO_ASK)),
    some.sampled_from(["COMMITTED", "INVALID", "PENDING", "VALID", "UNKNOWN"]),
    some.sampled_from(["sawtooth", "scabbard"]),
    some.integers(0, 5),
    some.integers(0, 5),
    some.integers(0, 3),
    some.booleans(),
    some.booleans(),
)
def test_a_batch_is_sent_again_only_after_enough_answers_and_enough_time(
    state: BatchState,
    word: str,
    kind: str,
    unknown_seen: int,
    resubmits: int,
    possible: int,
    grace_over: bool,
    swallow_over: bool,
) -> None:
    settings = Settings()
    batch = asked(
        state=state,
        kind=kind,
        unknown_seen=unknown_seen,
        resubmits=resubmits,
        possible=possible,
        grace_over=grace_over,
        swallow_over=swallow_over,
    )
    move = decide(batch, Seen(state=BatchState(word)), settings)
    if move is None:
        return
    if word == "COMMITTED":
        assert move.state is BatchState.COMMITTED
    if move.state is BatchState.DELAYED:
        assert word == "UNKNOWN"
        assert grace_over
        assert unknown_seen + 1 >= decisions.UNKNOWN_MAX
        assert resubmits < settings.ledger_resubmits_max
        assert move.resubmits == resubmits + 1
    if move.state is BatchState.PARKED:
        assert move.alert
    if move.state in FINAL_STATES:
        assert word == move.state
    if word in ("PENDING", "VALID"):
        assert move.state == word
        assert (state, word) != (BatchState.VALID, "PENDING")


def test_pending_seen_again_starts_the_count_anew() -> None:
    move = decide(
        asked(state=BatchState.UNKNOWN, unknown_seen=2),
        Seen(state=BatchState.PENDING),
        Settings(),
    )
    assert move is not None
    assert (move.state, move.unknown_seen) == (BatchState.PENDING, 0)


def test_what_was_executed_is_not_pending_again() -> None:
    seen = Seen(state=BatchState.PENDING)
    assert decide(asked(state=BatchState.VALID), seen, Settings()) is None
