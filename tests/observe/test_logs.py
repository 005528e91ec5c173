"""Logs: every line about a transaction can be found by its id, and no line holds a secret."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datp_tasks import Abort, Fail, Pipeline, Sleep
from datp_tasks.live.keys import TX_ID
from datp_tasks.live.scripts import script, script_names
from datp_tasks.observe import logs
from datp_tasks.seals.keyring import new_ring
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from tests.support.eventually import eventually
from tests.support.house import House, log_of

PASSWORD = "s3cret/with:odd@signs"
SETTINGS = Settings(
    redis_url="redis://:red1s-word@cache:6379/0",
    broker_url="redis://user:br0ker-word@cache:6379/1",
    database_url="postgresql+psycopg2://app:s3cret%2Fwith%3Aodd%40signs@db/datp",
    ledger_authorization="Token ledger-word",
    key_pepper="pepper-word-0123456789",
    log_format="json",
)
API_KEY = "datp_k1x2_0123456789abcdefghijABCDEFGHIJ-_"


class Sink:
    """A handler set up as a worker sets up its own, and what came of it."""

    def __init__(self, settings: Settings) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))
        logs.set_up(settings, [self.handler])

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def write(self, message: str, *args: object, **options: Any) -> None:
        logger = logging.Logger("datp.test")
        logger.addHandler(self.handler)
        logger.error(message, *args, **options)


@pytest.fixture
def sink() -> Iterator[Sink]:
    """Everything that is logged at DEBUG while a test runs, as JSON."""
    made = Sink(SETTINGS)
    root = logging.getLogger("datp")
    before = root.level
    root.setLevel(logging.DEBUG)
    root.addHandler(made.handler)
    yield made
    root.removeHandler(made.handler)
    root.setLevel(before)


RAISED = {
    "fail": Fail("no money"),
    "abort": Abort("not today"),
    "break": RuntimeError("broken"),
}


def lives_through_everything(datp: Kit) -> None:
    """Transactions that succeed, sleep, fail, break, are cancelled, crash, and are parked."""

    @datp.step("t/any", retry={"max_attempts": 2, "first_s": 1})
    def anything(ctx: Any, data: dict[str, Any]) -> Any:
        ctx.log.info("at work")
        do = data.get("do")
        if do in RAISED:
            raise RAISED[do]
        if do == "wait" and not ctx.switch("go"):
            return Sleep(switch="go")
        if do == "sleep" and ctx.sleeps == 0:
            return Sleep(seconds=5)
        ctx.progress({"half": True})
        return None

    @datp.step("t/review", on_crash="review")
    def review(ctx: Any, data: dict[str, Any]) -> None:
        """Nobody knows whether it took effect, should its worker die."""

    datp.use(Pipeline("p").step("t/any").step("t/any", dispatch="queue").build())
    datp.use(Pipeline("r").step("t/review").build())
    for do in ("pass", "sleep", "fail", "abort", "break"):
        datp.run("p", {"do": do})
    datp.client.cancel(datp.submit("p", {"do": "wait"}))
    datp.set_switch(datp.submit("p", {"do": "wait"}), "go", True)
    for point, pipeline in (("hop.after_claim", "p"), ("hop.after_step", "r")):
        datp.crash_at(point)
        datp.submit(pipeline, {})
        datp.recover()
    datp.lose_bells()
    datp.client.cancel(datp.submit("p", {}))


def test_every_line_about_a_transaction_names_it_its_fence_and_its_event(
    datp: Kit, sink: Sink
) -> None:
    lives_through_everything(datp)
    about = [line for line in sink.lines if TX_ID.search(line["message"]) or "tx" in line]
    assert len(about) > 100
    for line in about:
        assert TX_ID.fullmatch(line["tx"]), line
        assert re.fullmatch(r"(tx|step|hop)\.[a-z_]+", line["event"]), line
        assert "fence" in line
        is_granted = line["event"] == "tx.claim" and line["answer"] in ("OK", "NEW")
        if line["event"] not in FENCELESS or is_granted:
            assert line["fence"] > 0, line
    events = {line["event"] for line in about}
    assert {"tx.claim", "tx.checkpoint", "tx.hand_over", "tx.sleep", "tx.finish"} <= events
    assert {"tx.parked", "step.broken", "step.said", "hop.done"} <= events


#: Before any claim, or by somebody who holds none.
FENCELESS = {
    *("tx.create", "tx.wake", "tx.set_switch", "tx.stop", "tx.ring_again", "tx.refused"),
    *("tx.note_problem", "tx.confirm_archived", "tx.restore", "tx.claim", "tx.drop_running"),
    "tx.forget",
}


def test_each_transition_is_one_event_with_the_name_of_its_script(datp: Kit, sink: Sink) -> None:
    tx_id = _run_two_steps(datp)
    said = [line for line in sink.lines if line.get("tx") == tx_id and "answer" in line]
    assert [(line["event"], line["answer"]) for line in said] == [
        ("tx.create", "OK"),
        ("tx.claim", "NEW"),
        ("tx.checkpoint", "OK"),
        ("tx.finish", "OK"),
    ]
    assert {line["level"] for line in said} == {"DEBUG"}
    names = set(script_names())
    assert {line["event"].removeprefix("tx.") for line in said} <= names
    claim, checkpoint, finish = said[1:]
    assert claim["fence"] == checkpoint["fence"] == finish["fence"] > 0
    assert "fence" in script("checkpoint").own_arguments


def _run_two_steps(datp: Kit) -> str:
    two = Pipeline("two").step("util/fixed-reply", params={"output": {}})
    datp.use(two.step("util/fixed-reply", params={"output": {}}).build())
    return datp.run("two", {}).tx_id


def test_at_info_a_hop_has_one_line_for_all_its_transactions(datp: Kit, sink: Sink) -> None:
    logging.getLogger("datp").setLevel(logging.INFO)
    _run_two_steps(datp)
    tx_ids = []
    datp.lose_bells()
    for _ in range(20):
        tx_ids.append(datp.submit("two", {}))
    before = len(sink.lines)
    datp.lose_bells(False)
    datp.send("util/fixed-reply", [(tx_id, 1) for tx_id in tx_ids], group="master", priority="in")
    [line] = sink.lines[before:]
    assert (line["event"], line["claimed"], line["level"]) == ("hop.done", 20, "INFO")


# Secrets.

SECRET_TEXTS = [
    "cannot connect to redis://:red1s-word@cache:6379/0",
    f"password authentication failed for {PASSWORD}",
    "br0ker-word",
    "sent Authorization: Token ledger-word",
    "postgresql://someone:an0ther-word@elsewhere/db is gone",
    f"key {API_KEY} is unknown",
    "signed with whsec_bm90LXRoaXMtb25lCg==",
    "headers {'authorization': 'Bearer eyJhbGciOi.J9.c2ln', 'x': 'y'}",
    "Basic ZGF0cDpwYXNzd29yZA==",
    'body {"password": "correct-horse", "n": 1}',
    "client_secret=correct-horse&x=1",
    "pepper-word-0123456789",
]
SECRETS = [
    *("red1s-word", PASSWORD, "s3cret%2F", "br0ker-word", "ledger-word", "an0ther-word"),
    *("abcdefghijABCDEFGHIJ", "bm90LXRo", "eyJhbGci", "ZGF0cDpw", "correct-horse"),
    "pepper-word-0123456789",
]


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_no_secret_is_written_wherever_it_stands(text: str, log_format: str) -> None:
    from dataclasses import replace

    sink = Sink(replace(SETTINGS, log_format=log_format))
    sink.write(text)
    sink.write("%s", text)
    sink.write("it broke", extra={"detail": text, "more": {"inner": [text]}})
    try:
        raise ValueError(text)
    except ValueError:
        sink.write("it broke", exc_info=True)
    assert sink.text.count("***") >= (4 if log_format == "json" else 3)
    assert [secret for secret in SECRETS if secret in sink.text] == []
    assert [secret for secret in SECRETS if json.dumps(secret)[1:-1] in sink.text] == []


def test_a_field_whose_name_says_that_it_is_secret_is_not_written() -> None:
    sink = Sink(SETTINGS)
    sink.write("new key", extra={"api_key": "short", "given": {"Password": "x y", "user": "ann"}})
    [line] = sink.lines
    assert line["api_key"] == line["given"]["Password"] == "***"
    assert line["given"]["user"] == "ann"


def test_what_is_no_secret_stays_as_it_is() -> None:
    sink = Sink(SETTINGS)
    text = "hop from bank/reserve with 3 of 3 transactions: http://127.0.0.1:8080/v1?token_count=3"
    sink.write(text)
    assert sink.lines[0]["message"] == text
    assert logs.secrets_of(Settings()) == []


def test_text_shows_event_and_fence_behind_the_sentence() -> None:
    sink = Sink(Settings())
    sink.write("t01 is parked", extra={"event": "tx.parked", "tx": "t01", "fence": 7})
    sink.write("plain")
    assert sink.text.splitlines() == ["[ERROR] t01 is parked [tx.parked fence=7]", "[ERROR] plain"]


def test_what_json_cannot_hold_is_shown_as_text() -> None:
    sink = Sink(SETTINGS)
    sink.write("odd\nline", extra={"path": Path("/x"), "at": {1, 2}, "none": None})
    assert sink.lines[0]["message"] == "odd\nline"
    assert (sink.lines[0]["path"], sink.lines[0]["none"]) == ("/x", None)


@pytest.mark.acceptance
def test_a_worker_writes_json_lines_that_hold_no_password(house: House) -> None:
    house.use(Pipeline("two").step("acc/mark").step("acc/mark"))
    worker = house.worker(log_format="json")
    house.wait_ready(worker)
    tx_id = house.run("two").tx_id
    # The line is written when the hop is over, a moment after the transaction has ended.
    eventually(lambda: '"hop.done"' in log_of(worker))
    text = log_of(worker)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    [hop] = [line for line in lines if line.get("event") == "hop.done" and line["tx"] == tx_id]
    assert (hop["claimed"], hop["stepType"], hop["fence"] > 0) == (1, "acc/mark", True)
    passwords = logs.secrets_of(house.settings)
    assert passwords and not [each for each in passwords if each in text]


@pytest.fixture
def formatters() -> Iterator[None]:
    """Those of the handlers that are there, as they were."""
    names = ("", *logs.OF_THE_API)
    handlers = [each for name in names for each in logging.getLogger(name).handlers]
    before = [(each, each.formatter) for each in handlers]
    yield
    for handler, formatter in before:
        handler.setFormatter(formatter)


def test_a_process_of_the_api_writes_no_secret_either(formatters: None) -> None:
    """Neither its own lines nor those of its server."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    for name in ("datp.api", "uvicorn.access"):
        logger = logging.getLogger(name)
        where = logging.getLogger() if name == "datp.api" else logger
        where.addHandler(handler)
        try:
            logs.set_up_api(SETTINGS)
            logger.error("GET /v1/x?key=%s failed: %s", API_KEY, SETTINGS.database_url)
        finally:
            where.removeHandler(handler)
    assert len(written.getvalue().splitlines()) == 2
    assert API_KEY not in written.getvalue()
    assert "s3cret" not in written.getvalue()


def test_the_keys_of_a_ring_are_in_no_log() -> None:
    ring = new_ring()
    key = json.loads(ring.to_json())["keys"]["k1"]
    sink = Sink(Settings(keyring=ring.to_json()))
    sink.write("the key is %s", key)
    assert "***" in sink.text
    assert key not in sink.text
