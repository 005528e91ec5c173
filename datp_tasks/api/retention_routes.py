"""Routes of retention rules: how long what an owner or a pipeline has is kept."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from datp_tasks.api.lists import LIMIT_MAX, Cursor, Limit, listed, page_of_all
from datp_tasks.api.models import Given, Paged, Sent, Text
from datp_tasks.api.operator import ASKED
from datp_tasks.api.problems import not_found
from datp_tasks.api.routing import json_response, needs, router
from datp_tasks.api.services import caller_of, services_of
from datp_tasks.api.transactions import CONFLICT
from datp_tasks.model.actor import Role
from datp_tasks.record.retention_rules import DAYS_MAX, RetentionRule, RuleKind

routes = router("/v1", "operator", role=Role.ADMIN)

Kind = Annotated[RuleKind, Path(description="Whether the rule is an owner's or a pipeline's.")]
Name = Annotated[str, Path(min_length=1, max_length=200)]
Reason = Annotated[Text, Field(min_length=1, description="Kept in the audit table.")]
BREAK_GLASS = "Act alone although the policy wants another person; an alert stays."


class RetentionRuleIn(Sent):
    days: Annotated[int, Field(ge=1, le=DAYS_MAX, description="After the end.", examples=[400])]
    reason: Reason
    break_glass: Annotated[bool, Field(description=BREAK_GLASS)] = False


class RetentionRuleShown(Given):
    kind: RuleKind
    name: str
    days: int


class RetentionRulesShown(Paged):
    rules: list[RetentionRuleShown]


class RetentionRuleRemoved(Given):
    kind: RuleKind
    name: str
    removed: bool


@routes.get(
    "/retention-rules", operation_id="listRetentionRules", response_model=RetentionRulesShown
)
@needs(Role.VIEWER)
async def rules(request: Request, limit: Limit = LIMIT_MAX, cursor: Cursor = None) -> Response:
    """Every rule; what has none is kept as the settings say."""
    services = services_of(request)
    found = await services.threads.run(services.operator.retention.all)
    page, more = page_of_all(found, lambda each: f"{each.kind}/{each.name}", cursor, limit)
    return listed("rules", [_rule_json(each) for each in page], cursor=more, limit=limit)


@routes.put(
    "/retention-rules/{kind}/{name}",
    operation_id="setRetentionRule",
    response_model=RetentionRuleShown,
    responses={**ASKED, **CONFLICT},
)
async def set_rule(request: Request, kind: Kind, name: Name, wanted: RetentionRuleIn) -> Response:
    """Keep its transactions for so long after their end, in every table; then drop them."""
    services, actor = services_of(request), caller_of(request).actor
    rule = RetentionRule(kind, name, wanted.days)
    put = partial(services.operator.retention.set, rule, actor=actor, reason=wanted.reason)
    await services.threads.run(partial(put, break_glass=wanted.break_glass))
    return json_response(_rule_json(rule))


@routes.delete(
    "/retention-rules/{kind}/{name}",
    operation_id="removeRetentionRule",
    response_model=RetentionRuleRemoved,
    responses={**ASKED, **CONFLICT},
)
async def remove_rule(
    request: Request,
    kind: Kind,
    name: Name,
    reason: Annotated[Text, Query(min_length=1, description="Kept in the audit table.")],
    break_glass: Annotated[bool, Query(alias="breakGlass", description=BREAK_GLASS)] = False,
) -> Response:
    """Take a rule away: the settings count again."""
    services, actor = services_of(request), caller_of(request).actor
    remove = partial(services.operator.retention.remove, kind, name, actor=actor, reason=reason)
    if not await services.threads.run(partial(remove, break_glass=break_glass)):
        raise not_found("such rule")
    return json_response({"kind": kind, "name": name, "removed": True})


def _rule_json(rule: RetentionRule) -> dict[str, Any]:
    return {"kind": rule.kind, "name": rule.name, "days": rule.days}
