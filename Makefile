# `make demo`, `make test`, `make test-ray` and `make check` install elmore and its dependencies first, into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_RAY := $(VENV)/.installed-ray

.PHONY: demo test test-ray check lint bench clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2

test-ray: $(INSTALLED_RAY)
	$(BIN)/python -m pytest -m ray -p no:logging tests/integrations/test_ray.py tests/test_docs.py

check: lint test test-ray

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/cost.py -o demo-output/cost.png

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

$(INSTALLED_RAY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[ray]"
	touch $@

clean:
	rm -rf $(VENV) demo-output
