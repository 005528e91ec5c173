"""`{secret: NAME}` in parameters: the step gets the value, and nothing else ever does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.engine.registry import param_mistakes, registry
from datp_tasks.model.actor import LOCAL
from datp_tasks.model.status import Status
from datp_tasks.observe import logs
from datp_tasks.testing import Kit
from tests.support.receiver import receiving
from tests.support.search_everywhere import places_with

Data = dict[str, Any]
TOKEN = "tok-zanzibar-4711"


def store(kit: Kit, name: str = "BANK", value: str = TOKEN) -> None:
    kit.connections.seals.secrets.put(name, value, actor=LOCAL)


def test_a_step_gets_the_value_and_it_rests_nowhere(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/use")
    def use(ctx: Any, data: Data) -> Data:
        seen.append(ctx.params)
        return {"used": True}

    store(datp)
    params = {"auth": {"token": {"secret": "BANK"}}, "list": [{"secret": "BANK"}, 1], "plain": "x"}
    datp.use(Pipeline("p").step("t/use", params=params).build())
    assert datp.run("p", {}).status is Status.SUCCESS
    assert seen == [{"auth": {"token": TOKEN}, "list": [TOKEN, 1], "plain": "x"}]
    datp.advance(days=1)
    assert places_with(datp, TOKEN) == []
    exported = datp.connections.catalogue.current("p").to_json()
    assert TOKEN not in exported
    assert '"secret":"BANK"' in exported


def test_a_header_of_an_http_request_can_be_a_secret(datp: Kit) -> None:
    store(datp, value=f"Bearer {TOKEN}")
    with receiving() as bank:
        params = {
            "method": "POST",
            "url": bank.url("/pay"),
            "headers": {"Authorization": {"secret": "BANK"}},
            "body": "data",
        }
        datp.use(Pipeline("p").step("http/request", params=params).build())
        summary = datp.run("p", {"amount": 5})
        assert [each.headers["authorization"] for each in bank.got] == [f"Bearer {TOKEN}"]
    assert summary.status is Status.SUCCESS
    assert places_with(datp, TOKEN) == []


def test_a_secret_that_is_missing_breaks_the_step_and_the_operator_reads_which(datp: Kit) -> None:
    @datp.step("t/use", retry={"max_attempts": 1})
    def use(ctx: Any, data: Data) -> Data:
        return {"got": ctx.params["x"]}

    datp.use(Pipeline("p").step("t/use", params={"x": {"secret": "NONE"}}).build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert "NONE" not in (summary.note or "")
    assert "datp secrets set NONE" in datp.operator.why(summary.tx_id).answer


def test_a_secret_that_an_exception_quotes_is_in_no_log_and_no_journal(
    datp: Kit, capsys: pytest.CaptureFixture[str]
) -> None:
    @datp.step("t/use", retry={"max_attempts": 1})
    def use(ctx: Any, data: Data) -> None:
        raise RuntimeError(f"the bank refused {ctx.params['x']}")

    store(datp)
    datp.use(Pipeline("p").step("t/use", params={"x": {"secret": "BANK"}}).build())
    handler = logging.StreamHandler()
    logs.set_up(datp.settings, [handler])
    logging.getLogger("datp.step").addHandler(handler)
    try:
        summary = datp.run("p", {})
    finally:
        logging.getLogger("datp.step").removeHandler(handler)
    written = capsys.readouterr().err
    assert "the bank refused ***" in written
    assert TOKEN not in written
    assert "the bank refused ***" in datp.operator.why(summary.tx_id).answer
    assert places_with(datp, TOKEN) == []


def test_steps_that_write_their_parameters_into_the_data_take_no_secrets(datp: Kit) -> None:
    store(datp)
    fields = {"output": {"inner": {"secret": "BANK"}}}
    datp.use(Pipeline("p").step("util/fixed-reply", params=fields).build())
    assert datp.run("p", {}).output == {"inner": {"secret": "BANK"}}


def test_a_definition_with_a_secret_is_checked_like_any_other(datp: Kit) -> None:
    good = {"url": "https://bank.example/", "headers": {"X": {"secret": "BANK"}}}
    bad = {"url": {"secret": "BANK"}, "method": "FETCH"}
    for params, count in ((good, 0), (bad, 2)):
        definition = Pipeline("p").step("http/request", params=params).build()
        assert len(param_mistakes([definition], registry)) == count
