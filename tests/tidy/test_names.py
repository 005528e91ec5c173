"""Names and words: one name for one thing, few parameters, and sentences that name the actor."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import datp_tasks
from tests.support.parsed import parsed

PACKAGE = Path(datp_tasks.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

#: One topic in several rooms, each with its own part of it: a door, storage, a word.
ONE_TOPIC = {
    *(
        "api",
        "api_keys",
        "approval",
        "approvals",
        "batches",
        "erase",
        "groups",
        "journal",
        "mappings",
    ),
    *(
        "nodes",
        "operator",
        "operator_runs",
        "pipeline_cache",
        "pipelines",
        "resolve",
        "retention",
        "timeouts",
    ),
    *("step_types", "transaction_logs", "transactions", "webhook_endpoints", "webhooks"),
    *("bulk_transfer", "bulk_transfers", "operator_runs"),
}
#: One shape in several rooms: every job has its Limits and a Result, every topic of SQL its Query;
#: what the API shows of a batch for a ledger has the name that the record gives it.
ONE_SHAPE = {"LedgerBatch", "Limits", "Query", "Result"}

PARAMETERS_MAX = 6
#: Of what is made of parts, by keyword too: more are a sign of a part that has no name yet. The
#: list may only shrink, and no number in it may grow.
PARTS_MAX = 6
MANY_PARTS = {
    # The one root, which only `runtime/` and the kit of tests see.
    "runtime/container.py Container": 17,
    # Facades: each part is a room or a topic, and is handed on.
    "api/services.py Services": 16,
    # Seven stores of one topic each, and nothing else.
    "api/services.py TransactionStores": 7,
}
#: Of the constructor of any class, in a function or another class too.
GIVEN_MAX = 9
MANY_GIVEN = {
    "model/pipeline.py Pipeline",  # What a user writes in one call.
}
#: What has one of these, or has something that has one, is made of parts; the rest is data.
ROOTS = {"Clock", "Engine", "Redis", "Settings"}

#: Words that hide who acts, and how often they are left. The numbers may only go down.
HIDING = re.compile(r"\b(nobody|somebody|whoever|anybody)\b|is away", re.IGNORECASE)
HIDING_MAX = {"datp_tasks": 3, "docs": 2}
TEXTS = (".py", ".lua", ".md", ".sql")


def test_a_module_has_the_name_of_another_only_for_the_same_topic() -> None:
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        if path.name != "__init__.py":
            rooms[path.stem].add(path.parent.relative_to(PACKAGE).as_posix())
    shared = {name: places for name, places in rooms.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in ONE_TOPIC} == {}


def test_a_class_has_the_name_of_another_only_for_the_same_thing() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in parsed(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(PACKAGE).as_posix())
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in ONE_SHAPE} == {}


def many_parameters(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len(positional(node)) > PARAMETERS_MAX
    ]


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_functions_have_few_positional_parameters() -> None:
    found = {
        f"{path.relative_to(PACKAGE)} {name}"
        for path in MODULES
        for name in many_parameters(path.read_text())
    }
    assert found == set()


def test_a_function_with_too_many_is_found() -> None:
    assert many_parameters("def f(self, a, b, c, d, e, g, *, h): ...") == []
    assert many_parameters("async def f(a, b, c, d, e, f, g): ...") == ["f"]


def parts(source: str) -> dict[str, list[str]]:
    """What the classes of a module are made of: types of parameters, or of fields."""
    found: dict[str, list[str]] = {}
    for node in parsed(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        made = [each for each in node.body if getattr(each, "name", "") == "__init__"]
        given: list[ast.expr | None] = []
        if made and isinstance(made[0], ast.FunctionDef):
            args = made[0].args
            named = [*args.posonlyargs, *args.args, *args.kwonlyargs][1:]
            given = [each.annotation for each in named]
        elif any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            given = [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
        found[node.name] = [ast.unparse(each) if each else "" for each in given]
    return found


def many_parts(made: dict[str, list[str]]) -> dict[str, int]:
    """Classes that are made of parts, and of too many; names may have a path before them."""
    services = set(ROOTS)
    while True:
        more = {
            name.split()[-1]
            for name, types in made.items()
            if services.intersection(re.findall(r"\w+", " ".join(types)))
        }
        if more <= services:
            break
        services |= more
    return {
        name: len(types)
        for name, types in made.items()
        if name.split()[-1] in services - ROOTS and len(types) > PARTS_MAX
    }


def test_what_is_made_of_parts_has_few() -> None:
    made = {
        f"{path.relative_to(PACKAGE).as_posix()} {name}": types
        for path in MODULES
        for name, types in parts(path.read_text()).items()
    }
    assert many_parts(made) == MANY_PARTS


def test_a_class_with_too_many_parts_is_found() -> None:
    inner = "class A:\n def __init__(self, engine: Engine): ...\n"
    held = "@dataclass\nclass B:\n" + "".join(f" {name}: {{}}\n" for name in "abcdefg")
    keyword = "class C:\n def __init__(self, a, b, c, *, d, e, f: A | None, g): ..."
    assert many_parts(parts(inner + held.format(*["A"] * 7))) == {"B": 7}
    assert many_parts(parts(inner + keyword)) == {"C": 7}
    assert many_parts(parts(inner + held.format(*["int"] * 7))) == {}


def many_given(source: str) -> list[str]:
    """Classes at any depth whose constructor takes too many, whatever they are."""
    return [
        node.name
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if len(positional(method)) + len(method.args.kwonlyargs) > GIVEN_MAX
    ]


def test_constructors_take_few_parameters() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()} {name}"
        for path in MODULES
        for name in many_given(path.read_text())
    }
    assert found == MANY_GIVEN


def test_a_constructor_with_too_many_is_found() -> None:
    source = "def f():\n class A:\n  def __init__(self, a, b, c, *, d, e, f, g, h, i{}): ..."
    assert many_given(source.format("")) == []
    assert many_given(source.format(", j")) == ["A"]


def test_sentences_name_the_actor() -> None:
    found = {
        top: [
            f"{path.relative_to(ROOT)}: {match[0]}"
            for path in sorted((ROOT / top).rglob("*"))
            if path.suffix in TEXTS
            for match in HIDING.finditer(path.read_text())
        ]
        for top in HIDING_MAX
    }
    too_many = {top: lines for top, lines in found.items() if len(lines) > HIDING_MAX[top]}
    assert too_many == {}


def test_names_of_tests_name_the_actor() -> None:
    hiding = re.compile(r"def (test_\w*(?:(?<!the_user_)nobody|somebody|whoever|anybody)\w*)")
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert {name for path in paths for name in hiding.findall(path.read_text())} == set()


def test_tests_have_one_kit() -> None:
    """`@pytest.mark.kit(…)` gives the fixture settings of a test's own."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    found = [path for path in paths if re.search(r"^def datp\(", path.read_text(), re.MULTILINE)]
    assert found == [ROOT / "tests" / "conftest.py"]
