"""The data of the lanes: the leases of chosen jobs with all known events, and the other leases around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.facts import WORKER_FAULTS
from reports.meaning import ENDS
from reports.page.recoveries import Recovery
from reports.page.timeline import SECOND_NS, Axis, Window

if TYPE_CHECKING:
    from pyspark.sql import Row

    from reports.facts import Stage
    from reports.frames import Frames

#: Maximum number of followed jobs, and approximate maximum number of other leases, in one set of lanes.
JOBS_MAX = 12
OTHERS_MAX = 2_000

#: This many examples of each violated check are shown.
OFFENDERS_OF_A_CHECK = 2

#: Lanes begin this long before their fault and end this long after their last event.
LEAD_S = 2.0
TRAIL_S = 1.5

#: Answer to the call that ends a lease -> its text.
ANSWERS = {"ok": "accepted", "repeated": "repeated", "stale": "refused", "void": "refused", "unknown": "no answer"}


@dataclass
class Lease:
    """One lease of a job. Times are seconds on the axis; unknown values are None or empty."""

    job: str
    fence: int
    nonce: str
    worker: str = ""
    claimed_s: float | None = None
    started_s: float | None = None
    renewed_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    ended_by: str = ""
    answer: str = ""
    reaped_s: float | None = None
    reaped_by: str = ""

    @property
    def first_s(self) -> float:
        """When its first known event happened."""
        return min(at for at in (self.claimed_s, self.started_s, self.ended_s, self.reaped_s, float("inf")) if at is not None)

    @property
    def last_s(self) -> float:
        """When its last known event happened."""
        seen = (self.claimed_s, self.started_s, self.ended_s, self.reaped_s, *self.renewed_s)
        return max((at for at in seen if at is not None), default=self.first_s)


@dataclass(frozen=True, slots=True)
class Other:
    """A lease in the background: its worker and times."""

    worker: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Lanes:
    """The content of one timeline. `left_out`: number of leased jobs that are not followed; `one_in`: one in this many other
    leases is shown."""

    title: str
    start_s: float
    end_s: float
    workers: tuple[str, ...]
    jobs: tuple[str, ...]
    leases: tuple[Lease, ...]
    others: tuple[Other, ...] = ()
    left_out: int = 0
    one_in: int = 1


def in_hand_at(frames: Frames, recoveries: Sequence[Recovery]) -> dict[str, list[str]]:
    """Fault -> the jobs that its target held when it began, the slowest to run again first; for kills and freezes only."""
    found: dict[str, list[str]] = {}
    for one in recoveries:
        found.setdefault(one.fault, []).append(one.job)
    for stage in frames.run.stages:
        if stage.name in WORKER_FAULTS and stage.stage == "witness" and stage.fault not in found:
            named = [lease.rsplit(" ", 1)[0] for lease in stage.leases]
            found[stage.fault] = list(dict.fromkeys(named)) or held_by(frames, stage)
    return found


def held_by(frames: Frames, witness: Stage) -> list[str]:
    """Jobs that the target of a fault held when it was injected; used when the witness names none."""
    injects = [one.t_ns for one in frames.run.stages if one.fault == witness.fault and one.stage == "inject"]
    at_ns = F.lit(min([*injects, witness.t_ns])).cast("bigint")
    until_ns = F.least("end_sent_ns", "reap_sent_ns")
    held = (F.col("proc") == witness.target) & (F.col("claim_done_ns") <= at_ns) & (F.coalesce(until_ns, at_ns + 1) > at_ns)
    return [row["job"] for row in frames.tokens.where(held).select("job").distinct().orderBy("job").limit(JOBS_MAX).collect()]


def leases_of(frames: Frames, jobs: Iterable[str], axis: Axis) -> dict[str, list[Lease]]:
    """Job -> its leases by fence, from the rows of its claims, renewals, ends, reaps and handlers."""
    chosen = sorted(set(jobs))
    if not chosen:
        return {}
    about = F.col("job").isin(chosen) & F.col("fence").isNotNull() & F.col("f").isin("claim", "extend", "reap", "handle", *ENDS)
    columns = ("job", "fence", "nonce", "proc", "f", "type", "result", "first_send_ns", "done_ns")
    rows = frames.events.where(about).select(*columns).collect()
    found: dict[tuple[str, int, str], Lease] = {}
    for row in sorted(rows, key=lambda row: row["first_send_ns"] or row["done_ns"] or 0):
        key = (row["job"], row["fence"], row["nonce"] or "")
        enter(found.setdefault(key, Lease(*key)), row, axis)
    by_job: dict[str, list[Lease]] = {}
    for lease in sorted(found.values(), key=lambda lease: (lease.fence, lease.nonce)):
        by_job.setdefault(lease.job, []).append(lease)
    return by_job


def enter(lease: Lease, row: Row, axis: Axis) -> None:
    """Add the content of one row to its lease; rows must be in the order in which they were sent."""
    f, result, answered = row["f"], row["result"] or "", row["type"] == "ok"
    sent_s = None if row["first_send_ns"] is None else axis.second(row["first_send_ns"])
    done_s = None if row["done_ns"] is None else axis.second(row["done_ns"])
    if f == "reap":
        lease.reaped_s, lease.reaped_by = (sent_s if done_s is None else done_s), row["proc"]
        return
    lease.worker = lease.worker or row["proc"]
    if f == "claim" and answered and lease.claimed_s is None:
        lease.claimed_s = done_s
    elif f == "handle" and lease.started_s is None:
        lease.started_s = sent_s
    elif f == "extend" and answered and result == "ok" and sent_s is not None:
        lease.renewed_s.append(sent_s)
    elif f in ENDS and lease.answer not in ("accepted", "repeated"):
        lease.ended_s, lease.ended_by = sent_s, f
        lease.answer = ANSWERS.get(result, "no answer") if answered else "no answer"


def around(window: Window, jobs: Sequence[str], leases: dict[str, list[Lease]], limit_s: float, axis: Axis) -> Lanes:
    """The lanes of one fault, without other leases: from before it until its jobs ran elsewhere, or `limit_s` after it began."""

    def first_s(job: str) -> float:
        return min((lease.first_s for lease in leases.get(job, ())), default=0.0)

    shown = tuple(sorted(jobs[:JOBS_MAX], key=lambda job: (first_s(job), job)))
    followed = [lease for job in shown for lease in leases.get(job, []) if lease.last_s >= window.start_s - LEAD_S]
    last_s = max([window.end_s, *(lease.last_s for lease in followed)])
    end_s = min(last_s, window.start_s + limit_s, axis.end_s) + TRAIL_S
    followed = [lease for lease in followed if lease.first_s < end_s]
    workers = tuple(dict.fromkeys([window.target, *sorted(lease.worker for lease in followed if lease.worker)]))
    title = f"{window.name} of {window.target}"
    return Lanes(title, window.start_s - LEAD_S, end_s, workers, shown, tuple(followed), left_out=len(jobs) - len(shown))


def with_others(frames: Frames, lanes: Lanes, finished: Sequence[int], axis: Axis) -> Lanes:
    """The lanes with the background leases added, thinned to one in `one_in` jobs when there are too many. `finished`: finished
    jobs per bucket."""
    first, last = (int(at // axis.width_s) for at in (lanes.start_s, lanes.end_s))
    one_in = max(1, -(-sum(finished[max(0, first) : last + 1]) // OTHERS_MAX))
    start_ns, end_ns = (axis.start_ns + round(at * SECOND_NS) for at in (lanes.start_s, lanes.end_s))
    held_until = F.coalesce("end_sent_ns", "reap_sent_ns", "hold_end_ns", "claim_done_ns")
    inside = F.col("claim_done_ns").between(start_ns, end_ns) & ~F.col("job").isin(list(lanes.jobs))
    drawn = inside & (F.pmod(F.xxhash64("job"), F.lit(one_in)) == 0)
    chosen = frames.tokens.where(drawn).select("proc", "claim_done_ns", held_until.alias("until_ns")).limit(2 * OTHERS_MAX)
    found = [Other(row["proc"], axis.second(row["claim_done_ns"]), axis.second(row["until_ns"])) for row in chosen.collect()]
    in_order = sorted((one for one in found if one.worker in lanes.workers), key=lambda other: (other.worker, other.start_s))
    return replace(lanes, others=tuple(in_order), one_in=one_in)


def first_subjects(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The subjects of the first examples of each violated check."""
    subjects = [check["subjects"][:OFFENDERS_OF_A_CHECK] for check in checks if check["verdict"] == "violated"]
    return list(dict.fromkeys(subject for few in subjects for subject in few))[:JOBS_MAX]


def whole_story(jobs: Sequence[str], leases: Mapping[str, Sequence[Lease]]) -> Lanes | None:
    """Lanes with all leases of these jobs; None when no lease of any is known. Subjects that are not jobs are skipped."""
    jobs = [job for job in jobs if job in leases]
    followed = [lease for job in jobs for lease in leases[job] if lease.first_s != float("inf")]
    if not followed:
        return None
    start_s, end_s = min(lease.first_s for lease in followed), max(lease.last_s for lease in followed)
    margin_s = max(0.05, 0.1 * (end_s - start_s))
    workers = sorted({lease.worker for lease in followed if lease.worker})
    title = f"jobs {', '.join(jobs)}"
    return Lanes(title, start_s - margin_s, end_s + 2 * margin_s, tuple(workers), tuple(jobs), tuple(followed))
