"""BatchList, the protobuf message that Sawtooth and scabbard take: just enough to read and make it.

BatchList{repeated Batch batches=1}; Batch{bytes header=1; string header_signature=2;
repeated Transaction transactions=3}; Transaction{bytes header=1; string header_signature=2;
bytes payload=3}. The id of a batch is its header signature, 128 hex digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

BATCH_ID = re.compile(r"[0-9a-f]{128}")

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10


class NotABatchList(ValueError):
    """The bytes are not a BatchList; the message says why."""


def batch_ids(payload: bytes) -> list[str]:
    """The ids of the batches in the order of the list, or NotABatchList."""
    found = []
    for number, batch in _fields(payload):
        if number != 1 or not isinstance(batch, bytes):
            raise NotABatchList("it holds something that is not a batch")
        names = [value for field, value in _fields(batch) if field == 2]
        if len(names) != 1 or not isinstance(names[0], bytes):
            raise NotABatchList("a batch in it has no header signature")
        found.append(_text(names[0]))
    return found


def transaction_ids(payload: bytes) -> list[str]:
    """The ids of the transactions of all batches, in their order, or NotABatchList."""
    return [
        _text(value)
        for _, batch in _fields(payload)
        if isinstance(batch, bytes)
        for field, transaction in _fields(batch)
        if field == 3 and isinstance(transaction, bytes)
        for inner, value in _fields(transaction)
        if inner == 2 and isinstance(value, bytes)
    ]


def payloads(payload: bytes) -> list[bytes]:
    """What the transactions of all batches carry."""
    return [
        value
        for _, batch in _fields(payload)
        if isinstance(batch, bytes)
        for field, transaction in _fields(batch)
        if field == 3 and isinstance(transaction, bytes)
        for inner, value in _fields(transaction)
        if inner == 3 and isinstance(value, bytes)
    ]


def unsigned_batch_list(batch_id: str, content: bytes) -> bytes:
    """One batch with one transaction under an id of our choice.

    Its "signature" is only an id: good for ledgers that trust their clients, such as the stand-in.
    Others take a list that was signed before it came here.
    """
    name = hashlib.sha512(content).hexdigest()
    transaction = _field(1, b"") + _field(2, name.encode()) + _field(3, content)
    batch = _field(1, b"") + _field(2, batch_id.encode()) + _field(3, transaction)
    return _field(1, batch)


def derived_id(key: str) -> str:
    """The same id for the same key, shaped like a header signature."""
    return hashlib.sha512(key.encode()).hexdigest()


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            length, at = _read_varint(data, at)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise NotABatchList("it is not a protobuf message")
        if at + length > len(data):
            raise NotABatchList("it is cut off")
        yield tag >> 3, data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(VARINT_BYTES_MAX):
        if at + place >= len(data):
            raise NotABatchList("it is cut off")
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise NotABatchList("it is not a protobuf message")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise NotABatchList("the header signature is not text") from None
