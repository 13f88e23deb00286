# What a person types. Everything runs in .venv, which `.ci/setup` makes and keeps up to date.

PYTHON ?= python3
SEED ?= 1
MUTANT ?=
QUICK ?=
ONLY ?=
FROM ?=
PROFILE ?=
FLOOR ?=
RUN ?= runs/latest
RUNS ?= runs
A ?=
B ?=
METRIC ?=
SERVER ?= valkey
JOBS ?= 3
MINUTES ?=
DATE ?=
FAULT ?=
REPLAY ?=
SHRINK ?=
ALL ?=
ARGS ?=
MODEL ?=
FACE ?=
TOPOLOGY ?=
DURABILITY ?=
BUSY ?=
COUNT ?=
ROWS ?= 1e6 3e6 10e6
SHAPE ?=
WORKERS ?=
MEMORY ?=
FILES ?=
SET ?=
SLO ?=
TARGET ?=
DRILLS ?=
RATE ?=
P99_MS ?=
PAYLOAD ?=
HANDLER_MS ?=
HANDLERS ?=
BACKLOG ?=
WEB_PORT ?=
BASE ?=
DOCS ?=
HOURS ?=
REDELIVERY_S ?=
REPEAT ?=
VALIDATE ?=

# A variable whose name is misspelt would say nothing, and a plain run would pass for the one that was asked for. TIER has no default.
KNOWN := $(shell sed -n 's/^\([A-Z0-9_]*\) ?=.*/\1/p' '$(lastword $(MAKEFILE_LIST))') TIER TOOLS SHELL MAKEFLAGS GNUMAKEFLAGS
UNKNOWN := $(filter-out $(KNOWN),$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
ifneq ($(and $(filter SEED,$(KNOWN)),$(UNKNOWN)),)
$(error $(foreach name,$(UNKNOWN),$(name)=$($(name))): no target has this variable; make help names those that there are)
endif

BIN := .venv/bin
# Compiled modules are kept whatever the environment says: tests and drills start hundreds of interpreters, and pytest would
# rewrite 7,000 assertions anew in each of its processes (14 s of processor each).
unexport PYTHONDONTWRITEBYTECODE
# So many processes use up a core each beside what it runs.
BESIDE = $(if $(BUSY),$(BIN)/python -m chaos.busy $(BUSY) -- )

.DEFAULT_GOAL := help
.PHONY: help setup chaos bench bench-engine bench-guard bench-http bench-judge bench-scale peers queues interop mischief mutants nightly upgrade judge runs compare test test-all test-nightly test-times mutate features simulate simulate-rules soak churn capacity scale check sizes docs format generate doctor clean distclean

help:
	@echo 'make bench [SEED=1] [MODEL=bull] [MUTANT=name] [SLO=my.toml]   load, seven faults, then the verdict (4 minutes, the first time 5); fails unless valid'
	@echo '  ALL=1                             bench, chaos, judge: list every check, not only those that are not clean'
	@echo 'make bench FACE=http [SEED=1]       the producer sends over HTTP to two apps, one of which is killed, too (three minutes)'
	@echo 'make bench MODEL=dsps [SEED=1]      channels whose clocks wrap in mid-load, seven faults, then the verdict (4 minutes)'
	@echo 'make chaos TOPOLOGY=sentinel [SEED=1] [MINUTES=1] [DURABILITY=replica] [MODEL=dsps]   faults of the servers too: embedded, aof,'
	@echo '                                    replica, sentinel or cluster; then the verdict, with the declared loss (2 to 3 minutes)'
	@echo 'make chaos FAULT=name,name           only these kinds of fault (`.venv/bin/python -m chaos faults` lists all)'
	@echo 'make chaos REPLAY=runs/id [SHRINK=1] the plan of a run once more; SHRINK: the least of its faults that violates again'
	@echo 'make chaos TARGET=rq [SEED=1] [FAULT=worker-kill]   another job queue (or all), killed, frozen and cut off: did it keep its promise'
	@echo '                                    (2 to 15 minutes each; FAULT=none: without faults)'
	@echo 'make queues RUNS="runs/a runs/b"    the runs of other job queues, compared on the page queues.html'
	@echo 'make bench MODEL=all [SEED=1]       45 seconds and the costs of each model, and one table of all (up to 30 minutes)'
	@echo 'make bench-engine [QUICK=1] [ONLY=drain] [PROFILE=1]   the engine next to its floor, as ratios (12 minutes, quick: 2)'
	@echo 'make bench-guard [BASE=commit] [ONLY=claim]   enqueue, claim, finish and drain beside the commit before, as ratios (2 minutes)'
	@echo 'make bench-http [QUICK=1] [ONLY=wake]   the HTTP face: wake-ups of 1,000 long polls and 500 listeners, memory, enqueues (7 minutes)'
	@echo 'make bench-scale [QUICK=1] [ONLY=lanes] [DOCS=1]   each script while a queue grows to ten million jobs (8 minutes, quick: 2)'
	@echo 'make bench-judge [ROWS="1e6 3e6 10e6"] [SHAPE=hot] [WORKERS=2] [RUN=..]   histories of millions of rows, violations planted: what judging costs and finds'
	@echo 'make peers [ONLY="ironclaim bullmq"] [REPEAT=3] [DOCS=1]  other job queues beside this one, in one table (25 minutes)'
	@echo 'make interop [ONLY=mixed] [SEED=1]  the original npm client bull beside the engine on one queue, then the verdicts (4 minutes)'
	@echo 'make mischief [MODEL=bull] [SEED=1] [MUTANT=name]  a foreign client takes, ends and moves jobs of each old format (3 minutes)'
	@echo 'make mutants [ONLY=name] [SEED=1]   each planted defect in a short drill, and 20 clean ones: is it caught by its check (30 minutes)'
	@echo 'make nightly [DATE=2026-11-27] [MINUTES=75] [ONLY=cell]   a short drill of each model on each topology, and the page of the last nights'
	@echo 'make upgrade FROM=commit [SEED=1]   the engine of another commit beside that of HEAD on one queue, under kills (2 minutes)'
	@echo 'make judge [RUN=runs/latest] [SLO=my.toml]   judge a recorded run again, by its own objectives or by others'
	@echo 'make runs [RUNS=runs]               all runs with their verdicts, printed and as the page runs/index.html'
	@echo 'make compare A="run run" B="run run" [METRIC=name]   is B faster or slower than A, from repetitions of both that took turns'
	@echo 'make test [ARGS="-k claim"]         the first tier: each script, rule and interface, and one drill (seven to nine minutes), in JOBS=3 processes'
	@echo 'make test-all                       every test: also real drills, pages in full, a moving slot in every order'
	@echo 'make test-nightly [MINUTES=2]       long random walks that differ each night, each mutant in a real drill, runs beside Node, and'
	@echo '                                    so long a fuzzer at each HTTP API'
	@echo 'make test-times                     where the time of the last test run went: by file, by fixture, longest tests'
	@echo 'make mutate [SEED=1] [COUNT=60] [FILES=http]   plant one-line defects: does a test see each of them (30 minutes); FILES: an area, folders, files'
	@echo 'make features [MODEL=lanes]         which features of the five seeds tests prove, of one model or of any'
	@echo 'make simulate [MODEL=lanes] [SEED=1] [MINUTES=1]  the deterministic simulator: the real scripts, every mishap from one seed; MODEL: also bull, bananas, bridge, mosquito, dsps, all'
	@echo 'make simulate-rules                 take each rule of the protocol away: the simulator must find it (6 to 15 minutes)'
	@echo 'make soak [MINUTES=5] [HOURS=8] [SEED=1]   load and a fault every 10 s: fails unless memory and latency stay where they are'
	@echo 'make churn [JOBS=1000000] [SEED=1]  jobs of all sizes through one queue: what they leave in memory, and how fragmented it is'
	@echo 'make capacity [RATE=5000] [P99_MS=100] [PAYLOAD=2kb] [HANDLER_MS=20] [MODEL=bull] [TOPOLOGY=aof] [BACKLOG=1h] [WORKERS=2]'
	@echo '                                    which rate meets a p99 here, predicted and verified, and the plan for RATE (25 minutes);'
	@echo '                                    VALIDATE=1: how near the queueing simulator comes to measured steps (6 minutes)'
	@echo 'make scale [SEED=1]                 the load doubles twice and falls, workers follow the metrics, then the verdict (3 minutes)'
	@echo '  BUSY=2                            bench, test, test-all: on a machine that is kept busy by so many processes'
	@echo '  SERVER=redis                      bench, chaos, interop, mischief, mutants, nightly, upgrade, all tests, simulate, soak, churn, capacity and scale: redis-server on PATH instead of the bundled Valkey'
	@echo 'make doctor                         each tool, its version and path, or the line that installs it'
	@echo 'make sizes [BASE=commit]            what a reader of the engine has to hold in the head: files, tokens, nouns, walks'
	@echo 'make check                          ruff, pyright, luacheck for the scripts, that each test asserts, and how many there are'
	@echo 'make docs                           the pages of docs/ with the reference of the API, in build/docs'
	@echo 'make format                         let ruff format the sources'
	@echo 'make generate                       make the synchronous interfaces from the asyncio ones, types for TypeScript, and USES in Lua'
	@echo 'make setup                          only make .venv (the others do it by themselves)'
	@echo 'make clean                          remove runs, caches and build products; make distclean: .venv too'

setup:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo 'setup: $(PYTHON) is missing; install it, on Debian: sudo apt-get install python3 python3-venv' >&2; exit 1; }
	@$(PYTHON) .ci/setup $(TOOLS)

ifeq ($(SERVER),redis)
TOOLS := redis
bench chaos interop mischief mutants nightly upgrade test test-all test-nightly simulate simulate-rules soak churn capacity scale: export IRONCLAIM_REDIS_SERVER := redis-server
else ifneq ($(SERVER),valkey)
$(error SERVER=$(SERVER): it must be valkey or redis)
endif
test test-all test-nightly mutate: TOOLS += postgres
test test-all test-nightly: TOOLS += browser node
chaos mutants nightly test test-all test-nightly: TOOLS += compiler
interop: TOOLS += node
check: TOOLS := luacheck

# One drill of a topology; MINUTES of faults, drawn by the seed. A replay takes all from its run, so it refuses what is named beside.
# With TARGET one of another job queue, or of all, each judged by its own promise; then MINUTES is how long what is left is waited for,
# and FAULT may be none.
OF_A_DRILL = $(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(if $(DURABILITY),--durability $(DURABILITY)) $(if $(MODEL),--model $(MODEL)) \
	$(if $(MUTANT),--mutant $(MUTANT)) $(if $(FAULT),--fault $(FAULT)) $(if $(SLO),--slo $(SLO)) $(if $(ALL),--all)
chaos: setup
ifneq ($(TARGET),)
	@$(BESIDE)$(BIN)/python -m chaos bench --target $(TARGET) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FAULT),--fault $(FAULT)) $(if $(ALL),--all)
else
	@$(BESIDE)$(BIN)/python -m chaos bench $(if $(REPLAY),--replay $(REPLAY) $(if $(MINUTES),--minutes $(MINUTES)),--seed $(SEED) --minutes $(or $(MINUTES),1)) \
		$(if $(SHRINK),--shrink) $(OF_A_DRILL)
endif

bench: setup
	@$(BESIDE)$(BIN)/python -m chaos $(if $(filter all,$(MODEL)),compare --seed $(SEED),bench --seed $(SEED) $(if $(MODEL),--model $(MODEL)) $(if $(FACE),--face $(FACE)) $(if $(MUTANT),--mutant $(MUTANT)) $(if $(ALL),--all)) $(if $(SLO),--slo $(SLO))

# Its two servers are part of what it measures, so SERVER says nothing here.
bench-engine: TOOLS += redis
bench-engine: setup
	@$(BIN)/python -m bench.micro $(if $(QUICK),--quick) $(if $(PROFILE),--profile) $(foreach part,$(ONLY),--only $(part)) $(if $(FLOOR),--floor-file $(FLOOR))

# Exit code 1 where a part is slower than before, by more than the noise of two runs of one commit.
bench-guard: setup
	@$(BIN)/python -m bench.micro.guard $(if $(BASE),--base $(BASE)) $(foreach part,$(ONLY),--only $(part))

# Exit code 1 where a wake-up takes too long, or memory grows.
bench-http: setup
	@$(BIN)/python -m bench.micro.http_face $(if $(QUICK),--quick) $(foreach part,$(ONLY),--only $(part))

# ONLY is the first word of what grows: waiting, delayed, active, lanes, parked, classes, workers, schedules, finished or dead.
bench-scale: setup
	@$(BIN)/python -m bench.micro.scale $(if $(QUICK),--quick) $(foreach name,$(ONLY),--only $(name)) $(if $(DOCS),--docs)

# RUN has a default for make judge; here only one that was named counts.
bench-judge: setup
	@$(BIN)/python -m reports.bench judge --seed $(SEED) $(if $(ROWS),--rows $(ROWS)) $(if $(SHAPE),--shape $(SHAPE)) \
		$(if $(filter file,$(origin RUN)),,--run $(RUN)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(MEMORY),--memory $(MEMORY))

# DRILLS: runs of make chaos TARGET=name, whose section of docs/peers.md is written; nothing is measured then.
peers: setup
	@$(BIN)/python -m bench.peers $(foreach name,$(ONLY),--only $(name)) $(if $(REPEAT),--repeat $(REPEAT)) $(if $(REDELIVERY_S),--redelivery-s $(REDELIVERY_S)) $(if $(DOCS),--docs) $(if $(DRILLS),--drills $(DRILLS))

queues: setup
	@$(BIN)/python -m reports targets $(RUNS)

interop: setup
	@$(BIN)/python -m chaos interop --seed $(SEED) $(foreach name,$(ONLY),--scenario $(name))

mischief: setup
	@$(BIN)/python -m chaos mischief --seed $(SEED) $(if $(MODEL),--model $(MODEL)) $(if $(MUTANT),--mutant $(MUTANT))

mutants: setup
	@$(BIN)/python -m chaos mutants --seed $(SEED) $(if $(ONLY),--only $(ONLY))

nightly: setup
	@$(BIN)/python -m chaos nightly $(if $(DATE),--date $(DATE)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only $(ONLY))

upgrade: setup
	@$(BIN)/python -m chaos upgrade --seed $(SEED) $(if $(FROM),--from $(FROM))

judge: setup
	@$(BIN)/python -m reports judge $(RUN) $(if $(SLO),--slo $(SLO)) $(if $(ALL),--all)

runs: setup
	@$(BIN)/python -m reports list $(RUNS)

# Exit code 2 when it cannot be decided: too few repetitions, or runs that must not be compared (see its last lines).
compare: setup
	@$(BIN)/python -m reports compare --a $(A) --b $(B) $(foreach name,$(METRIC),--metric $(name)) $(ARGS)

# The report of the last run of each tier stays in runs/tests; make test-times reads it.
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

test-times:
	@$(BIN)/python -m tests.times

# FILES that are tests are asked which defects they alone see. What was done is kept in build/mutation: a second call goes on there.
mutate: setup
	@$(BIN)/python -m tests.mutation --seed $(SEED) $(if $(COUNT),--count $(COUNT)) $(foreach file,$(FILES),--file $(file)) \
		$(if $(SET),--set $(SET)) $(if $(filter undefined,$(origin TIER)),,--tier '$(TIER)') $(ARGS)

features: setup
	@$(BIN)/python -m tests.features $(if $(MODEL),--model $(MODEL))

simulate: setup
	@$(BIN)/python -m chaos.simulate run --model $(or $(MODEL),lanes) --seed $(SEED) --minutes $(or $(MINUTES),1)

simulate-rules: setup
	@$(BIN)/python -m chaos.simulate rules --model $(or $(MODEL),lanes) --seed $(SEED)

soak: setup
	@$(BIN)/python -m chaos soak $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),5)) --seed $(SEED)

# JOBS has a default for tests; here only one that was named counts.
churn: setup
	@$(BIN)/python -m chaos churn $(if $(filter file,$(origin JOBS)),,--jobs $(JOBS)) --seed $(SEED)

# HANDLERS: handlers at once in each worker. WEB_PORT: Locust's page shows the steps there while they run.
capacity: setup
	@$(BIN)/python -m chaos capacity --seed $(SEED) $(if $(RATE),--rate $(RATE)) $(if $(P99_MS),--p99-ms $(P99_MS)) \
		$(if $(PAYLOAD),--payload $(PAYLOAD)) $(if $(HANDLER_MS),--handler-ms $(HANDLER_MS)) $(if $(MODEL),--model $(MODEL)) \
		$(if $(TOPOLOGY),--topology $(TOPOLOGY)) $(if $(BACKLOG),--backlog $(BACKLOG)) $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(HANDLERS),--handlers $(HANDLERS)) $(if $(WEB_PORT),--web-port $(WEB_PORT)) $(if $(VALIDATE),--validate)

scale: setup
	@$(BIN)/python -m chaos scale --seed $(SEED)

doctor:
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m chaos.doctor; else $(PYTHON) -m chaos.doctor; fi

docs: export NO_MKDOCS_2_WARNING := 1
docs: setup
	@$(BIN)/mkdocs build --quiet --config-file .ci/mkdocs.yml
	@echo 'docs: open build/docs/index.html'

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/lua_check
	$(BIN)/python .ci/tests_check
	$(BIN)/python -m tests.budget $(FIRST_TIER)
	$(BIN)/pyright --pythonpath $(BIN)/python

# BASE: a commit whose figures come first.
sizes: setup
	@$(BIN)/python .ci/sizes $(if $(BASE),--base $(BASE))

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: TOOLS += node
generate: setup
	$(BIN)/python .ci/generate
	$(BIN)/python .ci/generate_types
	$(BIN)/python .ci/lua_uses

clean:
	rm -rf runs build dist .pytest_cache .ruff_cache .hypothesis .benchmarks spark-warehouse metastore_db derby.log
	find bench chaos clients engine record reports tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
