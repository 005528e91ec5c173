"""Templates to HTML: one environment, everything escaped, nothing undefined."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from datp_tasks.model.plan import place_words

TEMPLATES = Path(__file__).with_name("templates")
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": count,
        "duration": duration,
        "rate": rate,
        "pretty": pretty,
        "compact": compact,
        "place": place_words,
        "told": told_words,
        "action": action_words,
        "moment": moment,
        "moment_near": moment_near,
        "moment_ms": lambda ms: moment(datetime.fromtimestamp(ms / 1_000, UTC)),
    }
    return made


def html(template: str, context: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(context)


def count(number: float) -> str:
    return f"{number:,.0f}"


def rate(per_s: float) -> str:
    return f"{per_s:,.1f}" if per_s < 100 else f"{per_s:,.0f}"


def duration(seconds: float | None) -> str:
    """Two units at most: 340 ms, 4.2 s, 3 min 5 s, 2 d 4 h."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{max(0, round(seconds * 1_000))} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = int(seconds), list[str]()
    for size, name in UNITS:
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {name}")
        if len(parts) == 2 or (parts and size == 1):
            break
        if parts and not left:
            break
    return " ".join(parts[:2])


def moment(when: datetime | None) -> Markup:
    """A time in UTC that scripts may show as an age."""
    if when is None:
        return Markup("–")
    text = when.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        text.isoformat(), f"{text:%Y-%m-%d %H:%M:%S.%f}"[:-3], f"{text:%Y-%m-%d %H:%M:%S}"
    )


def moment_near(when: datetime, now_ms: float) -> Markup:
    """The same in a list: without the date, if it is that of today."""
    text = when.astimezone(UTC)
    is_today = text.date() == datetime.fromtimestamp(now_ms / 1_000, UTC).date()
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        text.isoformat(),
        f"{text:%Y-%m-%d %H:%M:%S.%f}"[:-3],
        f"{text:%H:%M:%S}" if is_today else f"{text:%Y-%m-%d %H:%M}",
    )


#: Kind of a delivery or of an event -> what its receiver is told.
TOLD = {
    "final": "how it ended",
    "progress": "its progress",
    "event": "an event, for an endpoint",
    "test": "a test event",
}


#: An action that may need a second person -> what it is for people.
ACTIONS = {
    "resolve.done": "count the step as done",
    "resolve.redo": "run the step again",
    "resolve.redo-effect": "run the step again, which may have had its effect",
    "resolve.fail": "fail it and roll back",
    "batch.resolve": "say how the batch ended",
    "batch.resubmit": "send the batch again",
    "bulk.cancel": "cancel many",
    "bulk.retry": "retry many",
    "bulk.wake": "wake many",
    "pipeline.use": "use a version of a pipeline",
    "retention.set": "set how long data is kept",
    "retention.remove": "drop a rule about how long data is kept",
    "erase": "erase payloads for good",
    "step": "let a step go on",
}


def action_words(action: str) -> str:
    return ACTIONS.get(action, action)


def told_words(kind: str) -> str:
    return TOLD.get(kind, kind)


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def compact(value: Any) -> str:
    """For a form: no larger than it was accepted."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
