"""Reading one response, with a limit on everything. The only module that knows the parser.

The parser is llhttp, the one of Node.js, by way of httptools. It refuses a response that has both
Content-Length and Transfer-Encoding, either length twice, a bare line feed or a folded header. It
keeps no count, so the counts are here: bytes of the head and the body, headers, 1xx responses.
"""

from __future__ import annotations

from dataclasses import dataclass

import httptools

from datp_tasks.outbound.messages import Response

HEAD_BYTES_MAX = 65_536
HEADERS_MAX = 100
INFORMATIONAL_MAX = 10
#: A body in chunks of one byte takes six times its length on the way.
CHUNKED_FACTOR = 8
#: Headers that say where the body ends.
FRAMING = {"content-length", "transfer-encoding"}


class ResponseInvalid(Exception):
    """The message says what is wrong with the response."""


class _Stop(Exception):
    """Ends the work of the parser; the reader knows why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    bytes_max: int
    #: If given, the status is what matters: only so much of the body is kept, and a body that is
    #: late, longer than `bytes_max` or broken only costs the connection.
    excerpt_bytes_max: int | None = None
    excerpt_s_max: float = 0.25


class ResponseReader:
    def __init__(self, limits: BodyLimits, *, method: str = "GET") -> None:
        self.limits = limits
        #: How many bytes have come so far.
        self.received = 0
        self.is_head_done = False
        self.is_done = False
        #: The connection stands at the beginning of the next response.
        self.is_reusable = False
        self._has_body = method != "HEAD"
        self._head_bytes = 0
        self._header_count = 0
        self._informational = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._body_bytes = 0
        self._problem = ""
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_enough(self) -> bool:
        """Whether what has come answers the question."""
        return self.is_done or (self.is_head_done and self.limits.excerpt_bytes_max is not None)

    def response(self) -> Response:
        return Response(self._status, bytes(self._body), self._headers)

    def feed(self, data: bytes) -> bool:
        """Read on; whether the response is complete. ResponseInvalid if it cannot be."""
        if self.received == 0 and data[:1] != b"H":
            raise ResponseInvalid("the response is not HTTP")
        self.received += len(data)
        if self.is_head_done:
            self._parse(data)
        else:
            self._parse_head(data)
        if self.received > HEAD_BYTES_MAX + CHUNKED_FACTOR * self.limits.bytes_max:
            self._cut(self._too_long)
        return self.is_done

    def end(self) -> None:
        """The server has closed the connection. ResponseInvalid if something is missing."""
        self.is_reusable = False
        if self.is_enough:
            self.is_done = True
        elif not self.received:
            raise ResponseInvalid("the connection was closed without a response")
        elif not self.is_head_done or self._headers.keys() & FRAMING:
            raise ResponseInvalid("the response was cut off")
        else:
            # Without a length the end of the connection is the end of the body.
            self.is_done = True

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.is_done:
            # More than one response to one request: the second one answers no question.
            self.is_reusable = False
            raise _Stop

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > HEADERS_MAX:
            self._refuse(f"the response has more than {HEADERS_MAX} headers")
        if self.is_head_done:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        if not self._parser.get_http_version().startswith("1."):
            self._refuse("the response is not HTTP/1.1")
        if self._headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self._refuse("the response has a Transfer-Encoding other than chunked")
        self.is_head_done = True
        if not self._has_body:
            self.is_done = True
            raise _Stop
        length = int(self._headers.get("content-length", 0))
        if length > self.limits.bytes_max and self.limits.excerpt_bytes_max is None:
            self._refuse(self._too_long)

    def on_body(self, data: bytes) -> None:
        kept_max, bytes_max = self.limits.excerpt_bytes_max, self.limits.bytes_max
        self._body_bytes += len(data)
        if kept_max is None:
            if self._body_bytes > bytes_max:
                self._refuse(self._too_long)
            self._body += data
            return
        self._body += data[: kept_max - len(self._body)]
        is_long = int(self._headers.get("content-length", 0)) > bytes_max
        if self._body_bytes > bytes_max or (is_long and len(self._body) >= kept_max):
            self.is_done = True
            raise _Stop

    def on_message_complete(self) -> None:
        if self._status >= 200:
            self.is_done = True
            self.is_reusable = self._parser.should_keep_alive()
            return
        self._informational += 1
        if self._informational > INFORMATIONAL_MAX:
            self._refuse("too many 1xx responses")
        self._headers = {}
        self._header_count = 0

    @property
    def _too_long(self) -> str:
        return f"the response is longer than {self.limits.bytes_max} bytes"

    def _refuse(self, problem: str) -> None:
        self._problem = problem
        raise _Stop

    def _cut(self, problem: str) -> None:
        """What is wrong in or after the body does not matter where the status is enough."""
        self.is_reusable = False
        if not self.is_enough:
            raise ResponseInvalid(problem)
        self.is_done = True

    def _parse_head(self, data: bytes) -> None:
        room = HEAD_BYTES_MAX - self._head_bytes
        self._head_bytes += len(data)
        self._parse(data[:room])
        if len(data) > room:
            if not self.is_head_done:
                raise ResponseInvalid(f"the headers are longer than {HEAD_BYTES_MAX} bytes")
            self._parse(data[room:])

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ResponseInvalid("the server wants to switch to another protocol") from None
        except httptools.HttpParserError as error:
            self._cut(self._problem or f"the response is not HTTP: {error}")
