"""What is known of a transaction in doubt: where it stands, and whether its step took effect."""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.errors import TransactionError, TransactionFinal, TransactionUnknown
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.store import LiveStore
from datp_tasks.model.plan import Action, next_action
from datp_tasks.model.state import Delta
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.operator.audit import Auditor
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.database import translate_outage
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.record_types import Summary
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.views import view_of_copy


@dataclass(frozen=True, kw_only=True)
class Doubts:
    record: Record
    live: LiveStore
    catalogue: Catalogue
    begun_steps: BegunSteps
    effects: EffectStore
    auditor: Auditor

    def view(self, tx_id: str) -> View:
        """As it stands in doubt; raises if it does not exist, has ended or is not in doubt."""
        fields = ArchiveFeed(self.live).states([tx_id])[0]
        if fields.get("status") == Status.IN_DOUBT:
            return view_of_copy(fields)
        with translate_outage():
            found = self.record.summaries([tx_id])
        if not found:
            raise TransactionUnknown(f"there is no transaction {tx_id!r}")
        if found[0].is_final:
            raise TransactionFinal(f"{tx_id} has ended: {found[0].status}")
        status = fields.get("status", found[0].status)
        raise TransactionError(f"{tx_id} is not in doubt; it is {status}")

    def view_of_version(self, tx_id: str, version: str) -> View | None:
        """As it stands in doubt in that version; None if it has moved since."""
        fields = ArchiveFeed(self.live).states([tx_id])[0]
        if fields.get("status") != Status.IN_DOUBT or fields.get("version") != version:
            return None
        return view_of_copy(fields)

    def summary(self, tx_id: str) -> Summary:
        """What SQL has of a transaction that `view` has found."""
        [found] = self.record.summaries([tx_id])
        return found

    def next_action(self, view: View) -> tuple[list[Delta], Action]:
        """What it was about to do, and the deltas that lead there."""
        return next_action(view.state, self.catalogue.version)

    def may_have_had_effect(self, tx_id: str, view: View, action: Action) -> bool:
        """The step is not safe to run again, and this try, or the rollback of one, had begun."""
        begun = [step_key for step_key, _ in self.begun_steps.of(tx_id)]
        if action.kind == "undo":
            # No try of a rollback is marked: that the step itself was says that it is not safe.
            step = f"{tx_id}:{action.path}"
            return any(step_key.rpartition("#")[0] == step for step_key in begun)
        return action.attempt_key(tx_id, view.state) in begun

    def forget_begun(self, tx_id: str, view: View, action: Action) -> None:
        """The step may begin as if it had never begun; a rollback leaves the marks of its step."""
        if action.kind == "run":
            self.begun_steps.forget(tx_id, action.attempt_key(tx_id, view.state))

    def has_recorded_effect(self, tx_id: str, action: Action) -> bool:
        """The step is transactional and has committed."""
        with translate_outage():
            return self.effects.is_recorded(tx_id, action.key(tx_id))

    def was_moved_by(self, tx_id: str, version: str, fence: int) -> bool:
        """Whether its journal has a move from that version under that fence."""
        return any(
            str(entry.before) == version and entry.fence == fence
            for entry in self.auditor.deltas(tx_id)
        )
