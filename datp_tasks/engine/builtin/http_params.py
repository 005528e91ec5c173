"""The parameters of `http/request`: their checks, and the address that comes out of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import idna

from datp_tasks.engine.builtin.params import mistakes_in, seconds_mistakes
from datp_tasks.model.paths import PLACEHOLDER, render, template_mistakes

KNOWN = {
    "method": "text",
    "url": "text",
    "headers": "an object",
    "query": "an object",
    "body": "any",
    "timeoutSeconds": "any",
    "expect": "a list",
    "failOn": "a list",
    "into": "text",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: Ours to set: each would break the framing of the request or the promise of one key.
HEADERS_KEPT = (
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "transfer-encoding",
)
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
STATUS = re.compile(r"[1-5]([0-9][0-9]|xx)")
#: What quote() leaves alone in a path or a query, beside letters and digits.
URL_SAFE = "%/?:@!$&'()*+,;=[]"
LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
TIMEOUT_S_MAX = 300
URL_CHARS_MAX = 8_000


def matches(status: int, patterns: Sequence[object]) -> bool:
    """Is the status among numbers such as 404 and classes such as "4xx"?"""
    return any(str(each) in (str(status), f"{status // 100}xx") for each in patterns)


def request_url(template: str, data: Mapping[str, Any], query: Mapping[str, str]) -> str:
    """The address with its placeholders filled in; no value can leave its place in the path.

    A value of `query` replaces the one of that name in the template.
    """
    parts = urlsplit(render(template, data, escape=lambda text: quote(text, safe="")))
    if any(part in (".", "..") for part in parts.path.split("/")):
        raise ValueError('the path would hold "." or ".."')
    search = _escaped(parts.query)
    if query:
        given = parse_qs(parts.query, keep_blank_values=True)
        search = urlencode(given | {name: [text] for name, text in query.items()}, doseq=True)
    host = parts.hostname or ""
    if not host.isascii():
        host = idna.encode(host).decode()
        parts = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host)
    url = parts._replace(path=_escaped(parts.path), query=search).geturl()
    if len(url) > URL_CHARS_MAX:
        raise ValueError(f"the URL is longer than {URL_CHARS_MAX} characters")
    return url


def _escaped(text: str) -> str:
    """What the author of the template did not escape; escapes that are there stay."""
    return LONE_PERCENT.sub("%25", quote(text, safe=URL_SAFE))


def params_mistakes(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    mistakes += _url_mistakes(params.get("url"))
    if params.get("method", "GET") not in METHODS:
        mistakes.append(f"method must be one of {', '.join(METHODS)}, was {params['method']!r}")
    mistakes += seconds_mistakes(params, "timeoutSeconds", low_s=0.01, high_s=TIMEOUT_S_MAX)
    mistakes += _header_mistakes(params.get("headers"))
    mistakes += _query_mistakes(params.get("query"))
    body = params.get("body")
    if body not in (None, "data") and not isinstance(body, Mapping):
        mistakes.append(f'body must be "data" or an object, was {body!r}')
    for name in ("headers", "query", "body"):
        mistakes += template_mistakes(params.get(name), name)
    mistakes += _status_mistakes(params)
    if params.get("into") == "":
        mistakes.append("into must not be empty")
    return mistakes


def _url_mistakes(url: object) -> list[str]:
    if not isinstance(url, str) or not url:
        return ["url must be given: an http or https address"]
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return [f"url is not an address: {error}"]
    mistakes = template_mistakes(url, "url")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        mistakes.append("url must start with http:// or https:// and name a host")
    if PLACEHOLDER.search(parts.netloc):
        mistakes.append("url: the host cannot come from the data; it must be written out")
    if "@" in parts.netloc:
        mistakes.append("url must not hold a name or password; send them in a header")
    if parts.fragment:
        mistakes.append("url must not have a fragment (#…)")
    return mistakes


def _header_mistakes(headers: object) -> list[str]:
    if not isinstance(headers, Mapping):
        return []
    mistakes = []
    for name, text in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            mistakes.append(f"headers: {name!r} is not the name of a header")
        elif name.lower() in HEADERS_KEPT:
            mistakes.append(f"headers: {name} is set by the step itself")
        if not isinstance(text, str):
            mistakes.append(f"headers.{name} must be text, was {text!r}")
    return mistakes


def _query_mistakes(query: object) -> list[str]:
    if not isinstance(query, Mapping):
        return []
    return [
        f"query.{name} must be text or a whole number, was {value!r}"
        for name, value in query.items()
        if isinstance(value, bool) or not isinstance(value, str | int)
    ]


def _status_mistakes(params: Mapping[str, Any]) -> list[str]:
    mistakes = []
    for name in ("expect", "failOn"):
        values = params.get(name, ())
        if isinstance(values, list | tuple):
            mistakes += [
                f'{name} must hold statuses such as 404 or "4xx", was {each!r}'
                for each in values
                if isinstance(each, bool) or not STATUS.fullmatch(str(each))
            ]
    if params.get("expect") == []:
        mistakes.append("expect must not be empty")
    return mistakes
