# `make demo` and `make test` need python3 (3.11 or newer), make and a package registry: nothing else.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test test-all lint format clean

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[cli,dev]'
	touch $@

# Avalanche and timm need torchvision, of which there is no build for a CPU torch: they are kept apart from the rest,
# and tests/apart has what stands in for the missing parts.
.venv/apart/.installed: .venv/.installed
	$(BIN)/python -m pip install -q --no-deps --upgrade --target .venv/apart -c constraints.txt avalanche-lib==0.6.0 timm==1.0.30 torchvision==0.28.0
	touch $@

demo: .venv/.installed
	$(BIN)/selfreminder compare permuted-mnist --scale demo

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -q -n $(WORKERS) -m "not slow"

test-all: lint .venv/apart/.installed
	$(BIN)/pytest -q -n $(WORKERS)
	PYTHONPATH=tests/apart:.venv/apart $(BIN)/pytest -q tests/plugins/test_plugin_avalanche.py

format: .venv/.installed
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .
	$(BIN)/python -c 'from selfreminder.experiment.catalogue import write_index; write_index()'

clean:
	rm -rf .venv build dist
