# Ballast: everything a user or a developer types. `make help` is made from the ## comments below.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
ARGS ?=
PYTEST_ARGS ?=
BUILD_ARGS ?=

bin := $(VENV)/bin
version := $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' jobs/__init__.py)
quick_tests := tests/tidy tests/unit tests/property
pure_tests := $(quick_tests) tests/golden tests/conformance tests/sim
real_tests := tests/integration tests/soak
workers := --numprocesses auto --dist worksteal
# A stack waits a third of its time: three share two cores. Files in the order of tests/integration/conftest.py.
stacks := --numprocesses 3 --dist loadfile --no-loadscope-reorder
lock_with = $(bin)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--no-header --no-annotate --upgrade
existing = $(wildcard $(1))
# Tests without a stack run apart from those with the real one, so that they share no core.
both = failed=0; \
	$(bin)/python -m pytest $(1) $(workers) $(call existing,$(pure_tests)) $(PYTEST_ARGS) || failed=1; \
	$(bin)/python -m pytest $(1) $(stacks) $(call existing,$(real_tests)) $(PYTEST_ARGS) || failed=1; \
	exit $$failed

.PHONY: help run test test-long check coverage lint format draw docs bench chaos package lock setup setup-dev clean distclean python test-pulsar test-containers demo-pulsar lab-pulsar

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'make run ARGS="--brokers 10 --bundles 1000 --kill broker-3@60" passes arguments on;'
	@echo '$(bin)/ballast run-local --help lists them all.'

run: setup ## Start everything on this machine: Kafka, Spark, lookup service, simulated brokers
	@$(bin)/ballast run-local $(ARGS)

test: setup-dev ## Run the everyday tests, the real Kafka, Spark and Delta included (14 minutes)
	@$(call both,-m "not long")

test-long: setup-dev ## Run every test, also those that take the protocol's full durations
	@$(call both,)

test-pulsar: setup-dev ## Run the tests on a real Pulsar cluster (fetches 500 MB the first time)
	@$(bin)/python -m pytest -rfEs tests/pulsar $(PYTEST_ARGS)

test-containers: setup-dev ## Run the image, docker-compose.yml and the Helm chart's pods in a real container engine (root on Debian, 20 minutes)
	@$(bin)/python -m pytest -rfEs tests/containers $(PYTEST_ARGS)

demo-pulsar: setup-dev ## Show a real Pulsar cluster being balanced (fetches 245 MB the first time)
	@$(bin)/python -m tests.pulsar.demo $(ARGS)

lab-pulsar: setup-dev ## Compare Pulsar's shedders and Ballast, brokers on hosts of their own (root on Linux, 2.5 hours)
	@$(bin)/python -m tests.lab $(ARGS)

check: lint ## Check format, lint, types, import contracts and the quick tests (eight minutes of CPU)
	@$(bin)/python -m pytest --quick $(workers) $(call existing,$(quick_tests)) $(PYTEST_ARGS)

coverage: setup-dev ## Show which lines and branches the quick tests and those in virtual time run
	@$(bin)/python -m pytest -m "not long" $(workers) --cov=lbcore --cov=jobs --cov-branch --cov-report=term:skip-covered \
		--cov-report=html:build/coverage $(call existing,$(pure_tests)) $(PYTEST_ARGS)
	@echo "build/coverage/index.html"

lint: setup-dev ## Check format, lint, types and import contracts
	@$(bin)/ruff format --check --quiet .
	@$(bin)/ruff check --quiet .
	@$(bin)/mypy
	@$(bin)/lint-imports

format: setup-dev ## Format the code and fix what the linter can fix
	@$(bin)/ruff check --fix --quiet . || true
	@$(bin)/ruff format .

draw: setup-dev ## Write what is made of declarations: pages, conf/base.toml, the reports' schema, dashboards (Python 3.11)
	@$(bin)/python -m tests.drawn_pages
	@$(bin)/python -m dashboards

docs: setup-dev ## Make a site of docs/ under build/docs; a link that leads nowhere ends it
	@NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict --quiet --config-file .mkdocs.yml
	@echo "build/docs/index.html"

bench: setup-dev ## Measure batches, lookups and the planner on this machine; writes JSON
	@$(bin)/python -m tests.bench $(ARGS) $(if $(SCALE),--scale $(SCALE))

chaos: setup-dev ## Run 1,000 rounds of random clusters and faults in virtual time
	@$(bin)/python -m tests.support.chaos $(ARGS)

package: setup ## Make the wheel, the chart, the image (where docker or podman is), and what a Spark cluster needs, under dist/
	@$(bin)/python -m jobs.package $(ARGS)
	@tar --create --gzip --dereference --file dist/ballast-$(version).tgz --directory conf/helm ballast
	@echo "chart: dist/ballast-$(version).tgz; next: helm install ballast dist/ballast-$(version).tgz --set bootstrap=HOST:PORT"
	@if tool=$$(command -v docker || command -v podman); then \
		$$tool build --file conf/container/Dockerfile --tag ballast:$(version) $(BUILD_ARGS) . \
		&& echo "image: ballast:$(version); next: push it where your nodes find it"; \
	else echo "image: not built, because neither docker nor podman is on the PATH" >&2; fi

lock: setup-dev ## Choose the newest versions that pyproject.toml allows and write the lock files
	@$(bin)/python -m pip install --quiet uv
	@echo 'setuptools>=77' | $(lock_with) --output-file requirements-build.lock -
	@$(lock_with) --output-file requirements.lock --extra job --extra service pyproject.toml
	@$(lock_with) --output-file requirements-dev.lock --constraint requirements.lock --group dev pyproject.toml

setup: python ## Set up what a run needs: packages and jars (run and test do it by themselves)
	@$(PYTHON) -m jobs.prepare run --venv "$(VENV)"

setup-dev: python ## Set up what tests and checks need as well
	@$(PYTHON) -m jobs.prepare dev --venv "$(VENV)"

clean: ## Remove the state of runs (tables, topics, logs) and caches; keep the set-up
	@rm -rf var build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find jobs lbcore tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the set-up too
	@rm -rf "$(VENV)" "$(VENV).setup-lock"

python:
	@test -n "$(PYTHON)" || { printf 'error: no Python 3.10 or newer was found\n  why: python3 and python3.10 to 3.13 are not on the PATH, or older\n next: install one, or name it: make PYTHON=/path/to/python3 ...\n' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { printf 'error: %s is older than Python 3.10\n  why: Ballast needs Python 3.10 or newer\n next: name a newer one: make PYTHON=/path/to/python3 ...\n' "$(PYTHON)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { printf 'error: %s has no venv module\n  why: some systems package it separately\n next: install it (Debian, Ubuntu: apt-get install python3-venv)\n' "$(PYTHON)" >&2; exit 1; }
