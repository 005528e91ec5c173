"""Traces: transaction, hops and steps in one tree, under whoever submitted it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, use_span

from datp_tasks import Batch, Fail, Pipeline, Settings, Sleep
from datp_tasks.errors import TracingMissing
from datp_tasks.model.status import Status
from datp_tasks.observe.tracing import HOP, STEP, TRANSACTION, Trace, Tracing, make_tracing
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def the(self, name: str) -> ReadableSpan:
        [found] = self.named(name)
        return found


@pytest.fixture(scope="module")
def all_spans() -> Spans:
    """A process has one provider, and can set it once."""
    made = Spans()
    trace.set_tracer_provider(made.provider)
    return made


@pytest.fixture
def spans(all_spans: Spans) -> Spans:
    all_spans.exporter.clear()
    return all_spans


@pytest.fixture
def kit(datp_servers: Servers, spans: Spans) -> Iterator[Kit]:
    kit = Kit(datp_servers, tracing="on")

    @kit.step("t/pass")
    def passes(ctx: Any, data: Data) -> None:
        with trace.get_tracer("user").start_as_current_span("inside"):
            pass

    @kit.step("t/async")
    async def passes_too(ctx: Any, data: Data) -> None:
        trace.get_current_span().add_event("here")

    @kit.step("t/nap")
    def naps(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=86_400) if ctx.sleeps == 0 else None

    @kit.step("t/fail")
    def fails(ctx: Any, data: Data) -> None:
        raise Fail("no money")

    yield kit
    kit.close()


def parent_of(span: ReadableSpan) -> int | None:
    return int(span.parent.span_id) if span.parent else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {})[f"datp.{name}"]


def test_a_transaction_its_hops_and_its_steps_hang_under_the_submitter(
    kit: Kit, spans: Spans
) -> None:
    two_hops = Pipeline("p").step("t/pass").step("t/async").step("t/pass", dispatch="queue")
    kit.use(two_hops.build())
    with trace.get_tracer("user").start_as_current_span("checkout") as checkout:
        summary = kit.run("p", {}, metadata={"mine": 1})
    assert (summary.status, summary.metadata) == (Status.SUCCESS, {"mine": 1})
    transaction, hops, steps = spans.the(TRANSACTION), spans.named(HOP), spans.named(STEP)
    assert parent_of(transaction) == checkout.get_span_context().span_id
    assert [parent_of(hop) for hop in hops] == [id_of(transaction)] * 2
    assert [parent_of(step) for step in steps] == [id_of(hops[0])] * 2 + [id_of(hops[1])]
    every = [transaction, *hops, *steps]
    assert {span.context and span.context.trace_id for span in every} == {
        checkout.get_span_context().trace_id
    }
    assert {attribute(span, "tx_id") for span in every} == {summary.tx_id}
    assert [attribute(step, "path") for step in steps] == ["0", "1", "2"]
    assert [attribute(step, "step_type") for step in steps] == ["t/pass", "t/async", "t/pass"]
    assert attribute(transaction, "status") == "success"
    assert all(attribute(hop, "fence") > 0 for hop in hops)
    assert begin(transaction) <= begin(hops[0]) <= begin(steps[0])
    assert end(steps[0]) <= end(hops[0])


def begin(span: ReadableSpan) -> int:
    return span.start_time or 0


def end(span: ReadableSpan) -> int:
    return span.end_time or 0


def test_what_a_step_traces_itself_lies_inside_its_span(kit: Kit, spans: Spans) -> None:
    kit.use(Pipeline("p").step("t/pass").step("t/async").build())
    kit.run("p", {})
    first, second = spans.named(STEP)
    assert parent_of(spans.the("inside")) == id_of(first)
    assert [event.name for event in second.events] == ["here"]


def test_each_transaction_of_a_vector_has_spans_of_its_own(kit: Kit, spans: Spans) -> None:
    kit.use(Pipeline("p").step("t/pass").build())
    kit.lose_bells()
    tx_ids = [kit.submit("p", {}) for _ in range(5)]
    kit.lose_bells(False)
    kit.send("t/pass", [(tx_id, 1) for tx_id in tx_ids], group="master", priority="in")
    for name in (TRANSACTION, HOP, STEP):
        assert sorted(attribute(span, "tx_id") for span in spans.named(name)) == sorted(tx_ids)
    traces = {span.context and span.context.trace_id for span in spans.named(TRANSACTION)}
    assert len(traces) == 5
    assert [parent_of(span) for span in spans.named(TRANSACTION)] == [None] * 5
    assert {attribute(span, "vector") for span in spans.named(HOP)} == {5}


def test_a_failure_is_marked_on_the_step_and_on_the_transaction(kit: Kit, spans: Spans) -> None:
    kit.use(Pipeline("p").step("t/pass").step("t/fail").build())
    assert kit.run("p", {}).status is Status.FAILED
    good, bad = spans.named(STEP)
    assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert bad.status.description == "no money"
    ended = spans.the(TRANSACTION)
    assert (ended.status.status_code, attribute(ended, "status")) == (StatusCode.ERROR, "failed")


def test_a_transaction_that_ends_without_a_worker_has_its_span(kit: Kit, spans: Spans) -> None:
    kit.use(Pipeline("p").step("t/pass").build())
    kit.lose_bells()
    cancelled = kit.submit("p", {})
    kit.client.cancel(cancelled)
    expired = kit.submit("p", {}, expires_in_s=5)
    kit.advance(seconds=6)
    found = {
        attribute(span, "tx_id"): attribute(span, "status") for span in spans.named(TRANSACTION)
    }
    assert found == {cancelled: "cancelled", expired: "expired"}
    assert spans.named(HOP) == []


def test_a_trace_outlasts_a_long_sleep_and_the_archive(kit: Kit, spans: Spans) -> None:
    kit.use(Pipeline("p").step("t/nap").build())
    with trace.get_tracer("user").start_as_current_span("checkout") as checkout:
        tx_id = kit.submit("p", {})
    kit.advance(seconds=kit.settings.delay_before_archiving_s + 1)
    # As if its time in Redis were over.
    live = kit.connections.live
    kit.connections.redis.delete(live.keys.state(tx_id), live.keys.deltas(tx_id))
    kit.advance(days=1)
    assert kit.status(tx_id).status is Status.SUCCESS
    assert parent_of(spans.the(TRANSACTION)) == checkout.get_span_context().span_id
    assert [parent_of(hop) for hop in spans.named(HOP)] == [id_of(spans.the(TRANSACTION))] * 2


def test_after_a_crash_there_is_one_transaction_and_a_hop_for_each_worker(
    kit: Kit, spans: Spans
) -> None:
    kit.use(Pipeline("p").step("t/pass").build())
    for point in ("hop.after_step", "hop.after_final"):
        spans.exporter.clear()
        kit.crash_at(point)
        tx_id = kit.submit("p", {})
        kit.recover()
        assert kit.status(tx_id).status is Status.SUCCESS
        assert attribute(spans.the(TRANSACTION), "tx_id") == tx_id
        assert len(spans.named(HOP)) == (2 if point == "hop.after_step" else 1)


def test_who_is_not_sampled_pays_nothing(kit: Kit, spans: Spans) -> None:
    kit.use(Pipeline("p").step("t/pass").build())
    unsampled = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.DEFAULT))
    with use_span(NonRecordingSpan(unsampled)):
        tx_id = kit.run("p", {}).tx_id
    assert "trace" not in kit.connections.live.fields_many([tx_id])[0]
    assert spans.named(TRANSACTION) + spans.named(HOP) + spans.named(STEP) == []
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    assert Tracing(provider).accepted() == ""


def test_without_a_provider_nothing_is_traced_and_nothing_breaks() -> None:
    tracing = Tracing(trace.NoOpTracerProvider())
    assert tracing.accepted() == ""
    tracing.ended("", "t", Status.SUCCESS, None)
    tracing.ended("nonsense", "t", Status.SUCCESS, None)
    assert tracing.start_hop("1-2-3", {}) is None


def test_the_text_in_the_hash_is_read_as_it_was_written() -> None:
    given = Trace(trace_id=2**127 + 5, span_id=7, parent_id=0, began_ns=1_700_000_000_123_456_789)
    assert Trace.from_text(given.to_text()) == given


def test_tracing_that_is_off_imports_nothing() -> None:
    # The Redis client looks at OpenTelemetry's metrics by itself.
    source = """
import redis, sys
before = set(sys.modules)
import datp_tasks.app
print([name for name in set(sys.modules) - before if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
    assert make_tracing(Settings()) is None


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracingMissing, match=r"pip install 'datp-tasks\[otel\]'"):
        make_tracing(Settings(tracing="on"))


def test_each_item_of_a_vector_step_is_a_step_in_its_own_trace(kit: Kit, spans: Spans) -> None:
    @kit.step("t/many", vector=True)
    def many(batch: Batch) -> None:
        for item in batch:
            item.fail("no money") if item.data["n"] == 1 else item.done()

    kit.use(Pipeline("p").step("t/many").build())
    ends = kit.run_together("p", [{"n": n} for n in range(3)])
    steps = {str((span.attributes or {})["datp.tx_id"]): span for span in spans.named(STEP)}
    assert steps.keys() == {end.tx_id for end in ends}
    failed = [steps[end.tx_id].status.status_code is StatusCode.ERROR for end in ends]
    assert failed == [False, True, False]
    traces = {span.context.trace_id for span in steps.values() if span.context}
    assert len(traces) == 3
