"""Whether a queue and the oracle of mixed_oracle.py agree: every job's state, what is counted, and each key of the keyspace, so
that nothing is left of what has ended but what is documented (lanes_keys.py)."""

from typing import Any

from tests.engine.helpers import lanes_state, mixed_oracle
from tests.engine.helpers.schedules_oracle import SchedulesOracle
from tests.engine.using import Desk, Inspect

#: Indices and settings, and what expires by itself: they say nothing of a single job that is compared nowhere else.
COMMON = {
    "seq", "sweep", "classes", "stats", "limits", "paused", "parked", "rest", "blocking", "cron", "keeping", "feeding", "handing",
    "due", "active", "dead", "done", "blocked", "ready", "wake", "rate", "claim", "swept", "op", "heirs", "lacks", "lost",
}  # fmt: skip
#: Of what a queue without open jobs keeps, what may be there.
IDLE = {
    *("seq", "sweep", "classes", "stats", "limits", "paused", "dead", "done", "wake", "rate", "swept", "claim", "op"),
    *("job", "run", "result", "dedup", "lacks", "lost"),
}


def keys_by_kind(desk: Desk) -> dict[str, set[str]]:
    """What stands behind `job:` and so on, for each kind of key; '' for one that is alone of its kind."""
    found: dict[str, set[str]] = {}
    for key in desk.redis.scan_iter(count=1000):
        kind, _, rest = key.decode()[len(desk.keys.prefix) :].partition(":")
        found.setdefault(kind, set()).add(rest)
    return found


def compare(desk: Desk, oracle: mixed_oracle.MixedOracle, schedules: SchedulesOracle, ids: set[str]) -> None:
    """Assert all of it. `ids` are those of all jobs that ever were."""
    assert {state: sorted(jobs) for state, jobs in desk.queue.snapshot().states.items() if jobs} == oracle.states()
    counts, wanted = desk.queue.counts(), oracle.states()
    for state in ("waiting", "delayed", "active", "dead", "done", "blocked"):
        assert getattr(counts, state) == len(wanted.get(state, [])), state
    assert (counts.finished, counts.buried) == (oracle.finished, oracle.buried)
    assert set(lanes_state.members(desk, desk.keys.handing)) == set(oracle.handing) and counts.handing == len(oracle.handing)
    _compare_looks(desk, oracle, ids)
    _compare_keys(desk, oracle)
    _compare_schedules(desk, schedules)
    lanes_state.check(desk, room=True, held=False, bands=False)


def _compare_looks(desk: Desk, oracle: mixed_oracle.MixedOracle, ids: set[str]) -> None:
    asked = [job for job in sorted(ids) if not oracle.blurred(job, desk.now_ms)]
    for at in range(0, len(asked), 100):
        jobs = asked[at : at + 100]
        for job, found in zip(jobs, desk.run(Inspect(tuple(jobs), whole=False)).items, strict=True):
            assert (found.state, found.fence, found.at_ms) == oracle.known(job, desk.now_ms), job


def _compare_keys(desk: Desk, oracle: mixed_oracle.MixedOracle) -> None:
    now_ms, works, keys = desk.now_ms, oracle.works, keys_by_kind(desk)
    known = {job for job, ended in oracle.ended_jobs.items() if ended.until_ms > now_ms + mixed_oracle.BLUR_MS}
    maybe = {job for job, ended in oracle.ended_jobs.items() if abs(ended.until_ms - now_ms) <= mixed_oracle.BLUR_MS}
    there, wanted = keys.pop("job", set()), known | set(works)
    # A schedule that was run now and turned away is told the job that is there, and not the id under which that is noted.
    assert there - maybe - {job for job in there - wanted if job.startswith("cron:") and ":now-" in job} == wanted - maybe
    run = keys.pop("run", set())
    assert run <= set(works), ("left of ended jobs", run - set(works))
    assert run >= {job for job, work in works.items() if work.claims}
    # The error of a dead or skipped job is its result; the finishes here have none.
    with_error = {job for job, work in works.items() if work.state == "dead"} | (oracle.skipped & set(oracle.done))
    assert keys.pop("result", set()) == with_error and _strings(desk, "unique", keys.pop("unique", set())) == oracle.uniques
    dedups = {dedup: job for dedup, (job, until_ms) in oracle.dedups.items() if until_ms > now_ms}
    assert _strings(desk, "dedup", keys.pop("dedup", set())) == dedups
    assert _sets(desk, "needs", keys.pop("needs", set())) == {job: work.waits for job, work in works.items() if work.waits}
    assert _sets(desk, "feeds", keys.pop("feeds", set())) == {job: children for job, children in oracle.feeds.items() if children}
    for limit in {*keys.pop("held", set()), *oracle.held}:
        assert set(lanes_state.members(desk, desk.keys.held(limit))) == oracle.held.get(limit, set()), limit
    keys.pop("lane", None)
    assert set(keys) <= COMMON, "keys of another kind"


def _strings(desk: Desk, kind: str, names: set[str]) -> dict[str, str]:
    found: dict[str, Any] = {name: desk.redis.get(f"{desk.keys.prefix}{kind}:{name}") for name in names}
    return {name: value.decode() for name, value in found.items()}


def _sets(desk: Desk, kind: str, names: set[str]) -> dict[str, set[str]]:
    found: dict[str, Any] = {name: desk.redis.smembers(f"{desk.keys.prefix}{kind}:{name}") for name in names}
    return {name: {job.decode() for job in value} for name, value in found.items()}


def _compare_schedules(desk: Desk, schedules: SchedulesOracle) -> None:
    stored = {schedule.name: schedule for schedule in desk.queue.schedules.list()}
    assert set(stored) == set(schedules.known)
    for name, known in schedules.known.items():
        found = stored[name]
        assert (found.enabled, found.next_ms) == (known.enabled, known.next_ms if known.enabled else 0), name
        assert (found.last_job, found.count, found.skipped) == (known.last_job, known.count, known.skipped), name
