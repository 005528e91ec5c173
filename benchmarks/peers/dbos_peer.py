"""DBOS: a workflow of three steps, or of a step and two transactions; one process of two.

Workflows are called directly by a few threads, without its queue. Each start, step and end is a
commit in PostgreSQL; a transaction's effect and its checkpoint are one commit.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID, SQLAlchemyDatasource  # type: ignore[import-not-found]

from benchmarks import books
from benchmarks.peers.orders import DATABASE, NO_OP, own_stdout, serve

#: One did half as many, eight no more.
THREADS = 4

URL = os.environ[DATABASE]
config: DBOSConfig = {
    "name": "bench-peer",
    "system_database_url": URL,
    "executor_id": f"bench-{os.getpid()}",
    "application_version": "bench",
    "log_level": "ERROR",
}
DBOS(config=config)
source = SQLAlchemyDatasource.create(URL)


@DBOS.step()  # type: ignore[untyped-decorator]
def pass_on(data: dict[str, Any]) -> dict[str, Any]:
    return data


@DBOS.workflow()  # type: ignore[untyped-decorator]
def three(data: dict[str, Any]) -> dict[str, Any]:
    for _ in range(3):
        data = pass_on(data)
    return data


@DBOS.step()  # type: ignore[untyped-decorator]
def validate(data: dict[str, Any]) -> None:
    books.validate(data)


@source.transaction(isolation_level="READ COMMITTED")  # type: ignore[untyped-decorator]
def reserve(tx_id: str, data: dict[str, Any]) -> None:
    books.reserve(source.sql_session().connection(), tx_id, data)


@source.transaction(isolation_level="READ COMMITTED")  # type: ignore[untyped-decorator]
def commit(tx_id: str, data: dict[str, Any]) -> None:
    books.commit(source.sql_session().connection(), tx_id, data)


@DBOS.workflow()  # type: ignore[untyped-decorator]
def transfer(tx_id: str, data: dict[str, Any]) -> dict[str, Any]:
    validate(data)
    reserve(tx_id, data)
    commit(tx_id, data)
    return {**data, "committed": True}


def main() -> None:
    answers = own_stdout()
    DBOS.launch()
    with ThreadPoolExecutor(THREADS) as threads:

        def work(what: str, mark: str, wanted: list[dict[str, Any]]) -> None:
            def one(number: int) -> None:
                tx_id = f"{mark}-{os.getpid()}-{number}"
                with SetWorkflowID(tx_id):
                    if what == NO_OP:
                        three(wanted[number])
                    else:
                        transfer(tx_id, wanted[number])

            list(threads.map(one, range(len(wanted))))

        serve(work, answers)
    DBOS.destroy()


if __name__ == "__main__":
    main()
    sys.exit()
