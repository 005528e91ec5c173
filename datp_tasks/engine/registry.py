"""Step types: what `@step` makes of a function, and where this node finds them by name."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar, get_type_hints, is_typeddict, overload

from datp_tasks.errors import StepTypeInvalid, StepTypeUnknown
from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.pipeline_rules import STEP_TYPE
from datp_tasks.model.secret_params import stand_in, takes_secrets
from datp_tasks.model.typed_schema import Untyped, schema_of

ENTRY_POINT_GROUP = "datp_tasks.steps"

OnCrash = Literal["rerun", "probe", "review"]
StepFunction = Callable[..., Any]
Function = TypeVar("Function", bound=StepFunction)


@dataclass(eq=False)
class StepType:
    """A registered step type. Its methods are the decorators for its other functions."""

    name: str
    function: StepFunction
    description: str = ""
    #: JSON schema of its params, and params to begin with: for people and for a palette.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_s: float | None = None
    on_crash: OnCrash = "rerun"
    transactional: bool = False
    #: Its functions take all transactions of a vector at once, as a Batch.
    vector: bool = False
    rollback_function: StepFunction | None = None
    #: The rollback can also undo a try of which it is not known whether it took effect.
    rollback_partial: bool = False
    probe_function: StepFunction | None = None
    check_function: Callable[[Mapping[str, Any]], list[str]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calling the step calls the plain function, as a unit test would."""
        return self.function(*args, **kwargs)

    @property
    def task_name(self) -> str:
        return f"datp.step.{self.name}"

    def described(self) -> dict[str, Any]:
        """What a person needs to use it, as the register of nodes shows it."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "defaultDefinition": {"type": self.name, "params": dict(self.default)},
            "onCrash": self.on_crash,
            "transactional": self.transactional,
            "vector": self.vector,
            **({"input": schema} if (schema := self.input_schema()) else {}),
        }

    def input_schema(self) -> dict[str, Any] | None:
        """What its function says of its input: the schema of the TypedDict that `data` is."""
        if self.vector:
            return None
        try:
            hints = get_type_hints(self.function, include_extras=True)
            names = list(inspect.signature(self.function).parameters)
            kind = hints.get(names[1]) if len(names) > 1 else None
            return schema_of(kind) if is_typeddict(kind) else None
        except (NameError, TypeError, ValueError, Untyped):
            # Hints are for people; what cannot be read says nothing.
            return None

    @property
    def is_unsafe(self) -> bool:
        """A crash in the middle of it leaves a doubt, so it is not simply run again."""
        return self.on_crash != "rerun" and not self.transactional

    @property
    def must_find_out(self) -> bool:
        """An earlier try may have had an effect that decides how the transaction turns around."""
        return self.transactional or self.is_unsafe

    @overload
    def rollback(self, function: Function, /) -> Function: ...
    @overload
    def rollback(self, *, partial: bool = False) -> Callable[[Function], Function]: ...
    def rollback(self, function: StepFunction | None = None, *, partial: bool = False) -> Any:
        """Decorator: how to undo the step, called with (ctx, data, output).

        With `partial=True` it is also called, with None as the output, for a try that broke or
        was interrupted, of which it is not known whether it took effect.
        """

        def declare(given: StepFunction) -> StepFunction:
            self._check_function(given, "rollback function")
            self.rollback_function = given
            self.rollback_partial = partial
            return given

        return declare if function is None else declare(function)

    def probe(self, function: Function) -> Function:
        """Decorator: asks the outside, after a crash, whether the step took effect."""
        self._check_function(function, "probe")
        self.probe_function = function
        return function

    def _check_function(self, function: StepFunction, what: str) -> None:
        if self.transactional and inspect.iscoroutinefunction(function):
            raise StepTypeInvalid(f"{self.name}: a transactional step has no async {what}")
        if self.vector and not _takes_one_argument(function):
            raise StepTypeInvalid(
                f"{self.name}: the {what} of a vector step takes one argument, the batch"
            )

    def check(
        self, function: Callable[[Mapping[str, Any]], list[str]]
    ) -> Callable[[Mapping[str, Any]], list[str]]:
        """Decorator: names the mistakes in the params of a step definition."""
        self.check_function = function
        return function


class Registry:
    """The step types of this process."""

    def __init__(self) -> None:
        self._types: dict[str, StepType] = {}
        #: Called with each step type, those already there and those to come.
        self._listeners: list[Callable[[StepType], None]] = []

    def add(self, step_type: StepType) -> None:
        known = self._types.get(step_type.name)
        if known is not None and not _same_source(known, step_type):
            raise StepTypeInvalid(
                f"the step type {step_type.name!r} is declared twice: in "
                f"{known.function.__module__} and in {step_type.function.__module__}"
            )
        self._types[step_type.name] = step_type
        for listener in self._listeners:
            listener(step_type)

    def listen(self, listener: Callable[[StepType], None]) -> None:
        self._listeners.append(listener)
        for step_type in list(self._types.values()):
            listener(step_type)

    def find(self, name: str) -> StepType | None:
        return self._types.get(name)

    def get(self, name: str) -> StepType:
        found = self._types.get(name)
        if found is None:
            raise StepTypeUnknown(
                f"this node does not offer the step type {name!r}; "
                "add the module that declares it to DATP_STEPS"
            )
        return found

    def names(self) -> list[str]:
        return sorted(self._types)

    def described(self) -> dict[str, dict[str, Any]]:
        """What people need to use each."""
        return {name: step_type.described() for name, step_type in self._types.items()}

    def step(
        self,
        name: str,
        *,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        default: Mapping[str, Any] | None = None,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        on_crash: OnCrash = "rerun",
        transactional: bool = False,
        vector: bool = False,
    ) -> Callable[[StepFunction], StepType]:
        """Declare a step type.

        The function gets (ctx, data) and returns a dict, None, Sleep or Call, or raises Fail or
        Abort. `on_crash` says what to do when a worker is lost in the middle of it: run it
        again, ask its probe, or park the transaction for a person. With `transactional`, what
        it does on `ctx.sql` happens exactly once. With `vector`, the function gets a Batch of
        all transactions of the vector that are at the step, and gives each item its outcome.
        `description` (else the docstring), `parameters` (a JSON schema of its params) and
        `default` (params to begin with) are for people: `datp steps show`.
        """
        _check_declaration(name, timeout_s, on_crash)
        try:
            given = {} if retry is None else retry
            policy = given if isinstance(given, RetryPolicy) else RetryPolicy.from_mapping(given)
        except ValueError as error:
            raise StepTypeInvalid(f"{name}: {error}") from None

        def declare(function: StepFunction) -> StepType:
            if transactional and inspect.iscoroutinefunction(function):
                raise StepTypeInvalid(f"{name}: a transactional step cannot be async")
            if vector and not _takes_one_argument(function):
                raise StepTypeInvalid(f"{name}: a vector step takes one argument, the batch")
            declared = StepType(
                name=name,
                function=function,
                description=description or inspect.getdoc(function) or "",
                parameters=_as_json(name, "parameters", parameters),
                default=_as_json(name, "default", default),
                retry=policy,
                timeout_s=timeout_s,
                on_crash=on_crash,
                transactional=transactional,
                vector=vector,
            )
            self.add(declared)
            return declared

        return declare

    def copy(self) -> Registry:
        """The same step types, and room for more that only this registry has."""
        other = Registry()
        other._types = dict(self._types)
        return other


def _as_json(name: str, what: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy that nothing changes later, and that can be shown to others."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(given or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise StepTypeInvalid(f"{name}: {what} must be a JSON object: {error}") from None
    return found


def _takes_one_argument(function: StepFunction) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    return True


def _check_declaration(name: str, timeout_s: float | None, on_crash: str) -> None:
    if not STEP_TYPE.fullmatch(name):
        raise StepTypeInvalid(f"step type {name!r} must look like 'bank/reserve'")
    if on_crash not in ("rerun", "probe", "review"):
        raise StepTypeInvalid(f"{name}: on_crash must be rerun, probe or review, was {on_crash!r}")
    if timeout_s is not None and not timeout_s > 0:
        raise StepTypeInvalid(f"{name}: timeout_s must be above 0, was {timeout_s!r}")


def param_mistakes(definitions: Iterable[PipelineDefinition], known: Registry) -> list[str]:
    """What the step types say about the params in these definitions; unknown types say nothing."""
    mistakes = []
    for definition in definitions:
        for index, step_definition in enumerate(definition.steps):
            step_type = known.find(step_definition.type)
            if step_type is None or step_type.check_function is None:
                continue
            where = f"{definition.name}: steps[{index}] ({step_definition.type}): params"
            params = step_definition.params
            if takes_secrets(step_definition.type):
                params = stand_in(params)
            found = step_type.check_function(params)
            mistakes += [f"{where}: {mistake}" for mistake in found]
    return mistakes


#: Decorators run at import, before anything else exists, so they share one registry.
registry = Registry()
step = registry.step


def discover(modules: Iterable[str]) -> None:
    """Import the shipped step types, those of installed packages, and the named modules."""
    importlib.import_module("datp_tasks.engine.builtin")
    for point in entry_points(group=ENTRY_POINT_GROUP):
        point.load()
    if "" not in sys.path and os.getcwd() not in sys.path:
        # A module beside the command is found, as `python` itself would find it.
        sys.path.append(os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            raise StepTypeInvalid(
                f"DATP_STEPS names the module {module!r}, which cannot be imported: {error}"
            ) from error


def _same_source(known: StepType, new: StepType) -> bool:
    """A module that is imported again (under another name, say) declares the same steps."""
    one, other = known.function.__code__, new.function.__code__
    places = [(code.co_filename, code.co_firstlineno) for code in (one, other)]
    return known.function.__qualname__ == new.function.__qualname__ and places[0] == places[1]
