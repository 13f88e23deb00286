"""T1 to T5 on hand-written histories: what must pass, what breaks a promise, and what a weaker promise allows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from record.history import LoadedFile
from reports.targets.facts import build, collect
from reports.targets.judge import decide, doubtful
from reports.verdict import NO_MEASURES
from tests.golden import Told, tells
from tests.reports.targets.story import AT_LEAST, AT_MOST, Story, good, spec

Decide = Callable[[dict[str, Any], list[LoadedFile]], dict[str, Any]]

KILL = "1-worker-kill"


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> Decide:
    return lambda spec, files: decide(build(spark, collect(spec, files)))


CUT = {"fault": "1-cut", "name": "net-reply-lost", "target": "producer-1"}


def all_wrong() -> Story:
    """A kill at 6 s, healed at 7 s, with jobs in hand: 7 was lost by it, 8 is left behind, and 10 ran again 12.1 s later, 30 to
    32 after 11.9, 29 and 31 s; 5 was finished twice through it. Without it 0 and 20 were finished twice, 13 was lost, 77 ran
    unsent, 11 before it was sent, and 12 later than it should, as its worker was gone. The sends of 40 and 41 had no answer."""
    story = good()
    for job in (7, 8, 10, 30, 31, 32):
        story.sent(job, 5)
    story.killed(KILL, 6, 7, 8, 10, 30, 31, 32)
    for job, at_s in ((10, 18.1), (30, 17.9), (31, 35), (32, 37), (77, 5), (11, 8), (12, 17), (20, 19.5), (41, 17.5)):
        story.ran(job, at_s)
    for job, at_s in ((5, 8), (0, 9), (20, 21)):
        story.ran(job, at_s, by="worker-3")
    story.sent(40, 16, kind="info").sent(41, 17, kind="info")
    return story.sent(11, 9).sent(12, 4).sent(20, 19.2).sent(13, 20)


def cut_off_and_gone() -> Story:
    """A run whose job 3 was cut off and never started again."""
    story = good()
    story.sent(7, 5).killed(KILL, 6, 7)
    return story


def sent_again() -> list[LoadedFile]:
    """Its reply was lost; the producer itself sent the job once."""
    story = good()
    for stage, at_s in (("inject", 7.0), ("witness", 7.5), ("heal", 8.0), ("healed", 8.1)):
        story.row("harness", at_s, "fault", **CUT, stage=stage, result="ok", detail="seen")
    return story.sent(7, 7.2).ran(7, 7.3).ran(7, 8.4, by="worker-3").ended(60)


def with_holes() -> list[LoadedFile]:
    """A row of a worker is missing, and nobody saw the kill."""
    files = good().sent(7, 5).killed(KILL, 6, 7, witnessed=False).ended(40)
    return [replace(file, rows=file.rows[:3] + file.rows[4:]) if file.path.name == "worker-2.jsonl" else file for file in files]


LEAST, MOST, UNBOUNDED = (spec(promise, KILL) for promise in (AT_LEAST, AT_MOST, {**AT_LEAST, "recovery_bound_ms": None}))
Runs = Iterator[tuple[str, dict[str, Any], list[LoadedFile]]]


def many() -> Runs:
    """What happened in each run, its spec, and its history. The bound is 10 s, and 2 s are allowed for a busy machine."""
    for name, promised in (("at least once", LEAST), ("at most once", MOST), ("without a bound", UNBOUNDED)):
        yield f"all wrong, {name}", promised, all_wrong().ended(60, 8)
    yield "good", LEAST, good(KILL).ended(40)
    yield "no fault", {**LEAST, "plan": []}, good().ran(5, 8, by="worker-3").sent(8, 9).ended(40)
    yield "sent again", {**MOST, "plan": [CUT]}, sent_again()
    yield "with holes", LEAST, with_holes()


def more() -> Runs:
    """Which prove little more. The kill is healed at 7 s; by 19 s the bound and the slack are over."""
    yield "good, at most once", MOST, good(KILL).ended(40)
    yield "no fault, at most once", {**MOST, "plan": []}, good().ran(5, 8, by="worker-3").sent(8, 9).ended(40)
    yield "sent again, at least once", {**LEAST, "plan": [CUT]}, sent_again()
    yield "never answered", spec(AT_LEAST), Story().sent(1, 1, kind="info").ended(40)
    yield "left behind", LEAST, cut_off_and_gone().ended(40, 7)
    yield "left behind for a while", LEAST, cut_off_and_gone().ended(18, 7)
    yield "left behind by one that still works", LEAST, cut_off_and_gone().sent(12, 30).ran(12, 38.5).ended(40, 7)


@pytest.mark.parametrize("of", [many, pytest.param(more, marks=pytest.mark.slow)])
def test_each_run_is_judged_as_ever(of: Callable[[], Runs], judged: Decide) -> None:
    def runs() -> Told:
        for name, promised, files in of():
            decided = judged(promised, files)
            seen = [(one["id"], one["verdict"], one["examples"]) for one in decided["checks"] if one["verdict"] != "valid"]
            yield name, (decided["verdict"], decided["reasons"], seen)
            yield "findings", [(one["name"], one["rows"], one["examples"]) for one in decided["findings"]]
            yield "measures", {of: value for of, value in decided["measures"].items() if value != NO_MEASURES.get(of, 0)}
        yield "checks", [(one["id"], one["name"]) for one in decided["checks"]]
        yield "unknowable", decided["cannot_be_known"]

    tells(f"reports/targets_of_{of.__name__}.txt", runs)


@pytest.mark.parametrize(("finished", "after"), [(0, 1), (1, 0)])
def test_a_run_without_load_is_no_pass(finished: int, after: int) -> None:
    results = doubtful(collect(spec(AT_LEAST), good().ended(40)), {"finished": finished, "after": after})
    assert [one.verdict for one in results] == ["valid", "valid", "unknown"]
