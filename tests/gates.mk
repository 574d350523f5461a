# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The checks. Included by the Makefile, which has the target `setup`; each target here can be run on its own.

BIN ?= .venv/bin
PYTHON := $(BIN)/python

# Everything that the checks write lies here; the collection is the checkout, through .collections.
GATES_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/relay-pool/gates
GATES_ENV := ANSIBLE_HOME=$(GATES_CACHE)/ansible ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/.collections ANSIBLE_INJECT_FACT_VARS=false \
	ANSIBLE_CONFIG=$(CURDIR)/ansible.cfg LC_ALL=C.UTF-8 NO_COLOR=1 \
	MOLECULE_COMMAND_BORDERS=false PATH=$(CURDIR)/$(BIN):$$PATH

# Scenario `pool` wants root and the embedded pool; SCENARIOS=default leaves it out.
SCENARIOS ?= default pool
# Arguments for pytest, for example PYTEST_ARGS="-k gguf -x"
PYTEST_ARGS ?=
PYTEST := $(GATES_ENV) $(PYTHON) -m pytest -q
# Two processes: one waits for the machines of the pool, whose tests come first, while the other computes.
PYTEST_PROCESSES ?= 2
SIDE_BY_SIDE := -n $(PYTEST_PROCESSES) --no-loadscope-reorder
COVERAGE := --cov=plugins --cov-branch --cov-report=term:skip-covered
# What cannot run is a failure here, not a skipped test; RELAY_REQUIRE_BINARIES=0 says otherwise.
RELAY_REQUIRE_BINARIES ?= 1

# How many machines ran before anything here started one.
MACHINES_BEFORE := $(shell inventories/demo/bin/machines status 2>/dev/null | grep -c ' running$$')

GATES := lint sanity docs-check molecule

.PHONY: test tests $(GATES) unit integration pool older memory-check scale-check speed-check

# All checks. A failed one does not hide the others, and what pytest says comes last. The machines of the embedded pool
# are left as they were found: up, or gone.
test: demo-machines browser
	@failed=; for gate in $(GATES); do $(MAKE) --no-print-directory $$gate || failed="$$failed $$gate"; done; \
	$(MAKE) --no-print-directory tests || failed="$$failed tests"; \
	if [ $(MACHINES_BEFORE) != 3 ]; then $(MAKE) --no-print-directory demo-down; fi; \
	if [ -n "$$failed" ]; then echo "== FAILED:$$failed"; exit 1; fi

# Where there is no package of it, the tests say what they lack.
.PHONY: browser
browser:
	@$(DEMO)/bin/install browser || true

lint: setup
	@echo "== lint: ruff, ansible-lint with profile production, yamllint"
	@failed=0; \
	$(BIN)/ruff check --quiet --output-format concise . || failed=1; \
	$(GATES_ENV) $(BIN)/ansible-lint --offline --nocolor -q || failed=1; \
	$(BIN)/yamllint --strict . || failed=1; \
	exit $$failed

sanity: setup
	@echo "== sanity: ansible-test sanity (the first run makes its environments, about two minutes)"
	@$(PYTHON) tests/sanity.py

docs-check: setup
	@echo "== docs-check: what ansible-doc and ansible-galaxy make of the collection"
	@$(GATES_ENV) $(PYTHON) tests/docs_check.py

molecule: setup
	@echo "== molecule: $(SCENARIOS)"
	@for scenario in $(SCENARIOS); do $(GATES_ENV) $(BIN)/molecule test --scenario-name $$scenario || exit 1; done

unit: setup
	@echo "== unit: pytest with branch coverage"
	@$(PYTEST) tests/unit $(SIDE_BY_SIDE) $(COVERAGE) $(PYTEST_ARGS)

# About six minutes where it was never built, and nothing after.
older: setup
	@echo "== older: the older llama.cpp that the tests of dialects run"
	@$(PYTHON) -m tests.older

integration: setup older
	@echo "== integration: pytest with llama.cpp's programs on the loopback"
	@RELAY_REQUIRE_BINARIES=$(RELAY_REQUIRE_BINARIES) $(PYTEST) tests/integration $(SIDE_BY_SIDE) $(PYTEST_ARGS)

pool: setup
	@echo "== pool: pytest with the embedded pool (needs root)"
	@RELAY_REQUIRE_BINARIES=$(RELAY_REQUIRE_BINARIES) $(PYTEST) tests/pool $(PYTEST_ARGS)

tests: setup older
	@echo "== unit, integration and pool: pytest with branch coverage"
	@RELAY_REQUIRE_BINARIES=$(RELAY_REQUIRE_BINARIES) $(PYTEST) tests/pool tests/integration tests/unit $(SIDE_BY_SIDE) \
		$(COVERAGE) $(PYTEST_ARGS)

# Arguments for the check, for example MEMORY_ARGS="--only gemma3 --quick"
MEMORY_ARGS ?= --write

# Not part of `test`, which runs a sample of it: about ten minutes.
memory-check: setup
	@echo "== memory-check: the ledger's bytes beside llama.cpp's own, for the shapes of real models"
	@$(GATES_ENV) $(PYTHON) -m tests.memory $(MEMORY_ARGS)

# Arguments for the check, for example SCALE_ARGS="--most 100"
SCALE_ARGS ?= --write

# Not part of `test`, which runs a sample of it: about two minutes.
scale-check: setup
	@echo "== scale-check: seconds and memory of a plan, for up to 1 000 machines with 8 GPUs each"
	@$(GATES_ENV) $(PYTHON) -m tests.scale $(SCALE_ARGS)

# What to measure, for example SPEED_ARGS=splits
SPEED_ARGS ?=

# Not part of `test`, since it wants an idle machine: about ten minutes, after `make demo`.
speed-check: setup
	@echo "== speed-check: the chosen split beside all others on the embedded pool, and what a hop costs (needs root)"
	@$(PYTHON) -m tests.speed $(SPEED_ARGS)
