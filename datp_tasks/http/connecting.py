"""What both clients make of a URL and a key before they send anything."""

from __future__ import annotations

import re

import httpx

from datp_tasks.http.api_error import ApiError

TIMEOUT_S = 30.0
PRINTABLE = re.compile(r"[\x21-\x7e]+")


def base_url_of(url: str) -> httpx.URL:
    """The URL of the API, or an error that says what is wrong with it: trying again is no use."""
    try:
        parsed = httpx.URL(url.strip().rstrip("/"))
    except httpx.InvalidURL as error:
        raise _wrong("url-invalid", f"{url!r:.200} is no URL: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _wrong("url-invalid", f"{url!r:.200} is no URL: write https://host or http://host.")
    return parsed


def authorization(key: str) -> dict[str, str]:
    """The header with the key. A line end that a file or a shell left at its end is not a part of
    it; the key itself is never shown."""
    text = key.strip()
    if not PRINTABLE.fullmatch(text):
        detail = "The API key is empty or has characters in it that no key has: datp_… is meant."
        raise _wrong("key-invalid", detail)
    return {"Authorization": f"Bearer {text}"}


def reason_of(error: httpx.RequestError) -> str:
    """What broke, in a few words; some errors of the library have no text."""
    return str(error) or type(error).__name__


def _wrong(kind: str, detail: str) -> ApiError:
    return ApiError(detail, status=0, kind=kind, retryable=False)
