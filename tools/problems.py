"""docs/problems.md, from the catalogue in the code: `python -m tools.problems` writes it."""

from __future__ import annotations

from pathlib import Path

from datp_tasks.api.problem_types import CATALOGUE, PREFIX

PAGE = Path(__file__).resolve().parents[1] / "docs" / "problems.md"

HEAD = f"""# Problems

Every error of the [HTTP API](api.md) is a problem document (RFC 9457, `application/problem+json`).
Made from `datp_tasks/api/problem_types.py` by `python -m tools.problems`.

| member | meaning |
|---|---|
| `type` | `{PREFIX}<kind>`, with a kind from the table. Decide by it: it never changes |
| `title` | the same for each answer of a kind |
| `status` | that of the answer |
| `detail` | what happened this time, for a person |
| `retryable` | whether the same request can succeed later, without a change |
| `requestId` | that of the header `Request-Id`: name it when you ask for help |
| `errors` | each mistake: `pointer` (a JSON pointer: `#/body/input/amount`) and `detail` |
| `errorId` | with 500 and 503: the log has the cause under it |

| kind | status | retryable | title | what to do |
|---|---|---|---|---|
"""


def page() -> str:
    rows = (
        f"| `{each.kind}` | {' '.join(map(str, each.statuses))} | "
        f"{'yes' if each.retryable else 'no'} | {each.title} | {each.advice} |\n"
        for each in CATALOGUE
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
