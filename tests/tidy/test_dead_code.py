"""What is defined is used: by name, anywhere in the product, its examples or its benchmarks.

Tests do not count. A name that frameworks call, or that is for users, is on a list here; the
lists may only shrink.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import datp_tasks
from tests.support.parsed import parsed

PACKAGE = Path(datp_tasks.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))
USERS = [
    *MODULES,
    *(
        path
        for top in ("benchmarks", "examples", "migrations")
        for path in (ROOT / top).rglob("*.py")
    ),
    ROOT / "celeryconfig.py",
]

TEMPLATES = sorted(PACKAGE.rglob("*.html"))

#: Used by name from outside: the standard library, Celery, pydantic, SQLAlchemy, PyYAML, psycopg2,
#: asyncio and httptools.
CALLED_BY_FRAMEWORKS = {
    "abstract",
    "cache_ok",
    "connection_lost",
    "connection_made",
    "cursor_factory",
    "data_received",
    "do_GET",
    "do_POST",
    "eof_received",
    "get_col_spec",
    "ignore_aliases",
    "ignore_result",
    "log_message",
    "makefile",
    "model_config",
    "on_body",
    "on_chunk_header",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "readinto",
    "restore_unacked",
}
#: What users call: the client, batches of vector steps, the test kit; and fields of HTTP answers.
FOR_USERS = {
    "add_replica",
    "approved_by",
    "attempt_count",
    "batch_history",
    "cancel_note",
    "crash_at",
    "dont_know",
    "duplicate_of",
    "error_id",
    "give_order",
    "has_more",
    "kept_answers",
    "kept_seconds",
    "lag_seconds",
    "next_cursor",
    "not_done",
    "run_together",
    "slot_seconds",
    "transactions_per_s",
    "wait_batch",
    "wait_bulk_transfer",
    "wake_time_ms",
}
#: Read by tests only: what a job reports, and lists of what there is.
FOR_TESTS = {"payloads", "refreshed", "script_names"}
ALLOWED = CALLED_BY_FRAMEWORKS | FOR_USERS | FOR_TESTS


@cache
def tree(path: Path) -> ast.Module:
    return parsed(path.read_text())


@cache
def used_in(path: Path) -> frozenset[str]:
    return frozenset(uses(tree(path)))


def uses(module: ast.AST) -> Iterator[str]:
    """Names that are read, also as words of a text: forward references, getattr, templates."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)
        elif isinstance(node, ast.MatchClass):
            yield from node.kwd_attrs


def definitions(module: ast.AST) -> Iterator[tuple[int, str]]:
    """Functions (decorated ones are registered), classes, fields, attributes, constants."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.decorator_list or isinstance(node, ast.ClassDef):
                yield node.lineno, node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield node.lineno, target.id
                elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    yield node.lineno, target.attr


def functions(module: ast.AST) -> Iterator[str]:
    return (node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef))


def test_every_name_is_used_somewhere() -> None:
    used = {name for path in USERS for name in used_in(path)}
    # Templates read fields of what they are given.
    used |= {name for path in TEMPLATES for name in re.findall(r"\w+", path.read_text())}
    unused = {
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in MODULES
        for line, name in definitions(tree(path))
        if name not in used and not name.startswith("__") and name not in ALLOWED
    }
    assert unused == set()


def test_a_private_name_is_used_in_its_own_module() -> None:
    unused = set()
    for path in MODULES:
        used = used_in(path)
        # A method that a base class in the same room calls.
        in_room = {name for each in path.parent.glob("*.py") for name in used_in(each)}
        methods = set(functions(tree(path))) & in_room
        unused |= {
            f"{path.relative_to(PACKAGE)} {name}"
            for _, name in definitions(tree(path))
            if re.match(r"_[a-z]", name) and name not in used | methods
        }
    assert unused == set()


def test_a_name_that_is_never_read_is_found() -> None:
    module = ast.parse("def lonely():\n    found = 1\n    return 2\nWORD = 'other'\nprint(other)")
    defined = {name for _, name in definitions(module)}
    assert defined - set(uses(module)) == {"lonely", "found", "WORD"}
