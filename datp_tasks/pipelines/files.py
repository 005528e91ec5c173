"""Pipeline files: YAML or JSON, one definition per document, or folders of such files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datp_tasks.errors import PipelineInvalid
from datp_tasks.model import payload
from datp_tasks.model.mapping import MappingDefinition, parse_mapping
from datp_tasks.model.pipeline import PipelineDefinition, parse_definition
from datp_tasks.pipelines.yaml_text import YamlTextError, load_documents

YAML_SUFFIXES = (".yaml", ".yml")
SUFFIXES = (*YAML_SUFFIXES, ".json")
FILE_BYTES_MAX = 4_194_304


def load_definitions(paths: Iterable[Path]) -> list[PipelineDefinition]:
    """All definitions in the files and folders, or PipelineInvalid with all their mistakes."""
    mistakes: list[str] = []
    found: dict[str, tuple[str, PipelineDefinition]] = {}
    for path in paths:
        for source, raw in _documents_below(path, mistakes):
            try:
                definition = parse_definition(raw, source=source)
            except PipelineInvalid as error:
                mistakes.extend(error.mistakes)
                continue
            first, _ = found.setdefault(definition.name, (source, definition))
            if first != source:
                mistakes.append(f"{source}: pipeline: {definition.name} is also in {first}")
    if mistakes:
        raise PipelineInvalid(mistakes)
    return [definition for _, definition in found.values()]


def load_mappings(paths: Iterable[Path]) -> list[MappingDefinition]:
    """The same for mappings."""
    mistakes: list[str] = []
    found: list[MappingDefinition] = []
    for path in paths:
        for source, raw in _documents_below(path, mistakes):
            try:
                found.append(parse_mapping(raw, source=source))
            except PipelineInvalid as error:
                mistakes.extend(error.mistakes)
    if mistakes:
        raise PipelineInvalid(mistakes)
    return found


def read_json_file(path: Path) -> Any:
    """The JSON value in a file, such as an exported version."""
    return _json(_text(path), path)


def _documents_below(path: Path, mistakes: list[str]) -> Iterator[tuple[str, Any]]:
    """Every readable document; what cannot be read is noted and the others go on."""
    files = _files(path)
    if not files:
        mistakes.append(f"{path}: holds no {', '.join(SUFFIXES)} file")
    for file in files:
        try:
            yield from _documents(file)
        except PipelineInvalid as error:
            mistakes.extend(error.mistakes)


def _files(path: Path) -> list[Path]:
    """The file itself, or all pipeline files below a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    return [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix in SUFFIXES and file.is_file() and not _is_hidden(file.relative_to(path))
    ]


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Each document of a file, with the name that mistakes give it."""
    if path.suffix == ".json":
        yield str(path), _json(_text(path), path)
        return
    if path.suffix not in YAML_SUFFIXES:
        raise PipelineInvalid([f"{path}: the name must end in {', '.join(SUFFIXES)}"])
    try:
        documents = load_documents(_text(path))
    except YamlTextError as error:
        raise PipelineInvalid([f"{path}: {error}"]) from None
    if not documents:
        raise PipelineInvalid([f"{path}: holds no pipeline"])
    for number, document in enumerate(documents, start=1):
        yield (f"{path} (document {number})" if len(documents) > 1 else str(path)), document


def _json(text: str, path: Path) -> Any:
    try:
        return payload.parse(text, what=str(path), bytes_max=FILE_BYTES_MAX)
    except payload.NotJson as error:
        raise PipelineInvalid([str(error)]) from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise PipelineInvalid([f"{path}: is larger than {FILE_BYTES_MAX} bytes"])
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PipelineInvalid([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise PipelineInvalid([f"{path}: is not UTF-8"]) from None
