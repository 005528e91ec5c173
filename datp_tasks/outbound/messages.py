"""One HTTP exchange, in words: what is sent, and the three ways it can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from datp_tasks.outbound.addresses import Target

#: Each of these has a body, even if it is empty.
WITH_BODY = ("POST", "PUT", "PATCH")
#: Compressed responses are not asked for: a few bytes could unfold into a full memory.
DEFAULT_HEADERS = {"accept": "*/*", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: bytes = field(default=b"", repr=False)

    def encoded(self, target: Target, common: Mapping[str, str]) -> bytes:
        """The bytes for this target; ValueError if a header would break them.

        The headers of `common` are sent too, unless the request has its own.
        """
        headers = {name.lower(): text for name, text in (*common.items(), *self.headers.items())}
        if self.content or self.method in WITH_BODY:
            headers["content-length"] = str(len(self.content))
        lines = [f"{self.method} {target.path} HTTP/1.1", f"host: {target.host_header}"]
        lines += [f"{name}: {value}" for name, value in (DEFAULT_HEADERS | headers).items()]
        head = "\r\n".join([*lines, "", ""])
        if head.count("\r") != len(lines) + 1 or head.count("\n") != len(lines) + 1 or "\0" in head:
            raise ValueError("the request has a line break in its URL or in a header")
        return head.encode("ascii") + self.content


@dataclass(frozen=True, slots=True)
class Response:
    """The server answered."""

    status: int
    #: All of it, or its beginning where no more was wanted.
    body: bytes = b""
    #: Names in lower case.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing of the request reached the server."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The request may have reached the server; no response came back that can be used."""

    reason: str


Exchange = Response | NotSent | NoResponse
