"""How a command asks the HTTP API, and what it makes of refusals and of requests for approval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from datp_tasks.errors import ApprovalNeeded, DatpError

if TYPE_CHECKING:
    from datp_tasks.http import ApiClient

Json = dict[str, Any]


class NotOverHttp(DatpError):
    """The command needs the servers themselves."""


def refuse_over_http(what: str) -> NoReturn:
    raise NotOverHttp(
        f"This command needs {what}, which the HTTP API does not give. Run it without --url, "
        "where DATP_DATABASE_URL and DATP_REDIS_URL are known."
    )


def stays_on_host(command: str, why: str) -> NoReturn:
    """For what the API does not give on purpose."""
    raise NotOverHttp(
        f"`{command}` runs only where the servers are: {why}. Run it without --url, where "
        "DATP_DATABASE_URL and DATP_REDIS_URL are known."
    )


def refuse_owner_over_http(owner: str | None) -> None:
    """The key says whose transactions they are."""
    if owner is not None:
        refuse_over_http("--owner (over HTTP it is the owner of the key)")


class RemoteCalls:
    """Requests of one command."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api

    def get(self, *path: str, **params: Any) -> Json:
        given = {name: value for name, value in params.items() if value is not None}
        return self.api.request("GET", place(*path), params=given)

    def pages(self, *path: str, items: str = "", **params: Any) -> Iterator[Json]:
        """Everything in a list, page by page; `items` is the name of the field that it is in."""
        cursor: str | None = None
        while True:
            found = self.get(*path, **params, cursor=cursor)
            yield from found[items or path[-1]]
            cursor = found["nextCursor"]
            if cursor is None:
                return

    def send(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Json:
        """A change; ApprovalNeeded is raised if it waits for another person now."""
        found = self.api.request(method, place(*path), params=params, body=body)
        number = found.get("approval")
        if isinstance(number, int) and "href" in found:
            raise ApprovalNeeded(str(found.get("detail")), approval_id=number)
        return found

    def post(self, *path: str, body: Mapping[str, Any] | None = None) -> Json:
        return self.send("POST", *path, body=body)


def place(*path: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in path)


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def known_moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
