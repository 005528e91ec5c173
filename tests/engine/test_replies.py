"""What the client sees: the output through the reply's mapping, the note in its language."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from datp_tasks import Abort, Fail, Pipeline
from datp_tasks.errors import PipelineInvalid
from datp_tasks.model.texts_by_language import language_wanted
from datp_tasks.testing import Kit
from tests.support.search_everywhere import places_with

REPLY = {"fields": {"cents": {"from": "amount", "amount": "minor", "scale": 2}}}
MESSAGES = {
    "en": {"no-funds": "{{missing}} are missing", "only-en": "English"},
    "fil": {"no-funds": "kulang ng {{missing}}"},
    "pt-BR": {"no-funds": "faltam {{missing}}", "needs": "{{unknown}}"},
}


def replying(kit: Kit, function: Any, **options: Any) -> None:
    kit.step("t/say")(function)
    kit.use(Pipeline("p", **options).step("t/say").build())


@pytest.mark.parametrize("sealed", [False, True])
def test_the_client_sees_the_output_as_the_reply_makes_it(datp: Kit, sealed: bool) -> None:
    replying(datp, lambda ctx, data: {"amount": "1.50", "secret": 1}, reply=REPLY, sealed=sealed)
    ended = datp.run("p", {})
    assert (ended.output, ended.note) == ({"cents": 150}, None)
    assert [list(each.faults) for each in datp.operator.audit()] == [[]]


def test_a_reply_that_cannot_be_made_does_not_undo_what_was_done(datp: Kit) -> None:
    fields = REPLY["fields"] | {"at": "when"}
    replying(datp, lambda ctx, data: {"amount": "2", "secret": 1}, reply={"fields": fields})
    ended = datp.run("p", {})
    assert (ended.status, ended.output) == ("success", {"cents": 200})
    assert ended.note == "left out of the reply: at: the data has no field when"


@pytest.mark.parametrize(("ending", "status"), [(Fail, "failed"), (Abort, "aborted")])
def test_a_failure_shows_no_more_than_the_reply_does(
    datp: Kit, ending: type[Fail | Abort], status: str
) -> None:
    def say(ctx: Any, data: dict[str, Any]) -> None:
        raise ending("no", {"amount": "3", "secret": 1})

    replying(datp, say, reply=REPLY)
    ended = datp.run("p", {})
    assert (ended.status, ended.output, ended.note) == (status, {"cents": 300}, "no")


@pytest.mark.parametrize(
    ("code", "lang", "note"),
    [
        ("no-funds", "fil", "kulang ng 5"),
        ("no-funds", "FIL", "kulang ng 5"),
        ("no-funds", "fil-PH", "kulang ng 5"),
        ("no-funds", "de, fil;q=0.5, en;q=0.9", "5 are missing"),
        ("no-funds", "pt-br", "faltam 5"),
        ("no-funds", "xx", "5 are missing"),
        ("no-funds", None, "5 are missing"),
        ("only-en", "fil", "English"),
        ("needs", "pt-BR", "as the step said"),
        ("unknown", "fil", "as the step said"),
    ],
)
def test_a_failure_is_told_in_the_language_of_the_request(
    datp: Kit, code: str, lang: str | None, note: str
) -> None:
    def say(ctx: Any, data: dict[str, Any]) -> None:
        raise Fail("as the step said", code=code, params={"missing": 5})

    replying(datp, say, messages=MESSAGES)
    metadata = None if lang is None else {"lang": lang}
    assert datp.run("p", {}, metadata=metadata).note == note


def test_the_language_of_the_request_is_kept_only_where_there_are_texts(datp: Kit) -> None:
    def say(ctx: Any, data: dict[str, Any]) -> None:
        raise Fail(code="no-funds", params={"missing": 5})

    replying(datp, say, messages=MESSAGES)
    first = datp.run("p", {}, external_id="e", language="fil-PH,fil;q=0.9")
    assert (first.note, first.metadata) == ("kulang ng 5", {"lang": "fil-PH, fil"})
    again = datp.client.submit("p", {}, external_id="e", language="en")
    assert (again.tx_id, again.duplicate) == (first.tx_id, True), "it is the same request"
    given = datp.run("p", {}, metadata={"lang": "en"}, language="fil")
    assert given.note == "5 are missing"
    datp.use(Pipeline("q").step("t/say").build())
    assert datp.run("q", {}, language="fil").metadata is None


def test_a_child_has_texts_of_its_own_or_those_of_its_caller(datp: Kit) -> None:
    params = {"fail": True, "code": "no-funds"}
    child = Pipeline("child").step("util/fixed-reply", params=params)
    call = {"pipeline": "child"}
    parent = Pipeline("p", messages=MESSAGES).step("util/child-pipeline", params=call).build()
    datp.use(child.build(), parent)
    assert datp.run("p", {"missing": 1}).note == "1 are missing"
    own = Pipeline("child", messages={"en": {"no-funds": "the child's"}})
    datp.use(own.step("util/fixed-reply", params=params).build())
    assert datp.run("p", {"missing": 1}).note == "the child's"


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"messages": {"english": {}}}, "is no language"),
        ({"messages": {"en": {"A B": "x"}}}, "the code must match"),
        ({"messages": {"en": {"a": ""}}}, "must be a text"),
        ({"messages": {"en": {"a": "{{ }}"}}}, "placeholder"),
        ({"reply": {"fields": {"a": {"from": "b", "amount": "minor"}}}}, "needs scale"),
        ({"reply": 5}, "must be the name of a mapping"),
        ({"reply": {"mapping": "m", "fields": {"a": "b"}}}, "not both"),
    ],
)
def test_mistakes_are_named_when_the_pipeline_is_read(options: Any, mistake: str) -> None:
    with pytest.raises(PipelineInvalid, match=mistake):
        Pipeline("p", **options).step("a/b").build()


def test_a_header_that_says_nothing_is_no_language() -> None:
    assert [language_wanted(each) for each in (None, "", "*", "de;q=0", "a" * 500)] == [None] * 5
    assert language_wanted("de-at;q=0.4, FR") == "fr, de-AT, de"


class Untold:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("code", "missing", "note"),
    [
        ("no-funds", Decimal("3.50"), "3.50 are missing"),
        ("no-funds", date(2026, 1, 2), "2026-01-02 are missing"),
        ("no-funds", {"of": Decimal(1), (1, 2): 3}, '{"of":"1"} are missing'),
        ("no-funds", float("nan"), "NaN are missing"),
        ("no-funds", Untold(), "poor"),
        (["no-funds"], 1, "poor"),
    ],
)
def test_values_that_are_not_json_do_not_keep_a_failure_from_ending(
    datp: Kit, code: Any, missing: Any, note: str
) -> None:
    def say(ctx: Any, data: dict[str, Any]) -> None:
        raise Fail("poor", code=code, params={"missing": missing})

    replying(datp, say, messages=MESSAGES)
    ended = datp.run("p", {})
    assert (ended.status, ended.note) == ("failed", note)


def test_a_reply_that_cannot_be_made_quotes_nothing_of_a_sealed_output(datp: Kit) -> None:
    word = "zanzibar"
    replying(datp, lambda ctx, data: {"amount": word}, reply=REPLY, sealed=True)
    ended = datp.run("p", {})
    assert ended.status == "success"
    assert ended.note == "left out of the reply: cents: its value does not fit"
    assert places_with(datp, word) == []
