"""The stand-in as a server: `datp ledger-sim`, or a thread of a test.

It serves the REST API of Sawtooth at its root and that of scabbard under /scabbard, and answers
its operator under /sim: GET /sim/log, POST /sim/options, POST /sim/faults, POST /sim/restart.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from datp_tasks.ledger.batch_list import BATCH_ID, NotABatchList, batch_ids
from datp_tasks.ledger.sim.chains import (
    Full,
    Log,
    Options,
    SawtoothChain,
    ScabbardService,
)
from datp_tasks.ledger.sim.faults import ANSWERS, Fault, FaultInvalid, Faults
from datp_tasks.ledger.sim.http import HEAD_BYTES_MAX, Reply, SimRequest, serve_connection

START_S = 10.0


class LedgerSim:
    """The ledgers of one stand-in, without the network."""

    def __init__(
        self, *, seed: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = Options()
        self.log = Log()
        self.faults = Faults(seed)
        self._clock = clock
        self._sawtooth = SawtoothChain(self.options, self.log)
        self._scabbard: dict[str, ScabbardService] = {}
        #: How many POSTs of batches came in, whatever was done with them.
        self.posts = 0

    async def handle(self, request: SimRequest) -> Reply | None:
        match request.method, request.path.strip("/").split("/"):
            case "POST", ["batches"]:
                return await self._post(request, "")
            case "GET" | "POST", ["batch_statuses"]:
                return await self._get(request, "", "id")
            case "GET", ["batches", batch]:
                return self._block(batch)
            case "POST", ["scabbard", circuit, service, "batches"]:
                return await self._post(request, f"{circuit}::{service}")
            case "GET" | "POST", ["scabbard", circuit, service, "batch_statuses"]:
                return await self._get(request, f"{circuit}::{service}", "ids")
            case method, ["sim", *rest]:
                return self._operate(method, "/".join(rest), request)
        return Reply(404, {"message": "there is nothing here"})

    # Submissions.

    async def _post(self, request: SimRequest, service: str) -> Reply | None:
        self.posts += 1
        fault = self.faults.pick("post", service)
        word = fault.do if fault else ""
        if word == "drop-before":
            return None
        if fault and word in ANSWERS:
            status, code, accepts = ANSWERS[word]
            if accepts:
                self._submit(request, service)
            return _refusal(service, status, code)
        if fault and word == "late-before":
            # The one who sent it may have given up long ago; it arrives all the same.
            await asyncio.sleep(fault.ms / 1_000)
        reply = self._submit(request, service)
        if word == "drop-after":
            return None
        if fault and word == "late-after":
            return Reply(reply.status, reply.value, delay_s=fault.ms / 1_000)
        return Reply(reply.status, reply.value, cut=word == "cut")

    def _submit(self, request: SimRequest, service: str) -> Reply:
        if not service and request.headers.get("content-type") != "application/octet-stream":
            return _refusal(service, 400, 42)
        try:
            found = batch_ids(request.body)
        except NotABatchList:
            found = []
        if not found:
            return _refusal(service, 400, 34)
        now_s = self._clock()
        chain = self._scabbard_service(service) if service else self._sawtooth
        try:
            for batch in found:
                chain.submit(batch, request.body, now_s)
        except Full:
            return _refusal(service, 429, 31)
        ids = ",".join(found)
        if service:
            path = f"/scabbard/{service.replace('::', '/')}/batch_statuses?ids={ids}"
            return Reply(202, {"link": path})
        host = request.headers.get("host", "localhost")
        return Reply(202, {"link": f"http://{host}/batch_statuses?id={ids}"})

    # Questions.

    async def _get(self, request: SimRequest, service: str, name: str) -> Reply | None:
        fault = self.faults.pick("get", service)
        word = fault.do if fault else ""
        if word == "drop":
            return None
        if word == "500":
            return _refusal(service, 500, 10)
        if word == "garbage":
            return Reply(200, raw=b'{"data": [{"id": "half of')
        if fault and word == "late":
            await asyncio.sleep(fault.ms / 1_000)
        ids = [each for text in request.query.get(name, []) for each in text.split(",")]
        if request.method == "POST":
            # Sawtooth also takes a list of ids as a body, for more than a URL can hold.
            given = request.json()
            ids = [str(each) for each in given] if isinstance(given, list) else []
        if not service and not ids:
            return _refusal(service, 400, 66)
        if not service and not all(BATCH_ID.fullmatch(each) for each in ids):
            return _refusal(service, 400, 60)
        chain = self._scabbard_service(service) if service else self._sawtooth
        asked = [f"?{each}" for each in ids] if word == "unknown" else ids
        now_s = self._clock()
        found = [
            {**chain.status(each, now_s), "id": one} for each, one in zip(asked, ids, strict=True)
        ]
        return Reply(200, found if service else {"data": found, "link": request.path})

    def _block(self, batch: str) -> Reply:
        if self._sawtooth.has_committed(batch, self._clock()):
            return Reply(200, {"data": {"header_signature": batch}, "head": "", "link": ""})
        return _refusal("", 404, 71)

    # Its operator.

    def _operate(self, method: str, what: str, request: SimRequest) -> Reply:
        match method, what:
            case "GET", "log":
                return Reply(200, self.executions())
            case "GET", "":
                return Reply(200, {"posts": self.posts, "faults": self.faults.used})
            case "POST", "restart":
                self.restart()
                return Reply(200, {})
            case "POST", "options":
                return self._set_options(request.json())
            case "POST", "faults":
                return self._set_faults(request.json())
        return Reply(404, {"message": "there is nothing here"})

    def executions(self) -> list[dict[str, Any]]:
        """The oracle: everything that was executed, in order."""
        now_s = self._clock()
        for chain in self._chains():
            chain.settle(now_s)
        return [asdict(line) for line in self.log.lines]

    def restart(self) -> None:
        """Every ledger forgets what it keeps in memory only."""
        now_s = self._clock()
        for chain in self._chains():
            chain.restart(now_s)

    def _chains(self) -> list[SawtoothChain | ScabbardService]:
        return [self._sawtooth, *self._scabbard.values()]

    def _set_options(self, given: Any) -> Reply:
        known = {item.name for item in fields(Options)}
        if not isinstance(given, dict) or not given.keys() <= known:
            return Reply(400, {"message": f"options are {', '.join(sorted(known))}"})
        for name, value in given.items():
            setattr(self.options, name, value)
        return Reply(200, asdict(self.options))

    def _set_faults(self, given: Any) -> Reply:
        if not isinstance(given, list):
            return Reply(400, {"message": "faults are a list"})
        try:
            self.faults.set([Fault.from_mapping(each) for each in given])
        except FaultInvalid as error:
            return Reply(400, {"message": str(error)})
        return Reply(200, {})

    def _scabbard_service(self, name: str) -> ScabbardService:
        return self._scabbard.setdefault(name, ScabbardService(name, self.options, self.log))


async def serve(sim: LedgerSim, host: str, port: int) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_connection(reader, writer, sim.handle)

    return await asyncio.start_server(connected, host, port, limit=HEAD_BYTES_MAX)


class SimThread:
    """A stand-in on a free port, in a thread of this process."""

    def __init__(self, sim: LedgerSim | None = None, *, port: int = 0) -> None:
        self.sim = sim or LedgerSim()
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-sim", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> SimThread:
        self._thread.start()
        if not self._ready.wait(START_S):
            raise TimeoutError("the stand-in did not start")
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)

    def _run(self) -> None:
        server = self._loop.run_until_complete(serve(self.sim, "127.0.0.1", self.port))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0.01))
            self._loop.close()


def _refusal(service: str, status: int, code: int | None) -> Reply:
    """In the words of the ledger that is imitated."""
    if status == 429 and service:
        return Reply(429)
    if service:
        return Reply(status, {"message": f"refused with {status}"})
    error = {"code": code, "title": "Refused", "message": f"refused with {status}, code {code}"}
    return Reply(status, {"error": error})
