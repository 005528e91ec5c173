"""A version as a document that other installations can import, and as text to compare."""

from __future__ import annotations

import difflib
import json
from typing import Any

from datp_tasks.errors import PipelineInvalid, VersionMismatch
from datp_tasks.model.pipeline import PipelineDefinition, parse_definition
from datp_tasks.pipelines.records import StoredVersion
from datp_tasks.pipelines.yaml_text import dump

FORMAT = "datp-pipeline/1"
SOURCE = "import"
COMMENT_CHARS_MAX = 4_000


def export_document(stored: StoredVersion) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": stored.info.name,
        "version": stored.info.version,
        "contentHash": stored.info.content_hash,
        "comment": stored.info.comment,
        # From the stored text: the hash is of exactly this.
        "definition": json.loads(stored.definition.to_json()),
    }


def read_document(document: object) -> tuple[PipelineDefinition, str]:
    """The definition and the comment in an exported document, if its hash is right."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PipelineInvalid([f"{SOURCE}: is not an exported pipeline (format {FORMAT})"])
    expected = {"format", "name", "version", "contentHash", "comment", "definition"}
    mistakes = [f"{SOURCE}: {key}: is missing" for key in sorted(expected - document.keys())]
    mistakes += [f"{SOURCE}: {key}: is not a known key" for key in document.keys() - expected]
    if mistakes:
        raise PipelineInvalid(mistakes)
    comment = checked_comment(document["comment"] or "imported", source=SOURCE)
    definition = parse_definition(document["definition"], source=SOURCE)
    claims = (document["name"], document["version"], document["contentHash"])
    if claims != (definition.name, definition.version, definition.content_hash):
        raise VersionMismatch(
            f"The document says it is version {document['version']} of {document['name']}, but its "
            f"content is version {definition.version} of {definition.name}; it was altered."
        )
    return definition, comment


def checked_comment(comment: object, *, source: str) -> str:
    """A comment says why; so there must be one, and PostgreSQL must be able to keep it."""
    if not isinstance(comment, str) or not comment.strip():
        raise PipelineInvalid([f"{source}: comment: must say in words what was changed"])
    if len(comment) > COMMENT_CHARS_MAX:
        raise PipelineInvalid([f"{source}: comment: has more than {COMMENT_CHARS_MAX} characters"])
    if "\x00" in comment or any("\ud800" <= char <= "\udfff" for char in comment):
        raise PipelineInvalid([f"{source}: comment: holds a character that cannot be stored"])
    return comment.strip()


def diff_text(one: PipelineDefinition, other: PipelineDefinition) -> str:
    """Unified diff of the two as YAML; empty if they are the same."""
    lines = difflib.unified_diff(
        dump(one.to_mapping()).splitlines(keepends=True),
        dump(other.to_mapping()).splitlines(keepends=True),
        fromfile=f"{one.name} {one.version}",
        tofile=f"{other.name} {other.version}",
    )
    return "".join(lines)
