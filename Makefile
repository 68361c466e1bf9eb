# Everything from a clone: needs Python 3.11 or newer, make and git. Paths are relative, so the folder may have any name.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The newest of these is taken; `make setup PYTHON=/path/to/python` chooses another.
PYTHON ?= python3.13 python3.12 python3.11 python3 python

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
# Processes that run the tests, which wait more than they compute; 0: this one alone.
WORKERS ?= 2

.PHONY: help setup demo test check bench soak docs clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/installed-dev ## Make .venv with everything that tests and checks need

demo: .venv/installed ## A server, a room, an agent's run, live; leaves the server running. ARGS="--speed 2x"
	@$(BIN)/python -m minutebook.infra.cli.main demo $(ARGS)

test: check ## Checks, then all tests. ARGS="tests/domain -x"
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: .venv/installed-dev ## Lint, format and types
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m pyright --project pyproject.toml

bench: .venv/installed-dev ## Measure speed against the baselines; writes build/bench.json
	@$(BIN)/python tests/bench/run.py $(ARGS)

soak: .venv/installed-dev ## Five minutes of kills under load. ARGS=tests/faults runs the long fault tests
	@$(BIN)/python -m pytest -m soak $(or $(ARGS),tests/soak)

docs: .venv/installed-dev ## Generate the reference pages anew
	@$(BIN)/python scripts/generate_reference.py $(ARGS)

clean: ## Remove what was built; the data of the demo (.demo) stays
	@rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.venv/bin/python:
	@for python in $(PYTHON); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
			echo "making .venv with $$("$$python" --version)"; \
			"$$python" -m venv .venv && exit 0; \
			rm -rf .venv; \
			echo "$$python cannot make it: install its venv module (Debian: apt-get install python3-venv)." >&2; exit 1; \
		fi; \
	done; \
	echo "No Python 3.11 or newer was found: install one, or name it: make setup PYTHON=/path/to/python" >&2; exit 1

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing Minutebook and what it needs"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing Minutebook, its tests and its checks"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch .venv/installed $@
