"""YAML and JSON on the pages are what the product would accept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from datp_tasks.api.console.identity_file import load_identity
from datp_tasks.engine.registry import discover, param_mistakes, registry
from datp_tasks.model.mapping import parse_mapping
from datp_tasks.model.pipeline import parse_definition
from datp_tasks.operator.policy_file import parse_policy
from tests.docs.docs_blocks import Block, run_by

OF_PIPELINES = [
    block for block in (*run_by("data"), *run_by("terminal")) if block.language == "yaml"
]


@pytest.mark.parametrize("block", OF_PIPELINES, ids=str)
def test_pipelines_on_the_pages_have_no_mistake(block: Block, tmp_path: Path) -> None:
    """A list is a part of a pipeline: its steps."""
    discover(())
    found = yaml.safe_load(block.text)
    if isinstance(found, dict) and "policy" in found:
        parse_policy(block.text, source=str(block))
        return
    if isinstance(found, dict) and "oidc" in found:
        file = tmp_path / "identity.yaml"
        file.write_text(block.text)
        assert load_identity(str(file)).oidc
        return
    if isinstance(found, dict) and "mapping" in found:
        parse_mapping(found, source=str(block))
        return
    raw = found if isinstance(found, dict) else {"pipeline": "part", "steps": found}
    definition = parse_definition(raw, source=str(block))
    assert param_mistakes([definition], registry) == []


@pytest.mark.parametrize("block", [b for b in run_by("data") if b.language == "json"], ids=str)
def test_json_on_the_pages_is_json(block: Block) -> None:
    assert json.loads(block.text)
