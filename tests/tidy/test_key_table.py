"""The tables in live/keys.py name what is written to Redis: all of it and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import datp_tasks
from datp_tasks.live import keys
from datp_tasks.live.live_types import NewTransaction
from datp_tasks.model.plan import Position
from datp_tasks.model.state import State, first_state_json
from datp_tasks.model.view import View
from tests.support.lua_tokens import Token, calls_of, tokens_of

PACKAGE = Path(datp_tasks.__file__).parent
KEYS_PAGE, _, FIELDS_PAGE = str(keys.__doc__).partition("Fields of stateH:")
SCRIPTS = sorted((PACKAGE / "live" / "lua").rglob("*.lua"))
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))
}
#: Keys without the docstring that this test compares with.
SOURCES["live/keys.py"] = SOURCES["live/keys.py"].split('"""', 2)[2]
#: The type of a key is the last letter of its name.
TYPED = re.compile(r"""["'{}:]([a-z][A-Za-z0-9]*[HZLSX])(?=["':])""")
#: Names of that shape which are a number a second in JSON.
PER_SECOND = re.compile(r"(older|newer|\w+Per)S")
#: Fields that a caller gives to checkpoint, and where.
GIVEN = {"begun": "engine/execute.py", "unsafe": "engine/execute.py"}


def first_cells(page: str) -> list[str]:
    cells = re.findall(r"^\| (.+?) *\|", page, re.MULTILINE)
    return [cell for cell in cells if not cell.startswith(("key (", "field"))]


def listed_fields() -> list[str]:
    return [name for cell in first_cells(FIELDS_PAGE) for name in cell.split(", ")]


def names_in(arguments: list[list[Token]], first: int) -> set[str]:
    """Every other argument from the first name on, as far as they are literals."""
    found = {token.text.strip("'") for part in arguments[first::2] for token in part[:1]}
    return {name for name in found if name.isalpha()}


def written_by_scripts() -> set[str]:
    found: set[str] = set()
    for path in SCRIPTS:
        tokens = tokens_of(path.read_text())
        for call in calls_of(tokens, "redis.call"):
            words = [part[0].text for part in call[:2]]
            if words[0] in ("'HSET'", "'HINCRBY'") and words[1] == "state":
                found |= names_in(call, 2)
        for call in calls_of(tokens, "write_state"):
            found |= names_in(call, 4)
    # The name of a switch is put together; `field` is that name.
    return found - {"field", "unpack"}


def written_by_python() -> set[str]:
    new = NewTransaction(
        "t", "o", "x", "p", "g", "s", "p/0", "{}", "{}", 1, "trace", fence=1, recreated=True
    )
    state = State.from_json(first_state_json("p", "v", "{}"))
    view = View(state, status="sleeping", version=1, fence=1)
    view.begun = view.recreated = True
    view.switches = {"<n>": "1:true"}
    view.wake_ms, view.wake_switch = 1, "go"
    view.cancel = view.progress = view.problem = "x"
    return {*new.fields(), *view.to_fields(), *Position("g", "s", "p/0").pairs()[::2], *GIVEN}


def test_fields_of_a_transaction_are_listed_and_every_listed_one_is_written() -> None:
    assert len(listed_fields()) == len(set(listed_fields()))
    assert set(listed_fields()) == written_by_scripts() | written_by_python()


def test_fields_that_callers_give_are_given() -> None:
    assert {name for name, path in GIVEN.items() if f'"{name}"' not in SOURCES[path]} == set()


def test_keys_are_listed_and_every_listed_one_is_used() -> None:
    listed = {
        re.sub(r"\{\w+\}:", "", name).partition(":")[0]
        for cell in first_cells(KEYS_PAGE)
        for name in cell.split(", ")
        if name != "2"
    }
    typed = {name for name in listed if re.fullmatch(r"[a-z]\w*[HZLSX]", name)}
    found = {name for text in SOURCES.values() for name in TYPED.findall(text)}
    assert {name for name in found if not PER_SECOND.fullmatch(name)} == typed
    # Those of the metrics are numbered, `metric1H…3H`; the channel has the prefix before it.
    untyped = listed - typed - {"metric1H…3H"}
    code = "\n".join(SOURCES.values())
    assert {name for name in untyped if name.removeprefix("datp") not in code} == set()
    assert "metric{" in SOURCES["live/metrics.py"]
