# Bare `make` lists the targets. Everything runs from .venv. `make run` installs requirements.lock,
# the runtime; the other targets add requirements-dev.lock, which holds the same versions and more.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
RUNTIME := .venv/.runtime
MADE := .venv/.made
# One more than the cores of a small machine: tests wait for disks and for what they have started.
# Two more are up to a minute faster, and show races that a slower machine would show, too.
WORKERS := 3

# Tests start hundreds of processes: none is to compile the program anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test check fmt write lint types bench nightly mutants lock sbom clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(or $(wildcard $(MADE)),$(RUNTIME)) ## play every scenario and stay up; ARGS=--once ends after printing
	@$(BIN)/tallyhook demo $(ARGS)

test: $(MADE) ## the whole test suite but for its long forms; ARGS goes to pytest
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/bench $(ARGS)

fmt: $(MADE) ## write all files in the project's form
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format .

write: $(MADE) ## write what is generated: names, tables in pages, config.example.env, the verifier's digest
	@$(BIN)/python -m app.cli.page_tables
	@$(BIN)/python -m tests.architecture.public_names --write

lint: $(MADE) ## look for breaches of the rules of form
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@git ls-files '*.py' | xargs wc -l | awk '$$1 > 700 && $$2 != "total" \
		{ print "warning: " $$2 " has " $$1 " lines: is it one concept?" }' >&2

types: $(MADE) ## check all types, of the product and of its tests
	@$(BIN)/mypy app reconcile tests

check: lint types ## lint, types, architecture and the engine's tests: a minute, before each commit
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not soak and not costly and not slow" \
		tests/architecture tests/reconcile tests/core tests/config tests/access $(ARGS)

bench: $(MADE) ## measure, print a table, write var/bench.json; ARGS=--quick is a twentieth
	@$(BIN)/python -m tests.bench $(ARGS)

nightly: $(MADE) ## the long forms that tests/NIGHTLY.md lists, for hours
	@TALLYHOOK_LONG=1 $(BIN)/python -m pytest -q -m "not soak" -n 2 --timeout=7200 tests/reconcile tests/providers tests/core tests/config \
		tests/checkout tests/evidence tests/finance tests/database tests/console tests/privacy tests/orders \
		tests/security tests/access $(ARGS)
	@TALLYHOOK_LONG=1 $(BIN)/python -m pytest -q -m "not soak" -n 2 tests/api tests/browser tests/cli tests/docs tests/e2e tests/faults tests/floods \
		tests/postgres tests/simulation $(ARGS)
	@TALLYHOOK_LONG=1 $(BIN)/python -m pytest -q -m "not soak" -s tests/corpus $(ARGS)
	@$(BIN)/python -m pytest -q tests/bench $(ARGS)
	@$(BIN)/python -m pytest -q -s --timeout=7200 -m soak tests $(ARGS)

mutants: $(MADE) ## change the code bit by bit and see which tests fail; ARGS="engine --sample 40"
	@$(BIN)/python -m tests.mutants $(ARGS)

LOCKS := requirements.lock requirements-dev.lock
COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-config --only-binary :all: -q --extra build

lock: ## write both locks anew from pyproject.toml: of the runtime, and of development
	@command -v uv >/dev/null || { \
		echo "make lock needs uv on the PATH: $(PYTHON) -m pip install --user uv" >&2; exit 1; }
	@echo "Resolving the dependencies of pyproject.toml into $(LOCKS)" >&2
	@$(COMPILE) --extra dev -o requirements-dev.lock >/dev/null
	@$(COMPILE) -c requirements-dev.lock -o requirements.lock >/dev/null
	@! grep -n '://' $(LOCKS) || { echo "a lock names a host: it must not" >&2; exit 1; }

SBOM_TOOL := cyclonedx-bom==7.5.0

sbom: ## write var/sbom.json, the parts of what is deployed, in CycloneDX
	@mkdir -p var
	@test -x var/sbom-tool/bin/cyclonedx-py || { $(PYTHON) -m venv var/sbom-tool && \
		var/sbom-tool/bin/pip install -q --disable-pip-version-check '$(SBOM_TOOL)'; }
	@PYTHONWARNINGS=ignore var/sbom-tool/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
		--output-reproducible -o var/sbom.json
	@echo "var/sbom.json: $$(grep -c '"purl"' var/sbom.json) parts"

clean: ## remove the environment and caches; var/ stays, it may hold a database
	@rm -rf .venv build *.egg-info app/client/build app/client/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call install,LOCK,HOW LONG): the stamp is written last, so a broken attempt is made again. Python
# compiles each module when it is first imported: most of what is installed never is.
define install
	@command -v $(PYTHON) >/dev/null || { \
		echo "There is no $(PYTHON): install Python 3.11 or newer, or say make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Tallyhook needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1 | cut -d" " -f2)." \
			"Say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)" >&2; \
		exit 1; }
	@echo "Making .venv from $(1) (about $(2), once)" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --no-input --disable-pip-version-check --no-compile \
		--require-hashes --no-deps --only-binary :all: -r $(1)
	@$(BIN)/python -m pip install -q --no-input --disable-pip-version-check \
		--no-deps --no-build-isolation -e .
	@touch $@
endef

$(RUNTIME): requirements.lock pyproject.toml
	$(call install,$<,half a minute)

$(MADE): requirements-dev.lock pyproject.toml
	$(call install,$<,a minute and a half)
