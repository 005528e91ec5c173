"""A kit with an API in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.model.actor import Role
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.api_house import PEPPER, ApiHouse, api_house


@pytest.fixture(scope="module")
def kit(request: pytest.FixtureRequest, datp_servers: Servers) -> Iterator[Kit]:
    """One for a module; SETTINGS in it are its own, CONSTANTS are changed while it runs."""
    changes = getattr(request.module, "SETTINGS", {})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in getattr(request.module, "CONSTANTS", {}).items():
            patch.setattr(f"datp_tasks.{name}", value)
        made = Kit(datp_servers, **{"key_pepper": PEPPER, "key_cache_s": 0.2, **changes})
        _add_steps(made)
        yield made
        made.close()


@pytest.fixture(scope="module")
def house(kit: Kit) -> Iterator[ApiHouse]:
    with api_house(kit) as made:
        yield made


@pytest.fixture
def acme(house: ApiHouse) -> httpx.Client:
    """A client whose owner has nothing yet; so is the next one."""
    return house.client(house.new_owner("acme"))


@pytest.fixture
def zeta(house: ApiHouse) -> httpx.Client:
    return house.client(house.new_owner("zeta"))


@pytest.fixture
def ops(house: ApiHouse) -> httpx.Client:
    return house.client(house.new_owner("ops"), Role.ADMIN)


def _add_steps(kit: Kit) -> None:
    @kit.step("t/echo")
    def echo(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {"echo": data}

    @kit.step("t/nap")
    def nap(ctx: Any, data: dict[str, Any]) -> Any:
        if ctx.switch("go") is None:
            ctx.progress({"waits": True})
            return Sleep(switch="go", seconds=86_400)
        return {"went": ctx.switch("go")}

    kit.use(
        Pipeline("echo").step("t/echo").build(),
        # Clients may do here what they may not by default.
        Pipeline("nap", access={"wake": "client", "switches": {"go": "client"}})
        .step("t/nap")
        .build(),
        Pipeline("guarded", access={"submit": "granted", "switches": {"kyc": "operator"}})
        .step("t/nap")
        .build(),
        Pipeline("hidden", startable=False).step("t/echo").build(),
    )
