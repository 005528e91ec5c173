"""Who may start a transaction of a pipeline, take it back, wake it, and set its switches.

`client`: any key of its owner, unless the key has grants that leave it out. `granted`: a key of its
owner that was given the grant. `operator`: operators only, whatever a key was granted. Operators
may always; only starting is not a thing that their role gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Who = Literal["client", "granted", "operator"]
WHO = ("client", "granted", "operator")
SUBMIT_WHO = ("client", "granted")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAccess:
    """By default a client decides nothing about its own money: it starts and takes back only.

    Taking back is its own request undone, by the rollback of each step; it lets nothing through.
    """

    submit: Who = "client"
    cancel: Who = "client"
    wake: Who = "granted"
    #: By name; a switch that is not named here is `granted`.
    switches: Mapping[str, Who] = field(default_factory=dict, hash=False)

    def of_switch(self, name: str) -> Who:
        return self.switches.get(name, "granted")

    def whole(self) -> dict[str, Any]:
        """Also what is as by default; `*` are the switches that are not named."""
        switches = {**self.switches, "*": self.of_switch("*")}
        return {
            "submit": self.submit,
            "cancel": self.cancel,
            "wake": self.wake,
            "switches": switches,
        }

    def to_mapping(self) -> dict[str, Any]:
        """As a file would have it; what is as by default is left out."""
        given = {"submit": self.submit, "cancel": self.cancel, "wake": self.wake}
        usual = {"submit": "client", "cancel": "client", "wake": "granted"}
        found: dict[str, Any] = {key: who for key, who in given.items() if who != usual[key]}
        if self.switches:
            found["switches"] = dict(self.switches)
        return found

    @classmethod
    def from_mapping(cls, clean: Mapping[str, Any] | None) -> PipelineAccess:
        return cls(**clean) if clean else DEFAULT_ACCESS


DEFAULT_ACCESS = PipelineAccess()
