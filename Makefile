# Everything a newcomer needs. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
PIP_FLAGS := --quiet --disable-pip-version-check
ONLY ?=
# One file of each kind, without what takes long or starts processes.
QUICK := tests/tidy tests/model tests/bells tests/runtime tests/mutants tests/live tests/client \
	tests/engine/test_hop.py tests/engine/test_outcomes.py tests/engine/test_rollback.py tests/docs/test_docs_blocks.py \
	tests/docs/test_docs_reference.py tests/docs/test_operations_doc.py --ignore=tests/live/test_state_machine.py \
	--ignore=tests/client/test_submit_in.py --ignore=tests/client/test_submit_in_django.py \
	--ignore=tests/client/test_bulk_transfers.py

# Tests start hundreds of processes: each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install up demo quick test test-failed clients diagrams screenshots test-cluster chaos ledger-chaos mutants lint format bench bench-peers bench-table lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Make the virtualenv and install what the lock file says

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --require-hashes -r requirements.lock
	$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

up: $(STAMP) ## Run the whole product here; Ctrl-C ends it
	@$(BIN)/datp up --example

demo: $(STAMP) ## A few hundred transfers of all kinds, and a check of the books
	@$(BIN)/datp demo

quick: $(STAMP) ## Tests that need no worker processes: a minute and a half on two cores
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -m "not acceptance" $(QUICK)

test: $(STAMP) ## All tests, on real servers that the tests start themselves
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -q

test-failed: $(STAMP) ## What failed in the last run once more, alone; not if more than five did
	$(BIN)/python -m tools.few_failed --max 5
	$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

test-cluster: $(STAMP) ## The tests that matter with the state on a Redis Cluster of three masters
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/cluster tests/acceptance/test_cluster_workers.py
	DATP_TEST_REDIS_CLUSTER=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/live tests/engine \
		tests/record tests/jobs tests/transactions tests/operator tests/observe tests/timeouts tests/webhooks \
		tests/pipelines tests/client tests/ledger tests/seals tests/api --ignore-glob="*/test_console_*"

chaos: $(STAMP) ## Break everything under load for SECONDS (300), with a SEED if given, then at every point
	DATP_CHAOS_SECONDS=$(or $(SECONDS),300) $(if $(SEED),DATP_CHAOS_SEED=$(SEED)) \
		$(BIN)/python -m pytest -q -s tests/chaos/test_chaos_minute.py
	DATP_SWEEP_ALL=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/chaos -k "not minute"
	DATP_RACE_TRIES=5000 DATP_EXPIRY_RACE=20000 $(BIN)/python -m pytest -q \
		tests/acceptance/test_no_return_processes.py tests/timeouts/test_expiry_race.py

ledger-chaos: $(STAMP) ## Break the ledger room for SECONDS (300), with a SEED if given
	DATP_CHAOS_SECONDS=$(or $(SECONDS),300) $(if $(SEED),DATP_CHAOS_SEED=$(SEED)) \
		$(BIN)/python -m pytest -q -s tests/ledger/test_ledger_chaos.py

mutants: $(STAMP) ## Break the product in the ways of a list, ONLY="name …" for some, and see that tests notice
	$(BIN)/python -m tests.mutants --jobs $(or $(JOBS),2) $(addprefix --only ,$(ONLY))

lint: $(STAMP) ## Style, types, the direction of imports, and what stays in its room
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.openapi_lint
	$(BIN)/python -m pytest -q tests/tidy/test_rooms.py

clients: $(STAMP) ## Write the TypeScript types of the API from its OpenAPI document
	$(BIN)/python -m tools.typescript_types

diagrams: $(STAMP) ## Draw the pictures of the documentation from the scripts
	$(BIN)/python -m tools.diagrams

screenshots: $(STAMP) ## Photograph the console for the documentation
	$(BIN)/python -m tools.screenshots

format: $(STAMP) ## Put the code into its style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Measure, beside a Celery chain; ONLY="name …" for some parts, LONG=1 for large data
	$(BIN)/python -m benchmarks $(addprefix --only ,$(ONLY)) $(if $(LONG),--long)

bench-peers: $(STAMP) $(PEERS_STAMP) ## Measure beside DBOS and Dramatiq, in a virtualenv of their own
	$(BIN)/python -m benchmarks --only peers

$(PEERS_STAMP): benchmarks/peers/requirements.txt
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install $(PIP_FLAGS) -r benchmarks/peers/requirements.txt
	@touch $(PEERS_STAMP)

bench-table: $(STAMP) ## Write the figures of the last run into README.md
	$(BIN)/python -m benchmarks.tables

lock: $(STAMP) ## Write the lock file anew (needs uv on the PATH)
	UV_PYTHON_DOWNLOADS=never uv pip compile --universal --generate-hashes --no-annotate --no-header \
		--all-extras --python-version 3.11 pyproject.toml --output-file requirements.lock

clean: ## Remove the virtualenv, caches and the embedded servers' data
	rm -rf $(VENV) $(PEERS) .datp .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
