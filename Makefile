# The targets a person types. Each makes what it needs; on a fresh machine Python 3.11 or newer, git and make are enough.
#   make setup PYTHON=/path/to/python3.12     another Python than python3

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The page: built again only when a file of web/ is newer than the last build.
WEB_STAMP := $(VENV)/.page
WEB_FILES := $(shell find web -path web/node_modules -prune -o -type f -print 2>/dev/null)
# Tests wait for processes more than they compute, so three at a time pay even on two cores.
TEST_WORKERS ?= 3
TEST_TIMEOUT_S ?= 300
WHAT ?= tests
# Units that start programs or write much: not in the inner loop.
SLOW_UNITS := client_disk console_stage open_data relay cli_terminal public_types simulate cli_run engine_local lock docs tidy
# As after an installation: where PYTHONDONTWRITEBYTECODE is set, each start of hw would compile all that it imports.
COMPILE := $(BIN)/python -m compileall -q src
BENCH ?=
SIM_S ?= 30
SOAK_S ?= 3600
SOAK ?=
JOBS ?= 20
SEED ?= 0
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help setup web demo test test-fast check score bench soak test-browser test-cluster wheel docs pictures lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*##/  make \1\t/' | expand -t 21

setup: $(STAMP) web  ## make .venv with hw in it, and the page

web: $(WEB_STAMP)  ## build the page for browsers, where npm is

$(WEB_STAMP): $(STAMP) $(WEB_FILES) tools/web.sh
	@tools/web.sh $@

# Done again only when a lock or the build description is newer than the last time.
$(STAMP): requirements/uv.txt requirements/dev.txt pyproject.toml tools/setup.sh
	@tools/setup.sh $(VENV) $(PYTHON)
	@touch $@

demo: setup  ## train a small model with four processes and watch it
	@echo '$$ hw run -n 4 --name digits python examples/digits/train.py' >&2
	@PATH="$(CURDIR)/$(BIN):$$PATH" hw run -n 4 --name digits python examples/digits/train.py
	@echo 'hw is $(BIN)/hw here; after "source $(BIN)/activate" it is on your PATH' >&2

check: $(STAMP)  ## ruff, mypy --strict, import-linter, tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/old_python.py
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py tests/unit/test_docs.py

test: check web  ## check, then all tests (WHAT=tests/unit for a part)
	@tools/need.sh strace gcc openssl ip mpirun busybox dockerd podman runc sbatch sshd moto_server azurite-blob jupyter-kernel rclone zsh node npm chromium
	@if [ "$$CI" = true ]; then tools/torch.sh; fi
	@$(COMPILE)
	@if [ "$(WHAT)" = tests ]; then tools/web_test.sh core; fi
	HEADWAY_SIM_SECONDS=$(SIM_S) tools/test.sh $(BIN)/python $(TEST_WORKERS) $(TEST_TIMEOUT_S) $(WHAT)

test-fast: $(STAMP)  ## the tests that start no other program, in about a minute
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) -p no:cacheprovider tests/unit $(addprefix --ignore=tests/unit/test_,$(addsuffix .py,$(SLOW_UNITS)))

score: $(STAMP)  ## how often the diagnosis is right (FAILURES=folder of labelled logs, SCORE='--verbose')
	$(BIN)/python tools/score.py $(SCORE)
	$(BIN)/python -m tests.provoke.hang_score

test-browser: setup  ## all tests of the page in Chromium, the large ones too
	@tools/web_test.sh all

bench: $(STAMP)  ## figures beside the peers', into bench/results (BENCH='--only log')
	@$(COMPILE)
	$(BIN)/python -m bench $(BENCH)
	$(BIN)/python tools/figures.py

soak: $(STAMP)  ## 2,000 seeded damages, then the seeded simulation for an hour (SOAK_S=seconds, SOAK='--seed 42')
	$(BIN)/python -m tests.damage.sweep --count 2000
	$(BIN)/python -m tests.simulation.simulation --seconds $(SOAK_S) $(SOAK)

test-cluster: $(STAMP)  ## a real Slurm: limits with accounting; the server killed at random during JOBS=20 jobs (SEED=…)
	@tools/need.sh sbatch slurmdbd mariadbd
	$(BIN)/python -m pytest tests/fault/slurm_accounting.py --timeout 600
	HEADWAY_KILL_JOBS=$(JOBS) HEADWAY_KILL_SEED=$(SEED) HEADWAY_STOPPED_S=60 \
	  $(BIN)/python -m pytest tests/fault/test_slurm_server.py --timeout 3600

wheel: $(STAMP)  ## dist/headway-….whl, for pip or uv tool install
	$(BIN)/uv build -q --wheel --no-build-isolation --offline --python $(BIN)/python -o dist .
	@ls -1 dist/*.whl

docs: $(STAMP)  ## write docs/reference from the code
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/typescript.py

pictures: $(STAMP)  ## docs/images from real runs, in a home of their own
	@PATH="$(CURDIR)/$(BIN):$$PATH" tools/pictures.sh $(BIN)/python

lock: $(STAMP)  ## choose versions anew (none younger than a week) and lock them
	tools/lock.sh $(BIN)/uv

clean:  ## remove what the targets made, except .venv
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
