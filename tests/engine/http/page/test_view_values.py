"""What the page makes of findings, each as a whole: rows, drawings, words and bounds. No server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import JobOptions
from engine.http.page import job_views, queue_views, rendering
from engine.http.page.looks import OneJob, SomeWorkers
from engine.models.dsps import Lag
from engine.ops.admin import HistoryRule
from engine.ops.jobs import Options
from engine.ops.looks import Counts, Event, Explained, LimitInfo, PauseInfo
from engine.ops.schedules import TickPolicy, Timing
from engine.ops.workers import WorkerInfo
from engine.queue.history import PastJob, PastJobs
from engine.queue.looks import JobError, JobInfo, JobPage
from engine.queue.scheduling import Schedule
from engine.queue.why import LaneInfo, Obstacles
from engine.serializers import BUILT_IN

NOW_MS = 1_800_000_000_000

NUMBERS = [
    (None, "\u2013"), (0, "0"), (12_345, "12,345"), (1.25, "1.2"), (99.5, "99.5"), (100.4, "100"), (-99.5, "-99.5"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_have_a_place_behind_the_point_where_they_are_small(value: float | None, text: str) -> None:
    assert rendering.number(value) == text


LENGTHS = [
    (9.5, "9.5 ms"), (10.4, "10 ms"), (999, "999 ms"), (119_999, "1 min 59 s"), (545_000, "9 min 5 s"), (605_000, "10 min"),
]  # fmt: skip


def test_lengths_lose_their_small_part_where_the_large_one_says_enough() -> None:
    assert [(ms, rendering.length(ms)) for ms, _ in LENGTHS] == LENGTHS
    told = [rendering.from_now(NOW_MS + by_ms, NOW_MS) for by_ms in (59_999, -1_000, 1_000, -999)]
    assert told == ["in 59 s", "1 s ago", "in 1 s", "now"]


def test_names_are_cut_and_parted_where_a_table_has_no_room() -> None:
    assert [rendering.short("x" * 64), rendering.short("x" * 65)] == ["x" * 64, "x" * 63 + "…"]
    assert rendering.pieces("of.sixteen:chars") == ["of.sixteen:chars"]
    assert rendering.pieces("seventeen.chars:a") == ["seventeen.", "chars:", "a"]
    texts = ("x" * 16, f"{'x' * 16}.{'y' * 16}", "x" * 17, "a." + "x" * 17)
    assert [rendering.fits(text) for text in texts] == [True, True, False, False]


def test_what_was_not_done_is_told_as_that() -> None:
    told = {word: rendering.notice_of({"did": word, "count": "9" * 20}) for word in rendering._KNOWN}
    assert {word for word, notice in told.items() if notice is None or not notice.done} == {
        *("changed", "held", "corrupt", "not-paused", "no-schedule")
    }
    for count in ("9" * 21, "\u0661", "-1"):
        assert rendering.notice_of({"did": "bulk", "count": count}) is None


# -- jobs


def job(state: str = "waiting", **of: Any) -> JobInfo:
    return JobInfo("j1", state, **{"name": "send", "enqueued_ms": 1_000, **of})  # type: ignore[arg-type]


ROWS: list[tuple[JobInfo, tuple[int, str, str]]] = [
    (job(), (1_000, "", "")),
    (job(due_ms=2_000), (1_000, "", "")),
    (job("delayed", due_ms=2_000, claims=1, failures=1, last_error="a\nValueError: b"), (2_000, "1 of 25 used", "ValueError: b")),
    (job("active", due_ms=2_000, lease_end_ms=3_000, claims=1), (3_000, "0 of 25 used", "")),
    (job("dead", lease_end_ms=3_000, ended_ms=4_000, unreadable="torn", last_error="b"), (4_000, "", "torn")),
]


@pytest.mark.parametrize(("found", "told"), ROWS)
def test_a_row_has_the_time_that_its_state_is_about(found: JobInfo, told: tuple[int, str, str]) -> None:
    row = job_views.job_row(found, payloads=False)
    attempts = told[1].replace("25", str(found.options.attempts))
    assert row == job_views.JobRow("j1", "send", "", found.state, 5, told[0], attempts, told[2], None)


def test_a_payload_is_a_bounded_line_of_what_is_stored_or_of_what_it_reads() -> None:
    long = job(payload_bytes=b'"' + b"\xc3\xa9" * 1_000 + b'"')
    assert job_views.job_row(long, payloads=True).payload == '"' + "é" * 159
    raw = job(payload_bytes=b"\xff\x00", options=Options(serializer="raw"))
    assert job_views.payload_line(raw) == repr(b"\xff\x00")


def test_a_look_goes_on_up_to_the_last_place_that_is_looked_at() -> None:
    for following, shown in ((None, None), (10_000, 10_000), (10_001, None)):
        found = JobPage(5_000_000, (job(),), 7, following)
        listed = job_views.job_list(found, job_views.Filter(cursor=3), payloads=False)
        assert (len(listed.rows), listed.first, listed.seen, listed.next, listed.now_ms) == (1, 3, 7, shown, 5_000)


def test_what_is_known_of_a_job_is_told_and_nothing_else() -> None:
    assert job_views.facts(JobInfo("j1", "gone"), payloads=True) == ()
    more: JobOptions = {"key": "acme", "timeout_ms": 1_000, "soft_timeout_ms": 500, "expires_ms": 60_000, "unique": "u"}
    told = dict(job_views.facts(job(claims=2, crashes=1, fence=7, owner="w1", options=Options(**more)), payloads=False))
    assert told == {
        **{"Name": "send", "Key": "acme", "Priority": "5", "Attempts": told["Attempts"], "Crashes": "1 of 3", "Claims": "2"},
        **{"Fence": "7", "Worker": "w1", "Back-off": told["Back-off"], "Timeout": "1 s", "Soft timeout": "500 ms"},
        **{"Expires after": "1 min", "Unique key": "u"},
    }


def moments(found: JobInfo, now_ms: int = 10_000) -> list[tuple[str, str, int, str]]:
    return [(one.title, one.tone, one.at_ms, one.detail) for one in job_views.moments(found, now_ms)]


def test_each_end_of_a_job_is_a_moment_of_its_life() -> None:
    enqueued, error = ("Enqueued", "plain", 1_000, ""), JobError(3_000, 2_000, "failed", "ValueError: a", "", 1)
    claimed, failed = ("Run 1 claimed", "run", 2_000, ""), ("Run 1 failed", "bad", 3_000, "ValueError: a")
    assert moments(job("delayed", due_ms=10_001)) == [enqueued, ("Due", "plain", 10_001, "")]
    assert moments(job("delayed", due_ms=10_000)) == [enqueued, ("Was due", "plain", 10_000, "")]
    assert moments(job(due_ms=1_000)) == moments(job(due_ms=2_000, claims=1)) == [enqueued]
    again = job("delayed", due_ms=9_000, claims=1, errors=(error,))
    assert moments(again) == [enqueued, claimed, failed, ("Next run", "plain", 9_000, "")]
    stuck = job("stuck", fence=4_000, lease_end_ms=5_000, claims=2, errors=(error,))
    assert moments(stuck)[3:] == [("Run 2 claimed", "run", 4_000, ""), ("Lease ended", "lost", 5_000, "")]
    assert moments(job("active", fence=2_000, claims=1)) == [enqueued, claimed]
    assert moments(job("active", fence=2_000, lease_end_ms=9_000, errors=(error,))) == [enqueued, claimed, failed]
    for state, tone, last, detail in (
        *(("finished", "good", "", ""), ("cancelled", "plain", "by hand", ""), ("dead", "bad", "ValueError: a", "")),
        ("dead", "bad", "the parent died", "the parent died"),
    ):
        ended = job(state, ended_ms=3_000, errors=(error,) if state == "dead" else (), last_error=last)
        assert moments(ended)[-1] == (state.capitalize(), tone, 3_000, detail)
    assert moments(JobInfo("j1", "dead", ended_ms=5, unreadable="torn")) == [("Dead", "bad", 5, "torn")]


def test_a_short_run_is_drawn_so_wide_that_it_is_seen() -> None:
    error = JobError(10_000, 9_999, "failed", "ValueError", "")
    found = job("dead", enqueued_ms=1, ended_ms=10_000, errors=(error,))
    bars = [(bar.x, bar.width, bar.tone, bar.title) for bar in job_views.bars(found, 20_000)]
    assert bars == [(0.0, 999.9, "plain", "waited, 10 s"), (996.0, 4.0, "bad", "ValueError, 1 ms")]
    runs = [bar.title for bar in job_views.bars(job("active", fence=3_000, owner="w1"), 4_000)]
    assert runs == ["waited, 2 s", "runs on w1, 1 s"]
    assert [bar.title for bar in job_views.bars(job(), 4_000)] == ["waits, 3 s"] and job_views.bars(job(), 1_000) == ()


def explained(needed: int = 0, feeds: int = 0, **of: tuple[tuple[str, str], ...]) -> Explained:
    given: dict[str, Any] = {"needs": (), "children": (), **of}
    return Explained(
        *(0, "blocked", 0, 0, "send", "", 5, "", {}, (), (), 0, 0, needed, given["needs"], (), feeds, given["children"])
    )


def test_the_jobs_around_a_job_are_drawn_in_columns() -> None:
    known = job("blocked", options=Options(needs=("p1", "p2"), on_success=None))
    found = OneJob(
        known, explained(1, 12, needs=(("p1", "active"),), children=tuple((f"c{at}", "blocked") for at in range(11))), 1
    )
    graph = job_views.graph(found)
    assert graph is not None and (graph.width, graph.height) == (870, 604) and graph.words == "j1 needs 2 jobs; 12 need it"
    assert [(node.job, node.state, node.x, node.y) for node in graph.nodes] == [
        *(("p1", "active", 0, 0), ("p2", "ended", 0, 56), ("j1", "blocked", 320, 280)),
        *((f"c{at}", "blocked", 640, 56 * at) for at in range(10)),
        ("", "", 640, 560),
    ]
    assert graph.nodes[-1].label == "and 2 more" and len(graph.lines) == 13
    assert graph.lines[0] == "M230 22 C275 22 275 302 320 302" and graph.lines[2] == "M550 302 C595 302 595 22 640 22"


def test_a_job_with_parents_or_children_alone_is_at_the_edge_and_one_with_neither_is_not_drawn() -> None:
    assert job_views.graph(OneJob(job(), explained(), 1)) is None and job_views.graph(OneJob(job(), None, 1)) is None
    child = job_views.graph(OneJob(job(), explained(3, 0, needs=(("p1", "active"),)), 1))
    assert child is not None and [(node.label, node.x, node.y) for node in child.nodes] == [
        *(("p1", 0, 0), ("and 2 more", 0, 56), ("j1", 320, 28)),
    ]
    assert (child.width, child.height) == (550, 100)
    dead = OneJob(job("dead"), explained(), 1, children=(("c1", "dead"),), more_children=True)
    parent = job_views.graph(dead)
    assert parent is not None and [(node.label, node.x) for node in parent.nodes] == [("j1", 0), ("c1", 320), ("and 1 more", 320)]
    unknown = job(options=Options(needs=("p1", "p2", "p3")))
    some = job_views.graph(OneJob(unknown, explained(2, 0, needs=(("p1", "active"),)), 1))
    assert some is not None and [node.state for node in some.nodes] == ["active", "", "", "waiting"]


def test_a_long_id_keeps_its_ends_in_a_node() -> None:
    assert job_views.short_id("x" * 27) == "x" * 27
    assert job_views.short_id("a" * 18 + "b" * 10) == "a" * 18 + "…" + "b" * 8


def test_a_payload_is_shown_as_people_read_it_and_cut_where_it_is_long() -> None:
    assert job_views.payload_text(job(payload_bytes=b'{"a":[1,"\xc3\xa9"]}')) == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
    assert job_views.payload_text(job(payload_bytes=b'"\\ud800"')) == repr(b'"\\ud800"')
    assert job_views.payload_text(job(payload_bytes=b"NaN")).startswith("b'NaN'")
    most = 64 * 1024
    for raw, cut in ((b"1" * most, False), (b"1" * (most + 1), True)):
        view = job_views.job_view(OneJob(job(payload_bytes=raw), None, 7_000), payloads=True)
        assert (view.cut, view.payload_bytes, len(view.payload or "") >= most, view.now_ms) == (cut, len(raw), True, 7_000)
        assert not cut or view.payload == "1" * most


def test_what_was_recorded_of_a_job_has_the_words_and_tones_of_the_page() -> None:
    kinds = ("created", "claimed", "finished", "failed", "buried", "reaped")
    found = job_views.recorded([Event("1-0", 5, kind, "j1", "send", "x" * 65) for kind in kinds])
    tones = [
        ("Created", "plain"),
        ("Claimed", "run"),
        ("Finished", "good"),
        ("Failed", "bad"),
        ("Dead", "bad"),
        ("Reaped", "lost"),
    ]
    assert [(one.title, one.tone) for one in found] == tones and found[0].detail == "x" * 63 + "…" and found[0].at_ms == 5


# -- queues


def limit(**of: Any) -> LimitInfo:
    given: dict[str, Any] = {
        "name": "send",
        "key": None,
        "concurrency": 0,
        "rate": 0,
        "in_hand": 0,
        "used": 0,
        "holders": (),
    } | of
    order = (
        "name",
        "key",
        "inherited",
        "concurrency",
        "rate",
        "per_ms",
        "window",
        "in_hand",
        "used",
        "free_ms",
        "parked",
        "holders",
    )
    return LimitInfo(
        *({"inherited": False, "per_ms": 0, "window": "sliding", "free_ms": 0, "parked": 0, **given}[of] for of in order)
    )


def test_a_limit_is_as_full_as_what_is_fullest_of_it() -> None:
    held = (("j1", "w1"), ("j2", ""), ("j3", "w1"), ("j4", "w2"))
    for of, fill in (
        *(({"concurrency": 3, "in_hand": 1}, 33), ({"rate": 3, "used": 2}, 67), ({"concurrency": 2, "in_hand": 3}, 100)),
        *(({"concurrency": 4, "in_hand": 1, "rate": 4, "used": 3}, 75), ({}, 0)),
    ):
        assert queue_views.limit_row(limit(holders=held, **of)) == queue_views.LimitRow(
            limit(holders=held, **of), fill, ("w1", "w2")
        )
    pause = PauseInfo("a", 0)
    listed = queue_views.limit_list(Obstacles(5_000_000, (pause, PauseInfo(None, 0)), (limit(),), ()))
    assert listed == queue_views.LimitList(True, (pause, PauseInfo(None, 0)), (queue_views.limit_row(limit()),), True, 5_000)
    assert queue_views.limit_list(None) == queue_views.LimitList(False, (), (), False, 0)


def worker(name: str = "w", *, alive: bool = True, **of: Any) -> WorkerInfo:
    at = {"in_hand": 0, "jobs": (), "concurrency": 2, "handlers": (), **of}
    return WorkerInfo(
        *(name, "i", "host", 1, "1.0", alive, 0, 1, at["in_hand"], at["jobs"], False, at["concurrency"], 0, at["handlers"], {})
    )


def test_what_holds_jobs_back_is_known_of_the_lanes_that_were_looked_at() -> None:
    lanes = (LaneInfo("a", "", 3, 500, "limit of name a"), *(LaneInfo(f"n{at:02}", "", 1, 0, "") for at in range(13)))
    found = Obstacles(2_000_000, (), (), lanes)
    held = queue_views.held(found, 2_000, idle=False, alive=[worker(handlers=("a",))])
    assert (held.known, held.cut, held.now_ms, held.oldest_age_ms, held.paused) == (True, False, 2_000, 1_500, False)
    assert (len(held.names), len(held.lanes), held.names[0].name) == (12, 12, "a")
    assert held.unhandled == tuple(f"n{at:02}" for at in range(13))
    told = [(reason.lanes, reason.jobs) for reason in held.reasons]
    assert told == [(13, 13), (1, 3)] and held.reasons[0].words.endswith("and 8 more")
    assert queue_views.held(found, 2_000, idle=True, alive=[]).reasons == ()
    handled = queue_views.held(found, 2_000, idle=False, alive=[worker(handlers=("a", *held.unhandled))])
    assert [reason.jobs for reason in handled.reasons] == [3]
    full = limit(concurrency=1, in_hand=1)
    paused = queue_views.held(Obstacles(1, (PauseInfo(None, 0),), (full,), ()), 1, idle=False)
    assert paused.paused and [reason.words for reason in paused.reasons][1:] == [str(full)]
    none = queue_views.held(found, 2_000, idle=False, alive=[])
    assert none.reasons[0].words == "no worker of this queue is alive" and none.unhandled == ()
    assert [reason.jobs for reason in queue_views.held(found, 2_000, idle=False).reasons] == [3]
    assert queue_views.held(None, 7, idle=False) == queue_views.Held(False, False, 7, None, (), (), (), False)
    many = [PauseInfo(f"n{at}", 0) for at in range(9)]
    assert len(queue_views.reasons(many, [limit(concurrency=1, in_hand=1), limit(name="free", concurrency=1)], [])) == 8
    full = queue_views.reasons([], [limit(concurrency=1, in_hand=1), limit(name="free", concurrency=1)], [])
    assert [reason.words for reason in full] == [str(limit(concurrency=1, in_hand=1))]


def test_the_numbers_of_a_queue_are_tiles() -> None:
    found = Counts(1, 10, 20, 30, 40, 50, 60, 70, blocked=80)
    told = [(tile.state, tile.title, tile.count, tile.least) for tile in queue_views.tiles(found, 11, least=True)]
    assert told == [
        *(("waiting", "Waiting", 11, True), ("delayed", "Delayed", 20, False), ("blocked", "Blocked", 80, False)),
        *(("active", "Active", 30, False), ("dead", "Dead", 40, False), ("finished", "Finished", 60, False)),
    ]


def test_subscribers_stand_by_channel_and_those_furthest_behind_first() -> None:
    lags = [Lag("b", "x", 0), Lag("a", "q", None), Lag("a", "p", None), Lag("a", "slow", 7), Lag("a", "z", 1)]
    rows = (queue_views.ChannelRow("a", (lags[3], lags[4], lags[2], lags[1]), 7), queue_views.ChannelRow("b", (lags[0],), 1))
    assert queue_views.channel_list(lags, 0) == queue_views.ChannelList(rows, 5, None)
    assert queue_views.channel_list([], 5) == queue_views.ChannelList((), 0, 5)


def schedule(timing: Timing, **of: Any) -> Schedule:
    state = {"enabled": True, "next_ms": 60_000, "error": "", **of}
    return Schedule(
        *("s", "send", b"", Options(), timing, TickPolicy(), state["enabled"], state["next_ms"], 0, "", 0, 0, 0, state["error"]),
        anchor_ms=60_000,
    )


SCHEDULES: list[tuple[Schedule, tuple[str, tuple[int, ...], str]]] = [
    (schedule(Timing(every_ms=60_000)), ("every 1 min", (60_000, 120_000, 180_000), "")),
    (schedule(Timing(every_ms=60_000), enabled=False), ("every 1 min", (), "disabled")),
    (schedule(Timing(every_ms=60_000), enabled=False, error="torn"), ("every 1 min", (), "torn")),
    (schedule(Timing("0 9 * * 1", "Europe/Berlin"), next_ms=0), ("0 9 * * 1 (Europe/Berlin)", (), "")),
    (schedule(Timing(months=1), next_ms=0), ("every 1 month", (), "")),
    (schedule(Timing(months=3, zone="Asia/Tokyo"), next_ms=0), ("every 3 months (Asia/Tokyo)", (), "")),
    (schedule(Timing(), next_ms=0), ("\u2013", (), "")),
]


def test_schedules_are_rows_with_their_next_ticks() -> None:
    for found, (timing, ticks, idle) in SCHEDULES:
        assert queue_views.schedule_row(found) == queue_views.ScheduleRow(found, timing, ticks, idle)
    broken = queue_views.schedule_row(schedule(Timing("no")))
    assert broken.ticks == (60_000,) and broken.idle
    for count, following in ((50, None), (51, 57)):
        listed = queue_views.schedule_list([SCHEDULES[0][0]] * count, 7, 5)
        assert (len(listed.rows), listed.offset, listed.next, listed.now_ms) == (50, 7, following, 5)


def test_workers_that_live_come_first_with_some_of_what_they_have() -> None:
    names = tuple(f"n{at}" for at in range(9))
    busy = worker("b", in_hand=12, jobs=names, handlers=names, concurrency=20)
    found = [worker("a", alive=False), worker("c", in_hand=3, jobs=("j1",)), busy]
    listed = queue_views.worker_list(SomeWorkers(tuple(found), True, 9), 50)
    assert [row.worker.name for row in listed.rows] == ["b", "c", "a"]
    assert (listed.alive, listed.in_hand, listed.places, listed.offset, listed.next, listed.now_ms) == (2, 15, 22, 50, 53, 9)
    first, second = listed.rows[0], listed.rows[1]
    assert (first.jobs, first.more_jobs, first.handlers, first.more_handlers) == (names[:8], 4, names[:8], 1)
    assert (second.more_jobs, second.more_handlers, second.state) == (2, 0, "busy")
    assert listed.rows[2].more_jobs == 0
    assert queue_views.worker_list(SomeWorkers((), False, 9), 50).next is None


def test_a_history_is_asked_for_by_its_address() -> None:
    asked = queue_views.history_asked({"key": " k ", "since": "2d", "before": "p"})
    given = {"key": "k", "name": None, "outcome": None, "newer_than_ms": 172_800_000, "before": "p", "limit": 50}
    assert asked.options == given and asked.narrow and asked.address("next") == "key=k&since=2d&before=next"
    lengths = [queue_views.history_asked({"since": since}).options["newer_than_ms"] for since in ("", "1h", "1d", "7d", "x")]
    assert lengths == [None, 3_600_000, 86_400_000, 604_800_000, None]
    assert not queue_views.history_asked({"before": "p"}).narrow


def test_a_page_of_a_history_leads_to_the_next_one_where_it_is_full() -> None:
    def past(place: str = "p", **stored: Any) -> PastJob:
        return PastJob(place, "j1", "finished", "send", *("", "", "w1"), *range(8), **{"serializers": BUILT_IN, **stored})

    rule, kept = HistoryRule(5, 0, 0, ()), past(stored=b'"' + b"x" * 400 + b'"')
    full = queue_views.history_list(PastJobs([*[past()] * 49, past("last")], rule), 9, payloads=True)
    assert (full.next, full.rule, full.now_ms) == ("last", rule, 9)
    some = queue_views.history_list(PastJobs([past()] * 49, None), 9, payloads=False)
    assert (some.next, some.payload(kept), full.payload(past())) == (None, "", "")
    assert full.payload(kept) == '"' + "x" * 299 and full.payload(past(stored=b"\xff", serializer="raw")) == '"/w=="'
    assert full.payload(past(stored=b'{"a":[1,2]}')) == '{"a": [1, 2]}'


# -- runs of drills


def test_runs_are_listed_by_their_time_whatever_is_in_their_folders(tmp_path: Path) -> None:
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
    (odd / "verdict.json").write_bytes(b" " + verdict)
    assert queue_views.run_row(odd).verdict == "not judged"
