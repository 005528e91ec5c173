"""An outside bank: a process of its own that keeps a log of what really happened.

    python -m tests.support.bank --port 8123 --log bank.jsonl

Tests let steps move money there and never kill it, so its log tells whether anything was applied
twice or not undone. A transfer or undo that comes again under the same key is not applied again
and gets the same answer. A `blind` transfer is applied each time, as by banks that do not know
such keys: a step must ask (`find`) before it sends one again.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

HOST = "127.0.0.1"
BODY_BYTES_MAX = 65_536
CLIENT_TIMEOUT_S = 5.0

Line = dict[str, Any]


class BankRefused(Exception):
    """The bank says no; asking again will not help."""


class Bank:
    """The way to a bank, for steps and for tests. It holds no connection, so it may be forked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = urlsplit(url).netloc

    def transfer(
        self,
        key: str,
        source: str,
        target: str,
        amount: int,
        *,
        reference: str,
        blind: bool = False,
    ) -> int:
        """Move money, once per key; the number of the receipt."""
        order = {"key": key, "from": source, "to": target, "amount": amount}
        order |= {"reference": reference, "blind": blind}
        return int(self._ask("POST", "/transfers", order)["receipt"])

    def undo(self, key: str, of: str, *, reference: str) -> bool:
        """Move it back; False if there was nothing, and from now on there never will be."""
        answer = self._ask("POST", "/undo", {"key": key, "of": of, "reference": reference})
        return bool(answer["undone"])

    def find(self, key: str) -> Line | None:
        """The transfer with this key, if it was made."""
        found: Line | None = self._ask("GET", f"/transfers/{quote(key, safe='')}")["transfer"]
        return found

    def log(self) -> list[Line]:
        """Everything that ever happened, in order."""
        lines: list[Line] = self._ask("GET", "/log")["lines"]
        return lines

    def balances(self) -> dict[str, int]:
        found: dict[str, int] = self._ask("GET", "/balances")["balances"]
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = HTTPConnection(self._address, timeout=CLIENT_TIMEOUT_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise BankRefused(answer["problem"])
        return answer


def problems(lines: Sequence[Line], balances: Mapping[str, int]) -> list[str]:
    """What the log says against those who used the bank; empty if nothing."""
    transfers = [line for line in lines if line["kind"] == "transfer"]
    undone = Counter(line["of"] for line in lines if line["kind"] == "undo")
    keys = Counter(line["key"] for line in transfers)
    found = [
        f"the transfer {key} happened {count} times" for key, count in keys.items() if count > 1
    ]
    found += [f"{key} was undone {count} times" for key, count in undone.items() if count > 1]
    found += [f"{key} was undone, but never happened" for key in undone if key not in keys]
    purposes = Counter((line["reference"], line["from"], line["to"]) for line in transfers)
    found += [
        f"{reference} sent money from {source} to {target} {count} times"
        for (reference, source, target), count in purposes.items()
        if count > 1
    ]
    if sum(balances.values()) != 0:
        found.append(f"the accounts add up to {sum(balances.values())}, not to 0")
    if _folded(lines) != {name: amount for name, amount in balances.items() if amount}:
        found.append("the accounts do not say what the log says")
    return found


def moved(lines: Sequence[Line], reference: str) -> dict[str, int]:
    """What all transfers and undos of one reference together did to each account."""
    return _folded([line for line in lines if line["reference"] == reference])


def _folded(lines: Sequence[Line]) -> dict[str, int]:
    amounts: defaultdict[str, int] = defaultdict(int)
    for line in lines:
        if line["kind"] in ("transfer", "undo"):
            amounts[line["from"]] -= line["amount"]
            amounts[line["to"]] += line["amount"]
    return {name: amount for name, amount in amounts.items() if amount}


# The process.


class _Ledger:
    """What the bank knows: its log, and what follows from it."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, Line] = {}
        self._undone: dict[str, Line] = {}
        self._void: set[str] = set()
        self.lines: list[Line] = []
        for text in path.read_text().splitlines() if path.exists() else []:
            self._learn(json.loads(text))
        # Unbuffered: what was answered is in the file.
        self._file = path.open("ab", buffering=0)

    def transfer(self, order: Line) -> Line:
        with self._lock:
            key, wanted = order["key"], _transfer(order)
            before = self._made.get(key)
            if key in self._void:
                raise BankRefused(f"{key} was undone before it came")
            if before is not None and any(before[name] != wanted[name] for name in wanted):
                raise BankRefused(f"{key} was used before, for another transfer")
            if before is not None and not order.get("blind"):
                self._write({"kind": "repeat", "key": key, "reference": wanted["reference"]})
                return {"receipt": before["number"]}
            return {"receipt": self._write({"kind": "transfer", "key": key, **wanted})}

    def undo(self, order: Line) -> Line:
        with self._lock:
            key, of, reference = order["key"], order["of"], order["reference"]
            if key in self._undone:
                self._write({"kind": "repeat", "key": key, "reference": reference})
                return {"undone": True}
            made = self._made.get(of)
            if made is None:
                self._write({"kind": "void", "key": key, "of": of, "reference": reference})
                return {"undone": False}
            back = {"from": made["to"], "to": made["from"], "amount": made["amount"]}
            self._write({"kind": "undo", "key": key, "of": of, "reference": reference, **back})
            return {"undone": True}

    def find(self, key: str) -> Line:
        with self._lock:
            return {"transfer": self._made.get(key)}

    def log(self) -> Line:
        with self._lock:
            return {"lines": list(self.lines)}

    def balances(self) -> Line:
        with self._lock:
            return {"balances": _folded(self.lines)}

    def _write(self, line: Line) -> int:
        line = {"number": len(self.lines) + 1, **line}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._learn(line)
        return int(line["number"])

    def _learn(self, line: Line) -> None:
        self.lines.append(line)
        match line["kind"]:
            case "transfer":
                self._made.setdefault(line["key"], line)
            case "undo":
                self._undone[line["key"]] = line
            case "void":
                self._void.add(line["of"])


def _transfer(order: Line) -> Line:
    wanted = {name: order[name] for name in ("from", "to", "amount", "reference")}
    if type(wanted["amount"]) is not int or wanted["amount"] < 1:
        raise BankRefused("an amount is a whole number from 1 on")
    return wanted


class _Handler(BaseHTTPRequestHandler):
    ledger: _Ledger

    def do_GET(self) -> None:
        if self.path == "/log":
            self._answer(200, self.ledger.log())
        elif self.path == "/balances":
            self._answer(200, self.ledger.balances())
        elif self.path.startswith("/transfers/"):
            self._answer(200, self.ledger.find(unquote(self.path.removeprefix("/transfers/"))))
        else:
            self._answer(404, {"problem": f"there is nothing at {self.path}"})

    def do_POST(self) -> None:
        acts = {"/transfers": self.ledger.transfer, "/undo": self.ledger.undo}
        size = int(self.headers.get("Content-Length", "0"))
        if self.path not in acts or size > BODY_BYTES_MAX:
            return self._answer(404, {"problem": f"{self.path} does not take this"})
        try:
            answer = acts[self.path](json.loads(self.rfile.read(size)))
        except BankRefused as refusal:
            return self._answer(409, {"problem": str(refusal)})
        except (KeyError, TypeError, ValueError) as error:
            return self._answer(400, {"problem": f"this is no order: {error!r}"})
        return self._answer(200, answer)

    def _answer(self, status: int, body: Line) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Its own log says everything."""


def serve(port: int, log: Path) -> None:
    """Be the bank until the process is ended."""
    handler = type("Handler", (_Handler,), {"ledger": _Ledger(log)})
    with ThreadingHTTPServer((HOST, port), handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.support.bank")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True, help="where everything is written down")
    options = parser.parse_args()
    serve(options.port, options.log)
