"""Jumps of the server's clock: what is excused by one is excused up to its size, which the harness has seen, and no further."""

from pathlib import Path

import pytest

from tests.reports.cases.results import handled
from tests.reports.conftest import Checked, RowsOf
from tests.reports.good_run import healthy
from tests.reports.story import END_S, Story, Token, srv_ms

Found = set[tuple[str, str, str]]

JUMP = "3-server-clock-jump"

#: From when to when it has jumped, in seconds of the story.
FROM_S, TO_S = 40.5, 46.5


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return healthy(tmp_path / "run")


def jump(story: Story, ms: int, *, seen: bool = True) -> None:
    """The server's clock jumps at 40.5 s; one that went back is set right at 46.5 s. `seen`: the harness looks at it every
    second."""
    story.spec["plan"] = [*story.spec["plan"], {"fault": JUMP, "name": "server-clock-jump", "target": "servers"}]
    story.stages(JUMP, "servers", FROM_S, FROM_S + 0.1, TO_S, TO_S)
    for second in range(30, int(END_S)) if seen else ():
        off_ms = ms if FROM_S <= second < TO_S or (second >= TO_S and ms > 0) else 0
        story.row("harness", "clock", second, wall_ns=second, srv_us=(srv_ms(second) + off_ms) * 1_000)


def tick(story: Story, schedule: str, at: float, *ticks_ms: int, off_ms: int = 0) -> None:
    """A schedule ticks, by a clock of the server that is so far off. A tick of 0 is due at 40 s, a jump aside."""
    told, due_ms = {"schedule": schedule, "result": "created"}, srv_ms(40.0)
    items = [{"job": f"{schedule}:{tick_ms}", "tick_ms": due_ms + tick_ms, **told} for tick_ms in ticks_ms]
    story.operation("worker-1", "tick", at, items, srv_us=(srv_ms(at) + off_ms) * 1_000)


def missed_ticks(story: Story) -> dict[str, Found]:
    """The clock jumps over 120 s, and what J15 must find: of the ticks that it has jumped over the last hundred fire at once.

    The jump ends 120.5 s after the first tick, so those of 71 s and later fire, half a second after it.
    """
    jump(story, 120_000)
    last = range(71_000, 120_501, 500)
    for schedule in ("beat", "gap", "slow"):
        tick(story, schedule, 40.0, 0)
    tick(story, "beat", 41.0, *last, off_ms=120_000)
    tick(story, "gap", 41.0, *last[2:], off_ms=120_000)
    tick(story, "slow", 52.0, *last, off_ms=120_000)
    story.spec["schedules"] = [{"name": name, "every_ms": 500} for name in ("beat", "gap", "slow")]
    late = {f"slow:{tick_ms}": {("J15", "tick late", "violated")} for tick_ms in last}
    return {"gap:72000": {("J15", "tick missed", "violated")}, **late}


@pytest.mark.slow
def test_of_the_ticks_that_a_clock_has_jumped_over_the_last_hundred_fire_at_once(story: Story, rows_of: RowsOf) -> None:
    """In the first tier the run of `test_loss` has such a jump."""
    expected = missed_ticks(story)
    assert rows_of(story.write(), "J15") == expected


@pytest.mark.slow
def test_a_clock_that_goes_back_keeps_ticks_waiting_only_until_it_is_set_right(story: Story, rows_of: RowsOf) -> None:
    """What is due at 41 s is reached when the clock is right again, at 46.5 s."""
    jump(story, -3_600_000)
    for schedule, again in (("beat", 57.0), ("slow", 58.0)):
        tick(story, schedule, 40.0, 0)
        tick(story, schedule, again, 1_000)
    story.spec["schedules"] = [{"name": name, "every_ms": 1_000} for name in ("beat", "slow")]
    assert rows_of(story.write(), "J15") == {"slow:1000": {("J15", "tick late", "violated")}}


def test_a_clock_that_goes_back_makes_leases_longer_and_claims_early_by_as_much(story: Story, rows_of: RowsOf) -> None:
    """A renewal keeps the end that its lease had before."""
    jump(story, -180_000)

    def lease(job: str, at: float, *, off_ms: int = 0, more_ms: int = 0) -> int:
        """Claim a job for nine seconds, or more by the reply; when the lease ends."""
        story.enqueue(job, 39.0)
        now_ms = srv_ms(at) + off_ms
        deadline_ms = now_ms + 9_000 + more_ms
        held[job] = story.claim("worker-1", job, at, deadline_ms=deadline_ms, srv_us=now_ms * 1_000)
        return deadline_ms

    def renewed(job: str, at: float, deadline_ms: int) -> None:
        items = [held[job].item(result="ok", deadline_ms=deadline_ms)]
        story.operation("worker-1", "extend", at, items, lease_ms=9_000, srv_us=(srv_ms(at) - 180_000) * 1_000)

    held: dict[str, Token] = {}
    for job, more_ms in (("kept", 0), ("longer", 1_000)):
        renewed(job, 42.0, lease(job, 40.0) + more_ms)
    lease("claimed-for-longer", 42.0, off_ms=-180_000, more_ms=1_000)
    for job, early_ms in (("soon", 179_000), ("sooner", 181_000)):
        story.enqueue(job, 38.0)
        now_ms = srv_ms(42.0) - 180_000
        story.claim("worker-1", job, 42.0, srv_us=now_ms * 1_000, told={"due_ms": now_ms + early_ms}, deadline_ms=now_ms + 9_000)
    too_long, early = {("J21", "lease too long", "violated")}, {("J8", "early", "violated")}
    found = rows_of(story.write(), "J8", "J21")
    assert found == {"longer": too_long, "claimed-for-longer": too_long, "sooner": early}


OLDER = [({"kept": 39.0}, 1_000_000), ({"before": 39.0, "after": 47.0}, 3_600_000)]


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "jump_ms"), OLDER, ids=["older", "gone"])
def test_a_result_is_older_by_the_jump(story: Story, checked: Checked, jobs: dict[str, float], jump_ms: int) -> None:
    """It is kept for half an hour at least, and may be gone where the clock has jumped over its time."""
    story.spec["results"] = True
    for job, at in jobs.items():
        story.end("finish", handled(story, job, at=at), at=at + 0.1, result_crc=1)
        story.read(job, 50.0)
    jump(story, jump_ms)
    verdict, why = checked(story.write(), "J23")["J23"]
    assert verdict == "violated" and why.startswith(f"{[*jobs][-1]} gave a caller no result")


@pytest.mark.slow
def test_a_jump_of_a_size_that_nobody_has_seen_proves_nothing(story: Story, checked: Checked) -> None:
    """Nor does what it may excuse."""
    jump(story, 120_000, seen=False)
    story.spec["schedules"] = [{"name": "beat", "every_ms": 500}]
    tick(story, "beat", 40.0, 0)
    tick(story, "beat", 42.0, 100_000, off_ms=120_000)
    found = checked(story.write(), "J15", "H1")
    assert found["J15"] == ("valid", "")
    assert found["H1"] == ("unknown", f"fault {JUMP}: nobody saw how far the clock jumped")
