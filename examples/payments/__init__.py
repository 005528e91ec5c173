"""Payments: transfers between accounts, with a reservation and a check of the customer."""

from pathlib import Path

#: Import this module on every worker (DATP_STEPS), so that it offers the step types.
STEPS_MODULE = f"{__name__}.steps"
#: The ledger service that settlements go to; `datp up` puts a stand-in behind it.
SETTLEMENT_SERVICE = "settlement"
PIPELINES_FOLDER = Path(__file__).resolve().parent / "pipelines"
