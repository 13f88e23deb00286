"""J13 and the eras of J6 on whole runs: workers that stop claiming, queues not drained, runs that ended too soon to tell."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.reports.conftest import Checked, violations_of
from tests.reports.good_run import cast, freeze, kill, struck
from tests.reports.story import END_S, Story, srv_ms

pytestmark = pytest.mark.slow


def load(story: Story, every_s: float, workers: dict[str, tuple[float, float]]) -> None:
    """Jobs from 37 to 43 s, that often for each worker while it claims: in its span of time."""
    for worker, (from_s, until_s) in workers.items():
        for index in range(int(6 / every_s)):
            at = 37 + index * every_s
            if from_s <= at < until_s:
                story.life(worker, f"load-{worker}-{index}", at)


def test_a_kill_whose_jobs_never_ran_again_and_a_worker_that_rests(tmp_path: Path, checked: Checked, spark: SparkSession) -> None:
    """The kill proves nothing. Rule 33: a worker that never blocks again, while there is waiting work of its class."""
    story = struck(tmp_path / "run", again=False)
    load(story, 0.15, {"worker-1": (37.0, 43.0), "worker-3": (37.0, 43.0), "worker-4": (37.0, 37.1)})
    run = story.write()
    assert checked(run, "H2", "J13")["H2"] == ("unknown", "1-worker-kill proves nothing: no job in hand ran elsewhere")
    details = {row["subject"]: row["detail"] for row in violations_of(run, spark) if row["check"] == "J13"}
    assert details["worker-4"] == "claimed none of the last 44 claims under load"
    assert details["k1"] == "in hand of worker-2 at 1-worker-kill, never ran elsewhere"


CLAIMS = {
    "one claim and no more": (0.15, (37.0, 37.1), "worker-4 claimed none of the last 44 claims under load"),
    **{"too little work to tell": (0.5, (37.0, 37.1), ""), "slow to come back": (0.15, (42.0, 43.0), "")},
}


@pytest.mark.parametrize("told", CLAIMS)
def test_a_worker_that_claims_once_and_no_more(tmp_path: Path, checked: Checked, told: str) -> None:
    """Rule 33: a worker that never blocks again, while there is waiting work of its class."""
    story = struck(tmp_path / "run")
    every_s, span, words = CLAIMS[told]
    load(story, every_s, {"worker-1": (37.0, 43.0), "worker-3": (37.0, 43.0), "worker-4": span})
    assert checked(story.write(), "J13")["J13"] == ("violated" if words else "valid", words)


def test_a_queue_that_is_looked_at_before_its_time_is_not_known_to_be_stuck(story: Story, checked: Checked) -> None:
    """At `END_S`, twice the deadline after the last heal, the same is a violation: see the cases."""
    story.enqueue("young", 37)
    story.snapshot("end", END_S - 1, {"waiting": [("young", 0)]})
    verdict, why = checked(story.write(snapshots=("deadline",)), "J13")["J13"]
    assert (verdict, why) == ("unknown", "young is still waiting at the end, 29500 ms after the last heal")


def never_again(story: Story) -> None:
    """A second job in hand of worker-2 at the kill, that never runs again."""
    story.leased("worker-2", "gone", 9.5, enqueued=9)


def no_claims(story: Story) -> None:
    """worker-4 never claims after the last heal."""
    load(story, 0.15, {"worker-1": (37.0, 43.0), "worker-3": (37.0, 43.0)})


NEVER = [
    (never_again, 20.9, "gone in hand of worker-2 at 1-worker-kill, never ran elsewhere"),
    (no_claims, 43.5, "worker-4 claimed none of the 80 claims after the last heal"),
]


@pytest.mark.parametrize(("tell", "early_s", "words"), NEVER, ids=["in hand", "silent worker"])
def test_what_never_happened_takes_long_to_know(tmp_path: Path, checked: Checked, tell: Any, early_s: float, words: str) -> None:
    """Without a deadline snapshot it takes workers that lived past the bound; a run that was interrupted proves nothing.

    When it goes on it is a violation: see the cases, and `test_a_worker_that_never_claims_again`.
    """
    story = Story(tmp_path / "run")
    cast(story)
    kill(story)
    if tell is no_claims:
        freeze(story)
    tell(story)
    verdict, why = checked(story.write(snapshots=(), closed=early_s), "J13")["J13"]
    assert verdict == "unknown" and words in why


def fail_over(story: Story, at: float) -> None:
    """worker-1 and worker-3 talk to a new era of the server from then on, as planned."""
    story.spec["plan"] = [*story.spec["plan"], {"fault": "3-failover", "name": "failover", "target": "servers"}]
    story.stages("3-failover", "servers", at, at, at, at)
    for worker in ("worker-1", "worker-3"):
        story.row(worker, "connection", at, server_run_id="r2", replid="era-2", server_role="master")


def test_what_a_failover_lost_counts_in_no_later_era(story: Story, checked: Checked) -> None:
    """Rules 8 and 32: a finish that was lost may be done twice, and a claim that was lost replaces and excludes nobody."""
    story.spec["loss"] = [{"fault": "failover", "before_ms": 2_000, "until": "inject", "after_ms": 0, "text": "not replicated"}]
    for job in ("replaced", "held", "finished"):
        story.enqueue(job, 38)
    kept = story.claim("worker-3", "replaced", 38.1)
    story.claim("worker-1", "replaced", 47.2)
    story.claim("worker-1", "held", 46.1)
    story.run("worker-1", "finished", 47.0)
    fail_over(story, 48)
    story.run("worker-1", "finished", 49)
    story.finish(kept, 49.2, effect=49.1)
    story.run("worker-3", "held", 49.3)
    assert checked(story.write(), "J1", "J2", "J3", "J6") == dict.fromkeys(("J1", "J2", "J3", "J6"), ("valid", ""))


def test_what_an_era_saw_counts_in_it(story: Story, checked: Checked) -> None:
    """The same within the later era."""
    fail_over(story, 48)
    first = story.leased("worker-3", "twice", 48.6, enqueued=48.5)
    story.run("worker-1", "twice", 49)
    story.finish(first, 49.3, effect=49.2)
    found = checked(story.write(), "J1", "J2", "J3", "J6")
    assert [found[check][0] for check in ("J1", "J2", "J3", "J6")] == ["violated", "valid", "violated", "violated"]


def test_two_finishes_in_one_era_are_one_too_many(story: Story, checked: Checked) -> None:
    story.run("worker-1", "quiet-1", 49.5)
    story.at_end["done"].append(("quiet-1", srv_ms(49.6)))
    verdict, why = checked(story.write(), "J6")["J6"]
    assert verdict == "violated" and why.startswith("quiet-1 was finished 2 times: by ")
