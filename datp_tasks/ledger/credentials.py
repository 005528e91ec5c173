"""Which ledger gets to see which credential. No server gets one that is not for it, and none
travels in the clear unless the operator says so for that very server."""

from __future__ import annotations

import json
from collections.abc import Mapping

from datp_tasks.errors import SettingsError
from datp_tasks.outbound.addresses import Target

#: What is sent to these never leaves the machine.
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
FORM = 'DATP_LEDGER__AUTHORIZATION must be a header or a JSON object {"host:port": "header"}'


class Credentials:
    """From DATP_LEDGER__AUTHORIZATION: one header for every ledger, or a JSON object by host."""

    def __init__(self, text: str) -> None:
        self._for_all = "" if text.startswith("{") else text
        self._by_server: dict[str, str] = _parsed(text) if text.startswith("{") else {}

    def __call__(self, target: Target) -> Mapping[str, str]:
        found = self._find(target)
        return {"authorization": found} if found else {}

    def _find(self, target: Target) -> str:
        host, port = target.host.lower(), target.port
        if target.scheme == "http" and host not in THIS_MACHINE:
            return self._by_server.get(f"http://{host}:{port}", "")
        return self._by_server.get(f"{host}:{port}") or self._by_server.get(host) or self._for_all


def _parsed(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        raise SettingsError(FORM) from None
    if not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise SettingsError(FORM)
    return {server.lower(): header for server, header in found.items()}
