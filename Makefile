# `make test` and `make demo` are the two commands to know; `make help` lists the rest.
# Nothing here writes outside this folder, temporary files of the tests aside.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# What is handed on: `make test ARGS="tests/core -x"`, `make demo CHECK=1`.
ARGS ?=
# Most tests wait for a process, so more of them run at a time than there are cores; those that ARGS names run one by
# one, in their order. `make test WORKERS=0` does so with all.
WORKERS ?= $(if $(ARGS),0,3)
CHECK ?=
TERMINAL ?=

# What pip and npm download stays in this folder too, unless the caller shares a cache of their own.
export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
export npm_config_cache ?= $(CURDIR)/.cache/npm
# A PYTHONPATH or a user's site-packages from outside must not decide whether our tests pass; and hundreds of brokers,
# servers and programs start in them, which shall not all compile our modules anew.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE := 1

.PHONY: help $(VENV) test test-frameworks test-gpu demo lint format generate bench pictures build fresh clean
.DEFAULT_GOAL := help

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

$(VENV): $(STAMP)

# The package is editable, so install anew only what an editable install has copied or built: the dependencies, the
# Lab extension and the files that enable it. The stamp says when that was last done.
PAGES := $(shell find labextension etc hatch_build.py -type f -not -path '*/node_modules/*' -not -path '*/lib/*' 2>/dev/null)
$(STAMP): pyproject.toml $(PAGES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "jupyter_gpu needs Python 3.11 or newer; name one: make test PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): this takes some minutes the first time." >&2
	$(PY) -m pip install --quiet --editable '.[test,dev]'
	@# An extra of jsonschema's, for a kind of address that nothing here has: it compiles its grammars, for more than a
	@# second, whenever a Jupyter server or a hub starts, and tests start dozens.
	@$(PY) -m pip uninstall --quiet --yes rfc3987-syntax
	@# One test plays it as a runner of notebooks, outside of any server; in each of theirs it takes nearly a second.
	@$(PY) -m jupyter_server.extension.serverextension disable --sys-prefix --log-level=ERROR jupyter_scheduler
	@touch $@

test: $(STAMP) ## run every test (ARGS="tests/core -x" for some)
	$(PY) -m pytest --numprocesses=$(WORKERS) $(ARGS)

# Its own environment, since what the frameworks bring is a gigabyte and none of it is ours. From PyPI, torch for Linux
# is a build for CUDA and several times as large; PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS can name one for the CPU.
FRAMEWORKS := .venv-frameworks
$(FRAMEWORKS)/.installed: pyproject.toml
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --editable '.[test-frameworks]'
	@touch $@

test-frameworks: $(FRAMEWORKS)/.installed ## run the tests that need PyTorch, Lightning, Transformers and Keras
	$(FRAMEWORKS)/bin/python -m pytest --numprocesses=$(WORKERS) tests/frameworks $(ARGS)

test-gpu: $(STAMP) ## run the tests that need a real card
	$(PY) -m pytest tests/gpu $(ARGS)

demo: $(STAMP) ## JupyterLab on a notebook that plays both stories (CHECK=1: headless, TERMINAL=1: without Jupyter)
	$(PY) -m tests.stories.demo $(if $(CHECK),--check) $(if $(TERMINAL),--terminal) $(ARGS)

lint: $(STAMP) ## style, format, types, and that generated files are fresh
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m tests.house.generate --check
	@if command -v npm >/dev/null && test -d labextension/node_modules; then npm run --silent --prefix labextension lint; \
	else echo "labextension is not linted: that needs Node's npm on the PATH" >&2; fi

format: $(STAMP) ## put every file into shape
	$(PY) -m ruff check --fix-only --quiet
	$(PY) -m ruff format

generate: $(STAMP) ## write the generated files anew
	$(PY) -m tests.house.generate

bench: $(STAMP) ## measure what docs promise, beside a peer
	$(PY) -m tests.bench $(ARGS)

pictures: $(STAMP) ## take the pictures of docs/pictures anew (needs Chromium)
	$(PY) -m tests.stories.pictures

build: $(STAMP) ## make the sdist and the wheel
	rm -rf dist
	$(PY) -m build

fresh: ## forget the environment and make it again
	rm -rf $(VENV) $(FRAMEWORKS)
	$(MAKE) $(VENV)

clean: ## remove what make and the tools made, the environment aside
	rm -rf dist build labextension/lib .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './$(FRAMEWORKS)/*' -prune -exec rm -rf {} +
