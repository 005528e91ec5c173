"""Names the tests that failed in the last run; ends with 1 if there are none, or too many."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str] | None = None, path: Path = LAST_FAILED) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max", type=int, required=True, help="so many may have failed")
    options = parser.parse_args(arguments)
    failed = sorted(json.loads(path.read_text())) if path.exists() else []
    sys.stdout.write("".join(f"failed before: {name}\n" for name in failed))
    if 0 < len(failed) <= options.max:
        return 0
    sys.stdout.write(f"{len(failed)} failed; from 1 to {options.max} are tried again\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
