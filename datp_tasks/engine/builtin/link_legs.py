"""`util/link` and `util/commit-linked`: transactions that commit together, or roll back together.

util/link           params:  link: "{{determiningTransferId}}"
                             legs: 2
                             expiresInSeconds: 86400   # if no leg has a deadline; the default
util/commit-linked  params:  link and legs, the same
The first makes the transaction a leg: from then on all legs expire with the one that expires
first. The second waits until every leg has come there, and is the point of no return of them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in, schema_of
from datp_tasks.engine.registry import step
from datp_tasks.errors import LinkRefused
from datp_tasks.model.outcome import Fail, Sleep
from datp_tasks.model.paths import FieldMissing, render, template_mistakes
from datp_tasks.model.pipeline_rules import EXPIRES_S_MAX, LINK_EXPIRES_S

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

LEGS_MAX = 20
LINK_CHARS_MAX = 255
#: How soon it looks whether the others have come, and how much later each time.
LOOK_FIRST_S = 0.5
LOOK_S_MAX = 10.0
KNOWN = {"link": "text", "legs": "any"}
LEGS = {"type": "integer", "minimum": 2, "maximum": LEGS_MAX}
PARAMETERS = schema_of(KNOWN, *KNOWN, legs=LEGS)
JOIN_KNOWN = {**KNOWN, "expiresInSeconds": "any"}
EXPIRES = {"type": "number", "exclusiveMinimum": 0, "maximum": EXPIRES_S_MAX}
JOIN_PARAMETERS = schema_of(JOIN_KNOWN, *KNOWN, legs=LEGS, expiresInSeconds=EXPIRES)
DEFAULT = {"link": "{{determiningTransferId}}", "legs": 2}


@step(
    "util/link",
    description="Makes the transaction a leg of a link: one deadline for all legs.",
    parameters=JOIN_PARAMETERS,
    default=DEFAULT,
)
def link(ctx: StepContext, data: dict[str, Any]) -> Sleep | None:
    try:
        expires_in_s = ctx.params.get("expiresInSeconds", LINK_EXPIRES_S)
        has_joined = ctx.join_link(_name(ctx, data), ctx.params["legs"], expires_in_s=expires_in_s)
    except LinkRefused as refused:
        raise Fail(str(refused)) from None
    return None if has_joined else _look_again(ctx)


@step(
    "util/commit-linked",
    description="Passes the point of no return with all legs of a link.",
    parameters=PARAMETERS,
    default=DEFAULT,
)
def commit_linked(ctx: StepContext, data: dict[str, Any]) -> Sleep | None:
    verdict = ctx.commit_link(_name(ctx, data))
    if verdict.word == "stop":
        raise Fail(verdict.note)
    return _look_again(ctx) if verdict.word == "wait" else None


@link.check
def join_params_ok(params: Mapping[str, Any]) -> list[str]:
    given = dict(params)
    expires_in_s = given.pop("expiresInSeconds", LINK_EXPIRES_S)
    mistakes = params_ok(given)
    is_number = isinstance(expires_in_s, int | float) and not isinstance(expires_in_s, bool)
    if not is_number or not 0 < expires_in_s <= EXPIRES_S_MAX:
        mistakes.append(
            f"expiresInSeconds must be a number above 0 and at most {EXPIRES_S_MAX}, "
            f"was {expires_in_s!r:.60}"
        )
    return mistakes


@commit_linked.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    mistakes += template_mistakes(params.get("link"), "link")
    if not params.get("link"):
        mistakes.append("link must be given: the name that all legs share")
    legs = params.get("legs")
    if not isinstance(legs, int) or isinstance(legs, bool) or not 2 <= legs <= LEGS_MAX:
        mistakes.append(f"legs must be a whole number from 2 to {LEGS_MAX}, was {legs!r}")
    return mistakes


def _name(ctx: StepContext, data: Mapping[str, Any]) -> str:
    try:
        name = render(ctx.params["link"], data)
    except FieldMissing as problem:
        raise Fail(f"the link has no name: {problem}") from None
    if not 0 < len(name) <= LINK_CHARS_MAX or "\x00" in name:
        raise Fail(f"the name of a link has 1 to {LINK_CHARS_MAX} characters")
    return name


def _look_again(ctx: StepContext) -> Sleep:
    return Sleep(seconds=min(LOOK_S_MAX, LOOK_FIRST_S * 2 ** min(ctx.sleeps, 10)))
