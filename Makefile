# What a person types. Everything runs in .venv, which `.ci/setup` makes and keeps up to date. Options of a command are in its --help,
# and not here: `make chaos ARGS="run soak --hours 8"`.

PYTHON ?= python3
SERVER ?= valkey
JOBS ?= 3
ARGS ?=
BUSY ?=
MINUTES ?=
ALL ?=

# Targets of before, for one release: .ci/former_targets says what to type now, with these variables.
FORMER := bench-engine bench-guard bench-http bench-judge bench-scale capacity churn compare distclean features format interop judge
FORMER += mischief mutants mutate nightly peers queues runs scale simulate simulate-rules sizes soak test-times upgrade
OF_FORMER := A B BACKLOG BASE COUNT DATE DOCS DRILLS DURABILITY FACE FAULT FILES FLOOR FROM HANDLERS HANDLER_MS HOURS MEMORY METRIC MODEL
OF_FORMER += MUTANT ONLY P99_MS PAYLOAD PROFILE QUICK RATE REDELIVERY_S REPEAT REPLAY ROWS RUN RUNS SEED SET SHAPE SHRINK SLO TARGET
OF_FORMER += TIER TOPOLOGY VALIDATE WEB_PORT WORKERS

# A variable whose name is misspelt would say nothing, and a plain run would pass for the one that was asked for.
OWN := $(shell sed -n 's/^\([A-Z0-9_]*\) ?=.*/\1/p' '$(lastword $(MAKEFILE_LIST))') TOOLS SHELL MAKEFLAGS GNUMAKEFLAGS
GIVEN := $(strip $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
UNKNOWN := $(filter-out $(OWN) $(OF_FORMER),$(GIVEN))
ifneq ($(and $(filter SERVER,$(OWN)),$(UNKNOWN)),)
$(error $(foreach name,$(UNKNOWN),$(name)=$($(name))): no target has this variable; make help names those that there are)
endif

BIN := .venv/bin
# Compiled modules are kept whatever the environment says: tests and drills start hundreds of interpreters, and pytest would
# rewrite 7,000 assertions anew in each of its processes (14 s of processor each).
unexport PYTHONDONTWRITEBYTECODE
# So many processes use up a core each beside what it runs.
BESIDE = $(if $(BUSY),$(BIN)/python -m chaos.busy $(BUSY) -- )

.DEFAULT_GOAL := help
.PHONY: help setup doctor bench chaos report measure test test-all test-nightly check docs generate clean $(FORMER)

help:
	@echo 'make bench [SEED=7]       load, seven faults, then the verdict (4 minutes, the first time 5); fails unless valid; also'
	@echo '                          MODEL=bull MUTANT=name FAULT=name TOPOLOGY=aof MINUTES=3 SLO=my.toml ALL=1: its options as variables'
	@echo 'make chaos ARGS="..."     python -m chaos: other drills, campaigns, the simulator (ARGS=--help lists all)'
	@echo 'make report ARGS="..."    python -m reports: judge a recorded run, list all, compare two sides'
	@echo 'make measure ARGS="..."   python -m bench: the engine, its guard, HTTP, large queues, other job queues'
	@echo 'make test                 the first tier: each script, rule and interface, and one drill (five minutes)'
	@echo 'make test-all             every test: also real drills, pages in full, a moving slot in every order'
	@echo 'make test-nightly         random walks that differ each night, each mutant in a real drill, MINUTES=2 of fuzzing each HTTP API'
	@echo 'make check                ruff, pyright, luacheck for the scripts, that each test asserts, and how many there are'
	@echo 'make docs                 the pages of docs/ with the reference of the API, in build/docs'
	@echo 'make generate             the synchronous interfaces, types for TypeScript, USES in Lua, and the page of all commands'
	@echo 'make doctor               each tool, its version and path, or the line that installs it'
	@echo 'make setup                only make .venv (the others do it by themselves)'
	@echo 'make clean [ALL=1]        remove runs, caches and build products; ALL=1: .venv, too'
	@echo '  ARGS="-k claim"         bench and tests: more options, as they are; JOBS=3 processes run the tests'
	@echo '  SERVER=redis            bench, chaos and tests: redis-server on PATH instead of the bundled Valkey'
	@echo '  BUSY=2                  bench, chaos and tests: on a machine that is kept busy by so many processes'
	@echo 'docs/commands.md has every command and option. Targets of before, such as soak, say what to type now.'

# What is typed is read before anything is set up for it.
READ = $(filter bench chaos report measure $(FORMER),$(MAKECMDGOALS))

setup:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo 'setup: $(PYTHON) is missing; install it, on Debian: sudo apt-get install python3 python3-venv' >&2; exit 1; }
	$(if $(READ)$(BUSY),@$(PYTHON) .ci/former_targets --read $(READ) -- $(GIVEN))
	@$(PYTHON) .ci/setup $(TOOLS)

# What measures against servers of its own takes no other one.
ON_A_SERVER := bench chaos test test-all test-nightly $(filter-out bench-% peers sizes format,$(FORMER))
ifeq ($(SERVER),redis)
TOOLS := redis
$(ON_A_SERVER): export IRONCLAIM_REDIS_SERVER := redis-server
else ifneq ($(SERVER),valkey)
$(error SERVER=$(SERVER): it must be valkey or redis)
endif
test test-all test-nightly mutate: TOOLS += postgres
test test-all test-nightly: TOOLS += browser node
chaos mutants nightly test test-all test-nightly: TOOLS += compiler
chaos: TOOLS += $(if $(findstring interop,$(ARGS)),node)
interop generate: TOOLS += node
bench-engine measure: TOOLS += redis
check: TOOLS := luacheck

# make chaos without ARGS is what it was.
ifneq ($(ARGS),)
chaos: setup
	@$(BESIDE)$(BIN)/python -m chaos $(ARGS)
else
chaos: setup
	@$(BESIDE)$(BIN)/python .ci/former_targets $@ $(GIVEN)
endif

bench $(filter-out distclean,$(FORMER)): setup
	@$(BESIDE)$(BIN)/python .ci/former_targets $@ $(GIVEN)

report: setup
	@$(BIN)/python -m reports $(ARGS)

measure: setup
	@$(BIN)/python -m bench $(ARGS)

# The report of the last run of each tier stays in runs/tests; python -m tests.times reads it.
PYTEST = $(BESIDE)$(BIN)/python -m pytest --numprocesses $(JOBS) --no-loadscope-reorder --junitxml=runs/tests/$@.xml
# What it starts, asks and waits for is counted, and fails the run where tests/budget.toml allows less.
FIRST_TIER := -m 'not (slow or nightly)' --budget tests/budget.toml

test: setup
	@$(PYTEST) $(FIRST_TIER) $(ARGS)

test-all: export IRONCLAIM_WALKS := 3
test-all: setup
	@$(PYTEST) $(ARGS)

test-nightly: export IRONCLAIM_WALKS := 20
test-nightly: export IRONCLAIM_WALKS_ANEW := 1
test-nightly: export IRONCLAIM_FUZZ_MINUTES := $(MINUTES)
test-nightly: setup
	@$(PYTEST) -m 'nightly or walk' $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/lua_check
	$(BIN)/python .ci/tests_check
	$(BIN)/python -m tests.budget $(FIRST_TIER)
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: export NO_MKDOCS_2_WARNING := 1
docs: setup
	@$(BIN)/mkdocs build --quiet --config-file .ci/mkdocs.yml
	@echo 'docs: open build/docs/index.html'

generate: setup
	$(BIN)/python .ci/generate
	$(BIN)/python .ci/generate_types
	$(BIN)/python .ci/generate_commands
	$(BIN)/python .ci/lua_uses

doctor:
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m chaos.doctor; else $(PYTHON) -m chaos.doctor; fi

clean:
	rm -rf runs build dist .pytest_cache .ruff_cache .hypothesis .benchmarks spark-warehouse metastore_db derby.log
	find bench chaos clients engine record reports tests -name __pycache__ -type d -prune -exec rm -rf {} +
	$(if $(ALL),rm -rf .venv)

distclean:
	@$(PYTHON) .ci/former_targets $@ $(GIVEN)
