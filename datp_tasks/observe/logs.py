"""Logs: text for people or a JSON object per line for machines, and never a secret.

Every line about a transaction carries its id (`tx`) and the fence it is about (`fence`; null where
the caller holds none), and says what happened by a name (`event`) that does not change when its
sentence does:

| event                | level   | when                                                          |
|----------------------|---------|---------------------------------------------------------------|
| tx.<script>          | DEBUG   | a transition: create, claim, checkpoint, sleep, finish, …     |
| hop.done             | INFO    | a hop is over: one line for its vector                        |
| step.broken          | WARNING | a step raised, timed out or returned what it must not         |
| tx.lost              | WARNING | another worker owns the transaction now                       |
| tx.waits             | WARNING | PostgreSQL or Redis is unavailable; it goes on later          |
| tx.stuck             | WARNING | a step does not return; its neighbours go on elsewhere        |
| tx.late              | ERROR   | a success that came after the expiry was refused              |
| tx.parked            | ERROR   | it is in doubt, and a person must decide                      |
| beat.silent, alert.… | ERROR   | an alert was raised; alert.cleared (WARNING) when it is over  |

Secrets are taken out when a line is made: the passwords and keys of this process's settings
wherever they appear, and whatever looks like a password in a URL, an API key, a webhook secret or
an authorization header.
"""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from datp_tasks.settings import Settings

HIDDEN = "***"
#: Shorter ones would take ordinary words out of the text.
SECRET_CHARS_MIN = 4

_PATTERNS = (
    # user:password@ in a URL.
    (re.compile(r"(://[^\s:/@]*:)[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(datp_[A-Za-z0-9]+_)[A-Za-z0-9_-]{16,}"), rf"\1{HIDDEN}"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), f"whsec_{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1\2{HIDDEN}"),
    (
        re.compile(
            r"""(?ix) \b((?:[\w-]*(?:password|passwd|secret|api[_-]?key|token|pepper)
            |authorization)["']?\s*[:=]\s*["']?)(?!\*\*\*|bearer\b|basic\b)[^\s"',;}]+"""
        ),
        rf"\1{HIDDEN}",
    ),
)
#: Without one of these no pattern matches; looking for them is what most lines pay.
_HINTS = (
    *("://", "datp_", "whsec_", "bearer", "basic", "passw", "secret", "apikey", "api_key"),
    *("api-key", "token", "pepper", "authorization"),
)
#: 32 bytes in base64.
_KEYS = re.compile(r"[A-Za-z0-9+/]{43}=")
_SECRET_NAME = re.compile(r"(?i)(password|passwd|secret|api[_-]?key|token|pepper|authorization)$")
#: What a record has anyway; all else was given by the caller that wrote the line.
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    *("message", "asctime", "taskName", "data"),
    # Celery's own.
    *("task_name", "task_id", "processName"),
}


#: Values of secrets that steps of this process were given, the last ones.
_HANDED_OUT: OrderedDict[str, None] = OrderedDict()
HANDED_OUT_MAX = 1_000


def hide(secret: str) -> None:
    """From here on this process writes the secret into no log."""
    if len(secret) >= SECRET_CHARS_MIN and secret not in _HANDED_OUT:
        _HANDED_OUT[secret] = None
        while len(_HANDED_OUT) > HANDED_OUT_MAX:
            _HANDED_OUT.popitem(last=False)


def without_secrets(text: str) -> str:
    """A text of the journal, in which no secret that a step was given may rest."""
    for secret in [*_HANDED_OUT]:
        text = text.replace(secret, HIDDEN)
    return text


class Redactor:
    """Takes secrets out of text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one may be part of another.
        known = {each for each in secrets if len(each) >= SECRET_CHARS_MIN}
        self._known = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        if _HANDED_OUT:
            text = without_secrets(text)
        lower = text.lower()
        if any(hint in lower for hint in _HINTS):
            for pattern, replacement in _PATTERNS:
                text = pattern.sub(replacement, text)
        return text

    def clean(self, value: Any) -> Any:
        """Before it becomes JSON, which would write some secrets in another way."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {key: self._clean_item(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self(str(value))

    def _clean_item(self, key: object, item: Any) -> Any:
        """A value whose name says that it is a secret is one, whatever it looks like."""
        if isinstance(item, str) and item and _SECRET_NAME.search(str(key)):
            return HIDDEN
        return self.clean(item)


def secrets_of(settings: Settings) -> list[str]:
    """Passwords in the URLs of the settings, and every other value that is not to be shown."""
    found: list[str] = []
    for item in fields(settings):
        value = getattr(settings, item.name)
        if item.repr or not isinstance(value, str):
            continue
        if "schemes" in item.metadata:
            password = urlsplit(value).password or ""
            found += [password, unquote(password)]
        else:
            # A key ring holds several, each of which is one.
            found += [value, *_KEYS.findall(value)]
    return [each for each in found if each]


class TextFormatter(logging.Formatter):
    """The line as another formatter makes it, and behind it what it is about."""

    def __init__(self, inner: logging.Formatter, redact: Redactor) -> None:
        super().__init__()
        self.inner = inner
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        text = self.inner.format(record)
        for name, value in (getattr(record, "fields", None) or {}).items():
            text += f" {name}={value}"
        event, fence = getattr(record, "event", ""), getattr(record, "fence", None)
        if event and "\n" not in text:
            text += f" [{event}]" if fence is None else f" [{event} fence={fence}]"
        return self._redact(text)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(self._redact.clean(line), ensure_ascii=False, default=str)


#: Loggers of the server of the API, which have handlers of their own.
OF_THE_API = ("uvicorn", "uvicorn.error", "uvicorn.access")


def set_up_api(settings: Settings) -> None:
    """For a process of the API: its own lines, and those of its server."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        root.addHandler(handler)
    set_up(settings, root.handlers)
    for name in OF_THE_API:
        set_up(settings, logging.getLogger(name).handlers)


def set_up(settings: Settings, handlers: Iterable[logging.Handler]) -> None:
    """Let these handlers write as the settings say."""
    redact = Redactor(secrets_of(settings))
    for handler in handlers:
        found = handler.formatter or logging.Formatter()
        inner = found.inner if isinstance(found, TextFormatter) else found
        as_json = settings.log_format == "json"
        handler.setFormatter(JsonFormatter(redact) if as_json else TextFormatter(inner, redact))
