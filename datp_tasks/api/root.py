"""The root of the server: people are led to the console, programs to the API."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from datp_tasks.api.routing import json_response
from datp_tasks.api.services import services_of

routes = APIRouter(tags=["health"], redirect_slashes=False)


@routes.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    """Where everything is."""
    base = str(request.scope.get("root_path", ""))
    console = services_of(request).settings.console_path
    if console != "off" and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"{base}{console}/now", 303)
    links = {
        "api": f"{base}/v1",
        "openapi": f"{base}/openapi.json",
        "health": f"{base}/healthz",
        "metrics": f"{base}/metrics",
    }
    if console != "off":
        links["console"] = f"{base}{console}"
    return json_response({"name": "DATP Tasks", "links": links})
