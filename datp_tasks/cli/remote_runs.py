"""`datp --url … audit` and `erase`: the server does them in parts, and the command waits."""

from __future__ import annotations

from time import sleep
from typing import Any

import typer
from rich.console import Console

from datp_tasks.cli.remote_calls import Json, RemoteCalls, stays_on_host
from datp_tasks.cli.remote_context import remote_calls
from datp_tasks.cli.terminal_tables import print_json
from datp_tasks.errors import DatpError
from datp_tasks.operator.erase import Chosen

POLL_S = 0.5


class RunFailed(DatpError):
    """An audit or an erasure broke off at the server."""


def audit_over_http(*, sample: int | None, everything: bool, seed: int) -> Json:
    """What `datp audit --json` prints, of an audit that the server has done."""
    body: Json = {"seed": seed, "everything": everything}
    if sample is not None:
        body["sample"] = sample
    done = _waited(remote_calls(), "audits", body)
    counts = {name: done[name] for name in ("total", "audited", "dropped")}
    return {**counts, "wrong": done["misfits"], "wrongCount": done["wrong"]}


def count_over_http(chosen: Chosen, *, as_json: bool) -> str:
    """How many would be erased, as the command says it."""
    found = remote_calls().post("erasures", "preview", body=_chosen_json(chosen))
    if as_json:
        print_json(Console(), {"count": found["count"], "more": found["more"]})
        return ""
    return f"{'more than ' if found['more'] else ''}{found['count']}"


def erase_over_http(chosen: Chosen, reason: str) -> Json:
    """What became of an erasure that the server has done; ApprovalNeeded is raised first, if the
    policy wants another person."""
    return _waited(remote_calls(), "erasures", {**_chosen_json(chosen), "reason": reason})


def refuse_files() -> None:
    stays_on_host(
        "datp erase --files", "it rewrites the files of the journal of the host that it runs on"
    )


def _waited(calls: RemoteCalls, name: str, body: Json) -> Json:
    run: dict[str, Any] = calls.post(name, body=body)
    try:
        while run["state"] == "running":
            sleep(POLL_S)
            run = calls.get(name, str(run["id"]))
    except KeyboardInterrupt:
        typer.echo(f"it goes on without this command: GET /v1/{name}/{run['id']}", err=True)
        raise
    if run["state"] == "failed":
        raise RunFailed(f"number {run['id']} of {name} has failed: {run['note']}")
    return run


def _chosen_json(chosen: Chosen) -> Json:
    pointer, _, value = (chosen.subject or "").partition("=")
    subject = {"pointer": pointer, "value": value} if chosen.subject else None
    found = {"owner": chosen.owner, "externalId": chosen.external_id, "subject": subject}
    return {name: each for name, each in found.items() if each is not None}
