# `make demo` and `make test` need python3 (3.11 or newer), make and a package registry: nothing else.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo docs results test test-all lint format chaos fuzz audit lock locked clean

# What `selfreminder` needs, and no more: torch is the most of it.
.venv/.demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make: python 3.11 or newer is needed; for another one: make demo PYTHON=python3.12")'
	@echo "Installing torch, matplotlib and a few more into .venv: a minute or two, once."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[cli]'
	@touch $@

.venv/.installed: .venv/.demo
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[cli,dev]'
	touch $@

# Avalanche and timm need torchvision, of which there is no build for a CPU torch: they are kept apart from the rest,
# and tests/apart has what stands in for the missing parts.
.venv/apart/.installed: .venv/.installed
	$(BIN)/python -m pip install -q --no-deps --upgrade --target .venv/apart -c constraints.txt avalanche-lib==0.6.0 timm==1.0.30 torchvision==0.28.0
	touch $@

# botocore needs an older python-dateutil than the rest.
.venv/s3/.installed: .venv/.installed
	$(BIN)/python -m pip install -q --upgrade --target .venv/s3 s3fs 'moto[s3]'
	touch $@

demo: .venv/.demo
	@$(BIN)/selfreminder demo

# The site in build/site: without a network, a warning or a dead link.
docs: .venv/.installed
	$(BIN)/python -m scripts.site

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -q -n $(WORKERS) -m "not slow"

test-all: test .venv/apart/.installed .venv/s3/.installed
	$(BIN)/pytest -q -n $(WORKERS) -m slow
	PYTHONPATH=tests/apart:.venv/apart $(BIN)/pytest -q tests/plugins/test_plugin_avalanche.py
	PYTHONPATH=.venv/s3 $(BIN)/pytest -q tests/experiment/test_mirror.py -k server

# The whole campaign against faults, within an hour on two cores; writes chaos/table.json and docs/trust.md.
chaos: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m chaos --write --jobs $(WORKERS)

# Each parser fuzzed once more, guided by coverage. atheris has no build for every system and Python: it is kept apart.
.venv/fuzz/.installed: .venv/.installed
	$(BIN)/python -m pip install -q --upgrade --target .venv/fuzz atheris==3.0.0
	touch $@

MINUTES ?= 1
fuzz: .venv/fuzz/.installed
	OMP_NUM_THREADS=1 PYTHONPATH=.venv/fuzz $(BIN)/python -m chaos.guided --write --minutes $(MINUTES) --jobs $(WORKERS)

# Known weaknesses of what CI installs. A package that cannot be looked up is no good news: --strict. What looks them up
# is in a place of its own, so that it changes nothing of what it looks at.
.venv/audit/bin/pip-audit:
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/python -m pip install -q pip-audit

audit: .venv/audit/bin/pip-audit
	@.venv/audit/bin/pip-audit --strict --progress-spinner off --no-deps --disable-pip -r requirements.lock || \
	  { echo "audit: a package has a known weakness, or the public list of them cannot be reached: see above" >&2; exit 1; }

# requirements.lock anew, from what is installed here.
lock: .venv/.installed
	$(BIN)/python scripts/write_lock.py

# What CI installs, each package by its hash. Torch comes first and without: see docs/threat-model.md.
locked:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --no-deps -e .
	touch .venv/.demo .venv/.installed

# Pages and tables of results/ anew, from the records there.
results: .venv/.installed
	$(BIN)/python scripts/draw_results.py
	$(BIN)/python scripts/results_tables.py

format: .venv/.installed
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .
	$(BIN)/python -c 'from selfreminder.experiment.catalogue import write_index; write_index()'
	$(BIN)/python -c 'from selfreminder.experiment.tuning.tuned import TUNED, seal_table; seal_table(TUNED)'

clean:
	rm -rf .venv build dist
