"""J12, J14, J15 and J17 on hand-written histories: what only some scenarios use, kept and broken."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.reports.cases.broken import CHECKS, delayed_jobs, hold, life, tick, ticked
from tests.reports.conftest import Checked
from tests.reports.good_run import healthy
from tests.reports.story import Story, srv_ms

pytestmark = pytest.mark.slow

LIMITS = [{"name": "email", "concurrency": 2}, {"key": "*", "concurrency": 1}]

Tell = Callable[[Story], None]

#: What happened -> the check that is about it, its verdict, and its reason as a pattern.
CASES: dict[str, tuple[Tell, str, str, str]] = {}


def judged_as(check: str, verdict: str, why: str = "") -> Callable[[Tell], Tell]:
    """What happened in a run, and what a check says of that run; `*` in its reason stands for anything."""

    def keep(tell: Tell) -> Tell:
        CASES[tell.__name__.replace("_", "-")] = (tell, check, verdict, why)
        return tell

    return keep


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = healthy(tmp_path / "run")
    made.spec |= {"limits": LIMITS, "unique_keys": True, "dependencies": True, "routing": True}
    made.spec["schedules"] = [{"name": "beat", "every_ms": 500}]
    return made


@judged_as("J12", "valid")
def a_limit_that_is_reached_and_not_exceeded_is_valid(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.5, 43.0)
    hold(story, "worker-1", "c", 42.1, 42.4)
    hold(story, "worker-4", "other-name", 41.6, 41.8, name="report")


@judged_as("J12", "violated", "email had 3 jobs in hand at once, and allows 2")
def more_jobs_of_a_name_at_once_than_its_limit_allows(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.5, 43.0)
    hold(story, "worker-4", "c", 41.9, 42.4)


@judged_as("J12", "valid")
def a_limit_of_each_key_counts_over_all_names(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0, name="report", key="acme")
    hold(story, "worker-3", "b", 41.5, 43.0, name="resize", key="other")


@judged_as("J12", "violated", "acme had 2 jobs in hand at once, and allows 1")
def two_jobs_of_one_key_at_once(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0, name="report", key="acme")
    hold(story, "worker-3", "b", 41.5, 43.0, name="resize", key="acme")


@judged_as("J12", "valid")
def a_killed_workers_job_counts_until_its_lease_is_over_and_no_longer(story: Story) -> None:
    story.leased("worker-4", "a", 41.0, told={"class": "report", "lane": "report/acme"})
    hold(story, "worker-1", "b", 50.1, 50.3, name="report", key="acme")


@judged_as("J12", "unknown", "every limit had room all the time")
def a_limit_that_was_never_reached_proves_nothing(story: Story) -> None:
    story.spec["limits"] = [{"name": "email", "concurrency": 50}]
    hold(story, "worker-1", "a", 41.0, 42.0)


@judged_as("J14", "violated", "b was created while a had the unique key k")
def a_second_job_with_the_key_of_one_that_runs(story: Story) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="a")
    life(story, "b", 40.7, 42.0)


@judged_as("J14", "violated", "a-2 was created while a had the unique key k-a")
def a_retry_keeps_the_key_and_its_last_one_frees_it(story: Story) -> None:
    for job, outcome in (("a", "retried"), ("b", "buried")):
        story.enqueue(job, 40.0, unique=f"k-{job}")
        story.end("retry", story.claim("worker-1", job, 40.2), at=40.3, outcome=outcome, delay_ms=100)
        story.enqueue(f"{job}-2", 40.6, unique=f"k-{job}")
    story.enqueue("away", 40.5, unique="k-a", result="duplicate", holder="a")


@judged_as("J14", "violated", "away was a duplicate of a, which had ended *")
def a_key_that_outlives_its_holder(story: Story) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 42.061, unique="k-a", result="duplicate", holder="a")


@judged_as("J14", "valid")
def a_window_may_outlive_the_job_that_opened_it(story: Story) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k-a", result="duplicate", holder="a")
    story.enqueue("later", 42.0, unique="k-a", dedup="d", result="duplicate", holder="a")


@judged_as("J14", "unknown", "every unique key kept nobody out")
def keys_that_kept_nobody_out_prove_nothing(story: Story) -> None:
    life(story, "a", 40.0, 41.0)


@judged_as("J5", "violated", "ghost was refused as a duplicate before it was enqueued")
def a_job_that_a_holder_kept_out_is_no_duplicate_of_nothing(story: Story) -> None:
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="quiet-1")
    story.enqueue("ghost", 40.6, result="duplicate")


@judged_as("J15", "violated", "cron:beat:2000 came 1000 ms after the tick before it, its schedule ticks every 500 ms")
def a_tick_that_made_no_job(story: Story) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-1", 41.0, 2000)


@judged_as("J15", "violated", "cron:beat:1500 fired 1 ms before its time")
def a_tick_before_its_time(story: Story) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-1", 40.399, 1500)


@judged_as("J15", "violated", "cron:beat:1500 fired 11001 ms after its time, more than 11000 ms")
def a_tick_long_after_its_time(story: Story) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-1", 51.401, 1500)


@judged_as("J15", "valid")
def a_tick_that_was_due_in_a_fault_may_be_late(story: Story) -> None:
    tick(story, "worker-1", 33.0, -18_000)
    tick(story, "worker-1", 33.5, -17_500)


@judged_as("J15", "valid")
def a_tick_is_late_only_once_there_was_a_worker(story: Story) -> None:
    """The first one was there when the run began; the schedule was 14 s older."""
    tick(story, "worker-1", 0.5, -52_500)
    tick(story, "worker-1", 1.0, -52_000)


@judged_as("J1", "violated", "unnamed lease *before its end*")
def leases_that_a_fault_has_ended_may_be_reaped_and_no_others(story: Story) -> None:
    leases = []
    for number, job in enumerate(("named", "unnamed")):
        story.enqueue(job, 40.0)
        leases.append(story.claim("worker-1", job, 40.1))
        story.reap("worker-3", leases[number], 41.0)
        story.run("worker-3", job, 41.1 + number / 10)
    story.stages("3-lease-expired", "worker-1", 40.5, 41.5, 41.6, 41.7, held=leases[:1])


@judged_as("J6", "violated", "cron:beat:1000 was created 2 times*")
def a_tick_that_two_workers_are_told_to_have_fired(story: Story) -> None:
    tick(story, "worker-1", 40.0, 1000)
    story.operation("worker-3", "tick", 40.01, [ticked(1000)])


@judged_as("J17", "valid")
def a_child_that_runs_after_its_parents(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.0, 41.5)
    story.enqueue("child", 40.5, needs=["a", "b"])
    story.run("worker-4", "child", 42.01)


@judged_as("J17", "violated", "child was claimed before a, which it needs, had ended")
def a_child_that_runs_before_one_of_its_parents_has_ended(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.0, 41.5)
    story.enqueue("child", 40.5, needs=["a", "b"])
    story.run("worker-4", "child", 41.6)


def orphan(story: Story, on_parent_failure: str) -> None:
    """A child that runs after its parent was buried."""
    story.end("bury", story.handled("worker-1", "a", 41.0, end="fail"), at=41.1)
    story.at_end["dead"].append(("a", 0))
    story.enqueue("child", 40.5, needs=["a"], on_parent_failure=on_parent_failure)
    story.run("worker-4", "child", 42.01)


@judged_as("J17", "violated", "child was claimed, and a, which it needs, had failed for good")
def a_child_that_runs_though_its_parent_was_buried(story: Story) -> None:
    orphan(story, "bury")


@judged_as("J17", "valid")
def a_child_that_ignores_that_its_parent_was_buried(story: Story) -> None:
    orphan(story, "ignore")


@judged_as("J18", "valid")
def a_routed_job_on_a_worker_that_it_is_for(story: Story) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0, name="report~1a2b")


@judged_as("J18", "violated", "*of class report~1a2b was handed to consumer-1, which it is not for")
def a_routed_job_on_a_worker_that_it_is_not_for(story: Story) -> None:
    story.process("consumer-1", "worker", at=40.0)
    hold(story, "consumer-1", "a", 41.0, 42.0, name="report~1a2b")


@judged_as("J18", "violated", "*was handed to consumer-1, which it is not for*")
def a_job_whose_class_does_not_tell_is_known_by_its_enqueue(story: Story) -> None:
    """On a foreign wire a class is no more than a name."""
    story.process("consumer-1", "worker")
    story.enqueue("a", 40.0, wants='{"capabilities":["heavy"]}')
    story.run("consumer-1", "a", 41.0)


@judged_as("J19", "valid")
def delayed_jobs_that_start_in_time_are_valid(story: Story) -> None:
    delayed_jobs(story, 0.05)


@judged_as("J19", "violated", "the delayed jobs started 824.0 ms after they were due at p99, more than 100 ms")
def delayed_jobs_that_start_late(story: Story) -> None:
    delayed_jobs(story, 2.0)


@judged_as("J19", "violated", "*")
def a_delayed_job_that_never_started_is_late(story: Story) -> None:
    delayed_jobs(story, 0.0)
    story.enqueue("never", 40.0, delay_ms=1_000)


@judged_as("J19", "valid")
def delayed_jobs_that_were_due_in_a_fault_say_nothing_about_lateness(story: Story) -> None:
    delayed_jobs(story, 0.0)
    story.enqueue("in-the-freeze", 26.0, delay_ms=1_000)
    story.run("worker-1", "in-the-freeze", 33.0)


@judged_as("J19", "unknown", "the delayed jobs were 49 outside of faults, fewer than 50")
def too_few_delayed_jobs_show_no_lateness(story: Story) -> None:
    delayed_jobs(story, 0.0, jobs=49)


def foreign_retry(story: Story, claimed_s: float) -> None:
    """A retry with a delay of 500 ms that happened between 40.000 and 40.004 of the server's time; claimed again later."""
    items = [story.leased("worker-1", "again", 39.95, enqueued=39.9).item(result="ok", outcome="retried", delay_ms=500)]
    told: dict[str, Any] = {"srv_from_us": srv_ms(40.0) * 1_000, "srv_us": srv_ms(40.004) * 1_000}
    story.operation("worker-1", "retry", 40.0, items, took=0.005, **told)
    story.claim("worker-3", "again", claimed_s)


@judged_as("J8", "valid")
def a_spec_with_original_clients_may_allow_two_milliseconds(story: Story) -> None:
    story.spec["early_ms"] = 2
    foreign_retry(story, 40.498)


@judged_as("J8", "violated", "*")
def what_it_does_not_allow_is_early(story: Story) -> None:
    story.spec["early_ms"] = 2
    foreign_retry(story, 40.497)


@judged_as("J8", "valid")
def what_happened_in_an_interval_counts_from_its_start(story: Story) -> None:
    foreign_retry(story, 40.501)


@judged_as("J8", "violated", "*")
def a_claim_before_even_the_start_of_the_interval_allows_it_is_early(story: Story) -> None:
    foreign_retry(story, 40.498)


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_judged_by_what_happened_in_it(case: str, story: Story, checked: Checked) -> None:
    tell, check, verdict, why = CASES[case]
    tell(story)
    found, reason = checked(story.write(), check)[check]
    assert found == verdict and fnmatchcase(reason, why), reason


NOTHING = [("J15", "beat ticked 0 times"), ("J17", "every job needed no other"), ("J18", "every worker was asked for nothing")]


@pytest.mark.parametrize(("check", "why"), NOTHING)
def test_a_scenario_of_which_nothing_happened_proves_nothing(story: Story, check: str, why: str, checked: Checked) -> None:
    assert checked(story.write(), check) == {check: ("unknown", why)}


@pytest.mark.parametrize("spec", [{}, {"limits": []}, {"limits": [{"name": "email", "rate": 9, "per_ms": 1000}]}])
def test_a_run_without_them_is_judged_without_their_checks(tmp_path: Path, spec: dict[str, Any], checked: Checked) -> None:
    story = healthy(tmp_path / "run")
    story.spec |= spec
    assert set(checked(story.write(), "J12", "J14", "J15", "J17", "J18", "J2")) == {"J2"}


def test_a_key_is_free_when_its_job_has_ended(story: Story, checked: Checked) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="a")
    life(story, "b", 41.2, 42.0)
    assert checked(story.write(), "J14", "J5") == {"J5": ("valid", ""), "J14": ("valid", "")}


def test_ticks_that_fire_once_each_and_late_ones_together(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-3", 40.02, 1000, result="moved")
    tick(story, "worker-3", 41.5, 1500, 2000, reply="info")
    tick(story, "worker-4", 42.0, 2500)
    assert checked(story.write(), "J15", "J5", "J16", "J4") == dict.fromkeys(("J15", "J5", "J16", "J4"), ("valid", ""))


def test_a_spec_that_demands_no_lateness_is_judged_without_it(story: Story, checked: Checked) -> None:
    assert checked(story.write(), "J19") == {}


def test_a_run_that_keeps_every_promise_of_its_scenario_is_valid(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "first", 41.0, 42.0)
    hold(story, "worker-3", "second", 41.5, 43.0)
    hold(story, "worker-1", "third", 42.1, 42.4)
    life(story, "holder", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="holder")
    life(story, "next-holder", 41.2, 42.0)
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-3", 40.02, 1000, result="moved")
    tick(story, "worker-4", 41.5, 1500)
    hold(story, "worker-4", "parent", 40.6, 40.9, name="resize")
    story.enqueue("child", 40.5, needs=["parent"])
    story.run("worker-4", "child", 40.95)
    hold(story, "worker-1", "routed", 41.0, 41.4, name="report~1a2b")
    delayed_jobs(story, 0.05)
    assert checked(story.write(), *CHECKS) == dict.fromkeys(CHECKS, ("valid", ""))
