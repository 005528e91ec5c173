"""A pipeline as data: a named list of steps, known by the hash of its content.

A definition never changes. Another content is another version, so a transaction that pins a
version runs the same steps to its end, whatever is applied meanwhile.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.mapping import STEP_TYPE, apply_mapping
from datp_tasks.model.payee import Payee
from datp_tasks.model.payload import Json, canonical
from datp_tasks.model.pipeline_access import DEFAULT_ACCESS, PipelineAccess
from datp_tasks.model.pipeline_cases import PipelineCase
from datp_tasks.model.pipeline_rules import clean_definition
from datp_tasks.model.sealed import data_key_of
from datp_tasks.model.search_attributes import SearchField, fields_of, mapping_of
from datp_tasks.model.typed_schema import given_schema

Dispatch = Literal["inline", "queue"]
PipelineDispatch = Literal["inline", "step"]
OnError = Literal["keep", "rollback"]

VERSION_CHARS = 16


def hash_of(text: str) -> str:
    """The content hash of a definition's canonical JSON."""
    return hashlib.sha256(text.encode()).hexdigest()


#: The step type whose parameters name the pipelines that it may call.
CHILD_PIPELINE = "util/child-pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """One step of a pipeline: which step type, with which parameters."""

    type: str
    name: str | None = None
    description: str = ""
    #: None: the node group of the pipeline.
    node_group: str | None = None
    #: "queue" gives the step its own message, also when it could go on in the same process;
    #: None: as the pipeline says.
    dispatch: Dispatch | None = None
    #: Shared by every transaction of this version: give a copy to code that may change it.
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    timeout_s: float | None = None
    retry: RetryPolicy | None = None
    checkpoint: bool = False
    #: The point of no return: from this step on the transaction cannot expire or be cancelled.
    final_from: bool = False
    #: While it is at this step, another system decides: it cannot expire or be cancelled.
    forwards: bool = False

    @property
    def calls(self) -> tuple[str, ...]:
        """The pipelines that its parameters say it may call; a function may call others."""
        if self.type != CHILD_PIPELINE:
            return ()
        given = self.params
        chosen = given.get("map")
        names = [*chosen.values()] if isinstance(chosen, Mapping) else []
        names += [given.get("pipeline"), given.get("default")]
        return tuple(name for name in names if isinstance(name, str))

    def to_mapping(self) -> dict[str, Any]:
        """The step as a file would have it; what is as by default is left out."""
        return _without_defaults(
            ("type", self.type, None),
            ("name", self.name, None),
            ("description", self.description, ""),
            ("nodeGroup", self.node_group, None),
            ("dispatch", self.dispatch, None),
            ("params", copy.deepcopy(dict(self.params)), {}),
            ("timeoutSeconds", _number(self.timeout_s), None),
            ("retry", _retry_mapping(self.retry), None),
            ("checkpoint", self.checkpoint, False),
            ("finalFrom", self.final_from, False),
            ("forwards", self.forwards, False),
        )

    @classmethod
    def from_mapping(cls, clean: Mapping[str, Any]) -> Self:
        """A step from a mapping that was checked before."""
        timeout_s = clean.get("timeoutSeconds")
        return cls(
            type=clean["type"],
            name=clean.get("name"),
            description=clean.get("description", ""),
            node_group=clean.get("nodeGroup"),
            dispatch=clean.get("dispatch"),
            params=clean.get("params", {}),
            timeout_s=None if timeout_s is None else float(timeout_s),
            retry=_retry_from(clean.get("retry")),
            checkpoint=clean.get("checkpoint", False),
            final_from=clean.get("finalFrom", False),
            forwards=clean.get("forwards", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """One version of a pipeline. Its hash and its JSON are made once."""

    name: str
    description: str = ""
    node_group: str = "master"
    #: Whether clients may start it; otherwise only other pipelines call it.
    startable: bool = True
    #: "step" gives every step its own message; None: as the settings say.
    dispatch: PipelineDispatch | None = None
    #: What an internal error does with the steps already done.
    on_error: OnError = "keep"
    #: How long a transaction may take, where its client says nothing.
    expires_in_s: float | None = None
    #: One that runs for longer without a pause is worth an alert; None: as the constants say.
    long_running_s: float | None = None
    #: Step type that is told when a success came too late and was refused.
    on_late: str | None = None
    #: Who may start, cancel and wake its transactions, and set their switches.
    access: PipelineAccess = DEFAULT_ACCESS
    #: Whether inputs, outputs and progress of its transactions rest sealed.
    sealed: bool = False
    #: The mapping that makes what the client sees of the output, as a step would have it.
    reply: Mapping[str, Any] | None = field(default=None, hash=False)
    #: Language → code → text, for steps that fail with a code.
    messages: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    #: Test cases, as a file would have them.
    tests: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    #: What its transactions can be found and sorted by.
    search: tuple[SearchField, ...] = ()
    #: What an input must be, as JSON Schema (model/input_schema.py); None: any object.
    input_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    #: Who else is told of the end of a transaction (model/payee.py).
    payee: Payee | None = None
    steps: tuple[StepDefinition, ...]

    content_hash: str = field(init=False, repr=False, compare=False)
    version: str = field(init=False, compare=False)
    _json: str = field(init=False, repr=False, compare=False)
    _groups: tuple[str, ...] = field(init=False, repr=False, compare=False)
    #: The pipelines that parameters of its steps name.
    calls: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups = tuple(step.node_group or self.node_group for step in self.steps)
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "calls", tuple({n: 0 for s in self.steps for n in s.calls}))
        self._remember(canonical(self.to_mapping()))

    def group_of(self, index: int) -> str:
        """The node group that runs the step with this index."""
        return self._groups[index]

    def own_message(self, index: int) -> bool | None:
        """Whether the step with this index gets a message of its own; None: as the settings say."""
        asked = self.steps[index].dispatch or self.dispatch
        return None if asked is None else asked != "inline"

    @property
    def cases(self) -> tuple[PipelineCase, ...]:
        return tuple(PipelineCase.from_mapping(each) for each in self.tests)

    @property
    def mapping_names(self) -> tuple[str, ...]:
        """The shared mappings that its steps and its reply name."""
        given = [step.params for step in self.steps if step.type == STEP_TYPE]
        names = (each.get("mapping") for each in (*given, self.reply or {}))
        return tuple(dict.fromkeys(name for name in names if name))

    def replied(self, output: Json | None) -> tuple[Json | None, str]:
        """The output as the client sees it, and a note on what could not be made of it.

        A reply that cannot be made undoes nothing: what was done is done.
        """
        if self.reply is None or output is None:
            return output, ""
        if data_key_of(output):
            # Only a worker opens it; what was not mapped is not shown.
            return None, "left out of the reply: its output is sealed"
        # The note is never sealed, and for a client that may not see all of the output.
        shown, problems = apply_mapping(self.reply, output, quotes=False)
        return shown, f"left out of the reply: {'; '.join(problems)}" if problems else ""

    def with_mappings(self, found: Mapping[str, Mapping[str, Any]]) -> Self:
        """With what these shared mappings say, where its steps and its reply name them."""

        def filled(given: Mapping[str, Any] | None) -> Any:
            name = (given or {}).get("mapping", "")
            return {"mapping": name, **found[name]} if name in found else given

        steps = tuple(
            replace(step, params=filled(step.params)) if step.type == STEP_TYPE else step
            for step in self.steps
        )
        return replace(self, steps=steps, reply=filled(self.reply))

    def to_mapping(self) -> dict[str, Any]:
        """The definition as a file would have it; what is as by default is left out."""
        head = _without_defaults(
            ("pipeline", self.name, None),
            ("description", self.description, ""),
            ("nodeGroup", self.node_group, "master"),
            ("startable", self.startable, True),
            ("dispatch", self.dispatch, None),
            ("onError", self.on_error, "keep"),
            ("expiresInSeconds", _number(self.expires_in_s), None),
            ("longRunningSeconds", _number(self.long_running_s), None),
            ("onLate", self.on_late, None),
            ("access", self.access.to_mapping(), {}),
            ("sealed", self.sealed, False),
            ("reply", copy.deepcopy(self.reply), None),
            ("messages", copy.deepcopy(dict(self.messages)), {}),
            ("tests", copy.deepcopy(list(self.tests)), []),
            ("search", mapping_of(self.search), {}),
            ("inputSchema", copy.deepcopy(self.input_schema), None),
            ("payee", self.payee.to_mapping() if self.payee else None, None),
        )
        return head | {"steps": [step.to_mapping() for step in self.steps]}

    def to_json(self) -> str:
        """The canonical JSON, which the content hash is taken of."""
        return self._json

    @classmethod
    def from_mapping(cls, clean: Mapping[str, Any]) -> Self:
        """A definition from a mapping that was checked before."""
        expires_in_s = clean.get("expiresInSeconds")
        long_running_s = clean.get("longRunningSeconds")
        return cls(
            name=clean["pipeline"],
            description=clean.get("description", ""),
            node_group=clean.get("nodeGroup", "master"),
            startable=clean.get("startable", True),
            dispatch=clean.get("dispatch"),
            on_error=clean.get("onError", "keep"),
            expires_in_s=None if expires_in_s is None else float(expires_in_s),
            long_running_s=None if long_running_s is None else float(long_running_s),
            on_late=clean.get("onLate"),
            access=PipelineAccess.from_mapping(clean.get("access")),
            sealed=clean.get("sealed", False),
            reply=clean.get("reply"),
            messages=clean.get("messages", {}),
            tests=tuple(clean.get("tests", ())),
            search=fields_of(clean.get("search")),
            input_schema=clean.get("inputSchema"),
            payee=Payee.from_mapping(clean.get("payee")),
            steps=tuple(StepDefinition.from_mapping(step) for step in clean["steps"]),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A definition from our own store, where only checked ones are put."""
        definition = cls.from_mapping(json.loads(text))
        # A later release may write the same content otherwise; its version must stay what it was.
        definition._remember(text)
        return definition

    def _remember(self, text: str) -> None:
        content_hash = hash_of(text)
        object.__setattr__(self, "_json", text)
        object.__setattr__(self, "content_hash", content_hash)
        object.__setattr__(self, "version", content_hash[:VERSION_CHARS])


def parse_definition(raw: object, *, source: str) -> PipelineDefinition:
    """What a user wrote to a definition, or PipelineInvalid with every mistake in it."""
    return PipelineDefinition.from_mapping(clean_definition(raw, source=source))


class Pipeline:
    """Builds a definition in Python: `Pipeline("transfer").step("bank/reserve").build()`."""

    def __init__(
        self,
        name: str,
        *,
        group: str = "master",
        startable: bool = True,
        dispatch: PipelineDispatch | None = None,
        on_error: OnError = "keep",
        expires_in_s: float | None = None,
        long_running_s: float | None = None,
        on_late: str | None = None,
        access: Mapping[str, Any] | None = None,
        sealed: bool = False,
        reply: str | Mapping[str, Any] | None = None,
        messages: Mapping[str, Any] | None = None,
        tests: Iterable[Mapping[str, Any]] = (),
        search: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | type | None = None,
        payee: Mapping[str, Any] | None = None,
        description: str = "",
    ) -> None:
        self._mapping = {
            "pipeline": name,
            "description": description,
            "nodeGroup": group,
            "startable": startable,
            "dispatch": dispatch,
            "onError": on_error,
            "expiresInSeconds": expires_in_s,
            "longRunningSeconds": long_running_s,
            "onLate": on_late,
            "access": _as_dict(access),
            "sealed": sealed,
            "reply": _as_dict(reply),
            "messages": _as_dict(messages),
            "tests": [_as_dict(each) for each in tests] or None,
            "search": _as_dict(search),
            "inputSchema": given_schema(name, input_schema),
            "payee": _as_dict(payee),
        }
        self._steps: list[dict[str, Any]] = []

    def step(
        self,
        type: str,
        *,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        description: str = "",
        group: str | None = None,
        dispatch: Dispatch | None = None,
        timeout_s: float | None = None,
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        checkpoint: bool = False,
        final_from: bool = False,
        forwards: bool = False,
    ) -> Self:
        """Add a step at the end."""
        step = {
            "type": type,
            "name": name,
            "description": description,
            "nodeGroup": group,
            "dispatch": dispatch,
            "params": _as_dict(params),
            "timeoutSeconds": timeout_s,
            "retry": _retry_mapping(retry) if isinstance(retry, RetryPolicy) else _as_dict(retry),
            "checkpoint": checkpoint,
            "finalFrom": final_from,
            "forwards": forwards,
        }
        self._steps.append(step)
        return self

    def build(self) -> PipelineDefinition:
        """The definition, or PipelineInvalid with every mistake in it."""
        raw = self._mapping | {"steps": self._steps}
        source = f"Pipeline({self._mapping['pipeline']!r})"
        return parse_definition(raw, source=source)


def _without_defaults(*entries: tuple[str, Any, Any]) -> dict[str, Any]:
    return {key: value for key, value, default in entries if value != default}


def _number(value: float | None) -> float | int | None:
    """30.0 is written as 30, so that both ways to write it have one hash."""
    return int(value) if value is not None and value == int(value) else value


def _retry_mapping(policy: RetryPolicy | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    entries: Iterable[tuple[str, Any, Any]] = (
        (item.name, _number(getattr(policy, item.name)), item.default) for item in fields(policy)
    )
    return _without_defaults(*entries)


def _retry_from(clean: Mapping[str, Any] | None) -> RetryPolicy | None:
    if clean is None:
        return None
    return RetryPolicy.from_mapping(
        {
            name: int(value) if name == "max_attempts" else float(value)
            for name, value in clean.items()
        }
    )


def _as_dict(given: object) -> object:
    """Any mapping will do in Python; what is none goes on, to be named as a mistake."""
    return dict(given) if isinstance(given, Mapping) else given
