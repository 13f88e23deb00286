"""What the page makes of findings, each as a whole: rows, drawings, words and bounds. No server."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.http.page import job_views, live, queue_views, rendering
from engine.http.page.looks import OneJob, SomeWorkers
from engine.models.dsps import Lag
from engine.ops.workers import Durations, HandlerTimes
from engine.queue.history import PastJob, PastJobs
from engine.queue.looks import JobError, JobInfo, JobPage
from engine.queue.scheduling import Schedule
from engine.queue.why import LaneInfo, Obstacles
from tests import golden
from tests.engine.ops import Counts, Event, Explained, HistoryRule, LimitInfo, Options, PauseInfo, TickPolicy, Timing, WorkerInfo

NOW_MS = 1_800_000_000_000


def words() -> golden.Told:
    """How numbers, lengths, names and notices are written."""
    yield "numbers", [rendering.number(value) for value in (None, 0, 12_345, 1.25, 99.5, 100.4, -99.5)]
    yield "lengths", [rendering.length(ms) for ms in (None, 0, 0.25, 9.5, 10.4, 950, 999, 1_000, 4_200)]
    yield "longer ones", [rendering.length(ms) for ms in (60_000, 119_999, 200_000, 545_000, 605_000, 12_000_000, 5 * 86_400_000)]
    yield "from now", [rendering.from_now(NOW_MS + by_ms, NOW_MS) for by_ms in (59_999, -1_000, 1_000, -999, -200_000)]
    yield "an instant", (rendering.instant(NOW_MS + 7), rendering.machine_instant(NOW_MS + 7))
    yield "short", [rendering.short("x" * 64), rendering.short("x" * 65)]
    yield "pieces", [rendering.pieces("of.sixteen:chars"), rendering.pieces("seventeen.chars:a")]
    yield "fits", [rendering.fits(text) for text in ("x" * 16, f"{'x' * 16}.{'y' * 16}", "x" * 17, "a." + "x" * 17)]
    yield "notices", [rendering.notice_of({"did": word, "count": "9" * 20}) for word in rendering._KNOWN]
    yield "counted", [rendering.notice_of({"did": "bulk", "count": count}) for count in ("0", "1", "1234")]
    yield "no notices", [rendering.notice_of({"did": "bulk", "count": count}) for count in ("9" * 21, "\u0661", "-1")]


def job(state: str = "waiting", **of: Any) -> JobInfo:
    return JobInfo("j1", state, **{"name": "send", "enqueued_ms": 1_000, **of})  # type: ignore[arg-type]


#: Failed once, lost once, and runs again.
LONG: Any = {"enqueued_ms": 500, "fence": 9_500, "lease_end_ms": 12_000, "claims": 3, "failures": 1, "crashes": 1, "owner": "w3"}
LONG |= {"errors": (JobError(2_000, 1_000, "failed", "a", "t", 1), JobError(9_000, 5_000, "lost", "w2 is gone", "", 2))}
FAILED = JobError(3_000, 2_000, "failed", "ValueError: a", "", 1)


def jobs() -> golden.Told:
    """Rows, facts, lives and payloads of jobs."""
    for found in (
        *(job(), job(due_ms=2_000), job("active", due_ms=2_000, lease_end_ms=3_000, claims=1)),
        job("delayed", due_ms=2_000, claims=1, failures=1, last_error="a\nValueError: b"),
        job("dead", lease_end_ms=3_000, ended_ms=4_000, unreadable="torn", last_error="b"),
    ):
        yield f"the row of one that is {found.state}", job_views.job_row(found, payloads=False)
    yield "a long payload", job_views.job_row(job(payload_bytes=b'"' + b"\xc3\xa9" * 1_000 + b'"'), payloads=True).payload
    yield "a raw one", job_views.payload_line(job(payload_bytes=b"\xff\x00", options=Options(serializer="raw")))
    for following in (None, 10_000, 10_001):
        page = JobPage(5_000_000, (), 7, following)
        yield f"a look before {following}", job_views.job_list(page, job_views.Filter(cursor=3), payloads=False)
    yield "facts of nothing", job_views.facts(JobInfo("j1", "gone"), payloads=True)
    more: Any = {"key": "acme", "timeout_ms": 1_000, "soft_timeout_ms": 500, "expires_ms": 60_000, "unique": "u"}
    yield "facts", job_views.facts(job(claims=2, crashes=1, fence=7, owner="w1", options=Options(**more)), payloads=False)
    for found in (
        *(job("delayed", due_ms=10_001), job("delayed", due_ms=10_000), job(due_ms=1_000), job(due_ms=2_000, claims=1)),
        job("delayed", due_ms=9_000, claims=1, errors=(FAILED,)),
        job("stuck", fence=4_000, lease_end_ms=5_000, claims=2, errors=(FAILED,)),
        *(job("active", fence=2_000, claims=1), job("active", fence=2_000, lease_end_ms=9_000, errors=(FAILED,))),
        *(job("finished", ended_ms=3_000), job("cancelled", ended_ms=3_000, last_error="by hand")),
        job("dead", ended_ms=3_000, errors=(FAILED,), last_error="ValueError: a"),
        job("dead", ended_ms=3_000, errors=(FAILED,), last_error="the parent died"),
        JobInfo("j1", "dead", ended_ms=5, unreadable="torn"),
    ):
        yield f"the life of one that is {found.state}", job_views.moments(found, 10_000)
    yield "a long life", (job_views.moments(job("active", **LONG), 10_500), job_views.bars(job("active", **LONG), 10_500))
    states = ("waiting", "blocked", "delayed", "active", "stuck", "dead", "finished", "cancelled")
    actions = [word for word, _ in job_views.JOB_ACTIONS]
    yield "offered", {state: [word for word in actions if job_views.offered(word, job(state))] for state in states}
    short = JobError(10_000, 9_999, "failed", "ValueError", "")
    yield "a short run", job_views.bars(job("dead", enqueued_ms=1, ended_ms=10_000, errors=(short,)), 20_000)
    yield "a run", job_views.bars(job("active", fence=3_000, owner="w1"), 4_000)
    yield "no run", [job_views.bars(job(), now_ms) for now_ms in (1_000, 4_000)]
    yield "ids", [job_views.short_id("x" * 27), job_views.short_id("a" * 18 + "b" * 10)]
    texts = (b'{"a":[1,"\xc3\xa9"]}', b'"\\ud800"', b"NaN")
    yield "payloads", [job_views.payload_text(job(payload_bytes=text)) for text in texts]
    for length in (65_536, 65_537):
        view = job_views.job_view(OneJob(job(payload_bytes=b"1" * length), None, 7_000), payloads=True)
        yield f"{length} bytes", (view.cut, view.payload_bytes, len(view.payload or ""), view.now_ms, view.actions, view.sentence)
    kinds = ("created", "claimed", "finished", "failed", "buried", "reaped")
    yield "recorded", job_views.recorded([Event("1-0", 5, kind, "j1", "send", "x" * 65) for kind in kinds])


def explained(needed: int = 0, feeds: int = 0, needs: Any = (), children: Any = ()) -> Explained:
    return Explained(0, "blocked", 0, 0, "send", "", 5, "", {}, (), (), 0, 0, needed, needs, (), feeds, children)


def graphs() -> golden.Told:
    """The jobs around a job."""
    needs, children = (("p1", "active"),), tuple((f"c{at}", "blocked") for at in range(11))
    both = OneJob(job("blocked", options=Options(needs=("p1", "p2"))), explained(1, 12, needs, children), 1)
    yield "both", job_views.graph(both)
    yield "neither", [job_views.graph(OneJob(job(), one, 1)) for one in (explained(), None)]
    yield "parents", job_views.graph(OneJob(job(), explained(3, 0, needs), 1))
    yield "unknown parents", job_views.graph(OneJob(job(options=Options(needs=("p1", "p2", "p3"))), explained(2, 0, needs), 1))
    yield "dead children", job_views.graph(OneJob(job("dead"), explained(), 1, children=(("c1", "dead"),), more_children=True))


def limit(name: str = "send", *, concurrency: int = 0, rate: int = 0, in_hand: int = 0, used: int = 0, holders: Any = ()) -> Any:
    return LimitInfo(name, None, False, concurrency, rate, 0, "sliding", in_hand, used, 0, 0, holders)


def worker(
    name: str = "w", *, alive: bool = True, in_hand: int = 0, concurrency: int = 2, jobs: Any = (), names: Any = ()
) -> Any:
    return WorkerInfo(name, "i", "host", 1, "1.0", alive, 0, 1, in_hand, jobs, False, concurrency, 0, names, {})


def schedule(timing: Timing, *, enabled: bool = True, next_ms: int = 60_000, error: str = "") -> Schedule:
    state = (enabled, next_ms, 0, "", 0, 0, 0, error)
    return Schedule("s", "send", b"", Options(), timing, TickPolicy(), *state, anchor_ms=60_000)


def queues() -> golden.Told:
    """What holds jobs back, and tables of a queue."""
    full, free = limit(concurrency=1, in_hand=1), limit("free", concurrency=1)
    held = (("j1", "w1"), ("j2", ""), ("j3", "w1"), ("j4", "w2"))
    for found in (
        *(limit(concurrency=3, in_hand=1, holders=held), limit(rate=3, used=2), limit(concurrency=2, in_hand=3), limit()),
        limit(concurrency=4, in_hand=1, rate=4, used=3),
    ):
        row = queue_views.limit_row(found)
        yield str(found), (row.fill, row.workers)
    pauses = (PauseInfo("a", 0), PauseInfo(None, 0))
    yield "limits", [queue_views.limit_list(one) for one in (Obstacles(5_000_000, pauses, (limit(),), ()), None)]
    yield "one name is paused", queue_views.limit_list(Obstacles(1, pauses[:1], (), ()))
    lanes = (LaneInfo("a", "", 3, 500, "limit of name a"), *(LaneInfo(f"n{at:02}", "", 1, 0, "") for at in range(13)))
    found, names = Obstacles(2_000_000, (), (), lanes), tuple(lane.name for lane in lanes)
    for who, alive in (("some", [worker(names=("a",))]), ("all", [worker(names=names)]), ("nobody", []), ("who knows", None)):
        yield f"held, handled by {who}", queue_views.held(found, 2_000, idle=False, alive=alive)
    yield "held, idle", queue_views.held(found, 2_000, idle=True, alive=[]).reasons
    yield "held, unknown", queue_views.held(None, 7, idle=False)
    for some in (pauses[1:], pauses, pauses[:1]):
        yield "held, paused", queue_views.held(Obstacles(1, some, (full, free), ()), 1, idle=False)
    yield "reasons", len(queue_views.reasons([PauseInfo(f"n{at}", 0) for at in range(9)], [full], []))
    yield "tiles", queue_views.tiles(Counts(1, 10, 20, 30, 40, 50, 60, 70, blocked=80), 11, least=True)
    lags = [Lag("b", "x", 0), Lag("a", "q", None), Lag("a", "p", None), Lag("a", "slow", 7), Lag("a", "z", 1)]
    yield "channels", [queue_views.channel_list(lags, 0), queue_views.channel_list([], 5)]
    every = schedule(Timing(every_ms=60_000))
    for one in (
        *(every, schedule(every.timing, enabled=False), schedule(every.timing, enabled=False, error="torn")),
        *(schedule(Timing("0 9 * * 1", "Europe/Berlin"), next_ms=0), schedule(Timing(months=1), next_ms=0)),
        *(schedule(Timing(months=3, zone="Asia/Tokyo"), next_ms=0), schedule(Timing(), next_ms=0), schedule(Timing("no"))),
    ):
        row = queue_views.schedule_row(one)
        yield "schedule", (row.timing, row.ticks, row.idle)
    for count in (50, 51):
        listed = queue_views.schedule_list([every] * count, 7, 5)
        yield f"{count} schedules", (len(listed.rows), listed.offset, listed.next, listed.now_ms)
    nine = tuple(f"n{at}" for at in range(9))
    crew = worker("a", alive=False), worker("c", in_hand=3, jobs=("j1",))
    crew += (worker("b", in_hand=12, jobs=nine, concurrency=20, names=nine),)
    kept: Any = ({"alive": False, "paused": True}, {"unreadable": "x", "paused": True}, {"paused": True, "gate_closed": True})
    kept += ({"gate_closed": True, "in_hand": 2}, {"in_hand": 2}, {"in_hand": 1}, {"concurrency": 0})
    yield "states of workers", [queue_views.state_of(replace(worker(), **of)) for of in kept]
    yield "workers", [queue_views.worker_list(SomeWorkers(some, bool(some), 9), 50) for some in (crew, ())]


def run_times() -> golden.Told:
    """Run times are of the last minute: what was counted since the look that is a minute old or older."""
    took, none = live.RunTimes(), Durations(0, 0, 0, ())
    looks = (0, 10, 1), (30_000, 60, 50), (60_000, 60, 50), (89_999, 61, 51), (90_000, 62, 51), (200_000, 62, 51)
    for at_ms, quick, slow in looks:
        succeeded, failed = Durations(0, 0, 0, ((40, quick), (60, slow))), Durations(0, 0, 0, ((80, slow // 50),))
        took.add(at_ms, (HandlerTimes("a", 0, succeeded, none), HandlerTimes("b", 0, none, failed)))
        yield f"at {at_ms}", [ms and round(ms, 6) for ms in took.percentiles_ms()]


def past(place: str = "p", **stored: Any) -> PastJob:
    times: Any = range(8)
    return PastJob(place, "j1", "finished", "send", "", "", "w1", *times, **stored)


def history() -> golden.Told:
    """How jobs have ended."""
    asked = queue_views.history_asked({"key": " k ", "since": "2d", "before": "p"})
    yield "asked", (asked.options, asked.narrow, asked.address("next"))
    others = [queue_views.history_asked({"since": since, "before": "p"}) for since in ("", "1h", "1d", "7d", "x")]
    yield "since", [(one.options.get("newer_than_ms"), one.narrow) for one in others]
    full = queue_views.history_list(PastJobs([*[past()] * 49, past("last")], HistoryRule(5, 0, 0, ())), 9, payloads=True)
    some = queue_views.history_list(PastJobs([past()] * 49, None), 9, payloads=False)
    yield "pages", [(listed.next, listed.rule, listed.now_ms) for listed in (full, some)]
    kept = past(stored=b'"' + b"x" * 400 + b'"')
    raw = past(stored=b"\xff", serializer="raw")
    yield "stored", [some.payload(kept), *(full.payload(one) for one in (kept, past(), raw, past(stored=b'{"a":[1,2]}')))]


def told_and_hidden() -> golden.Told:
    """Reasons and names, what steps back or is corrupt, what a filter means, and what is not shown."""
    paused = "the name a is paused until it is resumed"
    lanes = [LaneInfo("a", str(number), 2, 0, paused) for number in range(3)] + [LaneInfo("b", "", 50, 0, "limit of name b")]
    yield "what holds most comes first", queue_views.reasons([PauseInfo("a", 0)], [], lanes)
    lanes = [LaneInfo("a", "x", 2, 500, ""), LaneInfo("a", "y", 3, 400, ""), LaneInfo("b", "", 9, 0, "")]
    yield "names are the sum of their lanes", queue_views.names(lanes)
    error = JobError(100, 50_000, "failed", "ValueError", "")
    once = job("dead", ended_ms=2_000, failures=1, claims=1, errors=(error,))
    bars = [job_views.bars(one, 3_000) for one in (once, job("dead", enqueued_ms=9_000, ended_ms=2_000))]
    yield "a clock that stepped back", bars
    corrupt = JobInfo("1", "dead", unreadable="version 9", envelope=b"\xff<b>")
    yield "a corrupt job can be", [action for action, _ in job_views.JOB_ACTIONS if job_views.offered(action, corrupt)]
    yield "its payload", [job_views.job_view(OneJob(corrupt, None, 1), payloads=shown).payload for shown in (True, False)]
    query = {"state": "dead", "name": "send", "error": " ValueError ", "text": "a&b", "cursor": "250", "newest": "1"}
    wanted, kind = job_views.filter_of(query), job_views.filter_of({"state": "dead", "error_like": "no user …"})
    yield "a filter", (wanted, wanted.address(cursor=""), kind.narrow, kind.address())
    yield "none", (job_views.filter_of({"name": "", "text": " "}), job_views.Filter().narrow)
    yield "a long one", job_views.filter_of({"text": "x" * 200})
    secret = job(payload_bytes=b'"secret"', options=Options(key="acme", headers=(("trace", "secret"),)))
    texts = (("secret", False), ("SECRET", True), ("ACME", False))
    yield "what a search finds", {text: job_views.has_text(secret, text, payloads=shown) for text, shown in texts}
    yield "headers", [job_views.facts(secret, payloads=shown) for shown in (True, False)]


def test_what_the_page_makes_of_findings() -> None:
    golden.tells("http/views.txt", words, jobs, graphs, queues, run_times, history, told_and_hidden)


def test_runs_are_listed_by_their_time_whatever_is_in_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(52):
        (tmp_path / f"20260501-1200{at:02}-mixed").mkdir()
    for name in ("20260501-120000", "20260501-120000-" + "x" * 185, "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "20270501-120000-linked").symlink_to(tmp_path / "notes")
    whole, odd = tmp_path / "20260501-120051-mixed", tmp_path / "20260501-120050-mixed"
    spec = {"started_utc": "2026-05-01T12:00:00Z", "scenario": "s", "model": True, "seed": 7, "git_commit": "0123456789"}
    (whole / "spec.json").write_text(json.dumps(spec))
    (whole / "verdict.json").write_text(json.dumps({"verdict": "violated", "reasons": ["x" * 301, "second"]}))
    (whole / "report.html").write_text("")
    (odd / "spec.json").write_text("[1]")
    verdict = b'{"verdict": "valid", "reasons": []}'.rjust(4 * 1024 * 1024)
    (odd / "verdict.json").write_bytes(verdict + b"x")
    listed = queue_views.run_list(tmp_path)
    assert (listed.count, len(listed.rows)) == (52, 50)
    row = queue_views.RunRow(whole.name, "violated", "2026-05-01 12:00:00", "s", "", "7", "01234567", "x" * 300, True)
    assert listed.rows[:2] == (row, queue_views.RunRow(odd.name, "valid", "", "", "", "", "", "", False))
    assert listed.rows[2].verdict == "not judged" and queue_views.run_list(tmp_path / "none") == queue_views.RunList((), 0)
    monkeypatch.setattr(queue_views, "_ENTRIES_MAX", 3)
    assert queue_views.run_list(tmp_path).count == 3
    (odd / "verdict.json").write_bytes(b" " + verdict)
    assert queue_views.run_row(odd).verdict == "not judged"
