"""J25, and what other checks let pass in the drill of a service, on hand-written histories: effects that the service counts,
processes that end by themselves, handlers that hang, and jobs that nobody who is recorded has sent."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from chaos.service.spec import AT_LEAST_ONCE
from reports.corrupt import features, kinds
from reports.corrupt.history import History
from tests.reports.conftest import Checked, RowsOf
from tests.reports.good_run import cast, healthy
from tests.reports.story import DEADLINE_S, END_S, HEALED_S, Story, Token, ns, srv_ms

pytestmark = pytest.mark.slow

WORKERS = ("worker-1", "worker-2", "worker-3")


def work(story: Story, worker: str, job: str, at: float, *, sent: bool = True, name: str = "email") -> Token:
    """A job that is claimed, handled and finished, all well, by handlers that write to no sink."""
    if sent:
        more: Any = {"class": name}
        story.enqueue(job, at - 0.01, **more)
    token = story.claim(worker, job, at, told={"class": name})
    story.start(token, at + 0.002, took=0.05)
    story.end("finish", token, at=at + 0.06)
    return token


def counted(story: Story, times: dict[str, int]) -> None:
    """What the service says of its effects."""
    story.row("harness", "effects", END_S, items=[{"job": job, "times": count} for job, count in times.items()])


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A service of three workers, of which one was frozen, and two names of jobs."""
    made = Story(tmp_path / "run")
    cast(made, sink=False)
    made.spec |= {"scenario": "service", "effects": True, "findings": [AT_LEAST_ONCE], "leases_ms": [9_000, 12_000], "plan": []}
    made.spec |= {"ended": []}
    for number in range(12):
        work(made, WORKERS[number % 3], f"job-{number}", 37.0 + number / 4)
    return made


def all_once(**others: int) -> dict[str, int]:
    return {f"job-{number}": 1 for number in range(12)} | {name.replace("_", "-"): times for name, times in others.items()}


def test_each_job_that_was_finished_took_effect_once(story: Story, checked: Checked) -> None:
    counted(story, all_once(of_an_older_run=2))
    assert checked(story.write(), "J25", "J6") == {"J25": ("valid", ""), "J6": ("valid", "")}


@pytest.mark.parametrize(("job", "times", "kind"), [("job-3", 0, "no effect"), ("job-5", 2, "effect unrun")])
def test_less_and_more_effects_than_runs_are_violated(story: Story, rows_of: RowsOf, job: str, times: int, kind: str) -> None:
    """More also where more than one is declared."""
    counted(story, all_once(**{job.replace("-", "_"): times}))
    assert rows_of(story.write(), "J25") == {job: {("J25", kind, "violated")}}


WRONG = [features.finished_without_its_effect, features.effects_of_a_name_all_lost, features.more_effects_than_runs]


@pytest.mark.parametrize("wrong", WRONG)
def test_each_corruption_of_effects_is_seen(wrong: kinds.Edit, tmp_path: Path, rows_of: RowsOf) -> None:
    made = healthy(tmp_path / "run")
    for number in range(4):
        more: Any = {"class": "view"}
        made.enqueue(f"view-{number}", 43.0 + number / 2, **more)
        token = made.claim("worker-1", f"view-{number}", 43.1 + number / 2, told=more | {"claims": 1})
        made.finish(token, 43.2 + number / 2, start=43.11 + number / 2, took=0.05, effect=43.13 + number / 2)
    history = History(made.write(), random.Random(1))
    subject = wrong(history)
    assert subject is not None
    history.write(tmp_path / "wrong")
    found = rows_of(tmp_path / "wrong", "J25")
    assert ("J25", "effect unrun" if wrong is features.more_effects_than_runs else "no effect", "violated") in found[subject]
    assert len(found) == (4 if wrong is features.effects_of_a_name_all_lost else 1)


def test_in_a_run_from_before_names_were_declared_a_name_without_effects_needs_none(story: Story, checked: Checked) -> None:
    work(story, "worker-1", "view", 41.0, name="view")
    counted(story, all_once())
    assert checked(story.write(), "J25") == {"J25": ("valid", "")}


def test_a_name_whose_every_job_loses_its_effect_is_violated_unless_declared_to_have_none(story: Story, rows_of: RowsOf) -> None:
    story.spec["without_effects"] = []
    for job, name in (("view", "view"), ("view-near", "view@near"), ("look", "look")):
        work(story, "worker-1", job, 41.0, name=name)
    counted(story, all_once())
    run, lost = story.write(), {("J25", "no effect", "violated")}
    assert rows_of(run, "J25") == {"view": lost, "view-near": lost, "look": lost}
    (run / "spec.json").write_text(json.dumps(story.spec | {"without_effects": ["view", "other"]}))
    assert rows_of(run, "J25") == {"look": lost}


def test_a_second_effect_is_the_cost_of_a_second_run_and_violated_where_once_is_promised(story: Story, checked: Checked) -> None:
    lost = story.claim("worker-2", "again", 41.0, told={"class": "email"})
    story.enqueue("again", 40.9)
    story.start(lost, 41.01)
    story.reap("worker-1", lost, 51.0)
    work(story, "worker-1", "again", 51.1, sent=False)
    counted(story, all_once(again=2))
    run = story.write()
    assert checked(run, "J25") == {"J25": ("valid", "")}
    story.spec["findings"] = []
    (run / "spec.json").write_text(json.dumps(story.spec))
    verdict, why = checked(run, "J25")["J25"]
    assert verdict == "violated" and "again took effect 2 times, once in each of its 2 runs at most" in why


def test_effects_of_which_none_is_of_this_run_prove_nothing(story: Story, checked: Checked) -> None:
    counted(story, {"of-an-older-run": 1})
    verdict, why = checked(story.write(), "J25")["J25"]
    assert verdict == "unknown" and "no job of this run took effect" in why
    (story.folder / "spec.json").write_text(json.dumps(story.spec | {"without_effects": []}))
    assert checked(story.folder, "J25")["J25"] == (verdict, why)


def test_a_run_whose_service_counts_no_effects_is_judged_without(story: Story, checked: Checked) -> None:
    story.spec["effects"] = False
    assert checked(story.write(), "J25") == {}


@pytest.mark.parametrize(("lanes", "verdict"), [(30, "valid"), (5, "violated")])
def test_a_lane_waits_for_one_visit_to_each_of_the_others(story: Story, checked: Checked, lanes: int, verdict: str) -> None:
    story.enqueue("waits", 40.0)
    others = [f"other-{number}" for number in range(150)]
    for number, job in enumerate(others):
        story.enqueue(job, 40.01 + number / 1_000)
    for number, job in enumerate([*others, "waits"]):
        lane = "email/own" if job == "waits" else f"email/{number % lanes}"
        told = {"class": "email", "lane": lane, "priority": 5, "claims": 1}
        token = story.claim(WORKERS[number % 3], job, 40.2 + number / 100, told=told)
        story.start(token, 40.205 + number / 100, took=0.002)
        story.end("finish", token, at=40.208 + number / 100)
    counted(story, all_once())
    assert checked(story.write(), "J10")["J10"][0] == verdict


def test_a_process_that_ended_by_itself_need_not_close_its_history(story: Story, checked: Checked) -> None:
    counted(story, all_once())
    story.left_open.add("worker-3")
    ended = {"name": "worker-3", "how": "worker-3: killed by SIGSEGV", "t_ns": ns(END_S)}
    run_without = checked(story.write(), "H0")["H0"]
    assert run_without[0] == "unknown" and "worker-3.jsonl has no close row" in run_without[1]
    (story.folder / "spec.json").write_text(json.dumps(story.spec | {"ended": [ended]}))
    assert "worker-3" not in checked(story.folder, "H0")["H0"][1]


def test_a_job_whose_handler_still_runs_is_not_stuck_but_one_whose_worker_is_gone_is(story: Story, rows_of: RowsOf) -> None:
    for job, worker in (("hangs", "worker-1"), ("dead", "worker-3")):
        story.enqueue(job, HEALED_S - 2)
        story.start(story.claim(worker, job, HEALED_S - 1, told={"class": "email"}), HEALED_S - 0.9)
        story.left("active", job, srv_ms(DEADLINE_S + 5))
    ended = {"worker-3": DEADLINE_S - 1, "worker-1": END_S + 15}
    story.spec["ended"] = [{"name": name, "how": "killed", "t_ns": ns(at)} for name, at in ended.items()]
    counted(story, all_once())
    found = rows_of(story.write(), "J13")
    assert "dead" in found and "hangs" not in found


def test_a_job_that_waits_while_handlers_have_all_places_is_unknown_and_none_of_the_engine(story: Story, rows_of: RowsOf) -> None:
    story.enqueue("waits", HEALED_S - 5)
    story.left("waiting", "waits", srv_ms(HEALED_S - 5))
    counted(story, all_once())
    run = story.write()
    assert {one[1:] for one in rows_of(run, "J13")["waits"]} == {("stuck waiting", "violated"), ("left over", "violated")}
    full = {"deadline": "handlers had all 3 places of the workers", "give-up": "the limit of name email was full"}
    (run / "spec.json").write_text(json.dumps(story.spec | {"full": full}))
    assert {one[1:] for one in rows_of(run, "J13")["waits"]} == {("stuck waiting", "full"), ("left over", "full")}


@pytest.mark.parametrize("names", ["email@near", "mail"])
def test_a_worker_of_other_jobs_or_without_a_place_at_the_deadline_is_not_silent(
    story: Story, rows_of: RowsOf, names: str
) -> None:
    story.row("worker-3", "configuration", 1.0, config=json.dumps({"classes": [names]}))
    for number in range(60):
        work(story, WORKERS[number % 2], f"late-{number}", 40.0 + number / 10)
    counted(story, all_once() | {f"late-{number}": 1 for number in range(60)})
    run = story.write()
    assert rows_of(run, "J13") == ({} if names == "mail" else {"worker-3": {("J13", "silent worker", "violated")}})
    (run / "spec.json").write_text(json.dumps(story.spec | {"busy": ["worker-3"]}))
    assert rows_of(run, "J13") == {}


def test_a_job_that_nobody_who_is_recorded_has_sent_makes_the_run_unknown(story: Story, rows_of: RowsOf) -> None:
    work(story, "worker-1", "of-a-child", 41.0, sent=False)
    counted(story, all_once(of_a_child=1))
    assert rows_of(story.write(), "J5") == {"of-a-child": {("J5", "from nowhere", "unknown")}}


def test_each_kind_of_worker_may_have_a_lease_of_its_own(story: Story, checked: Checked) -> None:
    story.enqueue("long", 41.0)
    token = story.claim("worker-1", "long", 41.1, lease_ms=12_000, told={"class": "email"})
    story.start(token, 41.2, took=0.05)
    story.end("finish", token, at=41.3)
    counted(story, all_once(long=1))
    assert "lease" not in checked(story.write(), "H0")["H0"][1]
