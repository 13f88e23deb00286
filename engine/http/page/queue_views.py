"""What the templates show of a queue, of channels and of the runs of drills. Pure functions, but
for the reading of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from engine.calendar import calendar
from engine.errors import counted, json_text
from engine.http.page.looks import SomeWorkers
from engine.http.page.rendering import UNKNOWN, length, query_of
from engine.models.dsps import Lag
from engine.ops.admin import HistoryRule
from engine.ops.looks import Counts, LimitInfo, PauseInfo
from engine.ops.workers import WorkerInfo
from engine.queue.history import HistoryOptions, PastJob, PastJobs
from engine.queue.looks import payload_members
from engine.queue.scheduling import Schedule
from engine.queue.why import LaneInfo, Obstacles, paused_words, unhandled, unhandled_words

#: Rows of each table.
_LANES_MAX = 12
_NAMES_MAX = 12
_REASONS_MAX = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page. `state`: what it counts, as jobs are listed; `least`: there may be
    more."""

    state: str
    title: str
    count: int
    least: bool = False


@dataclass(frozen=True, slots=True)
class NameRow:
    """The waiting jobs of one name, and since when the oldest one could be claimed (ms)."""

    name: str
    waiting: int
    lanes: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps jobs from being claimed, and how many lanes and jobs it was seen to hold back; 0:
    not seen to."""

    words: str
    lanes: int = 0
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of the lanes. `known` is False on an old keyspace; `cut`: there are more lanes than were
    looked at."""

    known: bool
    cut: bool
    now_ms: int
    oldest_age_ms: int | None
    names: tuple[NameRow, ...]
    lanes: tuple[LaneInfo, ...]
    reasons: tuple[Reason, ...]
    paused: bool
    unhandled: tuple[str, ...] = ()


def tiles(counts: Counts, waiting: int, *, least: bool) -> tuple[Tile, ...]:
    """The numbers of a queue. `waiting` is what is known of the waiting jobs; `least`: of some lanes only."""
    return (
        Tile("waiting", "Waiting", waiting, least),
        Tile("delayed", "Delayed", counts.delayed),
        Tile("blocked", "Blocked", counts.blocked),
        Tile("active", "Active", counts.active),
        Tile("dead", "Dead", counts.dead),
        Tile("finished", "Finished", counts.finished),
    )


def held(
    obstacles: Obstacles | None, now_ms: int, *, idle: bool, alive: Sequence[WorkerInfo] | None = None
) -> Held:
    """What holds jobs back. `idle`: nothing waits, so nothing has to move. `alive`: the live workers, None
    where not all of them are known."""
    if obstacles is None:
        return Held(False, False, now_ms, None, (), (), (), False)
    found = reasons(obstacles.pauses, obstacles.limits, obstacles.lanes)
    missing = () if idle or alive is None else unhandled(obstacles.waiting_by_name, alive)
    if missing and alive is not None:
        lanes = [lane for lane in obstacles.lanes if lane.name in missing]
        jobs = sum(lane.waiting for lane in lanes)
        found = [Reason(unhandled_words(missing, alive), len(lanes), jobs), *found][:_REASONS_MAX]
    return Held(
        known=True,
        cut=obstacles.cut,
        now_ms=now_ms,
        oldest_age_ms=obstacles.oldest_age_ms,
        names=names(obstacles.lanes)[:_NAMES_MAX],
        lanes=obstacles.lanes[:_LANES_MAX],
        reasons=() if idle else tuple(found),
        paused=any(pause.name is None for pause in obstacles.pauses),
        unhandled=missing if alive else (),
    )


def names(lanes: Iterable[LaneInfo]) -> tuple[NameRow, ...]:
    """The lanes of each name together, the names with most jobs first."""
    found: dict[str, NameRow] = {}
    for lane in lanes:
        known = found.get(lane.name, NameRow(lane.name, 0, 0, 0))
        oldest = min(filter(None, (known.oldest_ms, lane.oldest_ms)), default=0)
        found[lane.name] = NameRow(lane.name, known.waiting + lane.waiting, known.lanes + 1, oldest)
    return tuple(sorted(found.values(), key=lambda row: (-row.waiting, row.name)))


def reasons(
    pauses: Iterable[PauseInfo], limits: Iterable[LimitInfo], lanes: Iterable[LaneInfo]
) -> list[Reason]:
    """What holds jobs back, each thing once: what was seen to hold most jobs first."""
    seen: dict[str, Reason] = {}
    for words in [paused_words(pause) for pause in pauses] + [str(limit) for limit in limits if limit.full]:
        seen[words] = Reason(words)
    for lane in lanes:
        if lane.waits_for:
            before = seen.get(lane.waits_for, Reason(lane.waits_for))
            seen[lane.waits_for] = Reason(lane.waits_for, before.lanes + 1, before.jobs + lane.waiting)
    return sorted(seen.values(), key=lambda reason: -reason.jobs)[:_REASONS_MAX]


# -- Channels with how far their subscribers are behind.


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel with its subscribers, those that are furthest behind first; `most` is how far that is, at
    least 1."""

    name: str
    lags: tuple[Lag, ...]
    most: int


@dataclass(frozen=True, slots=True)
class ChannelList:
    """The channels whose subscribers one look has found; `next` is the cursor of the next look, None at the
    end."""

    rows: tuple[ChannelRow, ...]
    subscribers: int
    next: int | None


def channel_list(found: Iterable[Lag], cursor: int) -> ChannelList:
    """The subscribers by channel, in the order of their names."""
    known = tuple(found)
    rows: list[ChannelRow] = []
    for name in sorted({lag.channel for lag in known}):
        lags = sorted(
            (lag for lag in known if lag.channel == name),
            key=lambda lag: (-(lag.messages or 0), lag.subscriber),
        )
        rows.append(ChannelRow(name, tuple(lags), lags[0].messages or 1))
    return ChannelList(tuple(rows), len(known), cursor or None)


# -- Runs of drills, read from their folder: what was run, the verdict, and whether there is a report.

#: Runs of one view, the newest ones; entries of the folder that are looked at, and bytes of a file that are
#: read.
RUNS_MAX = 50
_ENTRIES_MAX = 5_000
_FILE_BYTES_MAX = 4 * 1024 * 1024
REPORT = "report.html"
#: A folder of a run: no other file can be named by an address.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_STARTS_WITH_DATE = re.compile(r"\d{8}-\d{6}-")


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run. `verdict` is valid, violated, unknown, or `not judged`; empty texts: not known."""

    name: str
    verdict: str
    started: str
    scenario: str
    model: str
    seed: str
    commit: str
    reason: str
    report: bool


@dataclass(frozen=True, slots=True)
class RunList:
    """The newest runs, and how many there are."""

    rows: tuple[RunRow, ...]
    count: int


def run_list(folder: Path) -> RunList:
    """The runs of a folder, by the time in their names, the newest first. A folder that cannot be read holds
    none."""
    names: list[str] = []
    try:
        for entry in folder.iterdir():
            if len(names) >= _ENTRIES_MAX:
                break
            if (
                _STARTS_WITH_DATE.match(entry.name)
                and RUN_NAME.fullmatch(entry.name)
                and not entry.is_symlink()
            ):
                names.append(entry.name)
    except OSError:
        return RunList((), 0)
    names.sort(reverse=True)
    return RunList(tuple(run_row(folder / name) for name in names[:RUNS_MAX]), len(names))


def run_row(run: Path) -> RunRow:
    """One run, whatever state its folder is in."""
    spec, verdict = _read(run / "spec.json"), _read(run / "verdict.json")
    reasons = verdict.get("reasons")
    first = cast("list[Any]", reasons)[0] if isinstance(reasons, list) and reasons else ""
    return RunRow(
        name=run.name,
        verdict=_text(verdict.get("verdict")) or "not judged",
        started=_text(spec.get("started_utc")).replace("T", " ").removesuffix("Z"),
        scenario=_text(spec.get("scenario")),
        model=_text(spec.get("model")),
        seed=_text(spec.get("seed")),
        commit=_text(spec.get("git_commit"))[:8],
        reason=_text(first),
        report=(run / REPORT).is_file(),
    )


def report_of(folder: Path, name: str) -> Path | None:
    """The report of a run; None when there is no such run or no report. No other file can be asked for."""
    if not RUN_NAME.fullmatch(name):
        return None
    path = folder / name / REPORT
    return path if not path.parent.is_symlink() and not path.is_symlink() and path.is_file() else None


def _read(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        with path.open("rb") as file:
            found: Any = json.loads(file.read(_FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return str(value)[:300] if isinstance(value, str | int) and not isinstance(value, bool) else ""


# -- Pauses and limits, as they are and to change.


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit: how full it is, from 0 to 100, and who fills it."""

    limit: LimitInfo
    fill: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LimitList:
    """Pauses and limits of a queue; `known` is False on an old keyspace, where they cannot be told."""

    known: bool
    pauses: tuple[PauseInfo, ...]
    limits: tuple[LimitRow, ...]
    paused: bool
    now_ms: int


def limit_list(obstacles: Obstacles | None) -> LimitList:
    """The pauses and limits of a queue."""
    if obstacles is None:
        return LimitList(False, (), (), False, 0)
    paused = any(pause.name is None for pause in obstacles.pauses)
    return LimitList(
        True, obstacles.pauses, tuple(map(limit_row, obstacles.limits)), paused, obstacles.srv_us // 1000
    )


def limit_row(limit: LimitInfo) -> LimitRow:
    """A limit as its row."""
    shares = [
        used / most for used, most in ((limit.in_hand, limit.concurrency), (limit.used, limit.rate)) if most
    ]
    workers = dict.fromkeys(worker for _, worker in limit.holders if worker)
    return LimitRow(limit, min(100, round(100 * max(shares, default=0.0))), tuple(workers))


# -- Schedules with their next ticks.

#: Schedules of a page, and ticks that a row shows.
ROWS_MAX = 50
_TICKS = 3


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule: when it ticks, in words, and its next ticks (ms). `idle`: why it does not tick, '' where it
    does."""

    schedule: Schedule
    timing: str
    ticks: tuple[int, ...]
    idle: str


@dataclass(frozen=True, slots=True)
class ScheduleList:
    """Schedules from rank `offset` on; `next` is where the following ones begin."""

    rows: tuple[ScheduleRow, ...]
    offset: int
    next: int | None
    now_ms: int


def schedule_list(found: Sequence[Schedule], offset: int, now_ms: int) -> ScheduleList:
    """One page of schedules; `found` has one more where another page follows."""
    rows = tuple(map(schedule_row, found[:ROWS_MAX]))
    return ScheduleList(rows, offset, offset + ROWS_MAX if len(found) > ROWS_MAX else None, now_ms)


def schedule_row(schedule: Schedule) -> ScheduleRow:
    """A schedule as its row."""
    idle = schedule.error or ("" if schedule.enabled else "disabled")
    ticks = [schedule.next_ms] if schedule.next_ms and not idle else []
    try:
        while ticks and len(ticks) < _TICKS:
            ticks.append(calendar(schedule.timing).after(ticks[-1], schedule.anchor_ms))
    except ValueError as error:
        idle = str(error)
    return ScheduleRow(schedule, timing_words(schedule), tuple(ticks), idle)


def timing_words(schedule: Schedule) -> str:
    """When it ticks: `0 9 * * 1 (Europe/Berlin)`, `every 5 min`, `every 3 months`."""
    timing = schedule.timing
    zone = "" if timing.zone == "UTC" else f" ({timing.zone})"
    if timing.cron:
        return timing.cron + zone
    if timing.every_ms:
        return f"every {length(timing.every_ms)}"
    return f"every {counted(timing.months, 'month')}{zone}" if timing.months else UNKNOWN


# -- Workers with what each has in hand.

#: Jobs in hand and names of handlers that a row shows.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker: whether it lives or why it claims nothing, some of its jobs, and how many more it has."""

    worker: WorkerInfo
    state: str
    jobs: tuple[str, ...]
    more_jobs: int
    handlers: tuple[str, ...]
    more_handlers: int


@dataclass(frozen=True, slots=True)
class WorkerList:
    """Workers from rank `offset` on, with the sums of those that live; `next` is where the following ones
    begin."""

    rows: tuple[WorkerRow, ...]
    alive: int
    in_hand: int
    places: int
    offset: int
    next: int | None
    now_ms: int


def worker_list(found: SomeWorkers, offset: int) -> WorkerList:
    """One page of workers: those that live first, by name."""
    rows = sorted(
        map(worker_row, found.workers),
        key=lambda row: (not row.worker.alive, row.worker.name, row.worker.incarnation),
    )
    alive = [info for info in found.workers if info.alive]
    sums = (len(alive), sum(info.in_hand for info in alive), sum(info.concurrency for info in alive))
    return WorkerList(
        tuple(rows), *sums, offset, offset + len(found.workers) if found.more else None, found.now_ms
    )


def worker_row(info: WorkerInfo) -> WorkerRow:
    """A worker as its row."""
    handlers = info.handlers
    return WorkerRow(
        info,
        state_of(info),
        info.jobs[:_SHOWN],
        max(0, info.in_hand - min(_SHOWN, len(info.jobs))),
        handlers[:_SHOWN],
        max(0, len(handlers) - _SHOWN),
    )


def state_of(info: WorkerInfo) -> str:
    """Whether it works, in one word or two."""
    if not info.alive:
        return "lost"
    if info.unreadable:
        return "unreadable"
    if info.paused:
        return "paused"
    if info.gate_closed:
        return "gate closed"
    return "busy" if info.concurrency and info.in_hand >= info.concurrency else "alive"


# -- How jobs have ended.

#: Lengths of time that a reader may choose, and what the page calls them.
_SINCE = {"": None, "1h": 3_600_000, "1d": 86_400_000, "2d": 172_800_000, "7d": 604_800_000}


@dataclass(frozen=True, slots=True)
class HistoryAsked:
    """Which entries a reader asks for, as the address has it."""

    key: str
    name: str
    outcome: str
    since: str
    before: str

    @property
    def options(self) -> HistoryOptions:
        """The same for the queue."""
        return {
            "key": self.key or None,
            "name": self.name or None,
            "outcome": self.outcome or None,
            "newer_than_ms": _SINCE.get(self.since),
            "before": self.before or None,
            "limit": ROWS_MAX,
        }

    @property
    def narrow(self) -> bool:
        """Whether it asks for some entries only."""
        return any((self.key, self.name, self.outcome, self.since))

    def address(self, before: str = "") -> str:
        """The query of the same entries, behind a place."""
        given = {"key": self.key, "name": self.name, "outcome": self.outcome, "since": self.since}
        return query_of(given | {"before": before})


def history_asked(query: Mapping[str, str]) -> HistoryAsked:
    """What an address asks for."""
    names = ("key", "name", "outcome", "since", "before")
    return HistoryAsked(*(query.get(name, "").strip() for name in names))


@dataclass(frozen=True, slots=True)
class HistoryList:
    """Entries, what is kept of ends at all (None: nothing), and the place behind which the next page is."""

    rows: Sequence[PastJob]
    rule: HistoryRule | None
    next: str | None
    now_ms: int
    payloads: bool

    def payload(self, past: PastJob) -> str:
        """The payload of an entry in a cell; '' where none is to be shown."""
        if not self.payloads or past.stored is None:
            return ""
        shown = payload_members(past.payload, past.stored)
        return json_text(shown.get("payload", shown.get("payload_base64")), spaced=True)[:300]


def history_list(found: PastJobs, now_ms: int, *, payloads: bool) -> HistoryList:
    """One page of a history."""
    return HistoryList(
        found, found.rule, found[-1].place if len(found) == ROWS_MAX else None, now_ms, payloads
    )
