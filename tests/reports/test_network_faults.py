"""H1 on faults of the network: whom they hit must exist, must not have been answered meanwhile, and must have been afterwards."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from reports.checks.h1_faults_bit import doubts
from reports.checks.h1_network import LOSSES, STALLS
from reports.facts import Process, Run, Stage
from reports.file_facts import CALL_SLOT_NS, FileFacts
from tests.reports.story import Story
from tests.reports.test_recorder import collect_facts

S, TARGETS = 1_000_000_000, "worker-1,producer-1"

Call = tuple[float, float]
Calls = tuple[Call, ...]
#: Calls before, and after the heal, in s.
AROUND = ((9.0, 9.1), (13.1, 13.2))


def run_with(
    name: str, *calls: Call, targets: str = TARGETS, witness_s: float = 12.6, lease_ms: int = 9_000, around: Calls = AROUND
) -> Run:
    """A fault from 10 s until its heal at 13 s, and the calls of worker-1; those of the producer are what they should be."""
    times = (("inject", 10.0), ("witness", witness_s), ("heal", 13.0), ("healed", 13.5))
    fault = f"1-{name}"
    told = {"worker-1": (*around, *calls), "producer-1": AROUND}
    return Run(
        spec={"plan": [{"fault": fault, "name": name, "target": targets}], "lease_ms": lease_ms},
        files={f"{proc}.jsonl": FileFacts(f"{proc}.jsonl", opened_ns=1, calls=slots(these)) for proc, these in told.items()},
        processes=(Process("worker-1", "worker", "worker-1.jsonl"), Process("producer-1", "producer", "producer-1.jsonl")),
        stages=tuple(Stage(fault, name, stage, targets, True, "", round(at_s * S)) for stage, at_s in times),
    )


def slots(calls: Calls) -> frozenset[tuple[int, int]]:
    return frozenset((round(sent * S) // CALL_SLOT_NS, round(done * S) // CALL_SLOT_NS) for sent, done in calls)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_lets_no_call_through(name: str) -> None:
    assert doubts(run_with(name)) == []
    assert doubts(run_with(name, (11.0, 11.02))) == [f"fault 1-{name} did not bite: worker-1 was answered while it was in force"]


def test_an_app_that_was_cut_off_shows_in_the_calls_of_its_producer() -> None:
    """Nobody declares it, and it has no history of its own."""
    for apps in ((), ("app-1", "app-2")):
        run = run_with("net-down", targets="worker-1,app-1,app-2")
        told = [] if apps else [f"fault 1-net-down hit app-{at}, which is no worker or producer of the manifest" for at in (1, 2)]
        assert [one for one in doubts(replace(run, spec={**run.spec, "apps": apps})) if "manifest" in one] == told
    run = replace(run, spec={**run.spec, "apps": ("app-1", "app-2")})
    assert doubts(run) == []
    answered = replace(run.files["producer-1.jsonl"], calls=slots((*AROUND, (11.0, 11.02))))
    assert doubts(replace(run, files={**run.files, "producer-1.jsonl": answered})) == [
        "fault 1-net-down did not bite: producer-1 was answered while it was in force"
    ]


@pytest.mark.parametrize("call", [(9.9, 10.5), (10.1, 10.15), (12.5, 12.65)], ids=["before", "not in force", "answered after"])
def test_calls_at_the_edges_of_a_loss_prove_nothing(call: tuple[float, float]) -> None:
    assert doubts(run_with("net-down", call)) == []


@pytest.mark.parametrize("name", STALLS)
def test_a_server_that_stands_still_answers_nobody_who_lives_through_it(name: str) -> None:
    run = run_with(name, targets="servers")
    assert doubts(run) == []
    found = doubts(run_with(name, (11.0, 11.02), targets="servers"))
    assert found == [f"fault 1-{name} did not bite: worker-1 was answered while it was in force"]
    found = doubts(run_with(name, targets="servers", around=()))
    assert found == [f"fault 1-{name} did not heal: worker-1 was not answered after it"]
    # Who came later, or had ended before, proves nothing.
    name = "worker-1.jsonl"
    for file in (FileFacts(name, opened_ns=11 * S), FileFacts(name, opened_ns=1, closed_ns=9 * S)):
        assert doubts(replace(run, files={**run.files, name: file})) == []


def test_a_loss_of_replies_begins_with_short_ones() -> None:
    """Until the last 2.5 s before its witness, or the last third of a short lease, calls are answered in between."""
    words = "fault 1-net-reply-lost did not bite: worker-1 was answered while it was in force"
    assert doubts(run_with("net-reply-lost", (10.4, 10.7), witness_s=13)) == []
    assert doubts(run_with("net-reply-lost", (10.5, 10.7), witness_s=12.6)) == [words]
    assert doubts(run_with("net-reply-lost", (12.0, 12.05), witness_s=12.6, lease_ms=1_500)) == []
    assert doubts(run_with("net-reply-lost", (12.15, 12.2), witness_s=12.6, lease_ms=1_500)) == [words]


def test_a_slow_network_answers_nobody_at_once() -> None:
    assert doubts(run_with("net-latency", (11.0, 11.1))) == []
    words = "fault 1-net-latency did not bite: worker-1 was answered within 50 ms"
    assert doubts(run_with("net-latency", (11.0, 11.04))) == [words]


@pytest.mark.parametrize(("witness_s", "lease_ms", "words"), [(12.4, 9_000, "2400 ms"), (10.4, 1_500, "400 ms")])
def test_a_fault_must_stay_to_bite(witness_s: float, lease_ms: int, words: str) -> None:
    found = doubts(run_with("net-request-lost", witness_s=witness_s, lease_ms=lease_ms))
    least = min(2_500, lease_ms // 3)
    assert found == [f"fault 1-net-request-lost was in force for {words} before its witness, less than {least} ms"]


def test_every_target_must_be_answered_again() -> None:
    """One that was never answered, before or after, was not cut off."""
    found = doubts(run_with("net-down", around=()))
    assert found == ["fault 1-net-down did not heal: worker-1 was not answered after it"]


@pytest.mark.parametrize("nobody", ["nobody", "harness"])
def test_who_is_hit_must_send_calls(nobody: str) -> None:
    words = f"fault 1-net-down hit {nobody}, which is no worker or producer of the manifest"
    assert words in doubts(run_with("net-down", targets=f"worker-1,{nobody}"))


def test_a_fault_that_a_run_does_not_notice_is_in_doubt(story: Story, spark: SparkSession) -> None:
    """Its rows say ok, and both targets go on as ever."""
    story.spec["plan"] = [*story.spec["plan"], {"fault": "3-net-down", "name": "net-down", "target": TARGETS}]
    story.stages("3-net-down", TARGETS, 39.0, 41.6, 41.7, 42.0)
    story.life("worker-1", "afterwards", 42.1)
    assert doubts(collect_facts(spark, story.write())) == [
        "fault 3-net-down did not bite: worker-1 was answered while it was in force",
        "fault 3-net-down did not bite: producer-1 was answered while it was in force",
    ]
