"""H2: what each kind of fault must have brought about, found in the rows, inside its window, of the processes that it hit."""

from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from reports import folder, load
from reports.channels import coverage
from reports.checks.h2_coverage import CUT, doubts
from reports.facts import Process, Run, Stage
from reports.file_facts import CALL_SLOT_NS, FileFacts, ObservedCall
from reports.windows import Window, windows
from tests.golden import Told, tells
from tests.reports.conftest import Checked
from tests.reports.story import Story, ns
from tests.reports.test_nothing_happened import of_channels

S = 1_000_000_000

#: A fault of each kind from 10 to 20 s, seen to have healed at 21 s; the next one comes at 30 s.
INJECT_NS, HEAL_NS, HEALED_NS, NEXT_NS = 10 * S, 20 * S, 21 * S, 30 * S


def run_with(name: str, files: dict[str, dict[str, Any]]) -> Run:
    """A run with one fault of that kind, which hits worker-2 and producer-1, then another; facts of files by process."""
    target = "worker-2,producer-1"
    stages = [Stage(f"1-{name}", name, stage, target, True, "", at) for stage, at in STAGES]
    later = Stage("2-worker-kill", "worker-kill", "inject", "worker-3", True, "", NEXT_NS)
    return Run(
        spec={"plan": [{"fault": f"1-{name}", "name": name, "target": target}]},
        files={f"{proc}.jsonl": FileFacts(f"{proc}.jsonl", **facts) for proc, facts in files.items()},
        processes=tuple(Process(proc, "worker", f"{proc}.jsonl") for proc in files),
        stages=(*stages, later),
    )


STAGES = (("inject", INJECT_NS), ("witness", INJECT_NS + S), ("heal", HEAL_NS), ("healed", HEALED_NS))


def observed_calls(*told: tuple[str, float, float]) -> dict[str, Any]:
    """The facts of a file with these calls, times in s."""
    return {"observed_calls": tuple(ObservedCall(what, round(sent * S), round(done * S)) for what, sent, done in told)}


def worker(**facts: Any) -> dict[str, dict[str, Any]]:
    """The file of the worker that is hit."""
    return {"worker-2": facts}


CALLS = [("worker-freeze", ("finish stale", 20.1, 20.2)), ("net-latency", ("extend ok", 10.1, 19.9))]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_one_call_in_its_window_is_enough(name: str, call: tuple[str, float, float]) -> None:
    assert doubts(run_with(name, worker(**observed_calls(call)))) == []


OTHER_CALLS = [
    *(("worker-freeze", ("finish stale", 9.0, 9.1)), ("worker-freeze", ("finish stale", 31.0, 31.1))),
    *(("worker-freeze", ("finish repeated", 20.1, 20.2)), ("net-latency", ("extend ok", 9.9, 12.0))),
    *(("net-latency", ("extend ok", 19.0, 20.1)), ("net-latency", ("extend ok", 15.0, 15.089))),
]


@pytest.mark.parametrize(("name", "call"), OTHER_CALLS)
def test_the_call_of_another_time_or_kind_proves_nothing(name: str, call: tuple[str, float, float]) -> None:
    found = doubts(run_with(name, worker(**observed_calls(call))))
    assert len(found) == 1 and found[0].startswith(f"1-{name}: no ")


def test_a_renewal_under_latency_counts_from_the_send_that_was_answered() -> None:
    renewal = ObservedCall("extend ok", 15 * S, round(18.05 * S), 18 * S)
    words = "1-net-latency: no renewal was sent and answered while the network was slow"
    assert doubts(run_with("net-latency", worker(observed_calls=(renewal,)))) == [words]


def test_the_call_of_a_process_that_was_not_hit_proves_nothing() -> None:
    run = run_with("worker-freeze", {"worker-1": observed_calls(("finish stale", 20.1, 20.2))})
    assert doubts(run) == ["1-worker-freeze: no finish of a zombie was refused"]


REPEATS = (("claim repeated", 10.5, 15.6), ("finish repeated", 9.9, 20.6))


def test_a_lost_reply_must_have_been_repeated_to_each_kind_of_call() -> None:
    """Calls that were under way when the fault came count, and those that were answered only after it had healed."""
    enqueue = observed_calls(("enqueue repeated", 19.9, 25.0))
    assert doubts(run_with("net-reply-lost", {"worker-2": observed_calls(*REPEATS), "producer-1": enqueue})) == []
    words = "1-net-reply-lost: no enqueue was answered by a repeat"
    assert doubts(run_with("net-reply-lost", {"worker-2": observed_calls(*REPEATS)})) == [words]
    late = observed_calls(("enqueue repeated", 20.1, 20.2))
    assert len(doubts(run_with("net-reply-lost", {"worker-2": observed_calls(*REPEATS), "producer-1": late}))) == 1
    assert len(doubts(run_with("net-reply-lost", {}))) == 3


@pytest.mark.parametrize(
    ("connected_s", "slots", "came_back"),
    [(20.5, {84}, True), (19.5, {84}, False), (30.5, {84}, False), (20.5, {79, 80, 121}, False)],
    ids=["back", "connected before the heal", "connected at the next fault", "never answered meanwhile"],
)
def test_a_cut_off_process_must_connect_again_and_be_answered(connected_s: float, slots: set[int], came_back: bool) -> None:
    """Parts of time are 250 ms long: 80 is the one of the heal, 120 the one of the next fault."""
    facts = {"connected_ns": (5 * S, round(connected_s * S)), "answered_slots": frozenset(slots)}
    for name in CUT:
        words = f"1-{name}: no process that was cut off connected again and was answered"
        assert doubts(run_with(name, worker(**facts))) == ([] if came_back else [words])


#: A worker and a producer that lived through it, a worker that came later, and one that had ended before.
LIVES: dict[str, dict[str, Any]] = {
    **{"worker-2": {"opened_ns": 1}, "producer-1": {"opened_ns": 1}, "worker-4": {"opened_ns": 25 * S}},
    "worker-5": {"opened_ns": 1, "closed_ns": 9 * S},
}


def of_servers(name: str, of: str, **facts: Any) -> Run:
    """A run with a fault of the servers, and more facts of the file of one process."""
    run = run_with(name, {proc: {**life, **(facts if proc == of else {})} for proc, life in LIVES.items()})
    stages = tuple(replace(stage, target="servers") for stage in run.stages[:-1])
    plan = [{"fault": f"1-{name}", "name": name, "target": "servers"}]
    return replace(run, spec={"plan": plan}, stages=(*stages, run.stages[-1]))


@pytest.mark.parametrize(("name", "code"), [("memory-full", "OOM"), ("script-busy", "BUSY"), ("scripts-flushed", "NOSCRIPT")])
def test_a_server_must_have_refused_somebody_while_the_fault_was_in_force(name: str, code: str) -> None:
    refused = f"refused {code}"
    assert doubts(of_servers(name, "producer-1", **observed_calls((refused, 9.9, 20.1)))) == []
    others = (("refused LOADING", 12.0, 12.1), (refused, 9.0, 9.9), (refused, 30.5, 30.6))
    (words,) = doubts(of_servers(name, "worker-2", **observed_calls(*others)))
    assert words.startswith(f"1-{name}: no call was refused")
    assert doubts(of_servers(name, "worker-4", **observed_calls((refused, 9.9, 20.1)))) == [words]


@pytest.mark.parametrize("name", ["server-kill", "server-restart", "snapshot-restore", "clients-killed", "worker-cut"])
def test_whom_a_server_threw_out_must_connect_again_and_be_answered(name: str) -> None:
    words = f"1-{name}: no process that was cut off connected again and was answered"
    back = {"connected_ns": (11 * S,), "answered_slots": frozenset({84})}
    assert doubts(of_servers(name, "producer-1", **back)) == []
    assert doubts(of_servers(name, "worker-4", **back)) == [words]
    assert doubts(of_servers(name, "producer-1", **{**back, "connected_ns": (9 * S,)})) == [words]
    assert doubts(of_servers(name, "producer-1", **{**back, "answered_slots": frozenset({79})})) == [words]


def test_a_plan_asks_only_for_what_it_holds() -> None:
    assert (doubts(Run(spec={"plan": []}, files={})), doubts(run_with("net-request-lost", {}))) == ([], [])


def test_a_planned_fault_that_never_came_is_in_doubt() -> None:
    names = ("worker-kill", "worker-freeze", "net-down")
    run = Run(spec={"plan": [{"fault": f"1-{name}", "name": name, "target": "worker-2"} for name in names]}, files={})
    assert [words.split(": ")[0] for words in doubts(run)] == [f"1-{name}" for name in names]


def test_observed_calls_are_found_in_the_rows(story: Story, spark: SparkSession) -> None:
    """Among others: a claim that repeats says so of the call, the others of their jobs; a refusal, whatever came of the call."""
    story.enqueue("refused", 28, reply="fail", errors=["OOM command not allowed when used memory > 'maxmemory'."])
    story.enqueue("sent-again", 29, took=0.5, errors=["BUSY the server is busy", "LOADING", "BUSY", "NOSCRIPT No matching"])
    story.enqueue("again", 30, result="repeated", took=0.5)
    token = story.claim("worker-1", "again", 31, result="repeated")
    story.extend(token, 32)
    story.extend(token, 33, result="stale")
    story.end("finish", token, at=34, result="repeated")
    run = story.write()
    facts = load.collect_facts(load.read_history(spark, run, folder.history_files(run)), story.spec).files
    assert sorted(facts["producer-1.jsonl"].observed_calls, key=lambda call: (call.first_send_ns, call.what)) == [
        *(ObservedCall("refused OOM", ns(28), ns(28.001)), ObservedCall("refused BUSY", ns(29), ns(29.5))),
        *(ObservedCall("refused NOSCRIPT", ns(29), ns(29.5)), ObservedCall("enqueue repeated", ns(30), ns(30.5))),
    ]
    assert [(call.what, call.first_send_ns) for call in facts["worker-1.jsonl"].observed_calls] == [
        *(("claim repeated", ns(31)), ("extend ok", ns(32)), ("finish repeated", ns(34)))
    ]
    assert [call.what for call in facts["worker-3.jsonl"].observed_calls] == ["finish stale"]
    assert facts["worker-1.jsonl"].connected_ns == (ns(0),)
    sent, done = ns(30) // CALL_SLOT_NS, ns(30.5) // CALL_SLOT_NS
    assert (sent, done) in facts["producer-1.jsonl"].calls
    # That of a handler is no call.
    assert (ns(24.91) // CALL_SLOT_NS, ns(36.01) // CALL_SLOT_NS) not in facts["worker-3.jsonl"].calls
    assert ns(34.001) // 250_000_000 in facts["worker-1.jsonl"].answered_slots


@pytest.mark.slow
@pytest.mark.parametrize(("named", "found"), [(True, ("valid", "")), (False, ("unknown", "3-lease-expired proves nothing"))])
def test_the_end_of_an_ended_lease_must_be_refused(named: bool, found: tuple[str, str], story: Story, checked: Checked) -> None:
    """It may be sent when the fault is over. That of another lease proves nothing."""
    story.spec["plan"] = [*story.spec["plan"], {"fault": "3-lease-expired", "name": "lease-expired", "target": "worker-1"}]
    lease = story.leased("worker-1", "struck", 40.1, enqueued=40.0)
    story.stages("3-lease-expired", "worker-1", 40.5, 41.5, 41.6, 43.0, held=[lease] if named else ())
    story.end("finish", lease, at=42.0, result="stale")
    verdict, why = checked(story.write(), "H2")["H2"]
    assert verdict == found[0] and why.startswith(found[1])


def around(one: Window) -> dict[str, list[dict[str, Any]]]:
    """Calls near the bounds of a window: what there is of them, and in what each differs from one that was in force whole."""
    inject, heal, slow = one.inject_ns, one.heal_ns, coverage.SLOW_MS * 1_000_000
    times = {
        **{"whole": (inject, heal), "sent at the heal": (heal, heal + 1), "sent after the heal": (heal + 1, heal + 2)},
        **{
            "done before": (inject - 9, inject - 1),
            "done at the inject": (inject - 9, inject),
            "sent before": (inject - 1, heal),
        },
        **{
            "done after the heal": (inject, heal + 1),
            "done at the next": (heal, one.next_ns),
            "done then": (heal, one.next_ns + 1),
        },
    }
    calls = {name: [{"first_send_ns": sent, "done_ns": done}] for name, (sent, done) in times.items()}
    others: dict[str, Any] = {"proc": "x", "type": "fail", "sends": 1, "item_result": "created"}
    calls |= {f"{name} {value}": [{name: value}] for name, value in others.items()}
    calls |= {f"slow {by:+}": [{"last_send_ns": heal - slow + by}] for by in (0, 1)}
    calls |= {"publish": [{"f": "publish", "first_send_ns": heal + 1}]}
    for name, (done, sent, era) in {"era": (-1, 1, 2), "same": (-1, 1, 1), "late": (0, 1, 2), "early": (-1, 0, 2)}.items():
        calls[f"{name} of a restore"] = [{"done_ns": inject + done}, {"first_send_ns": heal + sent, "era": era}]
    return calls


CALL = {"f": "fetch", "type": "ok", "sends": 2, "last_send_ns": None, "era": 1, "item_result": "duplicate"}
CALL_TYPES = "f string, type string, sends long, last_send_ns long, era long, item_result string, proc string, first_send_ns long"
#: Who fetched for whom, and what was delivered when.
FETCHED = [("c", "s", "w1", "fetch"), ("c", "t", "w1", "acknowledge")]
DELIVERED = [("c", "s", "w2", 100), ("c", "t", "w2", 500), ("c", "s", "w1", 900)]
KILLS = {"before": (99, "w1"), "at the send": (100, "w1"), "of another": (99, "w2")}
#: A channel for each case: the places of the messages that were published, answered or not.
PLACES = {"both": "4 5 6", "beyond": "5", "before": "3 4", "none": "4 5-"}


def needed(spark: SparkSession) -> Told:
    """By which calls the requirements of each fault are met, and by which crossings and subscribers those of the channels."""
    run, rows = of_channels(), list[tuple[Any, ...]]()
    needs = list[tuple[str, coverage.Need]]()
    for one in windows(run):
        whole = {**CALL, "proc": one.targets[0], "first_send_ns": one.inject_ns, "done_ns": one.heal_ns}
        rows += [(*(whole | call).values(), one.fault, name) for name, calls in around(one).items() for call in calls]
        needs += [(one.fault, need) for need in (*coverage.of_calls(run, one), *coverage.of_publishes(run, one))]
    yield from met(spark.createDataFrame(rows, f"{CALL_TYPES}, done_ns long, fault string, name string"), needs)
    first, *_, last = windows(run)
    edges = {"inject": first.inject_ns - coverage.AROUND_NS, "healed": last.healed_ns + coverage.AROUND_NS}
    edged = [("c", at + by, 1, "", f"{edge} {by:+}") for edge, at in edges.items() for by in (-1, 0, 1)]
    edged += [(channel, 0, count, "", f"{count} of {channel}") for channel in "cd" for count in (0, 1, 2)]
    frame = spark.createDataFrame(edged, "channel string, crossed_ns long, subscribers long, fault string, name string")
    needs = [("", need) for need in (*coverage.wraps(run), *coverage.around_faults(run), *coverage.fan_outs(run))]
    yield from met(frame, needs)


def met(frame: DataFrame, needs: list[tuple[str, coverage.Need]]) -> Told:
    """The names of the rows that meet each requirement of their fault."""
    found = frame.groupBy("fault", "name").agg(*(need.seen.alias(str(at)) for at, (_, need) in enumerate(needs))).collect()
    for at, (fault, need) in enumerate(needs):
        names = sorted(row["name"] for row in found if row["fault"] == fault and row[str(at)])
        yield f"{need.who} {need.words}", ", ".join(names)


def frames(spark: SparkSession) -> Told:
    """Which channels crossed, which messages woke a fetch, and after which kills nobody took over."""
    spec = {"channels": [{"name": name, "preset_clock": 2**53 - 5} for name in PLACES]}
    items = [(name, item) for name, some in PLACES.items() for item in some.split()]
    rows = [(name, int(item[0]), 1, "fail" if item.endswith("-") else "ok", at) for at, (name, item) in enumerate(items)]
    published = spark.createDataFrame(rows, "channel string, item_at long, item_clock long, type string, done_ns long")
    yield "crossed", sorted(map(tuple, coverage.crossings(SimpleNamespace(run=Run(spec, {}), published=published)).collect()))  # type: ignore[arg-type]
    waits = {"not waited": (0, 1), "before": (5, -5_000_000), "while": (5, -4_999_999)}
    delivered = [("c", name, waited, 10**9) for name, (waited, _) in waits.items()]
    sent = [("c", name, 10**9 + by) for name, (_, by) in waits.items()]
    both = {
        "delivered": spark.createDataFrame(delivered, "channel string, message string, waited_ms long, first_send_ns long"),
        "messages": spark.createDataFrame(sent, "channel string, message string, sent_ns long"),
    }
    yield "woken", [row["message"] for row in coverage.woken(SimpleNamespace(**both)).collect()]  # type: ignore[arg-type]
    both = {
        "calls": spark.createDataFrame(FETCHED, "channel string, subscriber string, proc string, f string"),
        "delivered": spark.createDataFrame(DELIVERED, "channel string, subscriber string, proc string, first_send_ns long"),
    }
    kills = [Window(name, "", (of,), at, at, at, at) for name, (at, of) in KILLS.items()]
    lacking = [coverage.taken_over(SimpleNamespace(**both), kill) for kill in kills]  # type: ignore[arg-type]
    yield "not taken over", sorted(row["who"] for row in reduce(DataFrame.unionByName, lacking).collect())


def test_what_must_have_happened_on_channels(spark: SparkSession) -> None:
    def needs() -> Told:
        yield from needed(spark)
        yield from frames(spark)

    tells("reports/coverage_of_channels.txt", needs)
