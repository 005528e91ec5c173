"""A kind of ledger that a package brings: opaque bytes, a client of its own, its own rules."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from datp_tasks.errors import BatchInvalid, ServiceInvalid
from datp_tasks.ledger import kinds, ledger_service
from datp_tasks.ledger.batch_types import Asked, Begun, Seen
from datp_tasks.ledger.kinds import KINDS, LedgerKind
from datp_tasks.ledger.rules import Rule
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState, Verdict
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent, Response
from datp_tasks.testing import Kit
from tests.ledger.conftest import NewWorld
from tests.support.ledger_world import World

SERVICE = "paper-1"


class PaperBook:
    """A ledger that is no web server: a book in memory, with faults drawn by lot."""

    def __init__(self) -> None:
        self.rng = random.Random(7)
        self.lock = threading.Lock()
        self.entries: list[str] = []
        self.faults: list[str] = []
        self.seen_credentials: set[str] = set()

    def write(self, entry: str) -> Exchange:
        with self.lock:
            fault = self.rng.choice(self.faults) if self.faults else ""
            if fault == "shut":
                return NotSent("the book is shut")
            if fault == "full":
                return Response(509)
            if fault == "raises-before":
                raise OSError("torn")
            if entry in self.entries:
                return Response(208)
            self.entries.append(entry)
            if fault == "no-answer":
                return NoResponse("the clerk left")
            return Response(201)

    def read(self, wanted: list[str]) -> Exchange:
        with self.lock:
            if self.faults and self.rng.random() < 0.3:
                return NoResponse("the clerk left")
            found = {each: each in self.entries for each in wanted}
        return Response(200, json.dumps(found).encode())


class Paper(LedgerKind):
    name = "paper"
    drops_duplicates = True
    schemes = ("paper", "post")
    encrypted_schemes = ("paper",)
    has_own_client = True
    rules: ClassVar[Sequence[Rule]] = (
        Rule(201, None, Verdict.ACCEPTED, BatchState.PENDING, "written"),
        Rule(208, None, Verdict.ACCEPTED, BatchState.PENDING, "was written before"),
        Rule(509, None, Verdict.REFUSED, BatchState.DELAYED, "the page is full"),
        Rule(0, None, Verdict.REFUSED, BatchState.DELAYED, "it was not sent"),
        Rule(None, None, Verdict.UNSURE, BatchState.UNKNOWN, "nothing is known"),
    )
    book = PaperBook()

    def batch_id_of(self, payload: bytes) -> str:
        text = payload.decode(errors="replace")
        if not text.startswith("entry "):
            raise BatchInvalid("an entry begins with the word entry")
        return text.split()[1]

    def transactions_of(self, payload: bytes) -> list[str]:
        return payload.decode().split()[2:]

    def submission(self, begun: Begun) -> HttpRequest:
        return HttpRequest(method="WRITE", url=begun.url, content=begun.payload)

    def error_code(self, answer: Response) -> int | None:
        return None

    def questions(self, asked: Iterable[Asked]) -> list[tuple[HttpRequest, list[Asked]]]:
        part = list(asked)
        ids = json.dumps([each.batch_id for each in part]).encode()
        return [(HttpRequest(method="READ", url=part[0].url, content=ids), part)] if part else []

    def statuses(self, answer: Response) -> dict[str, Seen]:
        word = {True: BatchState.COMMITTED, False: BatchState.UNKNOWN}
        return {name: Seen(state=word[there]) for name, there in json.loads(answer.body).items()}

    def send(self, request: HttpRequest, within_s: float) -> Exchange:
        self.book.seen_credentials.add(request.headers.get("authorization", ""))
        if request.method == "READ":
            return self.book.read(json.loads(request.content))
        return self.book.write(request.content.decode().split()[1])


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaperBook]:
    """As if a package were installed that offers the kind."""
    Paper.book = PaperBook()
    offer(monkeypatch, "paper", Paper)
    yield Paper.book
    monkeypatch.undo()
    KINDS.forget()


def offer(monkeypatch: pytest.MonkeyPatch, name: str, *offered: Any) -> None:
    """As if each were what a package names; an exception is raised when it is imported."""

    def point_to(found: Any) -> EntryPoint:
        class Offered(EntryPoint):
            def load(self) -> Any:
                if isinstance(found, Exception):
                    raise found
                return found

        return Offered(name, "a:b", kinds.ENTRY_POINT_GROUP)

    points = [point_to(found) for found in offered]
    monkeypatch.setattr(kinds, "entry_points", lambda group: points)
    KINDS.forget()


def paper_world(new_world: NewWorld, **changes: Any) -> World:
    world = new_world(kind="paper", ledger_hosts=("127.0.0.1", "shelf"), **changes)
    world.instance()
    world.instances[0].ledger.intake.add_service(SERVICE, kind="paper", url="paper://shelf")
    return world


def hand_in(world: World, count: int) -> list[str]:
    names = [f"e{number:03d}" for number in range(count)]
    wanted = [(SERVICE, f"entry {name} t1 t2".encode(), None) for name in names]
    answers = world.instances[0].ledger.intake.submit_many(wanted)
    assert [each.batch_id for each in answers] == names  # type: ignore[union-attr]
    world.instances[0].waiting.clear()
    return names


def states(world: World, names: list[str]) -> set[BatchState]:
    return {world.state(name, SERVICE) for name in names}


def test_a_kind_of_a_package_settles_its_batches_in_order_through_faults(
    paper: PaperBook, new_world: NewWorld
) -> None:
    world = paper_world(new_world, ledger_resubmits_max=50)
    second = world.instance()
    names = hand_in(world, 25)
    paper.faults = ["", "", "shut", "full", "raises-before", "no-answer"]
    for number in range(400):
        # One of the two is away for a while, so that the other one takes over.
        awake = [world.instances[0], second] if number % 60 < 40 else [second]
        world.settle(*awake, rounds=1, step_s=5.0)
        if states(world, names) == {BatchState.COMMITTED}:
            break
    assert states(world, names) == {BatchState.COMMITTED}
    assert paper.entries == names, "each once, in the order of their commit"
    attempts = world.sql("SELECT max(attempts) FROM ledger_batch")[0][0]
    assert attempts > 1, "a run without a fault proves nothing"


def test_bytes_are_judged_by_the_kind_alone(paper: PaperBook, new_world: NewWorld) -> None:
    world = paper_world(new_world)
    [refused] = world.instances[0].ledger.intake.submit_many([(SERVICE, b"scribble", None)])
    assert isinstance(refused, BatchInvalid)
    [name] = hand_in(world, 1)
    world.settle(world.instances[0], rounds=3)
    client = world.instances[0].connections
    found = client.ledger.batches.find(SERVICE, name)
    assert found.state is BatchState.COMMITTED
    shown = kinds.receipts_of(KINDS["paper"], b"entry e000 t1 t2", found.state, found.receipt)
    assert [each["transactionId"] for each in shown] == ["t1", "t2"]


def test_a_process_without_the_package_sends_nothing_and_loses_nothing(
    paper: PaperBook, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = paper_world(new_world)
    [name] = hand_in(world, 1)
    with monkeypatch.context() as bare:
        bare.setattr(kinds, "entry_points", lambda group: [])
        KINDS.forget()
        world.settle(world.instances[0], rounds=3)
        assert world.state(name, SERVICE) is BatchState.DELAYED
        assert "offers the kind" in (world.batch(name, SERVICE).note or "")
        [refused] = world.instances[0].ledger.intake.submit_many([(SERVICE, b"entry x", None)])
        assert isinstance(refused, ServiceInvalid)
    KINDS.forget()
    assert paper.entries == []
    world.advance(3_600)
    world.settle(world.instances[0], rounds=5)
    assert paper.entries == [name]


def test_a_client_that_hangs_is_not_waited_for(
    paper: PaperBook, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_service, "CONNECT_S", 0.1)
    world = paper_world(new_world, ledger_http_s=0.2)
    [name] = hand_in(world, 1)
    with paper.lock:
        world.settle(world.instances[0], rounds=1)
        assert world.state(name, SERVICE) is BatchState.UNKNOWN
        assert "did not answer in time" in (world.batch(name, SERVICE).note or "")
    world.settle(world.instances[0], rounds=20, step_s=10)
    assert (world.state(name, SERVICE), paper.entries) == (BatchState.COMMITTED, [name])


class NoCatchAll(Paper):
    rules = Paper.rules[:-1]


class Nameless(Paper):
    name = "Not A Name"


@pytest.mark.parametrize(
    ("found", "mistake"),
    [
        (object(), "is no LedgerKind"),
        (Nameless, "is no LedgerKind"),
        (NoCatchAll, "must fit any answer"),
        (kinds.Sawtooth, "two packages offer"),
        (ImportError("no module named ink"), "raised ImportError"),
        (RuntimeError("torn"), "raised RuntimeError"),
    ],
)
def test_a_package_that_is_broken_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, new_world: NewWorld, found: Any, mistake: str
) -> None:
    world = new_world()
    intake = world.instance().ledger.intake
    offer(monkeypatch, "odd", found)
    with pytest.raises(ServiceInvalid, match=mistake) as refused:
        intake.add_service("odd-1", kind="odd", url="paper://shelf")
    assert "there are sawtooth, scabbard" in str(refused.value)
    assert sorted(KINDS) == ["sawtooth", "scabbard"]
    assert type(KINDS["sawtooth"]) is kinds.Sawtooth
    monkeypatch.undo()
    KINDS.forget()


def test_of_two_packages_with_one_kind_neither_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "paper", Paper, Paper)
    assert "paper" not in KINDS and "two packages offer" in KINDS.missing("paper")
    monkeypatch.undo()
    KINDS.forget()


def test_an_address_must_begin_as_the_kind_says(paper: PaperBook, new_world: NewWorld) -> None:
    world = paper_world(new_world)
    intake = world.instances[0].ledger.intake
    for url in ("http://shelf", "paper://elsewhere"):
        with pytest.raises(ServiceInvalid):
            intake.add_service("paper-2", kind="paper", url=url)


def test_each_service_shows_its_own_credential(paper: PaperBook, new_world: NewWorld) -> None:
    world = paper_world(new_world)
    secrets = {"shelf-key": "Bearer one"}
    for instance in world.instances:
        instance.ledger.connections.wire._secret = secrets.__getitem__
    intake = world.instances[0].ledger.intake
    intake.add_service(SERVICE, kind="paper", url="paper://shelf", secret="shelf-key")
    hand_in(world, 1)
    intake.add_service("paper-2", kind="paper", url="paper://shelf")
    intake.submit_many([("paper-2", b"entry other", None)])
    world.settle(world.instances[0], rounds=3)
    assert paper.seen_credentials == {"Bearer one", ""}
    assert paper.entries == ["e000", "other"] or paper.entries == ["other", "e000"]
    with pytest.raises(ServiceInvalid, match="no name of a secret"):
        intake.add_service("paper-3", kind="paper", url="paper://shelf", secret="a b")


def test_a_credential_does_not_go_by_a_scheme_that_its_kind_does_not_encrypt(
    paper: PaperBook, new_world: NewWorld
) -> None:
    world = paper_world(new_world)
    for instance in world.instances:
        instance.ledger.connections.wire._secret = {"shelf-key": "Bearer one"}.__getitem__
    intake = world.instances[0].ledger.intake
    intake.add_service(SERVICE, kind="paper", url="post://shelf")
    with pytest.raises(ServiceInvalid, match="in the clear to another machine; use paper://"):
        intake.add_service(SERVICE, kind="paper", url="post://shelf", secret="shelf-key")
    intake.add_service("paper-4", kind="paper", url="post://127.0.0.1", secret="shelf-key")
    # One that was stored before is judged when it is used.
    world.sql("UPDATE ledger_service SET secret = 'shelf-key' WHERE service_id = 'paper-1'")
    [name] = hand_in(world, 1)
    world.settle(world.instances[0], rounds=2)
    assert "in the clear" in (world.batch(name, SERVICE).note or "")
    assert (paper.entries, paper.seen_credentials) == ([], set())


def test_the_credential_of_a_service_comes_from_the_key_ring(paper: PaperBook, datp: Kit) -> None:
    """Sealed in SQL, opened for the request, and never in clear text at rest."""
    alice = Actor(name="alice")
    secrets, intake = datp.connections.seals.secrets, datp.connections.ledger.intake
    secrets.put("shelf-key", "Bearer from the ring", actor=alice)
    intake.add_service(SERVICE, kind="paper", url="paper://127.0.0.1", secret="shelf-key")
    intake.submit_many([(SERVICE, b"entry one", None)])
    for _ in range(3):
        datp.advance(seconds=2)
    assert (paper.entries, paper.seen_credentials) == (["one"], {"Bearer from the ring"})
    with datp.connections.engine.connect() as connection:
        [[stored]] = connection.exec_driver_sql("SELECT sealed FROM sealed_secret")
    assert "from the ring" not in stored
    secrets.remove("shelf-key", actor=alice)
    secrets._kept.clear()
    intake.submit_many([(SERVICE, b"entry two", None)])
    for _ in range(3):
        datp.advance(seconds=90)
    assert paper.entries == ["one"], "without its credential nothing is sent"


@pytest.mark.parametrize("broken", ["submission", "error_code", "statuses"])
def test_a_kind_that_raises_holds_up_its_own_batches_only_until_it_does_not(
    paper: PaperBook, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Its code meets an answer that it cannot read, in a run with the batches of other ledgers."""

    def raises(*_: Any) -> Any:
        raise ValueError("not what this package expects")

    world = paper_world(new_world)
    [name] = hand_in(world, 1)
    with monkeypatch.context() as unread:
        unread.setattr(Paper, broken, raises)
        world.settle(world.instances[0], rounds=3)
        is_committed = states(world, [name]) == {BatchState.COMMITTED}
        assert is_committed == (broken == "error_code"), "the ledger is asked what it did"
    world.settle(world.instances[0], rounds=60, step_s=10.0)
    assert states(world, [name]) == {BatchState.COMMITTED}
    assert paper.entries == [name]
