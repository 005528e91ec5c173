"""Pipeline files: what is read, and how mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datp_tasks.errors import PipelineInvalid
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.files import load_definitions, read_json_file
from datp_tasks.pipelines.yaml_text import YamlTextError, dump, load_documents

TRANSFER_YAML = """\
pipeline: transfer
description: Moves money.
steps:
  - type: util/mandatory-fields
    params: {fields: [amount]}
  - type: bank/reserve
    timeoutSeconds: 30
    retry:
      max_attempts: 5
      first_s: 0.5
"""
OTHER_YAML = "pipeline: other\nsteps: [{type: util/delay}]\n"


def load(*paths: Path) -> list[PipelineDefinition]:
    return load_definitions(paths)


def mistakes_in(*paths: Path) -> tuple[str, ...]:
    with pytest.raises(PipelineInvalid) as caught:
        load(*paths)
    return caught.value.mistakes


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_yaml_and_json_of_the_same_content_are_one_version(tmp_path: Path) -> None:
    yaml_file = write(tmp_path / "transfer.yaml", TRANSFER_YAML)
    (document,) = load_documents(TRANSFER_YAML)
    reversed_keys = dict(reversed(document.items()))
    json_file = write(tmp_path / "transfer.json", json.dumps(reversed_keys))
    (from_yaml,) = load(yaml_file)
    (from_json,) = load(json_file)
    assert from_yaml == from_json
    assert from_yaml.content_hash == from_json.content_hash


def test_one_file_may_hold_several_documents(tmp_path: Path) -> None:
    file = write(tmp_path / "all.yml", f"---\n{TRANSFER_YAML}---\n{OTHER_YAML}---\n")
    assert [definition.name for definition in load(file)] == ["transfer", "other"]


def test_a_folder_stands_for_all_pipeline_files_below_it(tmp_path: Path) -> None:
    write(tmp_path / "b" / "transfer.yaml", TRANSFER_YAML)
    write(tmp_path / "a.yml", OTHER_YAML)
    write(tmp_path / "README.md", "no pipeline")
    write(tmp_path / ".hidden" / "x.yaml", "nonsense")
    assert [definition.name for definition in load(tmp_path)] == ["other", "transfer"]


def test_a_file_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path / "transfer.yaml", TRANSFER_YAML)
    assert len(load(tmp_path, file)) == 1


@pytest.mark.parametrize(
    ("name", "text", "mistake"),
    [
        ("x.yaml", "a: [", "line 1, column 5: expected the node content"),
        ("x.yaml", "pipeline: a\npipeline: b\n", "line 2, column 1: the key 'pipeline' appears"),
        ("x.yaml", "a: &a 1\nb: *a\n", "line 2, column 4: aliases (*) are not supported"),
        ("x.yaml", "a: !!python/name:os.system x", "line 1, column 4: could not determine"),
        ("x.yaml", "", "holds no pipeline"),
        ("x.yaml", "[" * 50_000, "is nested too deeply"),
        ("x.yaml", "a: " + "9" * 5_000, "is not YAML: Exceeds the limit"),
        ("x.yaml", "- 1\n", "must be an object with keys, was [1]"),
        ("x.json", '{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ("x.json", '{"a": NaN}', "NaN is not JSON"),
        ("x.txt", OTHER_YAML, "the name must end in .yaml, .yml, .json"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_file(
    tmp_path: Path, name: str, text: str, mistake: str
) -> None:
    file = write(tmp_path / name, text)
    (found,) = mistakes_in(file)
    assert found.startswith(f"{file}: {mistake}"), found


def test_files_that_are_not_there_or_not_text_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "x.yaml"
    binary.write_bytes(b"\xff\xfe\xfa")
    assert mistakes_in(binary) == (f"{binary}: is not UTF-8",)
    missing = tmp_path / "y.yaml"
    assert mistakes_in(missing) == (f"{missing}: cannot be read: No such file or directory",)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert mistakes_in(empty) == (f"{empty}: holds no .yaml, .yml, .json file",)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    with file.open("wb") as large:
        large.truncate(4_194_305)
    assert mistakes_in(file) == (f"{file}: is larger than 4194304 bytes",)


def test_the_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "a: [")
    write(tmp_path / "b.yaml", "pipeline: X\nsteps: [{type: a, params: []}]")
    write(tmp_path / "c.yaml", OTHER_YAML)
    write(tmp_path / "d.yaml", f"{OTHER_YAML}---\n{TRANSFER_YAML}")
    found = mistakes_in(tmp_path)
    assert [mistake.split(": ")[0] for mistake in found] == [
        f"{tmp_path}/a.yaml",
        f"{tmp_path}/b.yaml",
        f"{tmp_path}/b.yaml",
        f"{tmp_path}/d.yaml (document 1)",
    ]
    assert "steps[0] (a): params: must be a JSON object" in found[2]
    assert found[3].endswith(f"pipeline: other is also in {tmp_path}/c.yaml")


def test_yaml_means_what_it_looks_like() -> None:
    texts = ["NO", "on", "2024-01-01", "007", "5", "12:30:00", ".inf", "1_000"]
    text = "[NO, on, 2024-01-01, 007, '5', 12:30:00, .inf, 1_000, true, 1e3, -1.5, 5, null, ~]"
    assert load_documents(text) == [[*texts, True, 1000.0, -1.5, 5, None, None]]


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
    | st.sampled_from(["NO", "1e3", "007", "2024-01-01", "~", "", "null", "=", "<<", "é\u2028\x85"])
)
def test_text_comes_back_from_the_yaml_that_is_shown(value: str) -> None:
    document = {"params": {value or "empty": value, "list": [value, 1e20, -0.5, None, True]}}
    assert load_documents(dump(document)) == [document]


def test_a_json_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "export.json", "{")
    with pytest.raises(PipelineInvalid, match=r"export\.json is not JSON"):
        read_json_file(file)
    with pytest.raises(YamlTextError, match="unacceptable character"):
        load_documents("\x00")
