"""Who may sign in beside holders of API keys: a file that names an OIDC provider or a proxy.

oidc:
  issuer: https://login.example.com/realms/ops
  client_id: datp-console
  client_secret: …          # or client_secret_env: NAME_OF_A_VARIABLE
  name_claim: email         # who it is; the default is `sub`
  role_claim: groups
  roles: {datp-admins: admin, datp-ops: operator}
proxy:
  from: [10.0.0.7, 10.1.0.0/16]
  name_header: X-Forwarded-User
  role_header: X-Forwarded-Groups
  roles: {datp-admins: admin}
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from datp_tasks.errors import SettingsError
from datp_tasks.model.actor import RANKS, Role

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    name_claim: str = "sub"
    role_claim: str = "groups"
    roles: Mapping[str, Role] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    networks: tuple[Network, ...]
    name_header: str
    role_header: str
    roles: Mapping[str, Role]

    def trusts(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    oidc: OidcSettings | None = None
    proxy: ProxySettings | None = None


def load_identity(path: str) -> Identity:
    """What a file says; an empty path is no file, and keys are the only way in."""
    if not path:
        return Identity()
    try:
        found = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    found = _mapping(path, "the file", found, {"oidc", "proxy"})
    return Identity(
        oidc=_oidc(path, found["oidc"]) if "oidc" in found else None,
        proxy=_proxy(path, found["proxy"]) if "proxy" in found else None,
    )


def role_of(claims: Iterable[str], roles: Mapping[str, Role]) -> Role | None:
    """The highest role that any of the claims gives."""
    found = {roles[claim] for claim in claims if claim in roles}
    return max(found, key=RANKS.index) if found else None


def checked_name(name: object) -> str | None:
    """A name that the audit can carry; None if it cannot be one."""
    text = str(name or "")
    return text if NAME.fullmatch(text) and text != "operator" else None


def _oidc(path: str, given: Any) -> OidcSettings:
    names = {"issuer", "client_id", "client_secret", "client_secret_env"}
    given = _mapping(path, "oidc", given, names | {"name_claim", "role_claim", "roles"})
    issuer = _text(path, "oidc.issuer", given.get("issuer")).rstrip("/")
    if not issuer.startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise SettingsError(f"{path}: oidc.issuer must begin with https://, was {issuer!r:.100}")
    secret = given.get("client_secret") or os.environ.get(given.get("client_secret_env") or "", "")
    return OidcSettings(
        issuer=issuer,
        client_id=_text(path, "oidc.client_id", given.get("client_id")),
        client_secret=str(secret),
        name_claim=_text(path, "oidc.name_claim", given.get("name_claim", "sub")),
        role_claim=_text(path, "oidc.role_claim", given.get("role_claim", "groups")),
        roles=_roles(path, "oidc", given.get("roles")),
    )


def _proxy(path: str, given: Any) -> ProxySettings:
    given = _mapping(path, "proxy", given, {"from", "name_header", "role_header", "roles"})
    listed = given.get("from")
    if not isinstance(listed, list) or not listed:
        raise SettingsError(f"{path}: proxy.from must list the addresses of the proxy")
    try:
        networks = tuple(ipaddress.ip_network(str(each)) for each in listed)
    except ValueError as error:
        raise SettingsError(f"{path}: proxy.from: {error}") from None
    return ProxySettings(
        networks=networks,
        name_header=_text(path, "proxy.name_header", given.get("name_header")),
        role_header=_text(path, "proxy.role_header", given.get("role_header")),
        roles=_roles(path, "proxy", given.get("roles")),
    )


def _roles(path: str, part: str, given: Any) -> dict[str, Role]:
    if not isinstance(given, dict) or not given:
        raise SettingsError(f"{path}: {part}.roles must say which role each group has")
    try:
        return {str(group): Role(str(role)) for group, role in given.items()}
    except ValueError as error:
        allowed = ", ".join(Role)
        raise SettingsError(f"{path}: {part}.roles: {error}; a role is {allowed}") from None


def _mapping(path: str, what: str, found: Any, allowed: set[str]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: {what} must be a mapping")
    unknown = {str(name) for name in found} - allowed
    if unknown:
        raise SettingsError(
            f"{path}: {what} knows no {', '.join(sorted(unknown))}; "
            f"it knows {', '.join(sorted(allowed))}"
        )
    return found


def _text(path: str, what: str, found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise SettingsError(f"{path}: {what} must be a text")
    return found
