"""J12, J14, J15 and J17 on hand-written histories: what only some scenarios use, kept and broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reports.cases.broken import CHECKS, delayed_jobs, hold, life, tick, ticked
from tests.reports.conftest import Checked
from tests.reports.good_run import healthy
from tests.reports.story import Story, srv_ms

LIMITS = [{"name": "email", "concurrency": 2}, {"key": "*", "concurrency": 1}]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    made = healthy(tmp_path / "run")
    made.spec |= {
        "limits": LIMITS,
        "unique_keys": True,
        "schedules": [{"name": "beat", "every_ms": 500}],
        "dependencies": True,
        "routing": True,
    }
    return made


@pytest.mark.slow
def test_a_limit_that_is_reached_and_not_exceeded_is_valid(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.5, 43.0)
    hold(story, "worker-1", "c", 42.1, 42.4)
    hold(story, "worker-4", "other-name", 41.6, 41.8, name="report")
    assert checked(story.write(), "J12") == {"J12": ("valid", "")}


@pytest.mark.slow
def test_more_jobs_of_a_name_at_once_than_its_limit_allows(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.5, 43.0)
    hold(story, "worker-4", "c", 41.9, 42.4)
    verdict, why = checked(story.write(), "J12")["J12"]
    assert (verdict, why) == ("violated", "email had 3 jobs in hand at once, and allows 2")


@pytest.mark.slow
def test_a_limit_of_each_key_counts_over_all_names(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0, name="report", key="acme")
    hold(story, "worker-3", "b", 41.5, 43.0, name="resize", key="other")
    assert checked(story.write(), "J12")["J12"][0] == "valid"


@pytest.mark.slow
def test_two_jobs_of_one_key_at_once(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0, name="report", key="acme")
    hold(story, "worker-3", "b", 41.5, 43.0, name="resize", key="acme")
    assert checked(story.write(), "J12")["J12"] == ("violated", "acme had 2 jobs in hand at once, and allows 1")


@pytest.mark.slow
def test_a_killed_workers_job_counts_until_its_lease_is_over_and_no_longer(story: Story, checked: Checked) -> None:
    story.enqueue("a", 40.0)
    story.claim("worker-4", "a", 41.0, told={"class": "report", "lane": "report/acme"})
    hold(story, "worker-1", "b", 50.1, 50.3, name="report", key="acme")
    assert checked(story.write(), "J12")["J12"][0] == "valid"


@pytest.mark.slow
def test_a_limit_that_was_never_reached_proves_nothing(story: Story, checked: Checked) -> None:
    story.spec["limits"] = [{"name": "email", "concurrency": 50}]
    hold(story, "worker-1", "a", 41.0, 42.0)
    assert checked(story.write(), "J12")["J12"] == ("unknown", "every limit had room all the time")


@pytest.mark.slow
@pytest.mark.parametrize("spec", [{}, {"limits": []}, {"limits": [{"name": "email", "rate": 9, "per_ms": 1000}]}])
def test_a_run_without_them_is_judged_without_their_checks(tmp_path: Path, spec: dict[str, Any], checked: Checked) -> None:
    story = healthy(tmp_path / "run")
    story.spec |= spec
    assert set(checked(story.write(), "J12", "J14", "J15", "J17", "J18", "J2")) == {"J2"}


@pytest.mark.slow
def test_a_key_is_free_when_its_job_has_ended(story: Story, checked: Checked) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="a")
    life(story, "b", 41.2, 42.0)
    assert checked(story.write(), "J14", "J5") == {"J5": ("valid", ""), "J14": ("valid", "")}


@pytest.mark.slow
def test_a_second_job_with_the_key_of_one_that_runs(story: Story, checked: Checked) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="a")
    life(story, "b", 40.7, 42.0)
    assert checked(story.write(), "J14")["J14"] == ("violated", "b was created while a had the unique key k")


@pytest.mark.slow
def test_a_retry_keeps_the_key_and_its_last_one_frees_it(story: Story, checked: Checked) -> None:
    for job, outcome in (("a", "retried"), ("b", "buried")):
        story.enqueue(job, 40.0, unique=f"k-{job}")
        story.end("retry", story.claim("worker-1", job, 40.2), at=40.3, outcome=outcome, delay_ms=100)
        story.enqueue(f"{job}-2", 40.6, unique=f"k-{job}")
    story.enqueue("away", 40.5, unique="k-a", result="duplicate", holder="a")
    assert checked(story.write(), "J14")["J14"] == ("violated", "a-2 was created while a had the unique key k-a")


@pytest.mark.slow
def test_a_key_that_outlives_its_holder(story: Story, checked: Checked) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 42.061, unique="k-a", result="duplicate", holder="a")
    verdict, why = checked(story.write(), "J14")["J14"]
    assert verdict == "violated" and why.startswith("away was a duplicate of a, which had ended ")


@pytest.mark.slow
def test_a_window_may_outlive_the_job_that_opened_it(story: Story, checked: Checked) -> None:
    life(story, "a", 40.0, 41.0)
    story.enqueue("away", 40.5, unique="k-a", result="duplicate", holder="a")
    story.enqueue("later", 42.0, unique="k-a", dedup="d", result="duplicate", holder="a")
    assert checked(story.write(), "J14")["J14"] == ("valid", "")


@pytest.mark.slow
def test_keys_that_kept_nobody_out_prove_nothing(story: Story, checked: Checked) -> None:
    life(story, "a", 40.0, 41.0)
    assert checked(story.write(), "J14")["J14"] == ("unknown", "every unique key kept nobody out")


@pytest.mark.slow
def test_a_job_that_a_holder_kept_out_is_no_duplicate_of_nothing(story: Story, checked: Checked) -> None:
    story.enqueue("away", 40.5, unique="k", result="duplicate", holder="quiet-1")
    story.enqueue("ghost", 40.6, result="duplicate")
    assert checked(story.write(), "J5")["J5"] == ("violated", "ghost was refused as a duplicate before it was enqueued")


@pytest.mark.slow
def test_ticks_that_fire_once_each_and_late_ones_together(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-3", 40.02, 1000, result="moved")
    tick(story, "worker-3", 41.5, 1500, 2000, reply="info")
    tick(story, "worker-4", 42.0, 2500)
    assert checked(story.write(), "J15", "J5", "J16", "J4") == dict.fromkeys(("J15", "J5", "J16", "J4"), ("valid", ""))


@pytest.mark.slow
def test_a_tick_that_made_no_job(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-1", 41.0, 2000)
    told = "cron:beat:2000 came 1000 ms after the tick before it, its schedule ticks every 500 ms"
    assert checked(story.write(), "J15")["J15"] == ("violated", told)


@pytest.mark.slow
def test_a_tick_before_its_time(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-1", 40.399, 1500)
    assert checked(story.write(), "J15")["J15"] == ("violated", "cron:beat:1500 fired 1 ms before its time")


@pytest.mark.slow
def test_a_tick_long_after_its_time(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 40.0, 1000)
    tick(story, "worker-1", 51.401, 1500)
    told = "cron:beat:1500 fired 11001 ms after its time, more than 11000 ms"
    assert checked(story.write(), "J15")["J15"] == ("violated", told)


@pytest.mark.slow
def test_a_tick_that_was_due_in_a_fault_may_be_late(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 33.0, -18_000)
    tick(story, "worker-1", 33.5, -17_500)
    assert checked(story.write(), "J15")["J15"] == ("valid", "")


@pytest.mark.slow
def test_a_tick_is_late_only_once_there_was_a_worker(story: Story, checked: Checked) -> None:
    """The first one was there when the run began; the schedule was 14 s older."""
    tick(story, "worker-1", 0.5, -52_500)
    tick(story, "worker-1", 1.0, -52_000)
    assert checked(story.write(), "J15")["J15"] == ("valid", "")


@pytest.mark.slow
def test_leases_that_a_fault_has_ended_may_be_reaped_and_no_others(story: Story, checked: Checked) -> None:
    leases = []
    for number, job in enumerate(("named", "unnamed")):
        story.enqueue(job, 40.0)
        leases.append(story.claim("worker-1", job, 40.1))
        story.reap("worker-3", leases[number], 41.0)
        story.run("worker-3", job, 41.1 + number / 10)
    for stage, at in (("inject", 40.5), ("witness", 41.5), ("heal", 41.6), ("healed", 41.7)):
        story.fault("3-lease-expired", "worker-1", stage, at, held=leases[:1] if stage == "witness" else ())
    verdict, why = checked(story.write(), "J1")["J1"]
    assert verdict == "violated" and why.startswith("unnamed lease ") and "before its end" in why


@pytest.mark.slow
def test_a_schedule_that_never_ticks_proves_nothing(story: Story, checked: Checked) -> None:
    assert checked(story.write(), "J15")["J15"] == ("unknown", "beat ticked 0 times")


@pytest.mark.slow
def test_a_tick_that_two_workers_are_told_to_have_fired(story: Story, checked: Checked) -> None:
    tick(story, "worker-1", 40.0, 1000)
    story.operation("worker-3", "tick", 40.01, [ticked(1000)])
    verdict, why = checked(story.write(), "J6")["J6"]
    assert verdict == "violated" and why.startswith("cron:beat:1000 was created 2 times")


@pytest.mark.slow
def test_a_child_that_runs_after_its_parents(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.0, 41.5)
    story.enqueue("child", 40.5, needs=["a", "b"])
    story.run("worker-4", "child", 42.01)
    assert checked(story.write(), "J17")["J17"] == ("valid", "")


@pytest.mark.slow
def test_a_child_that_runs_before_one_of_its_parents_has_ended(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0)
    hold(story, "worker-3", "b", 41.0, 41.5)
    story.enqueue("child", 40.5, needs=["a", "b"])
    story.run("worker-4", "child", 41.6)
    assert checked(story.write(), "J17")["J17"] == ("violated", "child was claimed before a, which it needs, had ended")


def orphan(story: Story, on_parent_failure: str) -> None:
    """A child that runs after its parent was buried."""
    story.enqueue("a", 40.0)
    token = story.claim("worker-1", "a", 41.0)
    story.start(token, 41.01, took=0.05, end="fail")
    story.end("bury", token, at=41.1)
    story.at_end["dead"].append(("a", 0))
    story.enqueue("child", 40.5, needs=["a"], on_parent_failure=on_parent_failure)
    story.run("worker-4", "child", 42.01)


@pytest.mark.slow
def test_a_child_that_runs_though_its_parent_was_buried(story: Story, checked: Checked) -> None:
    orphan(story, "bury")
    told = "child was claimed, and a, which it needs, had failed for good"
    assert checked(story.write(), "J17")["J17"] == ("violated", told)


@pytest.mark.slow
def test_a_child_that_ignores_that_its_parent_was_buried(story: Story, checked: Checked) -> None:
    orphan(story, "ignore")
    assert checked(story.write(), "J17")["J17"] == ("valid", "")


@pytest.mark.slow
def test_jobs_that_need_nobody_prove_nothing(story: Story, checked: Checked) -> None:
    assert checked(story.write(), "J17")["J17"] == ("unknown", "every job needed no other")


@pytest.mark.slow
def test_a_routed_job_on_a_worker_that_it_is_for(story: Story, checked: Checked) -> None:
    hold(story, "worker-1", "a", 41.0, 42.0, name="report~1a2b")
    assert checked(story.write(), "J18")["J18"] == ("valid", "")


@pytest.mark.slow
def test_a_routed_job_on_a_worker_that_it_is_not_for(story: Story, checked: Checked) -> None:
    story.process("consumer-1", "worker", at=40.0)
    hold(story, "consumer-1", "a", 41.0, 42.0, name="report~1a2b")
    verdict, why = checked(story.write(), "J18")["J18"]
    assert verdict == "violated" and why.endswith("of class report~1a2b was handed to consumer-1, which it is not for")


@pytest.mark.slow
def test_a_job_whose_class_does_not_tell_is_known_by_its_enqueue(story: Story, checked: Checked) -> None:
    """On a foreign wire a class is no more than a name."""
    story.process("consumer-1", "worker")
    story.enqueue("a", 40.0, wants='{"capabilities":["heavy"]}')
    story.run("consumer-1", "a", 41.0)
    verdict, why = checked(story.write(), "J18")["J18"]
    assert verdict == "violated" and "was handed to consumer-1, which it is not for" in why


@pytest.mark.slow
def test_a_run_without_routed_jobs_proves_nothing(story: Story, checked: Checked) -> None:
    assert checked(story.write(), "J18")["J18"] == ("unknown", "every worker was asked for nothing")


@pytest.mark.slow
def test_delayed_jobs_that_start_in_time_are_valid(story: Story, checked: Checked) -> None:
    delayed_jobs(story, 0.05)
    assert checked(story.write(), "J19") == {"J19": ("valid", "")}


@pytest.mark.slow
def test_delayed_jobs_that_start_late(story: Story, checked: Checked) -> None:
    delayed_jobs(story, 2.0)
    verdict, why = checked(story.write(), "J19")["J19"]
    assert (verdict, why) == ("violated", "the delayed jobs started 824.0 ms after they were due at p99, more than 100 ms")


@pytest.mark.slow
def test_a_delayed_job_that_never_started_is_late(story: Story, checked: Checked) -> None:
    delayed_jobs(story, 0.0)
    story.enqueue("never", 40.0, delay_ms=1_000)
    assert checked(story.write(), "J19")["J19"][0] == "violated"


@pytest.mark.slow
def test_delayed_jobs_that_were_due_in_a_fault_say_nothing_about_lateness(story: Story, checked: Checked) -> None:
    delayed_jobs(story, 0.0)
    story.enqueue("in-the-freeze", 26.0, delay_ms=1_000)
    story.run("worker-1", "in-the-freeze", 33.0)
    assert checked(story.write(), "J19") == {"J19": ("valid", "")}


@pytest.mark.slow
def test_too_few_delayed_jobs_show_no_lateness(story: Story, checked: Checked) -> None:
    delayed_jobs(story, 0.0, jobs=49)
    verdict, why = checked(story.write(), "J19")["J19"]
    assert (verdict, why) == ("unknown", "the delayed jobs were 49 outside of faults, fewer than 50")


@pytest.mark.slow
def test_a_spec_that_demands_no_lateness_is_judged_without_it(story: Story, checked: Checked) -> None:
    assert checked(story.write(), "J19") == {}


def foreign_retry(story: Story, claimed_s: float) -> None:
    """A retry with a delay of 500 ms that happened between 40.000 and 40.004 of the server's time; claimed again later."""
    story.enqueue("again", 39.9)
    first = story.claim("worker-1", "again", 39.95)
    items = [first.item(result="ok", outcome="retried", delay_ms=500)]
    told: dict[str, Any] = {"srv_from_us": srv_ms(40.0) * 1_000, "srv_us": srv_ms(40.004) * 1_000}
    story.operation("worker-1", "retry", 40.0, items, took=0.005, **told)
    story.claim("worker-3", "again", claimed_s)


@pytest.mark.slow
def test_a_spec_with_original_clients_may_allow_two_milliseconds(story: Story, checked: Checked) -> None:
    story.spec["early_ms"] = 2
    foreign_retry(story, 40.498)
    assert checked(story.write(), "J8") == {"J8": ("valid", "")}


@pytest.mark.slow
def test_what_it_does_not_allow_is_early(story: Story, checked: Checked) -> None:
    story.spec["early_ms"] = 2
    foreign_retry(story, 40.497)
    assert checked(story.write(), "J8")["J8"][0] == "violated"


@pytest.mark.slow
def test_what_happened_in_an_interval_counts_from_its_start(story: Story, checked: Checked) -> None:
    foreign_retry(story, 40.501)
    assert checked(story.write(), "J8") == {"J8": ("valid", "")}


@pytest.mark.slow
def test_a_claim_before_even_the_start_of_the_interval_allows_it_is_early(story: Story, checked: Checked) -> None:
    foreign_retry(story, 40.498)
    assert checked(story.write(), "J8")["J8"][0] == "violated"


@pytest.mark.slow
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
