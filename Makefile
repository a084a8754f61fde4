# make run and make test do all of their own set-up; nothing outside this folder is touched but Debian packages that are missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py')
# pytest rewrites the assertions of every file that it imports. Where bytecode is not kept, each of the processes below
# does that again, and each program that a test starts is compiled again.
unexport PYTHONDONTWRITEBYTECODE
# setuptools leaves a list of our files there: pytest would take all of ottla for a plugin, and rewrite it, too.
LEFT_BEHIND := src/ottla.egg-info
FIRST := console,registry,compile
EXTRAS := cli,console,registry,test,check,compile,bench,pipelines
DATA ?= data
# Files keep together: they share a broker, a cluster or a Spark. The longest are begun first (tests/conftest.py).
SHARED := --dist loadfile --no-loadscope-reorder
TWO := -n 2 $(SHARED)
# Tests with brokers wait for half of their time, for a session that ends, say: then others have the processors.
FOUR := -n 4 $(SHARED)
# Two targets side by side, unless whoever calls has said already how many.
BESIDE = $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 2)
# A machine that stands still for seconds fails a test with real processes now and then: such a test gets a second try,
# and the report names it. One that hangs is ended after five minutes; where it hangs inside a library's C, its whole
# process ends with all stacks printed. What took longest is told, so that it can be made shorter.
REAL := --reruns 1 -rfER --durations 30 --timeout 300 -o faulthandler_timeout=330 -o faulthandler_exit_on_timeout=true

.PHONY: install run test check unit pure conformance cluster pipelines browser processes pages clients faults bench wheels clean

# One core compiles while the other one fetches Spark.
install: $(VENV)/installed
	@$(MAKE) --no-print-directory $(BESIDE) $(VENV)/compiled $(VENV)/everything pages

# What a broker needs: little, so that `make run` has one soon. It gets Spark while the broker is running already.
$(VENV)/installed: pyproject.toml tools/prepare.sh
	@echo "setting up, step 1 of 3: packages of the system, if any are missing"
	bash tools/prepare.sh $(PYTHON) broker
	@echo "setting up, step 2 of 3: packages from PyPI (about a minute)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	OTTLA_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$(FIRST)]'
	rm -rf $(LEFT_BEHIND)
	touch $@

# What the console's pages are made with, by npm; without npm, by that of a package from PyPI. Done already: nothing.
pages: $(VENV)/installed
	$(BIN)/python src/ottla/console/libraries.py

# Files that run once per record or request are compiled when a C compiler is there; without one they serve as they are.
$(VENV)/compiled: $(VENV)/installed setup.py $(SOURCES)
	@echo "setting up, step 3 of 3: compiling the hot files (about half a minute)"
	bash tools/compile.sh $(BIN)/python
	$(BIN)/python -m compileall -q src
	touch $@

# Spark, clients of others, checkers: for tests and for those who develop.
$(VENV)/everything: $(VENV)/installed
	@echo "setting up for tests: packages of the system, if any are missing"
	bash tools/prepare.sh $(PYTHON) tests
	@echo "setting up for tests: packages from PyPI, Spark among them (450 MB: a few minutes)"
	OTTLA_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	rm -rf $(LEFT_BEHIND)
	touch $@

run: $(VENV)/compiled pages
	$(BIN)/ottla demo --install --data $(DATA)

# What works on one core, or waits, leaves the other one to what is beside it: types beside units, and Spark beside the
# tests that wait for sessions to end.
test: install
	@$(MAKE) --no-print-directory $(BESIDE) check unit
	@$(MAKE) --no-print-directory pure
	@$(MAKE) --no-print-directory $(BESIDE) processes pipelines

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_house.py

# Steps of long requests are counted by a profiler, which does not see into compiled files, and those take no stand-ins:
# `pure` has these tests.
unit: install
	$(BIN)/pytest tests/unit tests/fuzz $(TWO) $(foreach each,long_requests produce_waiting,--ignore=tests/unit/broker/test_$(each).py)

# The very same files without their compiled twins. Logs made for a dialogue or a simulation fit only these.
pure: install
	OTTLA_PURE=1 $(BIN)/pytest $(addprefix tests/unit/,protocol storage network replication broker) tests/dialogues tests/simulation $(TWO)

# From here on with real processes. Long rounds (make faults), units and simulations get no second try. The next two and
# the browser in one go: what one test waits, another one works.
processes: install
	$(BIN)/pytest tests/conformance tests/faults tests/cluster tests/browser $(FOUR) $(REAL)

conformance: install
	$(BIN)/pytest tests/conformance tests/faults $(FOUR) $(REAL)

# A real ZooKeeper and three real brokers: one round of each fault. The long rounds are in `make faults`.
cluster: install
	$(BIN)/pytest tests/cluster $(FOUR) $(REAL)

# Real Spark against a real broker. Both wait a lot: two sessions of Spark side by side are done much sooner than one.
pipelines: install
	$(BIN)/pytest tests/pipelines $(TWO) $(REAL)

# The console in a real browser (Debian's chromium), with real brokers, which hold only what these tests look for.
browser: install
	$(BIN)/pytest tests/browser $(TWO) $(REAL)

clients: install
	$(BIN)/pytest tests/conformance -m other_languages

faults: install
	$(BIN)/pytest tests/faults tests/cluster tests/pipelines tests/browser -m faults
	OTTLA_PURE=1 $(BIN)/pytest tests/simulation -m faults $(TWO)

bench: install
	$(BIN)/python -m bench

# An sdist, and a compiled manylinux wheel for each Python from 3.11 to 3.13 that is there, in dist/.
wheels:
	$(PYTHON) tools/wheels.py

clean:
	rm -rf $(VENV) build dist .cache
	find src -name '*.so' -delete
