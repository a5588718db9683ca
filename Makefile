# `make demo` and `make test` need python3 (3.11 or newer), make and a package registry: nothing else.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test test-all lint format clean

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[cli,dev]'
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

test-all: lint
	$(BIN)/pytest -q -n $(WORKERS)

format: .venv/.installed
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

clean:
	rm -rf .venv runs build dist
