"""Sources that several house rules look at, parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)
