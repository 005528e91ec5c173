"""Pages of the console when Redis is unavailable, or knows what PostgreSQL has lost."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.clock import ServerClock
from datp_tasks.model.actor import Role
from datp_tasks.testing import Kit
from tests.api.test_console_access import Guest, signed_in
from tests.support.api_house import ApiHouse, api_house
from tests.support.console_surroundings import Surroundings


@pytest.fixture(scope="module")
def without_redis(kit: Kit) -> Iterator[Guest]:
    with socket.socket() as taken:
        # Bound, and not listening: every connection is refused.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        settings = replace(kit.settings, redis_url=f"redis://127.0.0.1:{port}/0")
        with api_house(kit, settings) as house, pytest.MonkeyPatch.context() as patch:
            # As outside of tests: the time is that of a server.
            patch.setattr(house.services.live, "_clock", ServerClock())
            yield signed_in(house, "opal", Role.OPERATOR)


@pytest.mark.parametrize(
    "path", ["/alerts", "/transactions", "/webhooks", "/endpoints/{endpoint}", "/search?q=nothing"]
)
def test_a_page_about_what_postgresql_has_needs_no_redis(
    kit: Kit, without_redis: Guest, path: str
) -> None:
    endpoint = Surroundings(kit).endpoint() if "{" in path else ""
    answer = without_redis.get(path.format(endpoint=endpoint))
    assert answer.status_code == 200, unescape(re.sub(r"<[^>]+>", " ", answer.text))


def test_what_is_in_doubt_is_shown_also_if_postgresql_has_lost_it(
    kit: Kit, house: ApiHouse
) -> None:
    @kit.step("t/unsafe", on_crash="review")
    def unsafe(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return data

    kit.use(Pipeline("unsafe").step("t/unsafe").build())
    kit.crash_at("hop.after_step")
    tx_id = kit.submit("unsafe", {}, owner="lost")
    kit.recover()
    assert kit.status(tx_id).status == "in-doubt"
    vic = signed_in(house, "vic", Role.VIEWER)
    known = vic.get("/in-doubt").text.partition(f'id="doubt-{tx_id}"')[2].partition("</tr>")[0]
    assert "unsafe" in known and "Decide…" in known
    with kit.connections.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM tx_summary WHERE tx_id = %s", (tx_id,))
    shown = vic.get("/in-doubt").text
    row = shown.partition(f'id="doubt-{tx_id}"')[2].partition("</tr>")[0]
    assert "not in PostgreSQL" in row and "Decide…" not in row
    assert "Nothing is in doubt" not in shown
