"""Mappings that pipelines share: versions, and what a transaction on its way keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from datp_tasks import Pipeline
from datp_tasks.cli import mappings as cli
from datp_tasks.errors import MappingUnknown, PipelineInvalid, VersionMismatch
from datp_tasks.model.actor import Actor
from datp_tasks.model.mapping import MappingDefinition
from datp_tasks.pipelines.mapping_store import MappingStore
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers


def bank(country: str, **more: Any) -> MappingDefinition:
    source = {"from": "country", "code": "countries"}
    codes = {"countries": {"PH": country}}
    return MappingDefinition(name="bank", fields={"code": source}, codes=codes, **more)


def mappings_of(kit: Kit) -> MappingStore:
    return MappingStore(kit.connections.engine, kit.connections.pipelines)


def put_into_use(kit: Kit, definition: MappingDefinition) -> str:
    version, _ = mappings_of(kit).apply(definition)
    mappings_of(kit).use(definition.name, version)
    return version


@pytest.fixture
def mapped(datp: Kit) -> Kit:
    """A pipeline that waits, and then maps by the shared mapping."""
    put_into_use(datp, bank("608"))
    datp.use(_pay())
    return datp


def _pay(reply: str | None = None) -> Any:
    return (
        Pipeline("pay", reply=reply)
        .step("util/wait", params={"switch": "go"})
        .step("util/map-fields", params={"mapping": "bank"})
        .build()
    )


def test_a_transaction_keeps_the_mapping_it_started_with(mapped: Kit) -> None:
    before = mapped.submit("pay", {"country": "PH"})
    put_into_use(mapped, bank("PHL"))
    after = mapped.submit("pay", {"country": "PH"})
    outputs = [mapped.set_switch(tx_id, "go", True).output for tx_id in (before, after)]
    assert outputs == [{"code": "608"}, {"code": "PHL"}]


def test_a_pipeline_in_use_gets_a_new_version_and_nothing_else_changes(mapped: Kit) -> None:
    store = mapped.connections.pipelines
    old = store.show("pay")
    version, _ = mappings_of(mapped).apply(bank("PHL"))
    assert store.show("pay").info.version == old.info.version, "a draft changes nothing"
    [made] = mappings_of(mapped).use("bank", version, reason="new codes")
    new = store.show("pay")
    assert (new.info.version, new.info.state) == (made.version, "committed")
    assert new.info.comment == "new codes"
    assert new.definition.steps[1].params["mappingVersion"] == version
    assert mappings_of(mapped).use("bank", version) == [], "a second time does nothing"
    assert store.apply(_pay()).version == made.version, "the file is the same version"


def test_what_needs_two_persons_is_not_gone_round_by_a_mapping(datp_servers: Servers) -> None:
    kit = Kit(datp_servers, policy_file="")
    try:
        store = kit.connections.pipelines.acting(Actor(name="ann"))
        mappings = mappings_of(kit).acting(Actor(name="ann"))
        first, _ = mappings.apply(bank("608"))
        mappings.use("bank", first)
        applied = store.apply(_pay())
        with kit.connections.engine.begin() as connection:
            connection.execute(text("UPDATE pipeline SET version_in_use = :v"),
                               {"v": applied.version})  # fmt: skip
        second, _ = mappings.apply(bank("PHL"))
        [asked] = mappings.use("bank", second)
        assert asked.approval_id
        assert store.show("pay").info.version == applied.version
    finally:
        kit.close()


def test_an_export_carries_its_mapping_to_an_installation_that_has_none(
    mapped: Kit, datp_servers: Servers
) -> None:
    document = mapped.connections.pipelines.export("pay")
    elsewhere = Kit(datp_servers)
    try:
        store = elsewhere.connections.pipelines
        applied = store.import_(document)
        assert applied.version == document["version"]
        store.use("pay", applied.version)
        tx_id = elsewhere.submit("pay", {"country": "PH"})
        assert elsewhere.set_switch(tx_id, "go", True).output == {"code": "608"}
    finally:
        elsewhere.close()


def test_a_reply_can_be_a_shared_mapping(mapped: Kit) -> None:
    output = {"output": {"country": "PH"}}
    mapped.use(Pipeline("echo", reply="bank").step("util/fixed-reply", params=output).build())
    assert mapped.run("echo", {}).output == {"code": "608"}
    put_into_use(mapped, bank("PHL"))
    assert mapped.run("echo", {}).output == {"code": "PHL"}


def test_a_mapping_that_is_not_there_is_named_when_the_pipeline_is_applied(datp: Kit) -> None:
    with pytest.raises(PipelineInvalid, match="mapping bank: has no version in use"):
        datp.use(_pay())
    mappings_of(datp).apply(bank("608"))
    with pytest.raises(PipelineInvalid, match="mapping bank: has no version in use"):
        datp.use(_pay())
    with pytest.raises(MappingUnknown, match="no version 'abc'"):
        mappings_of(datp).use("bank", "abc")


def test_a_mapping_that_was_altered_in_the_database_is_refused(datp: Kit) -> None:
    version, _ = mappings_of(datp).apply(bank("608"))
    with datp.connections.engine.begin() as connection:
        connection.execute(
            text("UPDATE mapping_version SET definition = replace(definition, '608', '999')")
        )
    with pytest.raises(VersionMismatch, match="was altered"):
        mappings_of(datp).use("bank", version)


def test_a_value_without_a_code_fails_the_step_and_names_the_field(mapped: Kit) -> None:
    tx_id = mapped.submit("pay", {"country": "XX"})
    ended = mapped.set_switch(tx_id, "go", True)
    assert (ended.status, ended.note) == ("failed", "code: 'XX' is not in the table countries")


FILE = """
mapping: bank
fields: {code: {from: country, code: countries}}
codes: {countries: {PH: "608"}}
"""


@pytest.fixture
def run(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cli, "_mappings", lambda: mappings_of(datp))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_the_commands_apply_commit_use_and_show(run: Any, datp: Kit, tmp_path: Path) -> None:
    file = tmp_path / "bank.yaml"
    file.write_text(FILE)
    assert "new version" in run("apply", str(file), "--use")
    assert "unchanged" in run("apply", str(file))
    datp.use(_pay())
    file.write_text(FILE.replace("608", "PHL"))
    run("apply", str(file))
    assert "committed: letters" in run("commit", "bank", "-m", "letters")
    version = next(each for each in mappings_of(datp).versions("bank") if not each.in_use)
    said = run("use", "bank", version.version[:6])
    assert "pipeline pay" in said
    assert f"bank {version.version}: in use" in said
    assert version.version in run("list")
    shown = run("show", "bank")
    assert "PHL" in shown
    assert "committed, in use" in shown
    assert '"inUse": true' in run("show", "bank", "--json")
