# All targets install elmore and its dependencies first, into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_TOOLS := $(VENV)/.installed-tools
INSTALLED_RAY := $(VENV)/.installed-ray
INSTALLED_OLDEST := .venv-oldest/.installed
# Code of the dependencies that elmore does not import
NOT_IMPORTED := 'site-packages/.*/tests?/|transformers/models/(?!auto/)\w+/'
# Tests of the core, which need no optional package but matplotlib
CORE_TESTS := tests/text tests/bilm tests/inference tests/checkpoint tests/vectors tests/pretrain tests/test_embedder.py tests/test_mix.py \
	--ignore tests/text/test_tokenize.py --ignore tests/vectors/test_other_readers.py --ignore tests/pretrain/test_tensorboard.py
# Tests of the commands, which need no optional package either
COMMAND_TESTS := tests/cli --ignore tests/cli/test_export_commands.py --ignore tests/cli/test_index_command.py
# A part of both that uses every dependency and takes less than a minute
QUICK_TESTS := tests/cli/test_commands.py tests/cli/test_training_commands.py tests/checkpoint/test_directory.py tests/checkpoint/test_hdf5.py \
	tests/vectors/test_formats.py tests/vectors/test_rows.py tests/text/test_windows.py tests/test_mix.py
# Without addopts, because the pytest plugin of jaxtyping 0.2.36 fails; without the kernels, because the interpreter of Triton 3.2 fails, which
# torch 2.6.0 installs.
TEST_OLDEST := .venv-oldest/bin/python -m pytest -o addopts=--strict-markers -m "not gpu"

.PHONY: demo test test-docs test-models test-ray test-browser check lint docs tutorials test-wheel test-core test-oldest test-oldest-quick bench clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-docs: $(INSTALLED)  # run the code of all pages and tutorials
	$(BIN)/python -m pytest -n 2 --dist worksteal -m docs tests/test_docs.py tests/test_tutorials.py

test-models: $(INSTALLED)  # load the model packages, and test their layers
	$(BIN)/python -m pytest -n 2 --dist worksteal -m models models tests/test_packaging.py

test-ray: $(INSTALLED_RAY)
	$(BIN)/python -m pytest -m ray -p no:logging tests/integrations/test_ray.py tests/test_docs.py

# The page of `elmore serve` in Chromium, which has to be installed: apt-get install chromium
test-browser: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[browser]"
	$(BIN)/python -m pytest -m browser tests/browser

check: lint test test-docs test-models test-ray test-browser

lint: $(INSTALLED_TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(INSTALLED_TOOLS)  # the documentation site, in build/site
	$(BIN)/python -m scripts.site

tutorials: $(INSTALLED)  # run the notebooks, and store their outputs
	$(BIN)/python scripts/notebooks.py

test-wheel: $(INSTALLED)  # build wheel and sdist in dist/, and try the wheel
	$(BIN)/python scripts/test_wheel.py

test-core:  # the tests of the core with another Python, in .venv-core: make test-core PYTHON=python3.13
	$(PYTHON) -m venv --clear .venv-core
	.venv-core/bin/python -m pip install --quiet --constraint constraints.txt --editable . beartype hatchling hypothesis matplotlib pytest
	.venv-core/bin/python -m pytest $(CORE_TESTS)

test-oldest: $(INSTALLED_OLDEST)  # the tests of the core and the commands with the oldest supported versions, in .venv-oldest
	$(TEST_OLDEST) $(CORE_TESTS) $(COMMAND_TESTS)

test-oldest-quick: $(INSTALLED_OLDEST)
	$(TEST_OLDEST) $(QUICK_TESTS)

bench: $(INSTALLED)
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/cost.py -o demo-output/cost.png

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m compileall -qq -j 0 -x $(NOT_IMPORTED) $(VENV)/lib || true  # on all cores, unlike pip; a file of torch needs Python 3.12
	touch $@

$(INSTALLED_TOOLS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[tools]"
	touch $@

$(INSTALLED_OLDEST): pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable . beartype hatchling hypothesis matplotlib pytest
	touch $@

$(INSTALLED_RAY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[ray]"
	touch $@

clean:
	rm -rf $(VENV) .venv-core .venv-oldest build dist demo-output
