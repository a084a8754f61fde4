# `make run` and `make test` set up everything they need, inside this folder; only missing Debian packages go elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py')
# Without bytecode files every pytest process rewrites the assertions again, and every program that a test starts is
# compiled again.
unexport PYTHONDONTWRITEBYTECODE
# setuptools writes a list of our files there: pytest would treat all of ottla as a plugin and rewrite its assertions.
LEFT_BEHIND := src/ottla.egg-info
FIRST := console,registry,compile
EXTRAS := cli,console,registry,test,check,compile,bench,pipelines
DATA ?= data
# The tests of a file share a broker, a cluster or a Spark session. The longest files start first (tests/conftest.py).
SHARED := --dist loadfile --no-loadscope-reorder
TWO := -n 2 $(SHARED)
# Tests with brokers wait half of the time, for a session timeout for example: other tests use the processors then.
FOUR := -n 4 $(SHARED)
# Two or three targets in parallel, unless the caller passes --jobs.
BESIDE = $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 2)
THREE = $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 3)
# Tests in virtual time come second where tests with real processes need the processors. Not 19: some of them start a
# process, which then would not come up in time.
LAST := nice -n 5
# A test with real processes fails if the machine stalls for seconds: it gets a second try, and the report names it. A
# test that hangs is stopped after five minutes; if it hangs in the C code of a library, pytest prints all stacks and
# exits. --durations shows the slowest tests.
REAL := --reruns 1 -rfER --durations 30 --timeout 300 -o faulthandler_timeout=330 -o faulthandler_exit_on_timeout=true

.PHONY: install run test test-fast check docs unit pure conformance cluster pipelines browser processes pages clients faults bench wheels installed clean

# One core compiles while the other one downloads Spark.
install: $(VENV)/installed
	@$(MAKE) --no-print-directory $(BESIDE) $(VENV)/compiled $(VENV)/everything pages

# Only what a broker needs, so that `make run` starts one soon; Spark is installed while the broker runs.
$(VENV)/installed: pyproject.toml tools/prepare.sh
	@echo "setting up, step 1 of 3: packages of the system, if any are missing"
	bash tools/prepare.sh $(PYTHON) broker
	@echo "setting up, step 2 of 3: packages from PyPI (about a minute)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	OTTLA_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$(FIRST)]'
	rm -rf $(LEFT_BEHIND)
	touch $@

# The JavaScript libraries of the console, by npm, or by the npm of a PyPI package. Does nothing if they are there.
pages: $(VENV)/installed
	$(BIN)/python src/ottla/console/fetch_libraries.py

# Files that run once per record or request are compiled if there is a C compiler; else they run as plain Python.
$(VENV)/compiled: $(VENV)/installed setup.py $(SOURCES)
	@echo "setting up, step 3 of 3: compiling the hot files (about half a minute)"
	bash tools/compile.sh $(BIN)/python
	$(BIN)/python -m compileall -q src
	touch $@

# Spark, other clients, linters: for tests and for development.
$(VENV)/everything: $(VENV)/installed
	@echo "setting up for tests: packages of the system, if any are missing"
	bash tools/prepare.sh $(PYTHON) tests
	@echo "setting up for tests: packages from PyPI, Spark among them (450 MB: a few minutes)"
	OTTLA_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	rm -rf $(LEFT_BEHIND)
	touch $@

run: $(VENV)/compiled pages
	$(BIN)/ottla demo --install --data $(DATA)

# These use the two cores well: type checks beside unit tests, and Spark beside tests that wait for timeouts. `pure`
# runs whenever both wait.
test: install
	@$(MAKE) --no-print-directory $(BESIDE) check unit
	@$(MAKE) --no-print-directory $(THREE) processes pipelines pure

# The unit tests, fuzzing and dialogues that the changes of this branch touch, as plain Python: nothing is built.
test-fast: $(VENV)/everything
	OTTLA_PURE=1 $(BIN)/python tools/affected_tests.py $(TWO)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_rules.py
	$(BIN)/python tools/check_words.py
	$(BIN)/zensical build --strict

# The documentation site in build/site. It needs no network: `python3 -m http.server --directory build/site`.
docs: install
	$(BIN)/zensical build --strict

# The two ignored files count steps with a profiler and replace functions, neither of which works in compiled files:
# `pure` runs them.
unit: install
	$(BIN)/pytest tests/unit tests/fuzz $(TWO) $(foreach each,offload delayed_produce,--ignore=tests/unit/broker/test_$(each).py)

# As plain Python, only what compilation can change: the unit tests that import a compiled file. The logs of dialogues
# and simulations need the plain modules.
pure: install
	OTTLA_PURE=1 $(LAST) $(BIN)/pytest $$($(BIN)/python tools/affected_tests.py --compiled) tests/dialogues tests/simulation $(TWO)

# From here on with real processes. `make faults`, unit tests and simulations get no second try. `processes` runs three
# targets in one pytest run: while one test waits, another one works.
processes: install
	$(BIN)/pytest tests/conformance tests/faults tests/cluster tests/browser $(FOUR) $(REAL)

conformance: install
	$(BIN)/pytest tests/conformance tests/faults $(FOUR) $(REAL)

# A real ZooKeeper and three real brokers: one round of each fault. `make faults` runs many rounds.
cluster: install
	$(BIN)/pytest tests/cluster $(FOUR) $(REAL)

# Real Spark against a real broker. Both wait a lot: two Spark sessions in parallel finish much sooner than one.
pipelines: install
	$(BIN)/pytest tests/pipelines $(TWO) $(REAL)

# The console in a real browser (Debian's chromium), with real brokers that hold only the data of these tests.
browser: install
	$(BIN)/pytest tests/browser $(TWO) $(REAL)

clients: install
	$(BIN)/pytest tests/conformance -m other_languages

faults: install
	$(BIN)/pytest tests/faults tests/cluster tests/pipelines tests/browser -m faults
	OTTLA_PURE=1 $(BIN)/pytest tests/simulation -m faults $(TWO)

bench: install
	$(BIN)/python -m bench

# An sdist, and a compiled manylinux wheel for each installed Python from 3.11 to 3.13, in dist/.
wheels:
	$(PYTHON) tools/wheels.py

# The wheel in dist/ for this Python, in empty environments: `ottla up` and a pipeline.
installed: install
	OTTLA_TEST_WHEEL=$$(ls dist/ottla-*-$$($(BIN)/python -c 'import sys; print(f"cp{sys.version_info.major}{sys.version_info.minor}")')-*.whl) \
		$(BIN)/pytest tests/faults/test_wheels.py -m faults -k "from_a_wheel"

clean:
	rm -rf $(VENV) build dist .cache
	find src -name '*.so' -delete
