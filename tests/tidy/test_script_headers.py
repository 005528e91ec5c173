"""Every script keeps to its header; and a script that does not is found out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import datp_tasks
from datp_tasks.live.scripts import FOLDER, INCLUDE, flatten, script, script_names
from tests.tidy.script_header_check import TYPE_OF, Source, faults_of, include_file_faults

INCLUDES = {path.stem: path.read_text() for path in sorted((FOLDER / "includes").glob("*.lua"))}


@pytest.mark.parametrize("name", script_names())
def test_a_script_keeps_to_its_header(name: str) -> None:
    assert faults_of(name, (FOLDER / f"{name}.lua").read_text(), INCLUDES) == []


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_is_one_function_that_names_no_key(name: str) -> None:
    assert include_file_faults(name, INCLUDES[name]) == []


@pytest.mark.parametrize("name", script_names())
def test_the_store_reads_the_same_header(name: str) -> None:
    source = Source(name, (FOLDER / f"{name}.lua").read_text(), {})
    assert script(name).keys == tuple(item.name for item in source.items("KEYS"))
    assert script(name).arguments == tuple(item.name for item in source.items("ARGV"))
    assert script(name).own_keys == tuple(item.name for item in source.items("EACH_KEYS"))
    assert script(name).own_arguments == tuple(item.name for item in source.items("EACH_ARGV"))
    assert script(name).answers == tuple(item.name for item in source.items("Returns"))


def test_every_include_is_included() -> None:
    texts = [(FOLDER / f"{name}.lua").read_text() for name in script_names()]
    assert {name for text in texts for name in INCLUDE.findall(text)} == set(INCLUDES)


def test_every_script_is_called_by_its_name() -> None:
    package = Path(datp_tasks.__file__).parent
    code = "\n".join(path.read_text() for path in package.rglob("*.py"))
    named = re.findall(r'(?:\bscript|\b_frame|\b_calls)\("(\w+)"[,)]', code)
    assert sorted(set(named)) == script_names()


def test_a_transition_has_one_name_in_script_store_and_tests() -> None:
    package = Path(datp_tasks.__file__).parent
    code = "\n".join(path.read_text() for path in (package / "live").glob("*.py"))
    methods = set(re.findall(r"def (\w+)\(\s*self", code))
    tests = {path.stem for path in (package.parent / "tests" / "live").glob("test_*.py")}
    moving = [name for name in script_names() if "\nMoves:" in (FOLDER / f"{name}.lua").read_text()]
    assert len(moving) >= 10
    forms = {name: {name, f"call_{name}", f"{name}_many", f"{name}s"} for name in moving}
    assert [name for name, known in forms.items() if not known & methods] == []
    assert [name for name in moving if f"test_{name}" not in tests] == []


def test_flattening_puts_functions_before_their_use() -> None:
    source = flatten('--- @include "integer"\nreturn {integer(1)}\n')
    assert source.startswith(INCLUDES["integer"])


# Deliberately broken scripts. `GOOD` has no fault; each change below makes one.

GOOD = """--[[
Do one thing.

Moves:
  queued -> running
KEYS:
  state        hash  the transaction
  queued       zset  transactions by time queued
  deltas       list  deltas
ARGV:
  tx_id        str   transaction id
  limit        int   how many
  body         json  opaque
  fields       pairs names and values
Returns:
  OK           version
  UNKNOWN      no such transaction here
]]
--- @include "twice"
local state = KEYS[1]
local queued = KEYS[2]
local deltas = KEYS[3]
local tx_id = ARGV[1]
local limit = tonumber(ARGV[2])
local body = ARGV[3]
local fields = 4

local found = redis.call('HGET', state, 'status')
if not found then
  return {'UNKNOWN', ''}
end
redis.call('RPUSH', deltas, body)
redis.call('HSET', state, unpack(ARGV, fields, #ARGV))
local lists = {queued = queued}
redis.call('ZADD', lists[found], limit, tx_id)
for index, list in ipairs({queued}) do
  limit = limit + index + redis.call('ZREM', list, tx_id)
end
redis.call('DEL', state, deltas)
return {'OK', twice(state, limit)}
"""

TWICE = """-- Twice as much.
local function twice(state, number)
  return redis.call('HINCRBY', state, 'n', number * 2)
end
"""

BROKEN = [
    ("Do one thing.\n", "\n", "the header does not say what the script does"),
    ("Moves:\n  queued -> running\n", "", None),
    ("queued -> running", "queued -> flying", "nobody knows the move 'queued -> flying'"),
    (
        "Returns:\n  OK           version\n  UNKNOWN      no such transaction here\n",
        "",
        "no section",
    ),
    ("state        hash  the", "state        heap  the", "KEYS state has the type 'heap'"),
    ("tx_id        str   transaction id", "tx_id        str", "ARGV tx_id has no meaning"),
    ("  limit        int   how many\n", "", "limit"),
    ("tx_id        str   ", "state        str   ", "state is listed twice"),
    ("tx_id        str   ", "tx_id        pairs ", "only the last argument may be a list"),
    # Bindings.
    ("local state = KEYS[1]\n", "local state = KEYS[2]\n", "state must be bound as"),
    ("local limit = tonumber(ARGV[2])\n", "local limit = tonumber(ARGV[3])\n", "limit must be"),
    ("local body = ARGV[3]", "local body = tonumber(ARGV[3])", "body must be bound as"),
    ("local fields = 4", "local fields = 5", "fields must be bound as 'local fields = 4'"),
    (
        "local state = KEYS[1]\nlocal queued = KEYS[2]\n",
        "local queued = KEYS[2]\nlocal state = KEYS[1]\n",
        "state must be bound as",
    ),
    ("local body = ARGV[3]\n", "", "body must be bound as"),
    ("local fields = 4\n", "local fields = 4\nlocal more = ARGV[5]\n", "8 names are bound"),
    ("deltas, body)", "deltas, 'x')", "body is never used"),
    ("local body = ARGV[3]\n", "local body = ARGV[3]\nlocal tx_id = body\n", "fields must be"),
    ("redis.call('RPUSH', deltas, body)", "redis.call('RPUSH', KEYS[3], body)", "uses KEYS below"),
    ("deltas, body)", "deltas, body, ARGV[3])", "uses ARGV below the names"),
    # Answers.
    ("return {'UNKNOWN', ''}", "return {'MISSING', ''}", "answers MISSING, which the header"),
    ("return {'UNKNOWN', ''}", "return {'OK', ''}", "never answers UNKNOWN"),
    ("return {'UNKNOWN', ''}", "return 'UNKNOWN'", "instead of {'WORD', ...}"),
    ("return {'UNKNOWN', ''}", "return -1", "instead of {'WORD', ...}"),
    ("  UNKNOWN      no", "  OK           no", "answer OK is listed twice"),
    # What scripts may not do.
    ("deltas, body)", "deltas, cjson.encode(body))", "uses cjson"),
    ("deltas, body)", "deltas, body + 1)", "calculates with the JSON body"),
    ("deltas, body)", "deltas, 2 * body)", "calculates with the JSON body"),
    ("deltas, body)", "deltas, tonumber(body))", "looks into the JSON body"),
    ("deltas, body)", "deltas, string.match(body, 'x'))", "looks into the JSON body"),
    ("redis.call('RPUSH'", "redis.pcall('RPUSH'", "uses pcall"),
    ("limit + index", "limit + math.random(index)", "uses random"),
    ("limit + index", "limit + indx", "indx is not declared"),
    ("twice(state, limit)", "thrice(state, limit)", "thrice is not declared"),
    # Commands and keys.
    ("'HGET', state, 'status'", "'HGETEX', state, 'status'", "calls HGETEX, which is not among"),
    ("'HGET', state, 'status'", "'KEYS', state, 'status'", "calls KEYS, which is not among"),
    ("'HGET', state", "'GET', state", "GET needs a string, but state is a hash"),
    ("'RPUSH', deltas", "'RPUSH', 'deltaL:' .. tx_id", "\"'deltaL:' .. tx_id\", which is none"),
    ("'RPUSH', deltas", "'RPUSH', tx_id", "RPUSH is given the key 'tx_id', which is none"),
    ("'RPUSH', deltas", "'RPUSH', deltas .. 'x'", "which is none of KEYS"),
    ("{queued = queued}", "{queued = tx_id}", "'lists [ found ]', which is none of KEYS"),
    ("{queued = queued}", "{queued = state}", "ZADD needs a zset, but lists is a hash"),
    ("ipairs({queued})", "ipairs({queued, tx_id})", "given the key 'list', which is none"),
    ("ipairs({queued})", "ipairs({state})", "ZREM needs a zset, but list is a hash"),
    ("'DEL', state, deltas", "'DEL', state, 'deltas'", "DEL is given the key"),
    ("twice(state, limit)", "twice(queued, limit)", "twice needs a hash, but queued is a zset"),
    ("twice(state, limit)", "twice(tx_id, limit)", "twice is given the key 'tx_id'"),
    # Includes.
    ('--- @include "twice"\n', '--- @include "twice"\n--- @include "twice"\n', "twice twice"),
    ('--- @include "twice"\n', '--- @include "twice"\n--- @include "gone"\n', "does not exist"),
    ("twice(state, limit)", "limit", "includes twice and does not use it"),
    ('--- @include "twice"\n', "", "twice is not declared"),
    # Sizes.
    ("\nlocal found", "\n" + "-- so long\n" * 65 + "local found", "lines, more than 100"),
    ("\nlocal found", "\n-- " + "long " * 20 + "\nlocal found", "of more than 100 characters"),
]


def test_the_script_that_is_broken_below_is_good() -> None:
    assert faults_of("good", GOOD, {"twice": TWICE}) == []
    assert include_file_faults("twice", TWICE) == []


@pytest.mark.parametrize(("part", "instead", "fault"), BROKEN)
def test_a_broken_script_is_found_out(part: str, instead: str, fault: str | None) -> None:
    assert GOOD.count(part) == 1
    faults = faults_of("broken", GOOD.replace(part, instead), {"twice": TWICE})
    if fault is None:
        assert faults == []
    else:
        assert any(fault in each for each in faults), faults


def test_a_script_without_a_header_is_found_out() -> None:
    assert faults_of("x", "return {'OK'}\n", {}) == ["does not begin with a header"]


def test_a_script_that_grows_by_its_includes_is_found_out() -> None:
    long = TWICE.replace("end\n", "-- so long\n" * 120 + "end\n")
    faults = faults_of("x", GOOD, {"twice": long})
    assert faults == [f"has {40 + 4 + 120} lines with its includes, more than 160"]
    assert include_file_faults("twice", long) == ["has more than 40 lines"]


@pytest.mark.parametrize(
    "written", ["redis.call('HSET', state, 'n', 1, 'status', 'queued')", "enqueue(state, queued)"]
)
def test_a_script_that_changes_the_status_must_say_its_moves(written: str) -> None:
    moving = GOOD.replace("local found", f"{written}\nlocal found")
    includes = {"twice": TWICE}
    if "enqueue" in written:
        includes["enqueue"] = TWICE.replace("twice", "enqueue")
        moving = moving.replace("--- @", '--- @include "enqueue"\n--- @', 1)
    moveless = moving.replace("Moves:\n  queued -> running\n", "")
    fault = "changes the status, but the header has no section Moves"
    assert fault in faults_of("x", moveless, includes)
    assert fault not in faults_of("x", moving, includes)


def test_includes_that_go_round_in_a_circle_are_found_out() -> None:
    includes = {
        "twice": '--- @include "thrice"\n' + TWICE,
        "thrice": '--- @include "twice"\n' + TWICE.replace("twice", "thrice"),
    }
    faults = faults_of("x", GOOD, includes)
    assert "includes go round in a circle: twice > thrice > twice" in faults


@pytest.mark.parametrize(
    ("part", "instead", "fault"),
    [
        ("-- Twice as much.\n", "", "does not begin with a comment"),
        ("function twice", "function double", "must hold exactly one function, twice"),
        ("state, 'n'", "KEYS[1], 'n'", "uses KEYS, which only scripts may name"),
        ("number * 2", "ARGV[7] * 2", "uses ARGV[7]; it must be given the index"),
        ("number * 2", "factor * 2", "factor is not declared"),
        ("'HINCRBY', state", "'HINCRBY', 'a' .. state", "which is none of KEYS"),
        ("'HINCRBY'", "'HINCRBYFLOATS'", "calls HINCRBYFLOATS, which is not among"),
        ("-- Twice", '-- Twice\n--- @include "integer"\n--', "includes another"),
    ],
)
def test_a_broken_include_is_found_out(part: str, instead: str, fault: str) -> None:
    faults = include_file_faults("twice", TWICE.replace(part, instead))
    assert any(fault in each for each in faults), faults


def test_no_command_is_listed_under_two_types() -> None:
    assert len(TYPE_OF) == len({*TYPE_OF})
