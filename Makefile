# Everything runs in .venv, made from the lock supply/test.txt; what happens to be installed elsewhere is never used.
PYTHON ?= python3.11
SECOND_PYTHON ?= python3.13
VENV := .venv
TOOLS := .venv-tools
SECOND := .venv-second
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := src recipes tests docs
TESTS := tests
# Tests of numbers: they pass whichever instructions of the processor torch uses.
NUMERIC := $(wildcard tests/golden) tests/alignment tests/importance tests/interventions tests/models tests/subjects
# These import no torch, nor do the parts of the package that they test.
WITHOUT_TORCH := $(filter-out %/test_columns.py %/test_registration.py, $(wildcard tests/metrics/test_*.py)) tests/data/test_registry.py \
	tests/data/test_generators.py tests/support/test_escaping.py tests/test_verdict.py \
	tests/support/test_files.py tests/test_stats.py tests/reporting/test_compare.py tests/reporting/test_tables.py
# Bytecode of tests is kept, so that the next run need not compile them.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
INSTALL := -m pip install --quiet
LOCKED := --no-deps --require-hashes --requirement

.PHONY: demo test numeric gate slow mutation second nightly quality style docs notebooks benchmark locks audit package clean

# torch comes first and without hashes: its builds for CPUs and for GPUs have hashes of their own, and the index that pip is
# set up for decides which one is installed.
$(READY): setup.cfg pyproject.toml constraints.txt supply/test.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --constraint constraints.txt torch setuptools
	$(BIN)/python $(INSTALL) $(LOCKED) supply/test.txt
	$(BIN)/python $(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

demo: $(READY)
	$(BIN)/accelerate launch --quiet recipes/train.py --config recipes/quickstart.yaml --overwrite_output_dir

# The fast tests: a few minutes on two cores.
test: $(READY)
	$(PYTEST) -m 'not slow' $(TESTS)

# The fast tests of numbers again, with the plainest instructions of the processor in place of its newest.
numeric: $(READY)
	ATEN_CPU_CAPABILITY=default $(PYTEST) -m 'not slow' $(NUMERIC)

# The slow tests that a change must pass at once: training to push, a resumed training, the Hub, one study.
gate: $(READY)
	$(PYTEST) -m gate $(TESTS)

# All slow tests, and transformers' own model tests, which are fetched once at the pinned version.
slow: $(READY)
	$(BIN)/python tests/models/fetch_conformance.py
	$(PYTEST) -m slow $(TESTS)

# Bugs that are planted in the mathematics, one at a time: the tests beside each must notice it.
mutation: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutations

# What needs no torch, on another Python.
second: $(SECOND)/.ready
	OMP_NUM_THREADS=1 $(SECOND)/bin/python -m pytest -n 2 --dist worksteal -m 'not slow' $(WITHOUT_TORCH)

$(SECOND)/.ready: setup.cfg pyproject.toml constraints.txt supply/test.txt
	$(SECOND_PYTHON) -m venv $(SECOND)
	$(SECOND)/bin/python $(INSTALL) --constraint constraints.txt setuptools
	$(SECOND)/bin/python $(INSTALL) $(LOCKED) supply/test.txt
	$(SECOND)/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

# What takes too long for every change. The audit asks an advisory service, so it comes last.
nightly: slow mutation notebooks second package audit

quality: $(READY)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/pyright --pythonpath $(BIN)/python --level error

style: $(READY)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

notebooks: $(READY)
	rm -rf build/notebooks && mkdir -p build && cp -r docs/notebooks build/notebooks
	PATH="$(CURDIR)/$(BIN):$$PATH" TQDM_DISABLE=1 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n 2 -W default --nbmake --nbmake-timeout=600 --overwrite build/notebooks

# The site, where a warning is an error, and the pages' blocks of Python.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	TQDM_DISABLE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p tests.docs.quickstart --ignore docs/generate.py \
		--markdown-docs --markdown-docs-syntax superfences README.md docs
	@echo "documentation: build/docs/index.html"

benchmark: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python recipes/benchmark.py

$(TOOLS)/.ready: supply/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(INSTALL) $(LOCKED) supply/tools.txt
	touch $@

# The locks anew, after a change of setup.cfg, constraints.txt or supply/tools.in. They name no index and hold no torch.
COMPILE := $(TOOLS)/bin/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-annotate --no-emit-index-url \
	--no-emit-find-links --no-emit-trusted-host
locks: $(TOOLS)/.ready
	$(COMPILE) --unsafe-package torch --unsafe-package setuptools --constraint constraints.txt --extra test --extra docs \
		--output-file supply/test.txt setup.cfg
	sed -i -e '/^attnfaith @/d' -e '/^#/d' supply/test.txt  # the extra `test` asks for others of the package itself
	$(COMPILE) --allow-unsafe --constraint constraints.txt --output-file supply/tools.txt supply/tools.in

# Known vulnerabilities of every pinned version, torch among them. A version that the service does not know fails the audit too.
audit: $(TOOLS)/.ready
	$(TOOLS)/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --requirement supply/tools.txt

# The source distribution and the wheel made from it, in build/dist, as an index would check them.
package: $(TOOLS)/.ready
	rm -rf build/dist build/lib
	$(TOOLS)/bin/python -m build --outdir build/dist .
	$(TOOLS)/bin/python -m twine check --strict build/dist/*

clean:
	rm -rf $(VENV) $(TOOLS) $(SECOND) runs build .conformance
