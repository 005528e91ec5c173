"""The header `traceparent` of W3C Trace Context: where a request is in a trace of its sender."""

from __future__ import annotations

import re

#: Version, trace, span, flags; what a later version adds comes after that. Ids of zeros and the
#: version ff are invalid, and an invalid header counts as none.
FORM = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


def read_traceparent(text: str | None) -> tuple[int, int, int] | None:
    """The trace, the span and the flags; None if it is invalid."""
    found = FORM.fullmatch(text or "")
    if found is None or (found[1] == "00" and found[5]):
        return None
    return int(found[2], 16), int(found[3], 16), int(found[4], 16)


def clean_traceparent(text: str | None) -> str | None:
    """The same as a header of the version that we speak; None if it is invalid."""
    found = read_traceparent(text)
    return None if found is None else "00-{:032x}-{:016x}-{:02x}".format(*found)
