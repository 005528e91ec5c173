"""Texts for clients by language: what a pipeline says when a step fails with a code.

messages:
  en: {no-funds: "Not enough money: {{missing}} {{currency}} are missing."}
  fil: {no-funds: "Kulang ang pera."}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from datp_tasks.model.paths import FieldMissing, render, template_mistakes

LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
CODE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
#: One entry of an Accept-Language header, and how much it is wanted.
ACCEPTED = re.compile(r"([A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})?)(?:\s*;\s*q=([01](?:\.[0-9]{0,3})?))?")
TEXT_CHARS_MAX = 500
LANGUAGES_MAX = 50
HEADER_CHARS_MAX = 200
#: Where the language that was asked for has no text.
FALLBACK = "en"

Messages = Mapping[str, Mapping[str, str]]


def message_of(messages: Messages, code: str, params: Mapping[str, Any], wanted: str) -> str | None:
    """The text of a code in the best of the wanted languages; None if there is none."""
    for language in (*_languages(wanted), FALLBACK):
        text = messages.get(language, {}).get(str(code))
        if text is not None:
            try:
                return render(text, _as_json(params))
            except FieldMissing:
                # The step did not tell what this text needs; another one may need less.
                continue
    return None


def _as_json(params: Mapping[str, Any]) -> dict[str, Any]:
    """Params as JSON has them: a step may give any value, such as a Decimal."""
    try:
        text = json.dumps(params, default=str, skipkeys=True)
        found: dict[str, Any] = json.loads(text, parse_constant=str)
    except Exception:
        # A value whose own text cannot be made: the transaction ends as its step said.
        return {}
    return found


def language_wanted(header: str | None) -> str | None:
    """An Accept-Language header as it is kept with a transaction; None if it says nothing."""
    wanted = ", ".join(_languages((header or "")[:HEADER_CHARS_MAX]))
    return wanted or None


def messages_mistakes(value: object) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"must be an object of language to texts, was {value!r:.100}"]
    if len(value) > LANGUAGES_MAX:
        return [f"has {len(value)} languages; {LANGUAGES_MAX} are allowed"]
    return list(_mistakes(value))


def _mistakes(value: Mapping[Any, Any]) -> Iterator[str]:
    for language, texts in value.items():
        if not isinstance(language, str) or not LANGUAGE.fullmatch(language):
            yield f"{language!r:.60} is no language such as en or pt-BR"
        elif not isinstance(texts, Mapping):
            yield f"{language}: must be an object of code to text, was {texts!r:.100}"
        else:
            for code, text in texts.items():
                yield from _text_mistakes(f"{language}.{code}", code, text)


def _text_mistakes(where: str, code: object, text: object) -> Iterator[str]:
    if not isinstance(code, str) or not CODE.fullmatch(code):
        yield f"{where}: the code must match {CODE.pattern}"
    if not isinstance(text, str) or not 0 < len(text) <= TEXT_CHARS_MAX:
        yield f"{where}: must be a text of up to {TEXT_CHARS_MAX} characters, was {text!r:.100}"
    else:
        yield from template_mistakes(text, where)


def _languages(wanted: str) -> list[str]:
    """Each language and, after it, the one that it is a kind of; the most wanted first."""
    entries = [ACCEPTED.fullmatch(each.strip()) for each in wanted.split(",")]
    known = [(found[1], float(found[2] or 1)) for found in entries if found]
    found: dict[str, None] = {}
    for name, weight in sorted(known, key=lambda entry: -entry[1]):
        if weight > 0:
            main, _, region = name.partition("-")
            found |= {f"{main.lower()}-{region.upper()}": None} if region else {}
            found[main.lower()] = None
    return list(found)
