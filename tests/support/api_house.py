"""An API server for tests: the real application, served by uvicorn in a thread of the test."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from datp_tasks.api.application import create_app
from datp_tasks.api.server import options
from datp_tasks.api.services import Services
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys, OwnerLimits
from datp_tasks.runtime.api import open_services
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from tests.support.eventually import eventually

PEPPER = "a pepper for tests, long enough to be one"


class ApiHouse:
    """One API process, as far as a thread can be one; the Kit does the work of the workers."""

    def __init__(self, kit: Kit, port: int, app: Any) -> None:
        self.kit = kit
        self.url = f"http://127.0.0.1:{port}"
        self._app = app
        self.keys = ApiKeys(kit.connections.engine, kit.connections.clock, PEPPER)
        self._numbers = itertools.count(1)
        self._clients: list[httpx.Client] = []
        #: End the server before the end of the test, as a process that dies does.
        self.stop: Callable[[], None] = lambda: None

    @property
    def services(self) -> Services:
        found: Services = self._app.state.services
        return found

    def new_key(self, owner: str, role: Role | None = None, **options: Any) -> str:
        return self.keys.create(owner, role, actor=Actor(name="test"), **options).text

    def limit(self, owner: str, **limits: Any) -> None:
        """What this owner may do, where that differs from the settings."""
        self.keys.set_limits(owner, OwnerLimits(**limits), actor=Actor(name="test"))

    def new_owner(self, name: str) -> str:
        """Nobody else has handed in anything as this one."""
        return f"{name}-{next(self._numbers)}"

    def client(
        self, owner: str | None = None, role: Role | None = None, *, key: str = "", **more: Any
    ) -> httpx.Client:
        """A client with a new key of this owner, with this key, or without one."""
        if owner:
            key = self.new_key(owner, role)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        made = httpx.Client(base_url=self.url, headers=headers, timeout=30, **more)
        self._clients.append(made)
        return made

    def close(self) -> None:
        for each in self._clients:
            each.close()


def free_socket(port: int = 0) -> socket.socket:
    # asyncio sends without delay only on sockets that name the protocol; else a page takes 40 ms.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


@contextmanager
def api_house(kit: Kit, settings: Settings | None = None, *, port: int = 0) -> Iterator[ApiHouse]:
    """The settings of the kit (or these), connections of its own, bells that the kit hears."""
    settings = settings or kit.settings

    # The kit runs what it hears at once, in one thread at a time.
    one_at_a_time = threading.Lock()

    def send(*args: Any, **options: Any) -> None:
        with one_at_a_time:
            kit.send(*args, **options)

    def connect() -> Container:
        return Container.open(settings, clock=kit.clock, send=send)

    app = create_app(lambda: open_services(connect()), settings)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=5, **options(settings)
    )
    server = uvicorn.Server(config)
    listening = free_socket(port)

    def run() -> None:
        asyncio.run(server.serve(sockets=[listening]))

    thread = threading.Thread(target=run, name="api")
    thread.start()
    eventually(lambda: server.started or not thread.is_alive())
    house = ApiHouse(kit, listening.getsockname()[1], app)

    def stop() -> None:
        server.should_exit = True
        thread.join(20)
        listening.close()

    house.stop = stop
    try:
        yield house
    finally:
        house.close()
        stop()
        assert not thread.is_alive()
