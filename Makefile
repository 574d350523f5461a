# Copyright (c) 2026, relay.pool contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

BIN := .venv/bin
DEMO := inventories/demo
# The demo of this checkout, whatever the user's environment says about Ansible.
ANSIBLE_ENV := ANSIBLE_CONFIG=$(CURDIR)/ansible.cfg ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/.collections LC_ALL=C.UTF-8

.PHONY: help setup build demo demo-install demo-machines demo-down
.NOTPARALLEL:

help:
	@echo "make demo           the embedded pool from nothing to an answer (root, Debian or Ubuntu)"
	@echo "make demo-machines  only its three machines, without llama.cpp"
	@echo "make demo-down      removes the machines; what was downloaded and built stays"
	@echo "make test           all checks; parts: lint sanity docs-check molecule unit integration pool"
	@echo "make older          an older llama.cpp for the tests, into the cache (six minutes, once)"
	@echo "make memory-check   the planner's bytes beside llama.cpp's own; writes docs/memory.md"
	@echo "make scale-check    how long a plan takes for up to 1 000 machines; writes docs/scale.md"
	@echo "make speed-check    the chosen split beside all others, measured on the embedded pool"
	@echo "make setup          .venv with the pinned tools"
	@echo "make build          the collection's archive, in build/"

setup: .venv/.stamp .collections/ansible_collections/relay/pool

.venv/.stamp: requirements.txt requirements-dev.txt constraints.txt
	@python=$$($(DEMO)/bin/find-python 2>/dev/null) || { $(DEMO)/bin/install venv && python=$$($(DEMO)/bin/find-python); } || exit 1; \
	echo "making .venv with $$($$python --version)"; \
	$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || $$python -m venv --clear .venv; \
	$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-dev.txt && touch $@

# The checkout under the name that Ansible looks for.
.collections/ansible_collections/relay/pool:
	@mkdir -p $(@D) && ln -sfn ../../.. $@

build: setup
	@mkdir -p build && $(ANSIBLE_ENV) $(BIN)/ansible-galaxy collection build --force --output-path build

demo: demo-machines
	@$(ANSIBLE_ENV) $(BIN)/ansible-playbook -i $(DEMO)/inventory.yml playbooks/deploy.yml
	@$(ANSIBLE_ENV) $(BIN)/ansible-playbook -i $(DEMO)/inventory.yml $(DEMO)/ask.yml

demo-install:
	@$(DEMO)/bin/install

# The image takes the longest and needs nothing of .venv, so it is made meanwhile.
demo-machines: demo-install
	@$(DEMO)/bin/image >/dev/null & image=$$!; \
	$(MAKE) --no-print-directory setup && wait $$image && $(DEMO)/bin/machines up

demo-down:
	@$(DEMO)/bin/machines down

-include tests/gates.mk
