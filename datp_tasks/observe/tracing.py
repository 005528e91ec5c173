"""OpenTelemetry: a span for each transaction, each of its hops and each of its steps.

A transaction may live for days in many processes, so no process can hold its span open. Its ids are
chosen when it is accepted and travel in the field `trace` of its hash:

    <trace id>-<span id of the transaction>-<span id of its submitter>-<when it began, ns>

Hops and steps are children of that span, and the worker that commits the end sends it. Spans go to
the provider that the process has set up, for example in its module of steps. The field is only
there for transactions that are sampled, so the others cost nothing; and what Redis loses before it
was archived goes on without a trace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from datp_tasks.clock import wall_ns
from datp_tasks.errors import TracingMissing
from datp_tasks.model.status import Status
from datp_tasks.model.traceparent import read_traceparent
from datp_tasks.record.record_types import Final
from datp_tasks.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

NO_SPAN = 0
#: W3C trace context: trace, span and flags.
#: Names of spans.
TRANSACTION, HOP, STEP = "datp.transaction", "datp.hop", "datp.step"


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a transaction belongs."""

    trace_id: int
    span_id: int
    parent_id: int
    began_ns: int

    def to_text(self) -> str:
        return f"{self.trace_id:032x}-{self.span_id:016x}-{self.parent_id:016x}-{self.began_ns}"

    @classmethod
    def from_text(cls, text: str) -> Trace | None:
        """None for what is no such text: tracing must not break anything."""
        try:
            trace_id, span_id, parent_id, began_ns = text.split("-")
            return cls(int(trace_id, 16), int(span_id, 16), int(parent_id, 16), int(began_ns))
        except ValueError:
            return None


def make_tracing(settings: Settings) -> Tracing | None:
    """None if tracing is off: then nothing of OpenTelemetry is even imported."""
    if settings.tracing == "off":
        return None
    try:
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise TracingMissing(
            "DATP_OBSERVE__TRACING is on, but OpenTelemetry is not installed. "
            "Run: pip install 'datp-tasks[otel]', or set DATP_OBSERVE__TRACING=off."
        ) from None
    return Tracing()


class Tracing:
    """One process's way to its tracer."""

    def __init__(self, provider: Any = None) -> None:
        from opentelemetry import trace

        self._api = trace
        self._provider = provider
        self._found: Any = None
        self._ids = FixedIds(None)

    # Submitting.

    def accepted(self, parent: str | None = None) -> str:
        """The text for the field `trace` of a new transaction; empty if it is not sampled.

        `parent` is the `traceparent` of its submitter, which may be another process."""
        tracer = self._tracer
        current = self._api.get_current_span().get_span_context()
        given = read_traceparent(parent)
        if given:
            trace_id, parent_id, flags = given
            sampled = bool(flags & 1)
        elif current.is_valid:
            trace_id, parent_id = current.trace_id, current.span_id
            sampled = current.trace_flags.sampled
        else:
            trace_id, parent_id = self._ids.generate_trace_id(), NO_SPAN
            sampler = getattr(tracer, "sampler", None)
            sampled = sampler is not None and (
                sampler.should_sample(None, trace_id, TRANSACTION).decision.is_sampled()
            )
        if not sampled:
            return ""
        return Trace(trace_id, self._ids.generate_span_id(), parent_id, wall_ns()).to_text()

    # Running.

    def start_hop(self, text: str, attributes: dict[str, Any]) -> Span | None:
        """The span of a hop of one transaction, as a child of the transaction's."""
        found = Trace.from_text(text)
        if found is None:
            return None
        context = self._context(found.trace_id, found.span_id)
        kind = self._api.SpanKind.CONSUMER
        span: Span = self._tracer.start_span(HOP, context, kind=kind, attributes=attributes)
        return span

    @contextmanager
    def step(self, hop: Span, attributes: dict[str, Any]) -> Iterator[Span]:
        """The span of a step; what the step itself traces lies inside."""
        context = self._api.set_span_in_context(hop)
        span: Span = self._tracer.start_span(STEP, context, attributes=attributes)
        with self._api.use_span(span, end_on_exit=True, record_exception=False):
            yield span

    def mark_failed(self, span: Span, note: str) -> None:
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, note))

    # Ending.

    def ended(self, text: str, tx_id: str, status: Status, note: str | None) -> None:
        """The span of the transaction, from its acceptance until now."""
        found = Trace.from_text(text)
        if found is None:
            return
        context = self._context(found.trace_id, found.parent_id)
        attributes = {"datp.tx_id": tx_id, "datp.status": str(status)}
        with self._ids.fixed(found.trace_id, found.span_id):
            span: Span = self._tracer.start_span(
                TRANSACTION, context, attributes=attributes, start_time=found.began_ns
            )
        if status is not Status.SUCCESS:
            self.mark_failed(span, note or str(status))
        span.end()

    def ended_many(self, finals: Sequence[Final], won: set[str]) -> None:
        """An observer of the record: the spans of the transactions that a commit has ended."""
        for final in finals:
            if final.trace and final.tx_id in won:
                self.ended(final.trace, final.tx_id, final.status, final.note)

    def _context(self, trace_id: int, span_id: int) -> Any:
        """The context of a span that is known by its ids; empty for a trace of its own."""
        from opentelemetry.context import Context

        if span_id == NO_SPAN:
            return Context()
        parent: SpanContext = self._api.SpanContext(
            trace_id,
            span_id,
            is_remote=True,
            trace_flags=self._api.TraceFlags(self._api.TraceFlags.SAMPLED),
        )
        return self._api.set_span_in_context(self._api.NonRecordingSpan(parent), Context())

    @property
    def _tracer(self) -> Any:
        """Looked up when first needed: a module of steps may set up the provider."""
        if self._found is None:
            provider = self._provider or self._api.get_tracer_provider()
            tracer: Any = provider.get_tracer("datp_tasks", version("datp-tasks"))
            generator = getattr(tracer, "id_generator", None)
            if generator is None:
                # No provider is set up yet: what is traced now goes nowhere.
                return tracer
            if isinstance(generator, FixedIds):
                self._ids = generator
            else:
                self._ids = tracer.id_generator = FixedIds(generator)
            self._found = tracer
        return self._found


class FixedIds:
    """Makes ids as the provider does, except where one is known already."""

    def __init__(self, generator: Any) -> None:
        if generator is None:
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

            generator = RandomIdGenerator()
        self._generator = generator
        self._local = threading.local()

    @contextmanager
    def fixed(self, trace_id: int, span_id: int) -> Iterator[None]:
        self._local.ids = (trace_id, span_id)
        try:
            yield
        finally:
            self._local.ids = None

    def generate_trace_id(self) -> int:
        ids = getattr(self._local, "ids", None)
        return int(ids[0] if ids else self._generator.generate_trace_id())

    def generate_span_id(self) -> int:
        ids = getattr(self._local, "ids", None)
        return int(ids[1] if ids else self._generator.generate_span_id())

    def is_trace_id_random(self) -> bool:
        return bool(self._generator.is_trace_id_random())
