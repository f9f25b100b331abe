# Everything runs in .venv, made from the locks of supply/; what happens to be installed elsewhere is never used.
PYTHON ?= python3.11
VENV := .venv
TOOLS := .venv-tools
TESTS := tests
# Their modules import no torch, nor do the parts of the package that they test.
WITHOUT_TORCH := $(filter-out %/test_columns.py, $(wildcard tests/metrics/test_*.py)) tests/data/test_registry.py \
	tests/data/test_own_files.py tests/data/test_planted_evidence.py tests/data/test_eraser.py tests/test_escaping.py \
	tests/test_files.py tests/test_stats_over_seeds.py tests/reporting/test_answer.py tests/reporting/test_compare.py \
	tests/reporting/test_report_permutation.py tests/reporting/test_report_statistics.py \
	tests/reporting/test_report_tables.py tests/reporting/test_first_screen.py tests/reporting/test_report_page.py
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := src recipes tests docs supply

.PHONY: demo test second slow campaigns quality style docs benchmark locks audit package clean

# torch first and without hashes: each of its builds (for CPUs alone, for GPUs) has its own, and which one is installed is for
# the index that pip is set up for to say. Of all else, a file with another hash than the lock's is refused.
$(READY): setup.cfg pyproject.toml constraints.txt supply/base.txt supply/test.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch setuptools
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement supply/test.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: $(READY)
	$(BIN)/accelerate launch --quiet recipes/train.py --config recipes/quickstart.yaml --overwrite_output_dir

# The tests that are not marked slow: a few minutes of two cores. What pytest makes of a test file is written to __pycache__,
# also where Python is told to write nothing there: the next run need not make it.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' $(TESTS)

# The others, which take long: trainings, whole measurements and studies, processes, servers, compiling, and transformers' own
# model tests, which are fetched once, at the pinned version: they are run, not kept here. A change needs both to pass.
slow: $(READY)
	$(BIN)/python tests/models/fetch_conformance.py
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests

# On another Python (PYTHON=python3.13), without torch: those tests that need none of it.
SECOND := .venv-second
second: $(SECOND)/.ready
	OMP_NUM_THREADS=1 $(SECOND)/bin/python -m pytest -n 2 --dist worksteal -m 'not slow' $(WITHOUT_TORCH)

$(SECOND)/.ready: setup.cfg pyproject.toml constraints.txt supply/test.txt
	$(PYTHON) -m venv $(SECOND)
	$(SECOND)/bin/python -m pip install --quiet --constraint constraints.txt setuptools
	$(SECOND)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement supply/test.txt
	$(SECOND)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# What is hostile, at length: kills at any moment, full disks, two processes at once and what else tests/campaigns holds, in an
# hour at most of two cores. Stopped, the same command goes on; build/campaigns/table.md says how often there was harm.
campaigns: $(READY)
	$(BIN)/python -m tests.campaigns

quality: $(READY)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

style: $(READY)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# The notebooks, the site, where a warning is an error, the tests of pages, and the pages' blocks of Python.
docs: $(VENV)/.docs
	rm -rf build/notebooks && mkdir -p build && cp -r docs/notebooks build/notebooks
	PATH="$(CURDIR)/$(BIN):$$PATH" TQDM_DISABLE=1 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n 2 -W default --nbmake --nbmake-timeout=600 --overwrite build/notebooks
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p tests.docs.quickstart --ignore docs/generate.py \
		--markdown-docs --markdown-docs-syntax superfences README.md docs
	@echo "documentation: build/docs/index.html"

$(VENV)/.docs: $(READY) supply/docs.txt
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement supply/docs.txt
	touch $@

benchmark: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python recipes/benchmark.py
	OMP_NUM_THREADS=1 $(BIN)/python recipes/benchmark_saliency.py
	OMP_NUM_THREADS=1 $(BIN)/python recipes/benchmark_stacks.py

# What looks at the packages, in an environment of its own.
$(TOOLS)/.ready: supply/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement supply/tools.txt
	touch $@

# After setup.cfg or constraints.txt were changed: the locks of supply/, anew.
locks: $(TOOLS)/.ready
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(TOOLS)/bin/python supply/locks.py

# Known vulnerabilities, and a bill of materials. make fails where some are known, and where that could not be looked up, which
# the last line then says (NOT AUDITED); the exit codes of supply/audit.py tell the two apart.
audit: $(TOOLS)/.ready
	$(TOOLS)/bin/python supply/audit.py

# The source distribution and the wheel made from it, in build/dist, as an index would check them.
package: $(TOOLS)/.ready
	rm -rf build/dist build/lib
	$(TOOLS)/bin/python -m build --outdir build/dist .
	$(TOOLS)/bin/python -m twine check --strict build/dist/*

clean:
	rm -rf $(VENV) $(TOOLS) $(SECOND) runs build/docs .conformance
