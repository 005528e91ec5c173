"""Which URLs and addresses a client may talk to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from datp_tasks.outbound.addresses import PORTS, Target, check_addresses, is_metadata, target_of
from datp_tasks.settings import Settings

TARGETS_MAX = 1_024


class AddressGuard(Protocol):
    def target_of(self, url: str) -> Target:
        """Where a URL leads; WebhookInvalid or ValueError if nothing may be sent there."""

    def check(self, target: Target, addresses: Sequence[str]) -> None:
        """The same for the addresses that the name of a target has."""


class WebhookGuard:
    """For URLs that clients choose: `outbound/addresses.py` says what is allowed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # What a URL says does not change; what its name leads to is checked at every connection.
        self._target_of = lru_cache(TARGETS_MAX)(lambda url: target_of(url, settings))

    def target_of(self, url: str) -> Target:
        return self._target_of(url)

    def check(self, target: Target, addresses: Sequence[str]) -> None:
        check_addresses(target, addresses, self._settings)


class AnyAddress:
    """For URLs that the operator or the author of a pipeline wrote: they may be private.

    `hosts`: the only ones allowed, as "host" or "host:port"; any if there are none.
    """

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self._hosts = frozenset(each.lower() for each in hosts)

    def target_of(self, url: str) -> Target:
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("the URL contains a character that must be written as %..")
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError("the URL must start with http:// or https:// and name a host")
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        port = parts.port or PORTS[parts.scheme]
        target = Target(parts.scheme, parts.hostname, port, path, is_trusted=True)
        if self._hosts and not self._hosts & {target.host, f"{target.host}:{port}"}:
            raise ValueError(f"requests to {target.host_header} are not allowed here")
        return target

    def check(self, target: Target, addresses: Sequence[str]) -> None:
        if not addresses:
            raise ValueError(f"{target.host} has no address")
        for text in addresses:
            if is_metadata(ip_address(text.partition("%")[0])):
                raise ValueError(f"{target.host} leads to {text}, a cloud metadata address")
