"""What went wrong on the way to a server, in words for people who did not write the client."""

from __future__ import annotations

import errno
import socket
import ssl
from urllib.parse import urlsplit

#: The name service may answer later; for all other answers the name has no address.
LATER = frozenset({socket.EAI_AGAIN})
UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


#: What this machine lacks; the other side has no part in it.
OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def trouble_in_words(error: Exception, url: str) -> str:
    """One sentence without the name of a Python class or a number of the system; empty if the
    error says nothing."""
    where = _where(url)
    match error:
        case socket.gaierror(errno=number) if number in LATER:
            return f"the name {where.name} cannot be resolved: the name service does not answer"
        case socket.gaierror():
            return f"the name {where.name} cannot be resolved"
        case UnicodeError():
            return "the request has a character that cannot be sent"
        case ssl.SSLCertVerificationError():
            return f"the certificate of {where.host} is not accepted: {error.verify_message}"
        case ssl.SSLError():
            why = (error.reason or "no reason is given").replace("_", " ").lower()
            return f"no encrypted connection with {where.server}: {why}"
        case ConnectionRefusedError():
            return f"{where.server} refuses connections"
        case ConnectionResetError() | BrokenPipeError() | ConnectionAbortedError():
            return f"{where.server} closed the connection before it answered"
        case OSError(errno=number) if number is not None:
            return _trouble_of_system(error, where)
    return str(error)


def _trouble_of_system(error: OSError, where: _Where) -> str:
    if error.errno in UNREACHABLE:
        return f"{where.server} cannot be reached: there is no way to its network"
    if error.errno in OWN_LIMITS:
        return f"this machine can open no connection now: {error.strerror or 'it is full'}"
    return f"no connection with {where.server}: {error.strerror or 'it failed'}"


class _Where:
    def __init__(self, host: str | None, port: int | None) -> None:
        self.name = host or "of the host"
        self.host = host or "the server"
        self.server = self.host if port is None else f"{self.host}:{port}"


def _where(url: str) -> _Where:
    """Never with what a URL may have before its host or in its path: those can be secrets."""
    try:
        parts = urlsplit(url)
        return _Where(parts.hostname, parts.port)
    except ValueError:
        return _Where(None, None)
