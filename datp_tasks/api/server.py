"""Running the API: uvicorn with one or several processes."""

from __future__ import annotations

import resource
from typing import Any

import uvicorn

from datp_tasks.settings import Settings

#: Each process of uvicorn makes its own: the wiring is named, and not imported.
APP = "datp_tasks.runtime.api:from_environment"
#: Longer than most proxies keep theirs, so that they end it, not we.
KEEP_ALIVE_S = 75
GRACE_S = 20


def options(settings: Settings) -> dict[str, Any]:
    """What every server of the API has, however it is run."""
    return {
        "http": "datp_tasks.api.door:DoorProtocol",
        "ws": "none",
        "proxy_headers": bool(settings.api_proxies),
        "forwarded_allow_ips": list(settings.api_proxies),
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE_S,
    }


def serve(
    *,
    host: str,
    port: int,
    workers: int = 1,
    log_level: str = "warning",
    access_log: bool = False,
) -> None:
    """Serve until a signal ends it. Settings come from the environment."""
    _allow_open_files()
    uvicorn.run(
        APP,
        factory=True,
        host=host,
        port=port,
        workers=workers,
        loop="uvloop",
        log_level=log_level,
        access_log=access_log,
        timeout_graceful_shutdown=GRACE_S,
        backlog=4_096,
        **options(Settings.from_env()),
    )


def _allow_open_files() -> None:
    """As many as the process may have: each connection is one. Its processes inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
