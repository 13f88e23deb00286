"""Declared loss: what the servers lost inside its windows is counted, and every other loss of an acknowledged write violates."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.facts import Run, Stage
from reports.meaning import NEVER_NS
from reports.windows import ahead_ns, findings, loss_windows, windows
from tests.reports.conftest import Checked, Judge, RowsOf
from tests.reports.good_run import cast, freeze, kill, traffic
from tests.reports.story import END_S, PLAN, Story, ns, srv_ms
from tests.reports.test_clock_jumps import missed_ticks

KILL = {"fault": "0-primary-kill", "name": "primary-kill", "target": "servers"}

#: From 4 s to 5.25 s of the story.
LOSS = {"fault": "primary-kill", "before_ms": 1_000, "until": "inject", "after_ms": 250, "text": "what no replica had"}

PROCESSES = ("producer-1", "worker-1", "worker-2", "worker-3")


class Failover(Story):
    """A story whose primary is killed at 5 s and replaced at 7 s; `before` and `after` are what happens then."""

    def __init__(self, folder: Path, loss: list[dict[str, Any]]) -> None:
        super().__init__(folder)
        self.spec |= {"plan": [KILL, *PLAN], "loss": loss, "topology": "sentinel"}
        cast(self)
        self.phases(lead_in=0.0, primary_kill=5.0, recover_primary_kill=8.0, kill=10.0, recover_kill=20.0, freeze=25.0)
        self.phases(recover_freeze=36.0, settle=38.0, drain=45.0, end=END_S)
        for number in (1, 2, 3):
            self.life(f"worker-{number}", f"quiet-{number}", 0.1 + number / 10)

    def replaced(self, *, strays: int = 0) -> None:
        """Everybody connects to the new primary."""
        self.stages("0-primary-kill", "servers", 5.0, 7.0, 8.0, 9.0, detail="{} seen")
        stray = f"{strays} scripts of clients ran at server-0"
        self.fault("0-primary-kill", "servers", "stray", 9.1, result="missing" if strays else "ok", detail=stray)
        for process in PROCESSES:
            self.row(process, "connection", 7.1, server_run_id="r2", replid="era-2", server_role="master")

    def rest(self) -> Path:
        """The other faults, calm load, and the end."""
        kill(self)
        freeze(self)
        self.row("worker-4", "connection", 20.0, server_run_id="r2", replid="era-2", server_role="master")
        traffic(self)
        return self.write()


def run_at(story: Failover, job: str, enqueued: float, at: float, **told: Any) -> None:
    story.enqueue(job, enqueued)
    story.run("worker-1", job, at, told=told)


@pytest.mark.slow
def test_a_loss_inside_of_its_window_is_declared_and_counted(tmp_path: Path, judged: Judge) -> None:
    story = Failover(tmp_path / "run", [LOSS])
    story.enqueue("gone", 4.5)
    run_at(story, "finished-twice", 4.1, 4.6)
    story.leased("worker-3", "claimed-anew", 4.7, enqueued=4.2, told={"claims": 1})
    story.replaced()
    story.run("worker-1", "finished-twice", 8.5)
    story.run("worker-1", "claimed-anew", 8.7, told={"claims": 1})
    decided = judged(story.rest())
    assert (decided["verdict"], decided["reasons"]) == ("valid", [])
    (finding,) = decided["findings"]
    assert (finding["name"], finding["text"]) == ("loss by primary-kill", "what no replica had")
    assert "J4 gone was enqueued, has not finished, and is in no state at the end" in finding["examples"]
    subjects = {example.split()[1] for example in finding["examples"]}
    assert subjects == {"gone", "finished-twice", "claimed-anew"} and finding["rows"] >= 3
    assert decided["measures"]["lost"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("loss", [[LOSS], pytest.param([], marks=pytest.mark.slow)])
def test_a_loss_outside_of_every_window_is_a_violation(loss: list[dict[str, Any]], tmp_path: Path, checked: Checked) -> None:
    """The same losses a second before the window, and with it where nothing is declared."""
    early = 1.5 if loss else 0.0
    story = Failover(tmp_path / "run", loss)
    story.enqueue("gone", 4.5 - early)
    run_at(story, "finished-twice", 4.1 - early, 4.6 - early)
    story.leased("worker-3", "claimed-anew", 4.7 - early, enqueued=4.2 - early, told={"claims": 1})
    story.replaced()
    story.run("worker-1", "finished-twice", 8.5)
    story.run("worker-1", "claimed-anew", 8.7, told={"claims": 1})
    found = checked(story.rest(), "J4", "J24")
    assert found["J4"] == ("violated", "gone was enqueued, has not finished, and is in no state at the end")
    verdict, why = found["J24"]
    assert verdict == "violated" and why.startswith("2 found, the first: claimed-anew lease ")


@pytest.mark.slow
@pytest.mark.parametrize("late", [4.95, 8.0])
def test_a_restarted_server_that_lost_nothing_excuses_no_late_finish(late: float, tmp_path: Path, checked: Checked) -> None:
    """Its replication id is another one, its jobs are the same: a finish of a lease that is over violates before and after."""
    story = Failover(tmp_path / "run", [])
    story.spec["topology"] = "aof"
    lease = story.handled("worker-3", "twice", 1.0, enqueued=0.5, told={"claims": 1}, took=late - 1.1)
    story.reap("worker-1", lease, 3.0)
    story.run("worker-1", "twice", 4.0, told={"claims": 2, "crashes": 1})
    if late > 7:
        story.replaced()
    story.finish(lease, late, effect=late - 0.05)
    if late < 7:
        story.replaced()
    found = checked(story.rest(), "J3", "J6")
    assert {check: verdict for check, (verdict, _) in found.items()} == {"J3": "violated", "J6": "violated"}


def zombie(story: Story, job: str, finished: float) -> None:
    """Two workers finish a job: worker-1 at 3.56 s, worker-3, which had lost its lease, at that instant."""
    lost = story.leased("worker-3", job, 1.0, enqueued=0.5, deadline_ms=srv_ms(3.0), told={"claims": 1})
    story.start(lost, 1.01, took=finished - 1.1)
    story.reap("worker-1", lost, 3.0)
    story.run("worker-1", job, 3.5, told={"claims": 2, "crashes": 1})
    story.finish(lost, finished, effect=finished - 0.05)


@pytest.mark.slow
def test_a_lost_write_explains_nothing_but_what_contradicts_it(tmp_path: Path, rows_of: RowsOf) -> None:
    """Each job has a write in the window. None of what is wrong with these comes from its loss."""
    story = Failover(tmp_path / "run", [LOSS])
    zombie(story, "ended-before-the-window", 8.0)
    first = story.handled("worker-3", "twice-before-the-fault", 4.2, enqueued=4.1, took=0.3)
    story.run("worker-1", "twice-before-the-fault", 4.3)
    story.finish(first, 4.6, effect=4.5)
    for job in ("twice-after-the-fault", "lost-after-the-fault", "unfinished"):
        story.enqueue(job, 4.5)
    story.extend(story.leased("worker-3", "held-by-what-was-not-renewed", 2.0, enqueued=1.9), 4.5)
    lost = story.claim("worker-3", "unfinished", 4.7)
    story.replaced()
    story.end("release", lost, at=8.4, result="stale")
    late = story.claim("worker-3", "twice-after-the-fault", 8.0)
    story.start(late, 8.01, took=1.4)
    story.claim("worker-3", "lost-after-the-fault", 8.1)
    story.run("worker-1", "twice-after-the-fault", 9.2)
    story.finish(late, 9.5, effect=9.41)
    story.run("worker-1", "held-by-what-was-not-renewed", 9.6)
    found = rows_of(story.rest(), "J1", "J3", "J4", "J6")
    stale = {("J3", "stale", "violated"), ("J6", "doubled", "violated")}
    overlap = {("J1", "overlap", "violated")}
    assert found == {
        **{"ended-before-the-window": stale, "twice-before-the-fault": stale | overlap, "twice-after-the-fault": stale | overlap},
        **{"lost-after-the-fault": {("J4", "lost", "violated")}, "held-by-what-was-not-renewed": overlap},
        # Its enqueue and its claim may both be gone.
        "unfinished": {("J4", "lost", "declared")},
    }


def counts(claims: int, failures: int, crashes: int) -> dict[str, int]:
    """What a claim tells of the past of its job."""
    return {"claims": claims, "failures": failures, "crashes": crashes}


def test_a_lost_write_explains_what_contradicts_it(tmp_path: Path, rows_of: RowsOf) -> None:
    """A claim, a finish, a renewal and a reap that may be gone, and what the next server answered that did not know of them.

    The enqueue of a refused job was not answered in time, and refused by the new server; a worker had claimed it at the old one.
    Long after that a clock jumps, which explains none of it.
    """
    story = Failover(tmp_path / "run", [LOSS])
    story.enqueue("gone", 4.5)
    for job, claimed in (("refused", 4.6), ("refused-early", 3.6)):
        story.enqueue(job, claimed - 0.2, result="orphan", reply="fail", took=3.5)
        story.claim("worker-1", job, claimed)
    old = story.leased("worker-3", "claim-lost", 1.0, enqueued=0.5, deadline_ms=srv_ms(4.2), told={"claims": 1})
    story.start(old, 1.01, took=7.0)
    story.reap("worker-1", old, 4.2)
    newer = story.claim("worker-1", "claim-lost", 4.5, told={"claims": 2, "crashes": 1})
    story.run("worker-1", "finish-lost", 4.6, enqueued=4.1)
    story.enqueue("renewal-lost", 0.6)
    retried = story.leased("worker-3", "retry-lost", 2.0, enqueued=0.7, told=counts(1, 0, 0))
    story.start(retried, 2.01, took=2.0, end="fail")
    story.end("retry", retried, at=4.3, delay_ms=0)
    story.run("worker-1", "retry-lost", 4.6, told=counts(2, 1, 0))
    story.extend(story.claim("worker-3", "renewal-lost", 1.1), 4.7)
    story.replaced(strays=3)
    story.fault("0-primary-kill", "servers", "noticed", 9.2, result="missing", detail="0 times a process found what is gone")
    story.finish(old, 8.1, effect=8.01)
    story.start(newer, 4.51, took=4.0)
    story.end("finish", newer, at=8.6, result="stale")
    story.run("worker-3", "finish-lost", 8.2)
    story.run("worker-1", "renewal-lost", 10.2)
    story.reap("worker-1", retried, 11.1)
    story.run("worker-1", "retry-lost", 11.2, told=counts(2, 0, 1))
    ticks = missed_ticks(story)
    found = rows_of(story.rest(), "J1", "J3", "J4", "J5", "J6", "J7", "J15", "J24")
    unfinished = {("J4", "lost", "violated")}
    of_ticks = {job: found.pop(job) - unfinished for job in tuple(found) if job.split(":")[0] in ("beat", "gap", "slow")}
    assert {job: rows for job, rows in of_ticks.items() if rows} == ticks
    undone = {("J6", "doubled", "declared"), ("J24", "end undone", "declared")}
    assert found == {
        "0-primary-kill": {("J24", "stray write", "violated"), ("J24", "loss unnoticed", "violated")},
        **{"gone": {("J4", "lost", "declared")}, "refused": {("J4", "lost", "declared"), ("J5", "from nowhere", "declared")}},
        "refused-early": {("J4", "lost", "violated"), ("J5", "from nowhere", "violated")},
        **{"claim-lost": {("J3", "stale", "declared")}, "finish-lost": undone},
        "retry-lost": undone | {("J7", "crashes miscounted", "declared"), ("J24", "claim undone", "declared")},
        "renewal-lost": {("J1", "overlap", "declared")},
    }


@pytest.mark.slow
def test_a_write_at_the_server_that_was_replaced_is_a_violation(tmp_path: Path, checked: Checked) -> None:
    story = Failover(tmp_path / "run", [LOSS])
    story.replaced(strays=3)
    why = "0-primary-kill shows: 3 scripts of clients ran at server-0"
    assert checked(story.rest(), "J24") == {"J24": ("violated", why)}


@pytest.mark.slow
def test_a_loss_that_no_process_has_noticed_is_a_violation(tmp_path: Path, checked: Checked) -> None:
    story = Failover(tmp_path / "run", [LOSS])
    story.replaced()
    story.fault("0-primary-kill", "servers", "noticed", 9.2, result="missing", detail="0 times a process found what is gone")
    why = "0-primary-kill shows: 0 times a process found what is gone"
    assert checked(story.rest(), "J24") == {"J24": ("violated", why)}


def test_a_window_ends_with_the_stage_that_it_names() -> None:
    stages = [
        Stage("0-primary-kill", "primary-kill", stage, "servers", ok=True, detail="", t_ns=ns(at))
        for stage, at in (("snapshot", 2), ("inject", 5), ("witness", 7), ("heal", 8))
    ]

    def span(**more: Any) -> tuple[float, float]:
        (one,) = loss_windows(Run(spec={"loss": [{**LOSS, **more}]}, files={}, stages=tuple(stages)))
        return (one.begin_ns - ns(0)) / 1e9, (one.end_ns - ns(0)) / 1e9

    assert (span(), span(until="witness", after_ms=1_000)) == ((4.0, 5.25), (4.0, 8.0))
    assert span(since="snapshot", before_ms=0, until="heal", after_ms=0) == (2.0, 8.0)
    assert loss_windows(Run(spec={"loss": [{**LOSS, "fault": "primary-cut"}]}, files={}, stages=tuple(stages))) == []
    assert findings({}) == []


# The windows of faults that follow each other, and of those that come while another one is in force.


def stages(fault: str, **at_ns: int) -> list[Stage]:
    return [Stage(fault, fault.partition("-")[2], stage, "worker-1", True, "", t_ns) for stage, t_ns in at_ns.items()]


def test_the_time_of_a_fault_ends_with_the_next_inject_after_its_heal() -> None:
    first = stages("1-net-latency", inject=10, witness=20, heal=70, healed=80)
    second = stages("2-worker-freeze", inject=30, witness=40, heal=50, healed=60)
    third = stages("3-net-down", inject=90, witness=95, heal=100, healed=110)
    found = windows(Run({}, {}, stages=(*first, *second, *third)))
    # What came while it was in force does not end its time.
    ends = [("1-net-latency", 90), ("2-worker-freeze", 90), ("3-net-down", NEVER_NS)]
    assert [(one.fault, one.next_ns) for one in found] == ends


def test_a_fault_that_never_healed_has_no_end() -> None:
    found = windows(Run({}, {}, stages=(*stages("1-net-down", inject=10), *stages("2-worker-kill", inject=30, heal=50))))
    assert [(one.heal_ns, one.next_ns) for one in found] == [(NEVER_NS, NEVER_NS), (50, NEVER_NS)]


def test_how_far_ahead_a_clock_was_is_the_median_of_what_was_seen_then() -> None:
    looks = [SimpleNamespace(t_ns=at, ahead_ns=ahead) for at, ahead in ((0, 9), (10, 1), (11, None), (12, 2), (19, 6), (20, 50))]
    run: Any = SimpleNamespace(clocks=looks)
    assert (ahead_ns(run, 10, 20), ahead_ns(run, 11, 12), ahead_ns(run, 20, 21), ahead_ns(run, 30, 40)) == (2, None, 50, None)
