"""Which ledgers this installation talks to. Addresses are checked when stored and when used."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

PORTS = {"http": 80, "https": 443}
URL_CHARS_MAX = 500


def url_mistake(
    url: object, hosts: Sequence[str], schemes: Sequence[str] = ("http", "https")
) -> str:
    """What is wrong with the base address of a ledger; empty if nothing is."""
    if not isinstance(url, str) or not url or len(url) > URL_CHARS_MAX:
        return f"the address must be a URL of up to {URL_CHARS_MAX} characters"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"the address is not a URL: {error}"
    if parts.scheme not in schemes or not parts.hostname:
        allowed = " or ".join(f"{each}://" for each in schemes)
        return f"the address must start with {allowed} and name a host"
    if "@" in parts.netloc:
        return "the address must not hold a name or password; use a secret of the service"
    if parts.query or parts.fragment or url.endswith("/") or not url.isprintable() or " " in url:
        return "the address must be a plain base URL, without query, fragment or / at its end"
    if not any(_matches(parts, host.lower()) for host in hosts):
        return (
            f"the host {parts.netloc} is not allowed; DATP_LEDGER__HOSTS names those that are: "
            f"{', '.join(hosts) or 'none'}"
        )
    return ""


def _matches(parts: SplitResult, allowed: str) -> bool:
    """Whether a host, or a host with its port, is the one allowed."""
    host = (parts.hostname or "").lower()
    shown = f"[{host}]" if ":" in host else host
    port = parts.port or PORTS.get(parts.scheme)
    return allowed in (shown, host, f"{shown}:{port}")
