"""Every error a user can meet, as one short tree.

DatpError
├── SettingsError             a setting has a value that is not allowed
├── LocalStackError           the embedded servers or processes cannot run
├── DatabaseUnavailable                PostgreSQL cannot be reached
├── PipelineError
│   ├── PipelineInvalid       a definition has mistakes; each one is named
│   ├── PipelineUnknown       no pipeline (or version) of that name
│   ├── MappingUnknown        no mapping (or version) of that name
│   ├── VersionKept           only a draft that was never in use can be deleted
│   ├── PipelineDisabled      the pipeline exists, but takes no transactions now
│   ├── PipelineNotStartable  only other pipelines may call it
│   └── VersionMismatch       the content does not match the hash it claims to have
├── RequestError              what a client sent cannot be accepted; nothing was stored
│   ├── NotGranted            the key, or its role, does not allow it
│   ├── InputInvalid          the data is not an acceptable JSON object
│   ├── ExternalIdInvalid
│   ├── ExternalIdConflict    the id was used before, for another request
│   ├── ExpiryInvalid         the time at which it must be over is not acceptable
│   ├── CallerTransactionUnfit    nothing can be submitted in the caller's SQL transaction
│   ├── CannotSeal            its pipeline is sealed, and its keys cannot be had now
│   ├── WebhookInvalid        the URL to be told at is not acceptable
│   ├── FilterInvalid         which transactions are meant is not clear
│   ├── CursorTooOld          what came after a cursor may be dropped by now
│   ├── DecisionInvalid       about a transaction in doubt
│   ├── CursorInvalid         a page cannot begin there
│   └── SwitchInvalid
├── TransactionError
│   ├── TransactionUnknown
│   ├── TransactionFinal      the transaction has ended; it cannot be changed
│   ├── TransactionMoved      it is not any more as the caller saw it
│   ├── TransactionHeld       another process changes it just now
│   ├── NoReturn              it is past its point of no return; it can only finish
│   ├── TransactionStopped    a cancel or an expiry came before its point of no return
│   ├── StateLost             neither archive nor journal know where it stood
│   └── WaitTimeout           it has not ended within the time the caller gave
├── LedgerError
│   ├── ServiceUnknown        no ledger service of that name
│   ├── ServiceInvalid        its name, kind or address is not acceptable
│   ├── BatchInvalid          a batch is not acceptable; nothing was stored
│   ├── BatchConflict         the batch id was used before, for other bytes
│   ├── BatchLimit            the owner has too many batches in this line that are not final
│   ├── BatchUnknown
│   └── BatchBusy             the batch is in a state in which that cannot be done
├── WebhookError
│   ├── WebhookUnknown        no delivery of that id
│   ├── WebhookBusy           the delivery is in a state in which that cannot be done
│   └── WebhookErased         what the delivery said was erased; it cannot be sent again
├── AccessError
│   ├── KeyInvalid            an API key of that kind cannot be made
│   └── KeyUnknown            no API key of that id
├── ApprovalError
│   ├── ApprovalNeeded        another person must agree first; the request is stored
│   ├── ApprovalUnknown       no request of that number
│   ├── ApprovalForbidden     this person may not decide about it
│   ├── ApprovalOver          it was decided, has expired, or its subject has moved
│   └── SubjectMoved          the subject has changed since the request was made
├── PolicyInvalid             the file that says what needs a second person has mistakes
├── SealError
│   ├── NoKeyRing             a secret cannot be stored or read without a key ring
│   ├── SealBroken            what is sealed does not open with the keys at hand
│   │   └── DataKeyGone       its key was erased with its owner
│   └── SecretUnknown         no secret of that name
├── GroupInvalid              a node group or a value for it is not acceptable
├── TracingMissing            tracing is on, but its packages are not installed
├── StepError
│   ├── LinkRefused           the transaction cannot be a leg of that link
│   ├── StepTypeInvalid       a step type is declared wrongly
│   ├── StepTypeUnknown       this node does not offer that step type
│   └── StepTimeout           a step ran longer than its timeout
├── ArchiveRefused            PostgreSQL does not take entries of the journal, or states
├── RoleLost                  another node archives by now
└── StaleFence                another worker owns the transaction now
"""

from __future__ import annotations

from collections.abc import Sequence


class DatpError(Exception):
    """Something went wrong in DATP Tasks."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


class SettingsError(DatpError):
    """A setting has a value that is not allowed."""


class LocalStackError(DatpError):
    """The embedded servers cannot run here."""


class SealError(DatpError):
    """Something that is sealed cannot be stored or read."""


class NoKeyRing(SealError):
    """This process has no key ring, so it stores and opens nothing that is secret."""


class SealBroken(SealError):
    """What is sealed does not open: its key is missing, or it was altered."""


class DataKeyGone(SealBroken):
    """The data key was deleted, with what it sealed."""

    def __init__(self, message: str | None = None, key_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.key_ids = tuple(key_ids)


class SecretUnknown(SealError):
    """There is no secret of that name. `datp secrets list` shows what there is."""


class DatabaseUnavailable(DatpError):
    """PostgreSQL cannot be reached. Ask again later."""

    def __init__(self, message: str | None = None, reason: str = "") -> None:
        super().__init__(message)
        #: What the library said: hosts, users and ports, so for operators only.
        self.reason = reason


class PipelineError(DatpError):
    """Something is wrong with a pipeline."""


class PipelineInvalid(PipelineError):
    """A pipeline definition has mistakes."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(self.mistakes))


class PipelineUnknown(PipelineError):
    """There is no such pipeline. `datp pipelines list` shows what there is."""


class MappingUnknown(PipelineError):
    """There is no such mapping. `datp mappings list` shows what there is."""


class VersionKept(PipelineError):
    """Only a draft that was never in use can be deleted."""


class PipelineDisabled(PipelineError):
    """The pipeline is disabled. `datp pipelines use` enables a version of it."""


class PipelineNotStartable(PipelineError):
    """Clients cannot start this pipeline; only other pipelines may call it."""


class VersionMismatch(PipelineError):
    """The definition does not match the hash it is stored under; it was altered."""


class RequestError(DatpError):
    """The request cannot be accepted; nothing was stored."""


class NotGranted(RequestError):
    """The key, or the role, does not allow it; nothing was done."""


class InputInvalid(RequestError):
    """The data is not an acceptable JSON object."""

    def __init__(
        self,
        message: str | None = None,
        pointer: str = "",
        mistakes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        #: The place of the mistake in the request, as a JSON pointer, where it is known.
        self.pointer = pointer
        #: Place and sentence of each, where there can be several.
        self.mistakes = mistakes or ([(pointer, str(self))] if pointer else [])


class ExternalIdInvalid(RequestError):
    """The external id is not acceptable."""


class ExternalIdConflict(RequestError):
    """The external id was already used for a different request."""


class ExpiryInvalid(RequestError):
    """The time at which the transaction must be over is not acceptable."""


class CannotSeal(RequestError):
    """The pipeline is sealed, and the keys for that cannot be had now; nothing was stored."""


class CallerTransactionUnfit(RequestError):
    """Nothing can be submitted in this SQL transaction; nothing was stored."""


class WebhookInvalid(RequestError):
    """The webhook URL is not acceptable."""


class CursorTooOld(RequestError):
    """What came after the cursor may be dropped by now. Begin anew without a cursor."""


class SwitchInvalid(RequestError):
    """The switch name or value is not acceptable."""


class CursorInvalid(RequestError):
    """The cursor is not one that was given."""


class TransactionError(DatpError):
    """Something is wrong with a transaction."""


class TransactionUnknown(TransactionError):
    """There is no transaction with this id."""


class TransactionMoved(TransactionError):
    """The transaction is not any more as the caller saw it."""


class TransactionHeld(TransactionError):
    """Another process changes it just now; how it is then is not known yet."""


class NoReturn(TransactionError):
    """The transaction has passed its point of no return: it can only finish."""


class TransactionStopped(TransactionError):
    """A cancel or an expiry came before the point of no return; the step must have no effect."""


class TransactionFinal(TransactionError):
    """The transaction has ended and cannot be changed."""


class WaitTimeout(TransactionError):
    """The transaction has not ended yet. It goes on; ask again later."""


class LedgerError(DatpError):
    """Something is wrong with a batch or with the ledger it goes to."""


class ServiceUnknown(LedgerError):
    """There is no such ledger service. `datp services add` makes one."""


class ServiceInvalid(LedgerError):
    """The name, the kind or the address of the ledger service is not acceptable."""


class BatchInvalid(LedgerError):
    """The batch is not acceptable; nothing was stored."""


class BatchConflict(LedgerError):
    """The batch id was already used for other bytes."""


class BatchLimit(LedgerError):
    """The owner has too many batches in this line that are not final. Try again later."""


class BatchUnknown(LedgerError):
    """There is no such batch."""


class BatchBusy(LedgerError):
    """The batch is in a state in which that cannot be done."""


class WebhookError(DatpError):
    """Something is wrong with a webhook delivery."""


class WebhookUnknown(WebhookError):
    """There is no such delivery. `datp webhooks list` shows what there is."""


class WebhookBusy(WebhookError):
    """The delivery is in a state in which that cannot be done."""


class WebhookErased(WebhookError):
    """What the delivery said was erased; it cannot be sent again."""


class AccessError(DatpError):
    """Something is wrong with an API key."""


class KeyInvalid(AccessError):
    """The owner or the name of the API key is not acceptable."""


class KeyUnknown(AccessError):
    """There is no such API key. `datp keys list` shows what there is."""


class ApprovalError(DatpError):
    """Something is wrong with a request for approval."""


class ApprovalNeeded(ApprovalError):
    """Another person must agree first. `comes_again`: it is done when who asked sends it again."""

    def __init__(self, message: str | None = None, *, approval_id: int = 0) -> None:
        self.approval_id, self.comes_again = approval_id, False
        super().__init__(message)


class ApprovalUnknown(ApprovalError):
    """There is no such request. `datp approvals list` shows what there is."""


class ApprovalForbidden(ApprovalError):
    """This person may not decide about that request."""


class ApprovalOver(ApprovalError):
    """The request was decided, has expired, or its subject has moved."""


class SubjectMoved(ApprovalError):
    """The subject has changed since the request was made; nothing was done. Look again."""


class PolicyInvalid(DatpError):
    """The policy file has mistakes; each one is named with its line."""


class GroupInvalid(DatpError):
    """The name of the node group, or a value for it, is not acceptable; nothing was changed."""


class TracingMissing(DatpError):
    """Tracing is on, but its packages are not installed: pip install 'datp-tasks[otel]'."""


class StepError(DatpError):
    """Something is wrong with a step."""


class StepTypeInvalid(StepError):
    """A step type is declared wrongly."""


class StepTypeUnknown(StepError):
    """This node does not offer that step type. Add its module to DATP_STEPS."""


class StepTimeout(StepError):
    """The step ran longer than its timeout."""


class DecisionInvalid(RequestError):
    """What was decided about a transaction in doubt is not acceptable."""


class FilterInvalid(RequestError):
    """Which transactions are meant cannot be told from this."""


class ArchiveRefused(DatpError):
    """PostgreSQL does not take entries of the journal or states, or not so many at a time."""


class RoleLost(DatpError):
    """Another node has the role of archiving by now."""


class StateLost(TransactionError):
    """Neither the archive nor the journal can tell where a transaction stood."""


class LinkRefused(StepError):
    """The transaction cannot be a leg of that link."""


class StaleFence(DatpError):
    """Another worker owns this transaction now; this one must drop it."""
