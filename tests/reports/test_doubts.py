"""What the judge says of a run before it looks at any row: for hand-written facts, and on both sides of each bound."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from reports import catch_up, windows
from reports.causes import Doubt
from reports.checks import CHECKS, h1_faults_bit, h1_network, h2_coverage, j13_liveness
from reports.checks import h0_history_whole as h0
from reports.checks import h3_recorder_sound as h3
from reports.facts import MS, ClockLook, Drop, Process, Run, Snapshot, Stage, Usage, samples_min
from reports.file_facts import FileFacts, ObservedCall
from reports.hosts import Host
from reports.measure import dead, recorder_share
from tests.golden import Told, tells

S = 1_000 * MS

#: On one side of a bound, on it, and on the other.
EDGE = (-1, 0, 1)

PLAN = [{"fault": "1-worker-kill", "name": "worker-kill", "target": "worker-2"}]
STATES: Mapping[str, tuple[int, int]] = dict.fromkeys(("waiting", "delayed", "active", "dead", "done"), (0, 0))
STAGES = ("inject", "witness", "heal", "healed")


def file(name: str, rows: int = 4, **more: Any) -> FileFacts:
    """A file that is whole."""
    sums = {"seq_min": 0, "seq_max": rows - 1, "seq_sum": sum(range(rows)), "seq_square_sum": sum(at * at for at in range(rows))}
    ends = {"opens_first": True, "closes_last": True, "opened_ns": 0, "closed_ns": 66 * S, "close_rows": rows, "last_ns": 65 * S}
    return FileFacts(name, **{"rows": rows, "version_max": 10, "operations": 1, **sums, **ends, **more})


def stages(fault: str, target: str, *at_s: float, names: Iterable[str] = STAGES) -> list[Stage]:
    times, name = zip(names, at_s, strict=False), fault.partition("-")[2]
    return [Stage(fault, name, stage, target, True, f"{stage} seen", round(at * S)) for stage, at in times]


NAMES = ("harness harness", "producer-1 producer", "worker-1 worker", "worker-1 sink", "worker-2 worker", "worker-2 sink")
PROCESSES = tuple(
    Process(name, role, f"{name}{'.sink' if role == 'sink' else ''}.jsonl") for name, role in (one.split() for one in NAMES)
)
CUT_OFF = {"close_rows": None, "closed_ns": None, "closes_last": False}
FILES = (
    *(file("manifest.jsonl"), file("harness.jsonl"), file("worker-1.sink.jsonl")),
    *(file("worker-2.sink.jsonl", last_ns=9 * S, **CUT_OFF), file("worker-2.jsonl", last_ns=10 * S, **CUT_OFF)),
    file("producer-1.jsonl", created=True, published=True, enqueue_first_ns=S, enqueue_last_ns=40 * S),
    file("worker-1.jsonl", leased=True, finished=True, fetched=True, acknowledged=True, handled=True),
)
SOUND = Run(
    spec={"workers": 2, "plan": PLAN, "direct": ["worker-1"], "retries_by_policy": True},
    files={one.name: one for one in FILES},
    processes=PROCESSES,
    stages=tuple(stages("1-worker-kill", "worker-2", 10, 10.01, 20, 21)),
    snapshots={"deadline": Snapshot(35 * S, 0, STATES), "end": Snapshot(66 * S, 0, STATES)},
    leases_ms=frozenset({9_000}),
    replids=frozenset({"era-1"}),
    cpu={"producer-1": tuple(Usage(at * S, (at + 1) * S, 0.1) for at in range(60))},
)


def filed(run: Run, stem: str, **more: Any) -> Run:
    """The run, with other facts of one file."""
    name = f"{stem}.jsonl"
    return replace(run, files={**run.files, name: replace(run.files[name], **more)})


def every_file(run: Run, **more: Any) -> Run:
    return replace(run, files={name: replace(one, **more) for name, one in run.files.items()})


def told(run: Run, **more: Any) -> Run:
    """The run, with another spec."""
    return replace(run, spec={**run.spec, **more})


def faulty(*found: Stage, **more: Any) -> Run:
    """The run, with these faults alone, all of them planned."""
    plan = {one.fault: {"fault": one.fault, "name": one.name, "target": one.target} for one in found}
    return replace(told(SOUND, plan=list(plan.values()), **more), stages=found)


def with_process(name: str, role: str, t_ns: int = 0) -> Run:
    return replace(SOUND, processes=(*PROCESSES, Process(name, role, "worker-1.jsonl", t_ns)))


def ended(at_ns: int) -> Run:
    """The run, whose last snapshot was taken then."""
    return replace(SOUND, snapshots={**SOUND.snapshots, "end": Snapshot(at_ns, 0, STATES)})


FEATURES = {
    "limits": [{"name": "a", "concurrency": 1}, {"key": "*", "rate": 1, "per_ms": 10}],
    "schedules": [{"name": "beat", "every_ms": 1_000}],
    "loss": [{"fault": "worker-kill", "before_ms": 1, "until": "heal", "after_ms": 2, "text": "lost"}],
    **dict.fromkeys(("unique_keys", "dependencies", "routing", "results", "effects"), True),
    **dict.fromkeys(("pickup_bound_ms", "delayed_p99_ms"), 1),
}
FULL, TWO_ERAS = told(SOUND, **FEATURES), replace(SOUND, replids=frozenset("ab"))
CHANNELS = told(SOUND, model="dsps", channels=[{"name": "c", "fan_out": 1, "preset_clock": 0}])
KINDS = (*h2_coverage.WANTED, *h2_coverage.REFUSED, *h2_coverage.CUT, *h2_coverage.THROWN_OUT)
FREEZE = stages("1-worker-freeze", "worker-1", 10, 15, 20, 21)
NEVER = Snapshot(1, 0, {})
ODD = (Stage("1-worker-kill", "worker-kill", "witness", "worker-3", False, "", 1), *stages("7-x", "nobody,servers", 5))
OLD = {"all features": FULL, "channels": CHANNELS}
RUNS: dict[str, Run] = {
    "sound": SOUND,
    "nothing": Run(spec={}, files={}),
    "all features": FULL,
    **{f"only {name}": told(SOUND, **{name: value}) for name, value in FEATURES.items()},
    "no feature": told(SOUND, limits=[{"name": "a"}], pickup_bound_ms=0, results=False, direct=None, retries_by_policy=False),
    **{f"{kind} of version {version}": every_file(OLD[kind], version_max=version) for version in (6, 7, 8) for kind in OLD},
    "idle": every_file(SOUND, operations=0),
    **{f"nothing {flag}": filed(SOUND, "worker-1", **{flag: False}) for flag in ("leased", "finished")},
    "nothing created": filed(SOUND, "producer-1", created=False),
    "another format": told(FULL, model="bull"),
    "service": told(replace(SOUND, leases_ms=frozenset({1, 2})), scenario="service", leases_ms=[1]),
    "no sinks": replace(SOUND, processes=tuple(one for one in PROCESSES if one.role != "sink")),
    "one sink": replace(SOUND, processes=PROCESSES[:-1]),
    "no snapshots": replace(SOUND, snapshots={}),
    "gaps": replace(SOUND, snapshots={"deadline": Snapshot(35 * S, 0, {"active": (2, 1), "done": (2, 1)}), "end": NEVER}),
    "nobody lived": replace(SOUND, processes=PROCESSES[:2]),
    "channels": CHANNELS,
    "channels at an end": replace(CHANNELS, snapshots={"end": Snapshot(66 * S, 0, {"c": (1, 1)})}),
    "channels across the wrap": told(CHANNELS, channels=[{"name": "c", "fan_out": 1, "preset_clock": 2**53 - 5}]),
    "channels and loss": told(CHANNELS, loss=[]),
    "channels without": told(CHANNELS, channels=[]),
    "no manifest": replace(SOUND, files={name: one for name, one in SOUND.files.items() if name != "manifest.jsonl"}),
    "undeclared": replace(SOUND, files={**SOUND.files, "o": file("o")}, processes=(*PROCESSES, Process("x", "app", "x"))),
    "killed and closed": filed(SOUND, "worker-2", close_rows=4, closed_ns=1),
    "two eras": TWO_ERAS,
    "two eras of a cluster": told(TWO_ERAS, topology="cluster"),
    "two eras with a fault": told(TWO_ERAS, plan=[*PLAN, {"fault": "2", "name": "server-kill"}]),
    "hosts": replace(SOUND, hosts=(Host("a", "1", ()), Host("b", "2", ("producer-1.jsonl",), trouble="b is astray")), cpu={}),
    **{f"of {count} consumers": told(with_process("consumer-1", "worker"), consumers=count) for count in (0, 1, 2)},
    **{f"gave up, slow {slow}": told(SOUND, harness_errors=["no disk"], too_slow=slow) for slow in (False, True)},
    "unintended": filed(filed(SOUND, "producer-1", unintended=2), "worker-1", unintended=3),
    "missing": told(SOUND, plan=[{"fault": f"9-{name}", "name": name, "target": "worker-1"} for name in (*KINDS, "worker-oom")]),
    "of another name": told(SOUND, plan=[{**PLAN[0], "name": "power-loss"}]),
    "not as planned": replace(SOUND, stages=(*stages("1-worker-kill", "worker-3", 10, 9, 20, 19, 18), *ODD)),
}  # fmt: skip

#: What nearly every run has.
QUIET = ["results: the spec does not say that handlers return any"]


def checks() -> Told:
    """What each check says, of those that judge the run."""
    for name, run in RUNS.items():
        judging = [check for check in CHECKS if check.judges(run)]
        yield name, " ".join(check.id for check in judging)
        for check in judging:
            doubts = check.doubts(run)
            causes = [str(doubt.cause) for doubt in doubts if isinstance(doubt, Doubt)]
            said = {"doubts": doubts, "causes": causes, "not judged": check.not_judged(run)}
            yield from ((f"{name} {check.id} {what}", words) for what, words in said.items() if words and words != QUIET)


TROUBLES: tuple[dict[str, Any], ...] = (
    *({}, {"corrupt": 1, "rows": 5}, {"corrupt": 2, "rows": 6}, {"corrupt": 1, "torn": True, "torn_corrupt": True, "rows": 5}),
    *({"torn": True}, {"rows": 0}, {"rows": 1, "corrupt": 1}, {"seq_min": 1}, {"seq_max": 4}, {"seq_sum": 7}),
    *({"opens_first": False}, {"closes_last": False}, {"close_rows": None}, {"close_rows": 5}, {"nameless": 1}, {"bootless": 1}),
    *({"timeless": 2}, {"tokenless": 3}, {"unknown_kinds": ("x", "y")}, {"unknown_operations": ("z",)}, {"seq_square_sum": 13}),
)


def history() -> Told:
    """What is wrong with a file, whose process lived on or was killed, and H0 and J13 at their bounds."""
    for trouble in TROUBLES:
        for killed in (False, True):
            yield f"{trouble}{' killed' * killed}", h0.file_holes(replace(file("f"), **trouble), killed=killed)
    bounds: dict[str, tuple[Callable[[Run], object], Callable[[int], Run]]] = {
        "tail": (h0.cut_tails, lambda ns: filed(SOUND, "worker-2", last_ns=7 * S + ns)),
        "worker started": (h0.contradictions, lambda ns: with_process("worker-3", "worker", S + ns)),
        "consumer started": (h0.contradictions, lambda ns: with_process("consumer-3", "worker", S + ns)),
        "deadline": (h0.holes, lambda ns: replace(SOUND, snapshots={"deadline": Snapshot(40 * S + ns, 0, STATES)})),
        "early": (j13_liveness.doubts, lambda ns: replace(SOUND, snapshots={"deadline": Snapshot(34_900 * MS + ns, 0, STATES)})),
        "end": (h0.holes, lambda ns: ended(35 * S + ns)),
        "last enqueue": (h0.holes, lambda ns: filed(SOUND, "producer-1", enqueue_last_ns=66 * S + ns)),
    }
    for name, (judge, make) in bounds.items():
        yield from ((f"{name} {ns:+}", judge(make(ns))) for ns in EDGE)


def faults() -> Told:
    """H1 and H2 at their bounds."""
    for before, after in pairwise(FREEZE):
        moved = [[replace(after, t_ns=before.t_ns + ns) if one is after else one for one in FREEZE] for ns in EDGE]
        yield f"{after.stage} after {before.stage}", [h1_faults_bit.doubts(faulty(*one)) for one in moved]
    late = faulty(*stages("1-worker-freeze", "worker-1", 10.0005, 15, 20, 21))
    slots = [filed(late, "worker-1", slots=frozenset({slot})) for slot in (47, 48, 49, 78, 79, 80, 81)]
    yield "awake in slots 47 to 81", [len(h1_faults_bit.awake(one)) for one in slots]
    unseen = faulty(*(replace(one, ok=one.stage != "witness") for one in FREEZE))
    yield "unseen freeze", h1_faults_bit.doubts(filed(unseen, "worker-1", slots=frozenset({60})))
    for name in (*h1_network.HOLD_MS, "clients-killed"):
        for lease_ms, held in ((3_000, 1_000), (9_000, 2_000), (9_000, 2_500)):
            brief = [faulty(*stages(f"1-{name}", "worker-1", 10, 10 + (held + ms) / 1_000), lease_ms=lease_ms) for ms in EDGE]
            yield f"{name} held {held} of {lease_ms}", [h1_network.doubts(one)[:-1] for one in brief]
    for name in ("net-latency", "net-down"):
        found = stages(f"1-{name}", "worker-1", 10, 15, 20, 21) + stages("2-x", "worker-1", 30, 33, 34, 35)
        for call in ((249, 299), (250, 299), (250, 300), (259, 260), (260, 260), (261, 299), (399, 600), (400, 600), (400, 601)):
            yield f"{name} answered {call}", h1_network.doubts(filed(faulty(*found), "worker-1", calls=frozenset({call})))
    instants = [(one + shift, two + more) for one in (10, 20) for two in (10, 20, 30) for shift in EDGE for more in EDGE]
    for name in KINDS:
        run = faulty(*stages(f"1-{name}", "worker-1", 10, 15, 20, 21), *stages("2-x", "producer-1", 30, 33, 34, 35))
        window = windows.windows(run)[0]
        near = replace(window, inject_ns=10, heal_ns=20, next_ns=30)
        wanted = (*h2_coverage.WANTED.get(name, ()), *h2_coverage.REFUSED.get(name, ()))
        for what, fits, _ in wanted:
            yield (f"{what} of {name}", " ".join(f"{a}-{b}" for a, b in instants if fits(ObservedCall(what, a, b), near)))
            slow = {ns: ObservedCall(what, 11 * S, 12 * S + ns, 12 * S - 90 * MS) for ns in EDGE}
            yield f"{what} of {name} took", [ns for ns, call in slow.items() if fits(call, window)]
        met = tuple(ObservedCall(what, 19 * S, 20 * S + 1) for what, *_ in wanted)
        back = {"connected_ns": (20 * S,), "answered_slots": frozenset({82})}
        yield f"{name} met", h2_coverage.doubts(filed(run, "worker-1", observed_calls=met, **back))
        for at_s, slot in ((9.99, 81), (10, 80), (10, 81), (19.99, 81), (20, 81), (20, 120), (30, 121), (30.1, 81)):
            seen = filed(run, "worker-1", connected_ns=(round(at_s * S),), answered_slots=frozenset({slot}))
            if name in ("net-down", "server-kill"):
                yield f"{name} connected at {at_s} and answered in {slot}", h2_coverage.came_back(seen, "worker-1", window)


def instruments() -> Told:
    """H3 at its bounds, and how slow a machine may be."""
    kill = faulty(*stages("1-worker-kill", "worker-2", 10, 10, 20, 21))
    yield "wrote", [h3.living_dead(filed(kill, "worker-2", last_ns=10 * S + ms * MS)) for ms in EDGE]
    for frozen in ("worker-1", "worker-2"):
        run = faulty(*stages("1-worker-freeze", frozen, 10, 15, 20, 21))
        for back in (1, 2, 41, 42):
            yield f"{back} slots, {frozen} frozen", h3.out_of_order(filed(run, "worker-1", slots_back=back, disordered=back - 1))
    easy = faulty(*stages("1-net-down", "worker-1", 30, 31, 32, 33))
    for share, size in ((0.8, 6), (0.801, 4), (0.801, 5), (0.801, 6)):
        usages = tuple(Usage(at * S, (at + 1) * S, share if 10 <= at < 10 + size else 0.1) for at in range(60))
        yield f"{size} s of {share}", h3.busy(replace(easy, cpu={"producer-1": usages}))
    for begin, end in ((0, 2), (1, 2), (29, 30), (29, 29.9), (34, 35), (35, 36), (34.1, 35), (39, 40), (39, 41)):
        usage = Usage(round(begin * S), round(end * S), 0.9)
        yield f"{begin} to {end}", (h3.quiet(usage, catch_up.spans(easy)), h3.busy(replace(easy, cpu={"producer-1": (usage,)})))
    for since, until in ((0, 2.999), (0, 3), (5, 9.99), (8, 12), (14, 20), (15, 27), (15, 25), (25, 28), (24, 27), (23, 25.9)):
        looks = (ClockLook(round(since * S), 1), ClockLook(round(until * S), 1))
        away = [faulty(*stages("1-server-pause", target, 10, 12, 20, 21)) for target in ("servers", "worker-1")]
        yield f"looks at {since} and {until}", [h3.stood_still(replace(run, clocks=looks)) for run in away]
    twice = faulty(*stages("1-server-pause", "servers", 10, 11, 12, 12), *stages("2-server-pause", "servers", 20, 21, 22, 22))
    for until in (18, 25, 28):
        yield f"looks until {until}", h3.stood_still(replace(twice, clocks=(ClockLook(14 * S, 1), ClockLook(until * S, 1))))
    for waited in (0.5, 0.51, 0.75, 0.76, 3.0, 3.1):
        for share in (0.0, 0.17, 0.25, 1.0):
            cpus = [tuple(Usage(at * S, (at + 1) * S, share, waited) for at in range(begin, begin + 6)) for begin in (-1, 0, 1)]
            yield f"share {share} waited {waited}", [h3.starved(replace(SOUND, cpu={"a": cpu})) for cpu in cpus]
    late = {f"each {step} s": (40, 40 + step, 40 + 2 * step) for step in (29, 30)}
    late |= {f"at {at_s}": (at_s, 41, 42) for at_s in (29.5, 29.75, 30, 34, 34.25)}
    for name, times in late.items():
        run = replace(easy, drops=tuple(Drop(round(at_s * S), 1) for at_s in times))
        yield f"late {name}", (h3.lagged(run), catch_up.late(run), catch_up.spans(run))
    yield "unsampled", [h3.unsampled(run) for run in (SOUND, replace(SOUND, cpu={}), Run({}, {}))]
    written = [filed(SOUND, one.name.removesuffix(".jsonl"), recorder_ns=S) for one in FILES]
    yield "recorder's share", [recorder_share(run) for run in (SOUND, *written, Run({}, {}))]
    usages = tuple(Usage(S + ns, 2 * S - 2 * ns, 0.1) for ns in EDGE)
    yield "loaded", [one.start_ns for one in h3.loaded(replace(SOUND, cpu={"a": usages}))]
    for calibration in (None, {}, {"lag_ms": 49}, {"lag_ms": 51}, {"lag_ms": 99.9}, {"lag_ms": 101}):
        yield f"calibration {calibration}", catch_up.lag_max_ms(told(SOUND, calibration=calibration))
    for lag in (2, 3):
        gone = replace(SOUND, processes=(*PROCESSES, Process("gone", "producer", "gone")))
        lagging = filed(gone, "harness", lags=frozenset({(3, 9)}))
        yield f"lag {lag}", catch_up.late(filed(lagging, "producer-1", lags=frozenset({(7, lag), (5, 9)})))
    calm, still = replace(SOUND, drops=()), replace(SOUND, clocks=(ClockLook(0, 1), ClockLook(3 * S, 1)))
    hungry = replace(SOUND, cpu={"a": tuple(Usage(at * S, (at + 1) * S, 0.0, 1.0) for at in range(1, 9))})
    lost = replace(SOUND, drops=tuple(Drop(at_s * S, 1) for at_s in (41, 42, 43)))
    yield "slow", [h3.slow(run) for run in (calm, still, hungry, replace(SOUND, cpu={}), lost)]
    yield "besides", [catch_up.fault_spans(easy, besides=name) for name in ("", "net-down", "worker-kill")]


def facts() -> Told:
    """What follows from the facts of a run."""
    names = ("version", "kills", "alive_until_ns", "last_heal_ns", "live_workers", "watched_ns", "unsure_claimers", "dropped")
    more = ("sweep_ms", "lease_ms", "liveness_ms", "recovery_bound_ms")
    ends = [{"name": "worker-1", "t_ns": 50}]
    runs = {name: RUNS[name] for name in ("sound", "nothing", "no snapshots", "no sinks")} | {
        "ended": told(SOUND, ended=ends, full={"end": "all was"}, busy=[1], sweep_ms=True, lease_ms="9", liveness_ms=7),
        "oom": faulty(*stages("1-worker-oom", "worker-1", 10, 9, 20), *stages("2-subscriber-kill", "x", 30, 31)),
        "no heal": replace(faulty(*FREEZE[:2]), drops=(Drop(1, 2), Drop(3, 4))),
        "unsure": filed(filed(SOUND, "worker-1", claims_unanswered=True, opened_ns=None), "worker-2", version_max=0),
        **{f"closed {ns:+}": filed(SOUND, "worker-1", closed_ns=20 * S + ns) for ns in EDGE},
        "late close": filed(SOUND, "worker-1", closed_ns=30 * S, version_max=3),
    }
    for name, run in runs.items():
        yield name, {what: getattr(run, what) for what in names}
        yield f"{name} more", ([getattr(run, what) for what in more], sorted(run.killed), sorted(run.busy), run.full("x", "end"))
    yield "a file of which nothing is known", FileFacts("f")
    yield "dead", [dead(RUNS[name], 7) for name in ("sound", "gaps", "no snapshots")]
    yield "watched", [SOUND.watched_after(55 * S + ns) for ns in EDGE]
    yield "connected", [told(SOUND, direct=direct).connected("worker-1") for direct in (None, [], ["worker-1"])]
    yield "samples", [samples_min(name) for name in ("p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "max_ms")]


def times_of_faults() -> Told:
    """The windows of faults, whom they hit, and what they may have lost."""
    for fault, target in (("server-kill", "servers"), ("net-down", "worker-1,app-1"), ("worker-kill", "worker-2")):
        for ns in EDGE:
            found = stages(f"1-{fault}", target, 10, 11, 20, 19) + stages("2-worker-kill", "worker-2", 20 + ns / S, 22, 23)
            run = filed(faulty(*found, apps=["app-1"]), "worker-1", opened_ns=10 * S + ns, closed_ns=20 * S + ns)
            yield f"{fault} {ns:+}", [(one, windows.processes_hit(run, one)) for one in windows.windows(run)]
    jump = faulty(*stages("1-server-clock-jump", "servers", 10, 11, 20, 21))
    for ahead_ms in ((0, 0, 5_000, 0), (0, 0, -5_000, 0), (7, 8, 7, 7), (None, None, 1, 2), (1, 1, None, 2)):
        times = zip((5 * S, 10 * S - 1, 10 * S, 20 * S), ahead_ms, strict=True)
        run = replace(jump, clocks=tuple(ClockLook(ns, None if ahead is None else ahead * MS) for ns, ahead in times))
        jumps = [(one, one.span, one.size_ms, one.back_ms, one.over_ms) for one in windows.clock_jumps(run)]
        yield f"clock {ahead_ms}", (windows.steady_clocks(run), jumps, h1_faults_bit.unmeasured(run))
    for since, until in ((None, "inject"), (None, "witness"), ("snapshot", "heal")):
        loss = [{"fault": "server-kill", "since": since, "before_ms": 7, "until": until, "after_ms": 5, "text": "lost"}]
        for names in (("inject", "witness", "heal"), ("inject", "snapshot", "heal"), ("heal",)):
            run = faulty(*stages("1-server-kill", "servers", 10, 9, 20, names=names), loss=loss)
            found = [windows.loss_windows(one) for one in (run, told(run, plan=[]))]
            yield f"loss since {since} until {until} with {names}", (found, windows.one_era(run), windows.findings(run.spec))


def test_what_is_said_of_a_run_before_any_row_is_looked_at() -> None:
    tells("reports/doubts.txt", checks, history, faults, instruments, facts, times_of_faults)
