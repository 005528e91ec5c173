"""Where webhooks may go. Clients choose the URLs, so every one is taken for an attack.

A URL is checked when it is accepted (`check_url`, without the name service) and again at every
attempt, and then every address that its name has is checked too (`check_addresses`). The
connection goes to the address that was checked: a name that changes its mind gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

from datp_tasks.errors import WebhookInvalid
from datp_tasks.settings import Settings

# Where webhooks may go if their host is not named as private.
#: Data of transactions do not travel in clear text.
PUBLIC_SCHEMES = ("https",)
#: Other ports of a public host are as likely a service that must not be reached.
PUBLIC_PORTS = ("443", "8443")
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
#: Scheme, host and port.
Origin = tuple[str, str, int]

PORTS = {"http": 80, "https": 443}
#: What RFC 3986 lets a URL consist of; without the fragment, which no server gets to see.
URL_CHARS = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
NETLOC = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(:[0-9]{1,5})?")
HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
HOST_CHARS_MAX = 253
#: What browsers and proxies carry.
URL_CHARS_MAX = 2_000
#: Browsers take such a last part for a number, and the whole name for an address: 0x7f.1, 017.
NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")

#: Cloud metadata, with the keys of the machine: refused whatever the operator allows.
METADATA = frozenset(
    ip_address(text)
    for text in (
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200"),
        *("168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    )
)
#: Not for the public, or a way around, although `is_global` may say otherwise.
BAD_NETWORKS: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15"),
        *(
            "64:ff9b:1::/48",
            "2001::/23",
            "2002::/16",
            "3fff::/20",
            "5f00::/16",
            "100::/64",
            "fec0::/10",
        ),
    )
)
NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, taken apart."""

    scheme: str
    #: A name in lower case, or an address without brackets.
    host: str
    port: int
    #: Path and query, as they are sent.
    path: str
    #: The operator named this host, so its addresses need not be public.
    is_trusted: bool

    @property
    def origin(self) -> Origin:
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def check_url(url: object, settings: Settings, owner: str = "") -> None:
    """Raise WebhookInvalid unless webhooks may go to this URL, as far as it alone can tell."""
    target_of(url, settings_of(settings, owner))


def settings_of(settings: Settings, owner: str) -> Settings:
    """With the private hosts of this owner: those for all, and those given to it alone."""
    named = (each.rpartition("=") for each in settings.webhook_private_hosts)
    hosts = tuple(host for of, _, host in named if of in ("", owner))
    return replace(settings, webhook_private_hosts=hosts)


def owners_named(settings: Settings) -> set[str]:
    """Owners that have private hosts of their own."""
    return {each.rpartition("=")[0] for each in settings.webhook_private_hosts} - {""}


def target_of(url: object, settings: Settings) -> Target:
    """Where a URL leads, or WebhookInvalid that says what is wrong with it."""
    scheme, host, port, path = _taken_apart(url, URL_CHARS_MAX)
    trusted = _trusted(settings.webhook_private_hosts)
    literal = _literal(host)
    is_trusted = trusted.names(host, port) or (literal is not None and trusted.holds(literal))
    target = Target(scheme, host, port, path, is_trusted)
    if literal is not None:
        _check_literal(literal, target)
    if is_trusted:
        return target
    if scheme not in PUBLIC_SCHEMES:
        allowed = " or ".join(f"{each}://" for each in PUBLIC_SCHEMES)
        raise WebhookInvalid(f"a webhook must start with {allowed}, was {scheme}://")
    if str(port) not in PUBLIC_PORTS:
        allowed = ", ".join(PUBLIC_PORTS)
        raise WebhookInvalid(f"a webhook may use the ports {allowed}, not {port}")
    return target


def check_addresses(target: Target, addresses: Sequence[str], settings: Settings) -> None:
    """Raise WebhookInvalid if a single one of them is not for the public."""
    if not addresses:
        raise WebhookInvalid(f"{target.host} has no address")
    trusted = _trusted(settings.webhook_private_hosts)
    for text in addresses:
        address = ip_address(text.partition("%")[0])
        if is_metadata(address):
            raise WebhookInvalid(f"{target.host} leads to {address}, a cloud metadata address")
        if not target.is_trusted and is_bad(address) and not trusted.holds(address):
            raise WebhookInvalid(f"{target.host} leads to {address}, which is not a public address")


def is_bad(address: Address) -> bool:
    """Whether something that is not for the public may answer there."""
    for each in (address, *_inside(address)):
        if not each.is_global or each.is_multicast or each.is_reserved or each.is_unspecified:
            return True
        if any(each.version == network.version and each in network for network in BAD_NETWORKS):
            return True
    return False


def _inside(address: Address) -> Iterable[Address]:
    """Addresses of the old kind that one of the new kind stands for."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo
        if address in NAT64 or int(address) >> 32 == 0:
            yield IPv4Address(int(address) & 0xFFFF_FFFF)


def is_metadata(address: Address) -> bool:
    return any(each in METADATA for each in (address, *_inside(address)))


def _taken_apart(url: object, chars_max: int) -> tuple[str, str, int, str]:
    if not isinstance(url, str) or not url or len(url) > chars_max:
        raise WebhookInvalid(f"a webhook is a URL of up to {chars_max} characters")
    if not URL_CHARS.fullmatch(url):
        raise WebhookInvalid(
            "a webhook may hold only the characters of a URL, and no # part; write other letters "
            "as %.. and the host as xn--.."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise WebhookInvalid(f"the webhook is not a URL: {error}") from None
    if parts.scheme not in PORTS or not parts.netloc:
        raise WebhookInvalid("a webhook must be a whole URL, such as https://example.com/hook")
    if "@" in parts.netloc:
        raise WebhookInvalid("a webhook must not hold a name or password; check its signature")
    if not NETLOC.fullmatch(parts.netloc) or port == 0:
        raise WebhookInvalid(f"{parts.netloc:.100} is not a host with a port or without")
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    return parts.scheme, _host(parts.hostname or ""), port or PORTS[parts.scheme], path


def _host(host: str) -> str:
    """One spelling for each host, or WebhookInvalid."""
    if ":" in host:
        try:
            # A zone (%eth0) only means something on one machine, so it is none of an address.
            return str(IPv6Address(host.replace("%", "/")))
        except ValueError:
            raise WebhookInvalid(f"{host:.100} is not an address") from None
    host = host.removesuffix(".")
    if len(host) > HOST_CHARS_MAX or not HOST_NAME.fullmatch(host):
        raise WebhookInvalid(f"{host!r:.100} is not the name of a host")
    if NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            # Only the plain notation: other programs read 127.1 and 0177.0.0.1 in their own ways.
            return str(IPv4Address(host))
        except ValueError:
            raise WebhookInvalid(f"{host:.100} is not a plain address such as 192.0.2.1") from None
    return host


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _check_literal(literal: Address, target: Target) -> None:
    if is_metadata(literal):
        raise WebhookInvalid(f"{literal} is a cloud metadata address")
    if not target.is_trusted:
        raise WebhookInvalid(
            f"a webhook must name its host, not its address ({literal}); the operator can allow "
            "it by DATP_WEBHOOKS__PRIVATE_HOSTS"
        )


@dataclass(frozen=True, slots=True)
class _Trusted:
    """What the operator vouches for."""

    hosts: frozenset[str]
    networks: tuple[Network, ...]

    def names(self, host: str, port: int) -> bool:
        shown = f"[{host}]" if ":" in host else host
        return host in self.hosts or f"{shown}:{port}" in self.hosts

    def holds(self, address: Address) -> bool:
        return any(
            each.version == network.version and each in network
            for each in (address, *_inside(address))
            for network in self.networks
        )


@lru_cache(maxsize=16)
def _trusted(allowed: tuple[str, ...]) -> _Trusted:
    hosts, networks = set(), []
    for each in allowed:
        try:
            networks.append(ip_network(each, strict=False))
        except ValueError:
            hosts.add(each.lower())
    return _Trusted(frozenset(hosts), tuple(networks))
