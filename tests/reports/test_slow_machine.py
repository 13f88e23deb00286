"""A machine that is too slow makes late work a doubt: it is no violation, and it is not valid either."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.judge import parsed
from reports import file_facts, load
from reports.bench.grow import grow
from reports.checks import j15_ticks_once
from reports.checks.h3_recorder_sound import CPU_SAMPLES, lagged, slow, starved, stood_still
from reports.facts import MS, Run, Usage
from reports.folder import history_files
from reports.samples import cpu_usage
from reports.verdict import NO_MEASURES, CheckResult, decide
from tests.reports import good_run, test_recorder
from tests.reports.conftest import Checked
from tests.reports.story import Story, ns, srv_ms

LATE = "cron:beat:1 fired 11500 ms after its time, more than 11000 ms"
DOUBT = f"a slow machine may explain it: {LATE}"


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A run whose schedule ticks in time, and 11.5 s late; a handler of it is finished twice, which takes no time at all."""
    made = good_run.healthy(tmp_path / "run")
    made.spec["schedules"] = [{"name": "beat", "every_ms": 500}]
    for number, at in enumerate((39.0, 51.0)):
        item = {"job": f"cron:beat:{number}", "schedule": "beat", "tick_ms": srv_ms(39.0) + 500 * number, "result": "created"}
        made.operation("worker-1", "tick", at, [item])
    made.run("worker-3", "quiet-1", 45.0)
    return made


def late_load(story: Story) -> None:
    for number in range(40):
        story.enqueue(f"late-{number}", 40.0 + number / 10, intended_ns=ns(39.6 + number / 10))


def late_looks(story: Story) -> None:
    for second in (*range(38, 44), *range(47, 52)):
        story.row("harness", "clock", second, wall_ns=second, srv_us=srv_ms(second) * 1_000)


def no_core(story: Story) -> None:
    story.cpu, story.cpu_wait = {"producer-1": 0.2}, {"producer-1": 0.62}


@pytest.mark.slow
def test_what_is_late_on_a_machine_that_keeps_up_is_a_violation(story: Story, checked: Checked) -> None:
    assert checked(story.write(), "J15", "H3")["J15"] == ("violated", LATE)


def test_load_that_comes_late_outside_of_faults_is_in_doubt_and_what_is_late_meanwhile(story: Story, checked: Checked) -> None:
    """In the windows of the faults, from 10 to 22 s and from 25 to 37.5 s, it may, and until it has caught up."""
    test_recorder.late(story, 12, 20, 0.5)
    test_recorder.late(story, 36.6, 20, 0.5)
    test_recorder.late(story, 40, 3, 0.2)
    found = checked(story.write(), "J6", "J15", "H3")
    words = "the producers sent with a lag of 200.0 ms at p99 outside faults, more than 150 ms"
    assert (found["H3"], found["J15"], found["J6"][0]) == (("unknown", words), ("unknown", DOUBT), "violated")


@pytest.mark.slow
def test_what_is_late_while_the_processes_get_no_core_is_in_doubt(story: Story, checked: Checked) -> None:
    no_core(story)
    found = checked(story.write(), "J6", "J15", "H3")
    assert (found["J15"], found["J6"][0], found["H3"]) == (("unknown", DOUBT), "violated", ("valid", ""))


@pytest.mark.parametrize("begun_ms", range(0, 1_000, 200))
def test_starved_is_told_alike_wherever_a_second_begins(begun_ms: int) -> None:
    """As in a grown history, which is later; and one long sample tells as much as many."""
    most = {"waited": 0.62, "share": 0.2}
    for took_ms in (500, 1_010, 2_500):
        times = [(begun_ms + number * took_ms) * MS for number in range(CPU_SAMPLES * 1_010 // took_ms + 1)]
        assert starved(Run({}, {}, cpu={"worker-1": tuple(Usage(at, at + took_ms * MS, **most) for at in times)}))


def test_without_its_samples_nobody_knows_how_slow_a_machine_was() -> None:
    loaded = {"producer-1": file_facts.FileFacts("producer-1", enqueue_first_ns=ns(1))}
    assert slow(Run(spec={}, files=loaded))
    assert not slow(Run(spec={}, files=loaded, cpu={"producer-1": (Usage(ns(2), ns(3), 0.1),)}))
    assert not slow(Run(spec={}, files={}))


def test_what_shows_that_a_machine_was_slow_goes_with_a_grown_history(tmp_path: Path, spark: SparkSession) -> None:
    """All three signs of it: late load, late looks at the clock, and processes that got no core."""
    for number, tells in enumerate(((), (late_load, late_looks, no_core))):
        made = good_run.healthy(tmp_path / f"run-{number}")
        for tell in tells:
            tell(made)
        out = tmp_path / f"grown-{number}"
        grow(made.write(), 6_000, out)
        facts = load.collect_facts(load.read_history(spark, out, history_files(out)), {}, cpu_usage(out))
        assert [shown(facts) for shown in (lagged, stood_still, starved, slow)] == [bool(tells)] * 4


@pytest.mark.parametrize(("level", "too_slow"), [("slow", True), ("violated", False)])
def test_the_harness_takes_such_a_doubt_for_late_work(level: str, too_slow: bool) -> None:
    found = CheckResult(j15_ticks_once.CHECK, [], counts={(level, "tick late"): 1}, examples={level: [LATE]})
    decided = decide([found], NO_MEASURES, {})
    assert decided["reasons"] == [f"J15 unknown: {DOUBT}" if too_slow else f"J15 violated: {LATE}"]
    assert parsed(decided).too_slow is too_slow
