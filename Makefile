# `make` alone lists the targets. The work itself is in scripts/.
.DEFAULT_GOAL := help
.PHONY: help setup peers test lint format docs bench soak demo lock clean

PYTHON ?= python3
# Test processes; each starts peers of its own.
JOBS ?= 2
# short or long, of bench and soak.
LENGTH ?= long
# Passed on to pytest, the bench or the demo.
ARGS ?=

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile
	@echo "Variables: PYTHON=$(PYTHON) JOBS=$(JOBS) LENGTH=$(LENGTH) ARGS=$(ARGS)"

setup: ## Make .venv from requirements.lock (quick when nothing changed)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

peers: ## Install what tests talk to (CUPS, PostgreSQL …) through apt, where allowed
	@sh scripts/peers.sh test

test: setup peers ## Run the tests against real peers; ARGS="-k name"
	@.venv/bin/pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: setup ## Check format, rules, types and layers
	@sh scripts/lint.sh

format: setup ## Format the code and apply safe fixes
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

docs: setup ## Write the generated parts of the documentation anew; ARGS=--check
	@.venv/bin/python scripts/docs.py $(ARGS)

bench: setup peers ## Measure against the baselines; LENGTH=short|long
	@sh scripts/bench.sh $(LENGTH) $(ARGS)

soak: setup peers ## Run the long drills; LENGTH=short|long
	@sh scripts/soak.sh $(LENGTH) $(ARGS)

demo: setup ## Print something, end to end, until Ctrl-C; ARGS=--once
	@sh scripts/peers.sh demo
	@exec .venv/bin/farhand demo $(ARGS)

lock: setup ## Resolve requirements.lock anew; ARGS=--upgrade
	@sh scripts/lock.sh $(ARGS)

clean: ## Remove .venv and what builds and tools left
	@rm -rf .venv build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
