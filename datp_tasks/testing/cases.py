"""What a sweep tries, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

KINDS = ("exception", "lost-answer", "crash", "pause", "overtaken")


def makes_sense(kind: str, point: str) -> bool:
    """A lost answer needs a call; an error before a call, and one after it, are two kinds."""
    if kind == "lost-answer":
        return point.endswith(":after")
    return kind != "exception" or not point.endswith(":after")


@dataclass(frozen=True, slots=True)
class Case:
    """One fault, at one point, at the nth time it is passed."""

    point: str
    nth: int
    kind: str
    #: The run has crashed before, and is being repaired.
    repairing: bool = False

    def __str__(self) -> str:
        mark = "!" if self.repairing else ""
        return f"{self.point}#{self.nth}{mark}={self.kind}"


@dataclass(slots=True)
class CaseResult:
    case: Case
    violations: list[str] = field(default_factory=list)
    #: Whether the point was passed, so that the fault could happen.
    hit: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class Report:
    results: list[CaseResult]

    @property
    def bad(self) -> list[CaseResult]:
        return [result for result in self.results if result.violations]

    @property
    def missed(self) -> list[Case]:
        """Cases whose point was not passed this time."""
        return [result.case for result in self.results if not result.hit]

    @property
    def points(self) -> list[str]:
        return sorted({result.case.point for result in self.results})

    def assert_clean(self) -> None:
        """Raise an AssertionError that names every fault after which something was wrong."""
        if not self.results:
            raise AssertionError("the sweep has no cases: no point is passed, or `only` names none")
        if self.bad:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        shown = [f"{len(self.bad)} of {len(self.results)} faults left something wrong"]
        for result in self.bad:
            shown.append(f"  {result.case}")
            shown += [f"      {violation}" for violation in result.violations]
        return "\n".join(shown)
