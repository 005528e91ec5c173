"""The words of batches: the states one can be in, and what an answer says about a submission."""

from __future__ import annotations

from enum import StrEnum


class BatchState(StrEnum):
    #: Accepted by us; nothing was sent yet.
    NEW = "NEW"
    #: An attempt was begun, and its end is not recorded.
    SUBMITTING = "SUBMITTING"
    #: The ledger has certainly not taken it, or may be asked to take it again; next_at says when.
    DELAYED = "DELAYED"
    #: It is not known whether the ledger has it. It is asked before anything else is done.
    UNKNOWN = "UNKNOWN"
    #: The ledger has it in its queue.
    PENDING = "PENDING"
    #: Executed, but not yet committed (scabbard only).
    VALID = "VALID"
    #: A person must decide; the batches behind it wait.
    PARKED = "PARKED"
    #: In the ledger, for ever.
    COMMITTED = "COMMITTED"
    #: The ledger's contract said no. The next batch goes on.
    INVALID = "INVALID"
    #: The ledger would not even take it: bytes or form are wrong. The next batch goes on.
    REFUSED = "REFUSED"


FINAL_STATES = frozenset({BatchState.COMMITTED, BatchState.INVALID, BatchState.REFUSED})
#: The ledger is asked what became of it.
TO_ASK = frozenset({BatchState.PENDING, BatchState.VALID, BatchState.UNKNOWN})
#: At most one batch of a service can be in one of these: the serial rule, held by an index.
OPEN_STATES = frozenset({BatchState.SUBMITTING, BatchState.DELAYED, *TO_ASK})


class Verdict(StrEnum):
    """What is known about one attempt."""

    #: The ledger said that it took the batch.
    ACCEPTED = "accepted"
    #: The ledger certainly did not take it.
    REFUSED = "refused"
    #: It may have arrived, or not.
    UNSURE = "unsure"
