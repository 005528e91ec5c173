"""What a client may say about expiry, and clear answers to everything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from datp_tasks import Pipeline, Request
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import ExpiryInvalid, ExternalIdConflict, PipelineInvalid
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.pipeline_rules import EXPIRES_S_MAX
from datp_tasks.testing import Kit

#: The virtual clock starts here.
NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
SOON = NOW + timedelta(minutes=1)


@pytest.fixture(autouse=True)
def pipeline(datp: Kit) -> None:
    datp.use(
        Pipeline("p").step("util/fixed-reply", params={"output": {}}).build(),
        # As an earlier release stored it: such a one cannot be built any more.
        PipelineDefinition.from_json(json.dumps(EVER)),
    )
    datp.lose_bells()


def expiry(datp: Kit, **options: Any) -> datetime | None:
    return datp.status(datp.submit("p", {}, **options)).expires_at


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (SOON, SOON),
        (SOON.astimezone(timezone(timedelta(hours=5, minutes=30))), SOON),
        ("2027-01-15T08:01:00Z", SOON),
        ("2027-01-15T09:01:00+01:00", SOON),
        ("2027-01-15T08:01:00.250+00:00", SOON + timedelta(milliseconds=250)),
    ],
)
def test_a_time_with_a_zone_is_taken_as_it_is_meant(
    datp: Kit, given: datetime | str, meant: datetime
) -> None:
    assert expiry(datp, expires_at=given) == meant


def test_seconds_count_from_the_time_of_the_database(datp: Kit) -> None:
    datp.clock.advance(seconds=10)
    assert expiry(datp, expires_in_s=50) == SOON
    assert expiry(datp, expires_in_s=0.5) == NOW + timedelta(seconds=10.5)


def test_redis_has_the_same_moment(datp: Kit) -> None:
    tx_id = datp.submit("p", {}, expires_in_s=60)
    fields = datp.connections.live.fields_many([tx_id])[0]
    assert int(fields["expiresAt"]) == int(SOON.timestamp() * 1_000)


def test_without_a_word_there_is_no_expiry(datp: Kit) -> None:
    assert expiry(datp) is None


EVER = {
    "expiresInSeconds": 300_000_000,
    "pipeline": "ever",
    "steps": [{"params": {"output": {}}, "type": "util/fixed-reply"}],
}
YEAR = "at most 31622400 seconds"

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"expires_at": NOW}, r"in the past: 2027-01-15T08:00:00\+00:00; it is 2027-01-15T08:00:00"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "in the past: 2020-01-01"),
    ({"expires_at": "2027-01-15T08:30:00+01:00"}, "in the past: 2027-01-15T07:30:00"),
    ({"expires_at": datetime.max.replace(tzinfo=UTC)}, f"too far away: 9999.*{YEAR}"),
    ({"expires_at": "2029-01-01T00:00:00Z"}, f"too far away.*{YEAR}"),
    ({"expires_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))}, "out of range"),
    ({"expires_at": "2027-01-15T08:01:00"}, "must say its time zone, as in 2027-01-31T12:00:00Z"),
    ({"expires_at": datetime(2027, 1, 15, 9)}, "must say its time zone"),  # noqa: DTZ001
    ({"expires_at": "tomorrow"}, "must be a time such as 2027-01-31T12:00:00Z, was 'tomorrow'"),
    ({"expires_at": "2027-01-15"}, "must be a time such as"),
    ({"expires_at": "2027-13-15T08:01:00Z"}, "must be a time such as"),
    ({"expires_at": "Tuesday"}, "must be a time such as"),
    ({"expires_at": ""}, "must be a time such as"),
    ({"expires_at": 1_800_000_060}, "must be a time such as .* was 1800000060"),
    ({"expires_at": True}, "must be a time such as"),
    ({"expires_in_s": 0}, "expires_in_s must be a number of seconds above 0, was 0"),
    ({"expires_in_s": -5}, "above 0, was -5"),
    ({"expires_in_s": float("nan")}, "above 0, was nan"),
    ({"expires_in_s": float("inf")}, f"is inf; {YEAR}"),
    ({"expires_in_s": 10**400}, YEAR),
    ({"expires_in_s": 31_622_401}, f"is 31622401; {YEAR}"),
    ({"expires_in_s": "60"}, "above 0, was '60'"),
    ({"expires_in_s": True}, "above 0, was True"),
    ({"expires_in_s": 60, "expires_at": SOON}, "expires_at or expires_in_s, not both"),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[str(case[0])[:50] for case in WRONG])
def test_anything_else_is_refused_in_words(datp: Kit, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ExpiryInvalid, match=said):
        datp.submit("p", {}, **options)
    with datp.connections.engine.connect() as sql:
        assert sql.exec_driver_sql("SELECT count(*) FROM tx_summary").scalar() == 0


def test_a_default_beyond_what_is_allowed_here_names_the_pipeline(datp: Kit) -> None:
    with pytest.raises(ExpiryInvalid, match=f"of the pipeline ever is 300000000.*{YEAR}"):
        datp.submit("ever", {})


def test_one_bad_expiry_does_not_hold_up_the_others(datp: Kit) -> None:
    answers = datp.client.submit_many(
        [
            Request(pipeline="p", input={}, expires_in_s=60),
            Request(pipeline="p", input={}, expires_at="2020-01-01T00:00:00Z"),
            Request(pipeline="p", input={}),
            Request(pipeline="p", input={}, expires_in_s=-1),
        ]
    )
    kinds = [type(answer).__name__ for answer in answers]
    assert kinds == ["Submitted", "ExpiryPast", "Submitted", "ExpiryInvalid"]


def test_a_request_that_is_repeated_after_its_expiry_finds_its_transaction(datp: Kit) -> None:
    """Its client may not have got the first answer."""

    def submit(**changes: Any) -> Submitted:
        wanted: dict[str, Any] = {"external_id": "mine", "expires_at": SOON, **changes}
        return datp.client.submit("p", {"a": 1}, **wanted)

    first = submit()
    datp.clock.advance(seconds=3_600)
    again = submit()
    assert (again.tx_id, again.duplicate) == (first.tx_id, True)
    with pytest.raises(ExpiryInvalid, match="in the past"):
        submit(external_id="other")
    with pytest.raises(ExternalIdConflict):
        submit(expires_at=SOON - timedelta(seconds=1))


def test_another_expiry_is_another_request(datp: Kit) -> None:
    datp.submit("p", {}, external_id="mine", expires_in_s=60)
    assert datp.client.submit("p", {}, external_id="mine", expires_in_s=60).duplicate
    for changes in ({}, {"expires_in_s": 61}, {"expires_at": SOON}):
        with pytest.raises(ExternalIdConflict):
            datp.client.submit("p", {}, external_id="mine", **changes)


def test_the_same_expiry_may_be_written_in_several_ways(datp: Kit) -> None:
    for option, ways in {
        "expires_at": (SOON, "2027-01-15T08:01:00Z", "2027-01-15T09:01:00+01:00"),
        "expires_in_s": (60, 60.0),
    }.items():
        answers = [
            datp.client.submit("p", {}, external_id=option, **{option: way})  # type: ignore[arg-type]
            for way in ways
        ]
        assert [answer.duplicate for answer in answers] == [False] + [True] * (len(ways) - 1)


def test_a_definition_keeps_its_expiry_and_its_hook() -> None:
    definition = Pipeline("x", expires_in_s=60, on_late="bank/late").step("a/b").build()
    again = PipelineDefinition.from_json(definition.to_json())
    assert (again.expires_in_s, again.on_late, again.version) == (
        *(60.0, "bank/late"),
        definition.version,
    )
    mapping = json.loads(definition.to_json())
    assert (mapping["expiresInSeconds"], mapping["onLate"]) == (60, "bank/late")


def test_a_longer_expiry_that_was_stored_before_is_still_loaded() -> None:
    text = json.dumps({"pipeline": "x", "expiresInSeconds": 1e8, "steps": [{"type": "a/b"}]})
    assert PipelineDefinition.from_json(text).expires_in_s == 1e8


def test_a_definition_without_them_has_the_hash_it_always_had() -> None:
    mapping = json.loads(Pipeline("x").step("a/b").build().to_json())
    assert mapping == {"pipeline": "x", "steps": [{"type": "a/b"}]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"expires_in_s": 0}, "expiresInSeconds: must be a number above 0"),
        ({"expires_in_s": "soon"}, "expiresInSeconds: must be a number above 0"),
        ({"expires_in_s": 1e12}, "expiresInSeconds: must be a number above 0 and at most"),
        # What could never be submitted cannot be applied either.
        ({"expires_in_s": EXPIRES_S_MAX + 1}, "expiresInSeconds: must be a number above 0 and at"),
        ({"on_late": "Not A Step"}, "onLate: must match"),
    ],
)
def test_mistakes_in_a_definition_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineInvalid, match=said):
        Pipeline("x", **options).step("a/b").build()
