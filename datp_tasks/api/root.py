"""The root of the server: people are led to the console or a page of links, programs to the API."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from datp_tasks.api.routing import VARY, json_response
from datp_tasks.api.services import services_of

POLICY = "default-src 'none'; frame-ancestors 'none'"

routes = APIRouter(tags=["health"], redirect_slashes=False)


@routes.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    """Where everything is."""
    base = str(request.scope.get("root_path", ""))
    console = services_of(request).settings.console_path
    is_person = "text/html" in request.headers.get("accept", "")
    if console != "off" and is_person:
        return RedirectResponse(f"{base}{console}/now", 303, headers=VARY)
    links = {
        "api": f"{base}/v1",
        "openapi": f"{base}/openapi.json",
        "health": f"{base}/healthz",
        "metrics": f"{base}/metrics",
    }
    if console != "off":
        links["console"] = f"{base}{console}"
    if is_person:
        return HTMLResponse(_page(links), headers={"Content-Security-Policy": POLICY, **VARY})
    return json_response({"name": "DATP Tasks", "links": links}, headers=VARY)


def _page(links: dict[str, str]) -> str:
    """For a person, where the console is switched off."""
    items = "".join(
        f'<li><a href="{escape(path)}">{escape(name)}</a>: <code>{escape(path)}</code></li>'
        for name, path in links.items()
        # Only what answers a browser, which sends no key.
        if name != "api"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>DATP Tasks</title>'
        "</head><body><h1>DATP Tasks</h1><p>This is the HTTP API, under "
        f"<code>{escape(links['api'])}</code>; it needs an API key. The console is switched off "
        f"here (<code>DATP_CONSOLE_PATH</code>).</p><ul>{items}</ul></body></html>"
    )
