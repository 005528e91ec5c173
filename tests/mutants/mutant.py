"""The list of mutants: ways to break the product on purpose, each with the tests that must see it.

The lists are data, in the `.toml` files beside this module, one for each part of the product.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    #: The part of the product: the name of its list.
    part: str
    file: str
    text: str
    becomes: str
    #: What a user would suffer, in a sentence.
    harm: str
    #: Files or node ids for pytest, quick ones.
    tests: tuple[str, ...]

    @property
    def rings(self) -> tuple[str, ...]:
        """Folders of the tests that should see it."""
        return tuple(sorted({Path(test.partition("::")[0]).parts[1] for test in self.tests}))

    def occurrences(self, root: Path = ROOT) -> int:
        """How often the text is in its file; once, or the list is out of date."""
        return (root / self.file).read_text().count(self.text)

    def applied(self, source: str) -> str:
        return source.replace(self.text, self.becomes)


def load() -> list[Mutant]:
    """All mutants, in the order of the lists."""
    found: list[Mutant] = []
    for path in sorted(FOLDER.glob("*.toml")):
        for item in tomllib.loads(path.read_text())["mutant"]:
            found.append(Mutant(part=path.stem, tests=tuple(item.pop("tests")), **item))
    return found
