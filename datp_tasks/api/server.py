"""Running the API: uvicorn with one or several processes."""

from __future__ import annotations

import uvicorn

#: Each process of uvicorn makes its own: the wiring is named, and not imported.
APP = "datp_tasks.runtime.api:from_environment"
#: Longer than most proxies keep theirs, so that they end it, not we.
KEEP_ALIVE_S = 75
GRACE_S = 20


def serve(
    *,
    host: str,
    port: int,
    workers: int = 1,
    log_level: str = "warning",
    access_log: bool = False,
) -> None:
    """Serve until a signal ends it. Settings come from the environment."""
    uvicorn.run(
        APP,
        factory=True,
        host=host,
        port=port,
        workers=workers,
        loop="uvloop",
        http="httptools",
        log_level=log_level,
        access_log=access_log,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        backlog=4_096,
    )
