"""Scripts, styles and pictures of the console, read once; their path names their content."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi.responses import Response

FOLDER = Path(__file__).with_name("static")
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: The path changes with the content, so a browser may keep it.
KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


@cache
def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir())}


@cache
def content_mark() -> str:
    """Of all files together: modules name each other by relative paths."""
    digest = sha256()
    for name, content in files().items():
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:12]


def static_response(name: str) -> Response | None:
    content = files().get(name)
    if content is None:
        return None
    return Response(content, headers=KEPT, media_type=TYPES[Path(name).suffix])
