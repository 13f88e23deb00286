"""Small functions on both sides of each bound: what comes of each, as one text."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reports import (
    causes,
    collect,
    evidence,
    facts,
    findings,
    measure,
    models_table,
    samples,
    seed,
    slo,
    slo_file,
    statistics,
    table,
    verdict,
)
from reports.bench import __main__ as bench
from reports.bench import cost
from reports.bench.grow import SKEW, turns
from reports.capacity import measurement, plan, question
from reports.capacity.basis import Basis
from reports.capacity.words import duration
from reports.checks import CHECKS
from reports.checks import h3_recorder_sound as h3
from reports.compare import decide, metrics, words
from reports.facts import MS, SLOT_NS, ClockLook, Process, Run, Stage, Usage
from reports.file_facts import FileFacts
from reports.folder import is_calibration, spec_faults
from reports.interrupts import Interrupts
from reports.listing import command as listing
from reports.listing.command import p99_ms
from reports.page import draw_time, html, ink
from reports.page import facts as facts_page
from reports.page import words as page_words
from reports.page.channels import words as channel_words
from reports.page.channels.draw import signed
from reports.session import setting
from reports.simulation.queueing import simulate
from reports.simulation.system import Load, Loss, System, constant
from reports.targets import facts as target_facts
from reports.targets import judge as target_judge
from reports.targets.promise import promise_faults
from tests.golden import Told, answers, outcome, tells
from tests.reports import story, test_catch_up, test_loss, test_page_parts
from tests.reports.targets.story import AT_LEAST, AT_MOST, good
from tests.reports.targets.story import spec as spec_of
from tests.reports.test_doubts import stages

VALUES = (None, 0, 1, 7, 0.0, 0.04, 0.05, 1.0, 59.99, 60.0, 999, 999.96, 1_000, 1_000.4, 3_600.0, 86_400.0, 1_234_567.8)
#: As bounds of roundings have it, and below 0.
AROUND = (None, 0.9998, 0.9999, 9.994, 9.995, 9.9996, 10, 10.0, 999.4, 999.5, 999.8, 999.9, 1_000.0, -9.5, -10.0, -999.5)
LENGTHS = (html.SHORT_MAX, html.LONG_MIN - 1, ink.LABEL_MAX, html.TEXT_MAX)
PHASES = ("lead-in", "lead-in-2", "kill", "recover-kill-2", "kill-2", "recover-lead-in", "kill-in-freeze", "x-in-kill")
WORDS = "one two three four"
CELLS = [["a", WORDS, "1"], ["long name", WORDS * 3, "1000"]]
PERCENTILES: dict[str, Any] = {"phase": "all", "series": "a", "p50_ms": 1.5, "p90_ms": 2, "p99_ms": 3, "p99_9_ms": 4}
TAILS: list[dict[str, Any]] = [{}, {"phase": "calm"}, {"p50_ms": None}, {"series": "b", "p99_9_ms": None, "p99_ms": None}]
READ: dict[Any, Sequence[Any]] = {
    **{float: (1, 1.5, True, float("inf"), "1"), int: (1, True, 1.0), str: ("a", 1), bool: (True, 0)},
    float | None: (None, 2, "x"),
    **{tuple[int, ...]: ([1, 2], [1.0], 1), tuple[float, float]: ([1, 2], [1], 1), Mapping[str, int]: ({"a": 1}, {"a": "b"}, [])},
    measurement.Bin: ([1, 2, 3], [2, 2, 0], [2, 1, 3], [-1, 2, 3], [1, 2, -1], [1, 2]),
}
KILLED = {"target": "worker-1", "connected": "direct", "bound_ms": 11_000}
LINES = [(0.0, "judge: converting"), (1.5, "judge: a"), (2.0, "b")]
TOLD = [(1.0, "judge: converting 38.6 MB to Parquet"), (5.0, "judge: converted in 3.25 s"), (9.0, "")]
SPANS = ((3, 0, 2 * 10**9), (1, 5, 5), (1, 5, 6), (1, None, 5), (1, 5, None))
COUNTS = (0, 19, 20, 99, 100, 999, 1_000, 9_999, 10_000)
ROWS = [{"proc": "a", "pid": pid, "cpu_user_s": used, "cpu_system_s": 1} for pid, used in ((1, 1), (1, 4), (2, 0), (2, 2))]


def grid(columns: int) -> list[str]:
    return table.grid("title", ("name", "words", "n"), CELLS, (2,), text=(0, 1), columns=columns)


#: Names of runs, and what their specs say.
NAMED = [f"20260102-030405-bench-seed12{label}" for label in ("", "-bull", "-bull-mine-sentinel-server", "-mine", "-bullish")]
LISTED: list[dict[str, Any]] = [
    *({}, {"model": "bull", "seed": "x", "mutant": "no-reap", "git_commit": 7, "scenario": 7}),
    {"model": "bull", "topology": "sentinel", "durability": "server", "seed": 3, "started_utc": "2026-01-01T00:00:01Z"},
]


def fitting(length: int) -> tuple[str, *tuple[int, ...]]:
    """The width of a text of this length, and the lengths to which it is cut."""
    text = "x" * length
    return html.width(text), *(len(cut(text)) for cut in (html.safe, ink.plain))


#: Functions, and what each is called with: one argument, or a tuple of them.
CALLS: tuple[tuple[Callable[..., object], Sequence[Any]], ...] = (
    (seed.SEED.read, ("0", "00", "-1", "1.5", "1_0", "+5", " 5", "", "9007199254740991", "9007199254740992", "0" * 16, "0" * 17)),
    (bench.rows, ("0", "1", "0.9", "1e9", "1000000001", "x")),
    (setting, ("spark.a=b", "spark.a", "a=b", " spark.a = b=c ", "spark.a=", "spark.master=x")),
    (setting, ("spark.driver.memory=4", "spark.driver.memory=4g")),
    *((show, VALUES) for show in (table.number, table.endless, table.seconds, models_table.shown, duration)),
    *((show, VALUES) for show in (words.percent, words.quantity, words.chance)),
    *((show, AROUND) for show in (page_words.milliseconds, html.cell, models_table.shown, words.quantity)),
    *((show, AROUND[1:]) for show in (draw_time.duration, duration, signed)),
    *((show, (None, 0, 1, 1_000)) for show in (facts_page.told, facts_page.bad)),
    (facts_page.rate, [(value, "jobs") for value in (None, 0.05, 1_000)]),
    (fitting, [length + more for length in LENGTHS for more in (0, 1)]),
    (listing.rate, [(one,) for one in ((), (5.0,), (0.0, 0.0), (5.4, 7.6), (3.0, 1.0, 2.0))]),
    (listing.commit, ("a" * 40, "a" * 40 + "+")),
    *((listing.described, [(name, spec) for name in ("mine", *NAMED)]) for spec in LISTED),
    (listing.badge, listing.STATES),
    (listing.objectives, [[{"result": one} for one in results] for results in ([], ["met"], ["met", "unknown"])]),
    (facts.samples_min, (*facts.RANKS,)),
    (html.thinned, (range(0), range(60), range(61))),
    (html.span, ((1.0, 0.9, 1.1, 1.05, 2.0, "words"), (4.0, 0.1, 8.0, 1.0, 2.0, "words"))),
    *((slo.quantity, [(value, unit) for value in VALUES if value is not None]) for unit in ("share", "ms", "/s")),
    (evidence.absence, [(["a"], found) for found in ({}, {"a": evidence.Found(common=True)}, {"a": evidence.Found()})]),
    (table.cut, [(WORDS, most) for most in range(5, 19)] + [("x" * 9, 8), ("x" * 9, 9), "x" * 110, "x" * 111]),
    (grid, (0, 40, 50)),
    (measure.per_s, SPANS),
    (measure.stated, [(count, [1.00049, 2, 3, float("inf"), 5]) for count in COUNTS] + [(5, None)]),
    (is_calibration, (None, {}, {"lag_ms": 0}, {"lag_ms": -1}, {"lag_ms": True}, {"lag_ms": 1e999}, {"lag_ms": "1"})),
    (is_calibration, ([], {"lag_ms": 1.5})),
    *((tell, PHASES) for tell in (slo_file.known, slo_file.common)),
    (cost.conversion_s, ((LINES,), (LINES[1:],), (TOLD,))),
    (slo_file.listed, (["a"], ["a", "b"], ["a", "b", "c"])),
    (facts.whole, [({"a": value}, "a", 7) for value in (None, 0, 3, True, 1.0, "3")]),
    (decide.shortage, ((3, 3, 1), (4, 4, 1), (4, 4, 0), (4, 4, 2), (5, 5, 6), (6, 6, 6))),
    (causes.of_row, [("H3", "x", kind) for kind in ("late load", "dropped load", "x")]),
    (causes.of_row, [("J1", "full", "late load"), ("J1", "", "")]),
    *((show, (0, 1, 2, 1_000)) for show in (page_words.rows_of, facts_page.possible)),
    (page_words.counted, [(count, "lost") for count in (None, 0, 1, 2, 1_000)]),
    (page_words.recovery, [[KILLED | {"jobs": n, "recovery_ms": ms}] for n, ms in ((0, None), (1, None), (2, None), (2, 950))]),
    (page_words.servers, ({}, {"scenario": "attended"}, {"topology": "sentinel", "durability": ""}, {"durability": "server"})),
    (table.delayed, ({"n": 0}, {"n": 7, "p50_ms": 1.25, "p99_ms": None, "max_ms": 3})),
    (channel_words.latency, ({"percentiles": []}, {"percentiles": [PERCENTILES | more for more in TAILS]})),
    (p99_ms, ([PERCENTILES], [PERCENTILES | {"series": "end_to_end"}, PERCENTILES], [PERCENTILES | {"p99_ms": None}])),
    (p99_ms, ([PERCENTILES, PERCENTILES | {"series": "b", "p99_ms": 9}, PERCENTILES | {"series": "c", "phase": "calm"}],)),
    (measurement.read_as, [(kind, value, "x") for kind, values in READ.items() for value in values]),
    (statistics.smallest_p, ((1, 1), (2, 2), (3, 5))),
    (statistics.repetitions_needed, (1, 2, 6, 100)),
    (metrics.weighted, ([], [(1, 5.0)], [(1, 5.0), (3, 9.0)], [(1, 5.0), (3, None)], [(0, 5.0)])),
    (metrics.share, (([1.0, 2.0], 3, 1e3), ([], 3, 1e3), ([1.0], 0, 1e3), ([1.0], None, 1e3))),
    (metrics.used, ([*ROWS, {"proc": "a"}, {**ROWS[0], "pid": "x"}],)),
    (plan.drained, ((10, 4, 5), (10, 5, 5), (10, 6, 5))),
)


LATE, LOSS = tuple(range(14_000, 60_000, 250)), test_loss.LOSS
FINDING: dict[str, Any] = {"name": "a", "text": "b", "checks": ["J3"]}
#: What a spec declares, loosely.
LOOSE: list[dict[str, Any]] = [
    *({"loss": [{**LOSS, **more}]} for more in ({"before_ms": -1}, {"after_ms": 60_000}, {"until": "healed"}, {"since": "heal"})),
    *({"findings": [{**FINDING, **more}]} for more in ({"checks": ["H0"]}, {"checks": "J3"}, {"procs": [""]})),
    *({"loss": "all"}, {"loss": [{**LOSS, "fault": ""}]}, {"findings": "all"}, {"findings": [{"name": "a", "text": "b"}]}),
    {"findings": [{"checks": ["J3"], "text": "b"}]},
]
BENCH: list[dict[str, Any]] = [
    *({"scenario": "bench", "model": "lanes", **more} for more in ({}, {"mutant": "no-reap"}, {"face": "http"})),
    *({"scenario": "bench", "model": "bull", **more} for more in ({"face": "direct"}, {"pace": {"calm_ms": 1}})),
    *({"scenario": "compare", "model": "bull", **more} for more in ({}, {"pace": {"calm_ms": 1}})),
    {"scenario": "soak", "model": "lanes"},
]
DIRECT, PROXIED = test_page_parts.DIRECT_KILL, test_page_parts.PROXIED_KILL
#: A verdict, and what came of the objectives.
ENDED = ("valid", "valid met met", "valid met unknown", "valid missed unknown met")
ENDED += ("violated missed", "unknown missed", "unknown met")


def caught_up_ms(late_ms: Sequence[int], **more: Any) -> list[int]:
    """When the load had caught up: nothing was late for a second."""
    return test_catch_up.ends_ms(test_catch_up.run_of(late_ms, **more))


def loose(declared: dict[str, Any]) -> list[str]:
    return spec_faults({**story.SPEC, **declared})


def promised(change: dict[str, Any]) -> list[str]:
    return promise_faults({**spec_of(AT_LEAST), **change})


def run_again(spec: dict[str, Any]) -> str:
    return facts_page.again(Path("x"), {"id": "x", "seed": 7, **spec})


def exit_code(words: str) -> int:
    """Of a verdict, and of what came of its objectives."""
    decided, *results = words.split()
    return verdict.exit_code({"verdict": decided, "slo": [{"result": result} for result in results]})


def simulated(load: dict[str, Any], system: dict[str, Any]) -> object:
    return simulate(Load(**{"rate": 1, "seconds": 1, **load}), System(service=constant(1), **system))


def second_copies(rows: int, sizes: tuple[int, ...]) -> list[int]:
    """Which copies are of the second template; none is too much, and none lacks."""
    found = turns(rows, sizes)
    assert sum(sizes[template] for template in found) >= rows > sum(sizes[template] for template in found[:-1]) or not found
    return [at for at, template in enumerate(found) if template]


MORE_CALLS: tuple[tuple[Callable[..., object], Sequence[Any]], ...] = (
    (verdict.merge, (["valid", "valid"], ["valid", "unknown"], ["unknown", "violated", "valid"], [])),
    *((run_again, BENCH), (loose, LOOSE), (exit_code, ENDED)),
    (page_words.by_way, ([DIRECT], [PROXIED], [{**DIRECT, "recovery_ms": None}, PROXIED], [{**DIRECT, "jobs": 0}, PROXIED])),
    (collect.slots_back, ({}, {0: (3, 5), 1: (5, 5), 2: (6, 6)}, {0: (5, 5), 1: (6, 6), 2: (4, 4), 3: (7, 7)})),
    (collect.slots_back, ({0: (9, 9), 1: (8, 8), 2: (7, 7)},)),
    (promised, [{"promise": {**AT_LEAST, **more}} for more in ({"delivery": "often"}, {"recovery_bound_ms": 0}, {"source": ""})]),
    (promised, ({"promise": None}, {"slack_ms": -1}, {})),
    (simulated, [({"rate": 0}, {}), ({"rate": 1e6, "seconds": 60}, {}), ({"warm_up_s": 2}, {}), ({"failure_share": 2}, {})]),
    (simulated, [({"priorities": (0.5,)}, {}), ({"arrivals": "odd"}, {}), ({}, {"workers": 0})]),
    (simulated, [({}, {"losses": [Loss(at_s=0, worker=3, away_s=1)]})]),
    (second_copies, [(0, (5,)), (11, (5,)), (10, (5,)), (2 * SKEW, (1, 1)), (SKEW + 8, (1, 9))]),
)


def recorded() -> Told:
    """How long the load was behind after a fault, what of a recorder is in doubt, and which machine was too slow."""
    for late_ms in ([], [11_000, 13_500], [14_000, 14_250], [14_500, 15_000, 15_750], [14_500, 16_000], [16_000]):
        yield f"late at {late_ms}", caught_up_ms(late_ms)
    yield "late for ever", (caught_up_ms(LATE), caught_up_ms(LATE, lag_ms=100))
    yield "not sent at all", caught_up_ms([14_500], drops_ms=[15_250, 16_100])
    yield "one who makes no load", caught_up_ms(LATE[:12], role="worker")
    easy = dict.fromkeys(range(50), 0.1)
    for seconds in (range(12, 17), range(12, 16), (*range(5, 10), *range(20, 26)), ()):
        yield f"busy in {[*seconds]}", h3.doubts(busy_run(easy | dict.fromkeys(seconds, 0.9 if 12 in seconds else 1.0)))
    yield "sampled in the fault only", [h3.doubts(busy_run({21: share})) for share in (0.1, 0.9)]
    who = (("producer-1", "producer"), ("consumer-1", "worker"), ("worker-1", "worker"))
    yield "not sampled", [h3.doubts(busy_run({}, *one)) for one in who]
    for slots, frozen in ((1, ""), (2, ""), (40, "worker-1"), (42, "worker-1")):
        both = stages("1-worker-freeze", frozen, 1, 11, names=("inject", "heal"))
        files = {"worker-1.jsonl": FileFacts("worker-1.jsonl", slots_back=slots)}
        process = Process("worker-1", "worker", "worker-1.jsonl")
        yield f"{slots} slots back, {frozen} frozen for 10 s", h3.doubts(Run({}, files, processes=(process,), stages=tuple(both)))
    shares = ((0.1, 0.6, 0, 0), (0.1, 0.45, 0, 0), (0.1, 0.6, -1, 0), (0.1, 0.6, 0, 3), (0.19, 0.62, 0, 0), (0.19, 0.58, 0, 0))
    for ran, waited, more, load_since_s in shares:
        # They get a quarter of a core, and want half of one. One that waits little does not clear a machine on which others wait.
        usages = {"server": (ran, waited), "worker-1": (0.01, 0.0)}
        seconds = [(at * 10**9, (at + 1) * 10**9) for at in range(h3.CPU_SAMPLES + more)]
        cpu = {name: tuple(Usage(*second, *usage) for second in seconds) for name, usage in usages.items()}
        file = FileFacts("producer-1", enqueue_first_ns=load_since_s * 10**9)
        yield f"starved {ran} {waited} {more} {load_since_s}", h3.starved(Run({}, {"producer-1": file}, cpu=cpu))
    for more_ms, target in ((-1, "worker-1"), (0, "worker-1"), (0, "servers"), (5_000, "servers")):
        # Once it is healed, a server is asked again soon.
        looks = tuple(ClockLook(at_ns, None) for at_ns in (7 * 10**9, 7 * 10**9 + (h3.LOOKS_APART_MS + more_ms) * MS))
        fault = tuple(stages("1-fault", target, 5, 9, names=("inject", "heal")))
        yield f"looks apart {more_ms:+} {target}", h3.stood_still(Run({}, {}, stages=fault, clocks=looks))
    late_s = ((40.0, 40.3, 41.0)[: h3.LATE_SLOTS], (40.0, 40.3), (40.0, 60.0, 40.0 + h3.LATE_NS / 1e9), (40.0, 40.3, 5.5))
    for some_s in late_s:
        # A fault was in force from 5 s to 9 s.
        fault = tuple(stages("1-fault", "worker-1", 5, 9, names=("inject", "heal")))
        file = FileFacts("producer-1", lags=frozenset((round(at * 10**9) // SLOT_NS, 1_000) for at in some_s))
        late = Run({}, {"producer-1": file}, (Process("producer-1", "producer", "producer-1"),), fault)
        yield f"late at {some_s}", (h3.lagged(late), h3.slow(late))


def busy_run(shares: dict[int, float], name: str = "producer-1", role: str = "producer") -> Run:
    """Load from 10 to 40 s, a fault from 20 to 25 s, and the process's share of a core in each second of `shares`."""
    return Run(
        spec={},
        files={"p.jsonl": FileFacts("p.jsonl", enqueue_first_ns=10 * 10**9, enqueue_last_ns=40 * 10**9)},
        processes=(Process(name, role, "p.jsonl"),),
        stages=tuple(stages("1-net-down", name, 20, 25, names=("inject", "heal"))),
        cpu={name: tuple(Usage(at * 10**9, (at + 1) * 10**9, share) for at, share in shares.items())},
    )


def calls() -> Told:
    """Each of these calls."""
    yield from answers(CALLS)


def more_calls() -> Told:
    """And of these, whose arguments are told in words."""
    yield from answers(MORE_CALLS)


def interrupted() -> Told:
    """Which signals interrupt, where clean-up is held and where it is not."""
    for held in (0, 1):
        signals, raised = Interrupts(), list[bool]()
        signals._held = held
        for _ in range(4):
            try:
                signals._handle(2, None)
                raised.append(False)
            except KeyboardInterrupt:
                raised.append(True)
        yield f"held {held}", raised


def differences() -> Told:
    """What a comparison claims."""
    sure = {"ratio": 1.2, "low": 1.1, "high": 1.3, "floor": 1.1, "corrected_p": 0.05}
    less = {"ratio": 0.85, "low": 0.8, "high": 0.99}
    changes: list[dict[str, Any]] = [{}, {"corrected_p": 0.051}, {"low": 1.0}, {"low": 0.9}, {"floor": 1.2}, {"floor": 1.199}]
    changes += [*({name: None} for name in sure), less, {**less, "high": 1.0}]
    changes += [{"low": low, "high": high, "ratio": 1.0} for low, high in ((1 / 1.05, 1.05), (0.95, 1.05), (1 / 1.05, 1.051))]
    for more in (False, True):
        line = decide.Line(metrics.Metric("m", "M", more), (1.0,), (1.0,), tested=True)
        yield f"more is better {more}", [decide.outcome(replace(line, **{**sure, **change}), 0.05) for change in changes]


def comparisons() -> Told:
    """What is answered and claimed, by the outcomes of the metrics."""
    line = decide.Line(metrics.Metric("m", "M"), (1.0,), (1.2,), True, 1.2, 1.1, 1.3)
    for names in (("faster", "slower"), ("faster",), ("slower", "cannot_show"), ("same",), ("cannot_show", "same")):
        for in_turns in (True, False):
            found = decide.Comparison((), (), [replace(line, outcome=name) for name in names], 0.05, 1, in_turns)
            yield f"{names}, in turns {in_turns}", [words.answer(found), *(words.claim(one, found) for one in found.lines)]
    few, changes = replace(found, too_few="3 of each"), [{"outcome": "slower", "ratio": ratio} for ratio in (None, 0.8)]
    others = [replace(line, **change) for change in (*changes, {"lacks": "it is 0"}, {}, {"outcome": "cannot_show"})]
    yield "others", (words.answer(few), [(words.claim(one, found), words.claim(one, few)) for one in others])


KNOWN = Basis(
    **{"model": "lanes", "topology": "embedded", "rate_met": 100.0, "workers_met": 2, "handlers_at_once": 5, "handler_ms": 20.0},
    **{"payload_bytes": 1_000.0, "overhead_ms": 1.0, "beside_p99_ms": 10.0, "worker_us_per_job": 500.0, "shard_rate_max": 500.0},
    **{"server_us_per_job": 80.0, "contention": 0.03, "coherence": 0.002, "bytes_per_waiting": 2_500.0, "fragmentation": 1.1},
    **{"bytes_per_retained": 700.0, "bytes_per_job": 5_000.0, "worker_lost_ms": 4_000.0, "primary_lost_ms": 1_500.0},
    **{"steps": ((40.0, 0.5), (60.0, 0.7)), "sources": {}},
)  # type: ignore[arg-type]
ASKED = question.Question(rate=300.0, p99_ms=60.0, payload_bytes=1_000.0, handler_ms=20.0, model="lanes", topology="embedded")
PRICES = question.read(question.FILE)


def capacity() -> Told:
    """Which questions can be answered, and how plans follow."""
    for name, (above, most) in question.BOUNDS.items():
        for value in (above, above + 1e-9, most, most * 1.01):
            yield f"{name} {value}", outcome(question.check, replace(ASKED, **{name: value}), KNOWN)
    asked: list[dict[str, Any]] = [{"model": "x"}, {"topology": "x"}, {"workers": 0}, {"workers": 1}, {"workers": 2}]
    asked += [*({"p99_ms": value} for value in (20.0, 39.9, 40.0)), *({"rate": value} for value in (400.0, 401.0, 1_000.0, 1e8))]
    asked += [{"handler_ms": 30.0, "p99_ms": 70.0}, {"payload_bytes": 0.0}, {"payload_bytes": 4_001.0}, {"handler_ms": 81.0}]
    for change in (*asked, {"backlog_s": 0.0}, {"retained_s": 0.0}):
        made = replace(ASKED, **change)
        yield f"asked {change}", (outcome(plan.numbers, made, KNOWN, PRICES), question.beyond(made, KNOWN))
    for rate in (1_000 * 5 / 21, 1_000 * 5 / 21 + 1):
        yield f"enough at {rate:.1f}", outcome(question.enough, replace(ASKED, rate=rate), KNOWN, 1)
    yield "enough for long ones", outcome(question.enough, replace(ASKED, rate=5.0, handler_ms=2_000.0), KNOWN, 1)
    yield "nothing measured", question.beyond(ASKED, replace(KNOWN, rate_met=0.0))
    yield "many replicas", outcome(plan.numbers, ASKED, KNOWN, replace(PRICES, replicas=3))
    yield "no drills", outcome(plan.numbers, ASKED, replace(KNOWN, worker_lost_ms=None, primary_lost_ms=None), PRICES)
    yield "efficiency", [round(KNOWN.efficiency(count), 9) for count in (1, 2, 3, 10)]


def verdicts() -> Told:
    """Why a check is not valid, and what was declared of it."""
    for levels in ((), *((level,) for level in ("violated", *verdict.IN_DOUBT)), verdict.IN_DOUBT):
        for count, hidden in ((1, False), (2, True)):
            counts, examples = {(level, "k"): count for level in levels}, {level: [f"a {level} one"] for level in levels}
            one = verdict.CheckResult(CHECKS[0], ["a doubt"] * (count - 1), [], counts, examples, hidden=hidden)
            yield f"{count} of {levels}, hidden {hidden}", (one.verdict, sorted(one.causes), one.why)
    held = verdict.CheckResult(CHECKS[4], [], [])
    row = {"check": held.check.id, "level": "violated", "subject": "s", "detail": "d", "n": 7, "absence": False, "timed": False}
    kinds = [{"kind": kind, "finding": finding} for kind, finding in (("a", "f"), ("b", "f"), ("c", "g"), ("c", ""))]
    rows: list[Any] = [{**row, **more, "place": place} for more in kinds for place in range(1, 3)]
    findings.enter([held], rows, whole=True, slow=False, astray=False)
    yield "entered", (held.counts, held.examples, held.subjects, held.declared, held.declared_examples)
    seen = replace(one, declared={"f": 2}, declared_examples={"f": ["this", "that"]})
    yield "declared", verdict.finding_entry({"name": "f"}, [seen, one, seen])


SPEC: dict[str, Any] = {
    **{"seed": 7, "empty": "", "harness_errors": ["<no> disk"], "plan": [{"fault": "1"}]},
    "versions": {"server": "9", "none": ""},
    **{"machine": {"cores": 2, "memory_bytes": 3 * 2**30, "load": [0.1, 2]}, "calibration": {"lag_ms": 1.5, "each": [1]}},
}
MEASURES = {
    **{**verdict.NO_MEASURES, "recorder_share": 0.015, "dropped": 3, "rates": {"offered_per_s": 5.0, "finished_per_s": None}},
    "hosts": [{"host": f"h{ahead}", "ahead_ms": ahead, "error_ms": 0.25} for ahead in (None, -1.5, 0, 2)],
}


def pages() -> Told:
    """The facts of a run as its page has them."""
    for name, spec in (("whole", SPEC), ("channels", {"model": "dsps"}), ("odd", dict.fromkeys(SPEC, "x")), ("none", {})):
        for known, measures in ((True, MEASURES), (False, verdict.NO_MEASURES)):
            yield f"spec {name}, measured {known}", facts_page.particulars(spec, measures)


def targets() -> Told:
    """What is missing in the history of a job queue, what its faults took, and what its promise allows."""
    files = good("1-worker-kill").ended(40)
    run = target_facts.collect(spec_of(AT_MOST, "1-worker-kill"), files)
    for at, file in enumerate(files):
        others = [*files[:at], *files[at + 1 :]]
        cut = (file.rows[:-1], [*file.rows[:1], *file.rows[2:]])
        yield f"without {file.path}", target_facts.holes(others)
        yield f"with holes in {file.path}", [target_facts.holes([*others, replace(file, rows=tuple(rows))]) for rows in cut]
        yield f"with other lines in {file.path}", target_facts.holes([*others, replace(file, corrupt_lines=(3, 4))])
    down, kill = stages("1-net-down", "w", 10, 11, 14, 15), stages("2-worker-kill", "w", 20, 21, 29, 30)
    again = stages("3-worker-freeze", "w", 30, 31, 37)
    yield "outage", [target_facts.outage_ns(some) for some in ((), down, kill, down + kill + again, down[:2], down[2:])]
    exits = [Stage("", "unplanned-exit", "inject", f"worker-{number}", True, "exit code 1", number) for number in range(7)]
    told = ("it started no handler", "it was not seen", "it ran")
    exits += [Stage(f"{at}-x", "x", stage, "w", True, text, 9) for stage in ("healed", "heal") for at, text in enumerate(told)]
    yield "findings", target_judge.findings(replace(run, stages=exits), [])
    yield "run", (run.healed_ns, run.ended_ns, run.waited_ms, run.moving, run.outage_ns, run.holes, run.unseen)


def test_what_processes_have_used_is_told_of_each_span(tmp_path: Path) -> None:
    """Another process of the same name begins anew; rows of the same instant, of the past or without a number tell nothing."""
    rows: list[dict[str, Any]] = [
        {"t_ns": at_s * 10**9, "proc": "a", "pid": pid, "cpu_user_s": used_s, "cpu_system_s": used_s, "cpu_wait_s": waited_s}
        for at_s, pid, used_s, waited_s in ((1, 7, 1, 1), (3, 7, 2, 2), (3, 7, 2, 2), (2, 7, 1, 2), (4, 8, 9, 9), (6, 7, 3, 0))
    ]
    rows += [{"t_ns": 7 * 10**9, "proc": "a", "pid": 7, "cpu_user_s": "x"}, {**rows[-1], "t_ns": 8 * 10**9, "cpu_system_s": 4}]
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "processes.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in (*rows, [])))
    spans = ((1, 3, 1.0, 0.5), (2, 6, 1.0, 0.0), (6, 8, 0.5, 0.0))
    found = tuple(Usage(begin * 10**9, end * 10**9, share, waited) for begin, end, share, waited in spans)
    assert samples.cpu_usage(tmp_path) == {"a": found}


def test_small_functions_say_what_they_said() -> None:
    parts = (calls, more_calls, recorded, interrupted, differences, comparisons, capacity, verdicts, pages, targets)
    tells("reports/edges.txt", *parts)
