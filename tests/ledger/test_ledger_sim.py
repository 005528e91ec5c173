"""The stand-in remembers and forgets as the real ledgers do. Without it the other tests lie."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.ledger.sim.sim_server import LedgerSim, SimThread

OCTETS = {"Content-Type": "application/octet-stream"}
A, B = derived_id("a"), derived_id("b")


class Box:
    """A stand-in whose clock is moved by the test."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.sim = LedgerSim(seed=1, clock=lambda: self.now_s)
        self.sim.options.commit_ms = 1_000
        self.thread = SimThread(self.sim).start()
        self.http = httpx.Client(base_url=self.thread.url, trust_env=False, timeout=10)

    def close(self) -> None:
        self.http.close()
        self.thread.stop()

    def post(self, batch: str, content: bytes = b"{}", path: str = "/batches") -> httpx.Response:
        data = unsigned_batch_list(batch, content)
        return self.http.post(path, content=data, headers=OCTETS)

    def sawtooth(self, batch: str) -> str:
        found = self.http.get(f"/batch_statuses?id={batch}").json()["data"]
        return str(found[0]["status"])

    def scabbard(self, batch: str, service: str = "s") -> str:
        found = self.http.get(f"/scabbard/c/{service}/batch_statuses?ids={batch}").json()
        return str(found[0]["status"]["statusType"])

    def log(self) -> list[tuple[str, str]]:
        lines = self.http.get("/sim/log").json()
        return [(line["batch"], line["result"]) for line in lines]

    def options(self, **given: Any) -> httpx.Response:
        return self.http.post("/sim/options", json=given)

    def faults(self, *given: dict[str, Any]) -> httpx.Response:
        return self.http.post("/sim/faults", json=list(given))


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box()
    yield made
    made.close()


SCABBARD = "/scabbard/c/s/batches"


def test_a_batch_is_pending_and_then_committed_for_ever(box: Box) -> None:
    answer = box.post(A)
    assert answer.status_code == 202
    assert answer.json()["link"].endswith(f"/batch_statuses?id={A}")
    assert box.sawtooth(A) == "PENDING"
    box.now_s += 1
    assert box.sawtooth(A) == "COMMITTED"
    box.http.post("/sim/restart")
    assert box.sawtooth(A) == "COMMITTED"
    assert box.http.get(f"/batches/{A}").status_code == 200
    assert box.http.get(f"/batches/{B}").status_code == 404
    assert box.log() == [(A, "COMMITTED")]


def test_sawtooth_loses_what_is_pending_when_it_restarts(box: Box) -> None:
    box.post(A)
    box.http.post("/sim/restart")
    assert box.sawtooth(A) == "UNKNOWN"
    box.post(A)
    box.now_s += 1
    assert box.log() == [(A, "COMMITTED")]


def test_sawtooth_does_not_know_a_batch_for_a_moment_after_it_took_it(box: Box) -> None:
    box.options(unknown_ms=500)
    box.post(A)
    assert box.sawtooth(A) == "UNKNOWN"
    box.now_s += 0.6
    assert box.sawtooth(A) == "PENDING"


def test_sawtooth_drops_duplicates_and_swallows_what_it_has_just_seen(box: Box) -> None:
    poison = b'{"simulate":"invalid"}'
    box.post(A, poison)
    box.now_s += 1
    assert box.sawtooth(A) == "INVALID"
    assert box.post(A, poison).status_code == 202
    box.now_s += 600
    # Forgotten, and still swallowed: unknown however often it is sent.
    assert box.sawtooth(A) == "UNKNOWN"
    assert box.post(A, poison).status_code == 202
    box.now_s += 1
    assert box.sawtooth(A) == "UNKNOWN"
    box.now_s += 600
    box.post(A, poison)
    box.now_s += 1
    assert box.sawtooth(A) == "INVALID"
    assert box.log() == [(A, "INVALID")] * 2


def test_sawtooth_takes_nothing_more_when_it_is_full(box: Box) -> None:
    box.options(pending_max=1)
    assert box.post(A).status_code == 202
    full = box.post(B)
    assert (full.status_code, full.json()["error"]["code"]) == (429, 31)


def test_scabbard_executes_whatever_it_is_sent_again(box: Box) -> None:
    box.post(A, path=SCABBARD)
    box.now_s += 1
    assert box.scabbard(A) == "Committed"
    assert box.post(A, path=SCABBARD).json() == {"link": f"/scabbard/c/s/batch_statuses?ids={A}"}
    assert box.scabbard(A) == "Pending"
    box.now_s += 1
    assert box.scabbard(A) == "Invalid"
    assert box.log() == [(A, "COMMITTED"), (A, "INVALID")]


def test_scabbard_shows_what_is_executed_but_not_committed(box: Box) -> None:
    box.options(valid_ms=500)
    box.post(A, path=SCABBARD)
    box.now_s += 1.1
    assert box.scabbard(A) == "Valid"
    box.now_s += 0.5
    assert box.scabbard(A) == "Committed"


def test_scabbard_forgets_all_but_the_last_batches_and_everything_at_a_restart(box: Box) -> None:
    box.options(history_max=2, commit_ms=0)
    for name in ("a", "b", "c"):
        box.post(derived_id(name), path=SCABBARD)
    assert [box.scabbard(derived_id(name)) for name in ("a", "b", "c")] == [
        *("Unknown", "Committed", "Committed")
    ]
    box.http.post("/sim/restart")
    assert box.scabbard(derived_id("c")) == "Unknown"


def test_scabbard_services_are_apart_and_full_ones_need_room(box: Box) -> None:
    for number in range(30):
        assert box.post(derived_id(str(number)), path=SCABBARD).status_code == 202
    full = box.post(A, path=SCABBARD)
    assert (full.status_code, full.content) == (429, b"")
    assert box.post(A, path="/scabbard/c/t/batches").status_code == 202
    assert box.scabbard(A) == "Unknown"
    assert box.scabbard(A, "t") == "Pending"


@pytest.mark.parametrize(
    ("headers", "content", "code"),
    [({}, unsigned_batch_list(A, b""), 42), (OCTETS, b"garbage", 34), (OCTETS, b"", 34)],
)
def test_sawtooth_refuses_what_is_not_a_batch_list_of_octets(
    box: Box, headers: dict[str, str], content: bytes, code: int
) -> None:
    answer = box.http.post("/batches", content=content, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_sawtooth_wants_ids_that_can_be_ids(box: Box) -> None:
    assert box.http.get("/batch_statuses?id=short").json()["error"]["code"] == 60
    assert box.http.get("/batch_statuses").json()["error"]["code"] == 66


def test_faults_are_used_as_often_as_asked_for(box: Box) -> None:
    box.faults({"on": "post", "do": "503-17-accepted", "times": 2})
    answers = [box.post(derived_id(str(n))).status_code for n in range(3)]
    assert answers == [503, 503, 202]
    box.now_s += 1
    assert len(box.log()) == 3
    assert box.http.get("/sim").json()["faults"] == {"post 503-17-accepted": 2}


def test_a_fault_with_a_share_hits_that_share(box: Box) -> None:
    box.faults({"on": "post", "do": "429", "share": 0.5})
    answers = [box.post(derived_id(str(n))).status_code for n in range(60)]
    assert 15 <= answers.count(429) <= 45


def test_dropped_connections_and_cut_answers_look_so(box: Box) -> None:
    box.options(commit_ms=0)
    for word, executed in (("drop-before", 0), ("drop-after", 1), ("cut", 2)):
        box.faults({"on": "post", "do": word, "times": 1})
        with pytest.raises(httpx.HTTPError):
            box.post(derived_id(word))
        assert len(box.log()) == executed


@pytest.mark.parametrize(
    "given",
    [
        [{"on": "post", "do": "nothing known"}],
        [{"on": "never", "do": "429"}],
        [{"unknown": 1}],
        ["text"],
        {"on": "post"},
    ],
)
def test_a_fault_that_is_not_known_is_refused(box: Box, given: Any) -> None:
    assert box.http.post("/sim/faults", json=given).status_code == 400
    assert box.http.post("/sim/options", json={"unknown": 1}).status_code == 400
    assert box.http.get("/nowhere").status_code == 404
    assert box.http.get("/sim/nowhere").status_code == 404


def test_what_is_not_http_ends_only_its_connection(box: Box) -> None:
    for garbage in (b"\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"x" * 100_000, b"POST / HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", box.thread.port)) as raw:
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(5)
            try:
                while raw.recv(1_024):
                    pass
            except ConnectionError:
                continue
    assert box.post(A).status_code == 202


@pytest.mark.parametrize("path", ["/batch_statuses", "/scabbard/c/s/batch_statuses"])
def test_statuses_are_asked_for_by_a_list_in_the_body_too(box: Box, path: str) -> None:
    box.post(A)
    box.post(A, path=SCABBARD)
    answer = box.http.post(path, json=[A])
    assert answer.json() == box.http.get(f"{path}?id={A}&ids={A}").json()
    assert A in answer.text
    assert box.http.post("/batch_statuses", json={"no": "list"}).status_code == 400
