"""Test cases that a pipeline carries: an input, what stands in for its steps, what must come out.

tests:
  - name: a refused payment
    input: {amount: "12.50"}
    switches: {approved: "no"}                       # set where it waits for them
    stubs: {bank/reserve: {output: {held: true}}}    # by step type or name; or fail:, abort:
    expect: {status: failed, output: {code: R1}, note: refused}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from datp_tasks.model.status import FINAL, Status
from datp_tasks.model.switch import NAME as SWITCH_NAME

CASES_MAX = 100
NAME_CHARS_MAX = 128
KNOWN = ("name", "description", "input", "metadata", "switches", "stubs", "expect")
EXPECTED = ("status", "output", "note")
STUB_FORMS = ({"output"}, {"fail"}, {"abort"}, {"fail", "output"}, {"abort", "output"})
#: What can be waited for: an end, or a place where only a person or a switch can move it.
STATUSES = tuple(sorted(str(each) for each in (*FINAL, Status.SLEEPING, Status.IN_DOUBT)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCase:
    """One test case of a pipeline."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    switches: Mapping[str, Any] = field(default_factory=dict)
    #: Step type or name of a step → what it does instead.
    stubs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    status: str = "success"
    #: These fields must be in the output, with these values; it may have others.
    output: Mapping[str, Any] | None = None
    #: A part of the note.
    note: str | None = None

    @classmethod
    def from_mapping(cls, clean: Mapping[str, Any]) -> Self:
        """From one that was checked before."""
        expected = clean.get("expect", {})
        return cls(
            name=clean["name"],
            input=clean.get("input", {}),
            metadata=clean.get("metadata"),
            switches=clean.get("switches", {}),
            stubs=clean.get("stubs", {}),
            status=expected.get("status", "success"),
            output=expected.get("output"),
            note=expected.get("note"),
        )


def cases_mistakes(value: object) -> list[str]:
    if not isinstance(value, list | tuple):
        return [f"must be a list of test cases, was {value!r:.100}"]
    if len(value) > CASES_MAX:
        return [f"has {len(value)} test cases; {CASES_MAX} are allowed"]
    found = [mistake for place, case in enumerate(value) for mistake in _mistakes(place, case)]
    names = [case.get("name") for case in value if isinstance(case, Mapping)]
    twice = sorted({name for name in names if isinstance(name, str) and names.count(name) > 1})
    return found + [f"the name {name!r} stands twice" for name in twice]


def _mistakes(place: int, case: object) -> Iterator[str]:
    if not isinstance(case, Mapping):
        yield f"[{place}] must be an object, was {case!r:.100}"
        return
    for key in case:
        if key not in KNOWN:
            yield f"[{place}].{key} is not a known key; known are {', '.join(KNOWN)}"
    name = case.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        yield f"[{place}].name must be a text of up to {NAME_CHARS_MAX} characters"
    for key in ("input", "metadata", "switches", "stubs", "expect"):
        if not isinstance(case.get(key, {}), Mapping):
            yield f"[{place}].{key} must be an object, was {case[key]!r:.100}"
            return
    yield from _stand_in_mistakes(place, case)
    yield from _expected_mistakes(place, case.get("expect", {}))


def _stand_in_mistakes(place: int, case: Mapping[str, Any]) -> Iterator[str]:
    for switch, given in case.get("switches", {}).items():
        if not isinstance(switch, str) or not SWITCH_NAME.fullmatch(switch):
            yield f"[{place}].switches: {switch!r:.60} is no name of a switch"
        if not isinstance(given, bool | int | float | str):
            yield f"[{place}].switches.{switch} must be a text, a number, true or false"
    for step, stub in case.get("stubs", {}).items():
        if not isinstance(stub, Mapping) or set(stub) not in STUB_FORMS:
            yield f"[{place}].stubs.{step} must be {{output: …}}, {{fail: note}} or {{abort: note}}"


def _expected_mistakes(place: int, expected: Mapping[str, Any]) -> Iterator[str]:
    for key in expected:
        if key not in EXPECTED:
            yield f"[{place}].expect.{key} is not a known key; known are {', '.join(EXPECTED)}"
    if expected.get("status", "success") not in STATUSES:
        yield f"[{place}].expect.status must be one of {', '.join(STATUSES)}"
    if not isinstance(expected.get("output", {}), Mapping):
        yield f"[{place}].expect.output must be an object"
    if not isinstance(expected.get("note", ""), str):
        yield f"[{place}].expect.note must be a text"
