"""Commands that look at whole queues, and set what holds for them: `queues`, `workers`, `pause`, `resume`,
`top`, `cron`, `limits` and `history`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.command.arguments import add_json, add_queue, add_server, duration_ms, never_was, opened, words
from engine.command.output import instant, json_text, print_error, renamed, show, show_one, table, tell
from engine.errors import Malformed, UnsupportedFeature
from engine.ops.looks import Counts, LimitInfo
from engine.ops.workers import WORKERS_MAX, WorkerInfo
from engine.queue import admin, history
from engine.queue.scheduling import Schedule
from engine.queue.synchronous import Queue, Schedules, queues
from engine.queue.why import LaneInfo, Obstacles, unhandled, unhandled_words

# -- What holds the jobs of a queue back, as the commands print it: pauses, limits, lanes, and workers
# that claim nothing.

#: Lanes of one queue that are printed, those with the most jobs: for programs, and for people.
_LANES_TOLD = 100
_LANES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds its jobs back, None on an old keyspace, where that cannot be told; and the workers that
    live."""

    obstacles: Obstacles | None
    workers: list[WorkerInfo]

    @property
    def oldest_s(self) -> float | None:
        """For how long the job has waited that has waited longest."""
        return None if self.obstacles is None else round(self.obstacles.oldest_age_ms / 1000, 1)

    @property
    def unhandled(self) -> tuple[str, ...]:
        """The names of waiting jobs for which no live worker has a handler."""
        if self.obstacles is None or len(self.workers) >= WORKERS_MAX:
            return ()
        return unhandled(self.obstacles.waiting_by_name, self.workers)

    @property
    def kept_back(self) -> list[WorkerInfo]:
        """The workers that claim nothing."""
        return [worker for worker in self.workers if worker.paused or worker.gate_closed]


def holding(queue: Queue) -> Holding:
    """What holds its jobs back."""
    workers = [worker for worker in queue.workers.list() if worker.alive]
    try:
        return Holding(queue.obstacles(), workers)
    except UnsupportedFeature:
        return Holding(None, workers)


def told(held: Holding) -> dict[str, Any]:
    """The fields for programs: the workers that are alive, those of them that claim nothing, pauses, limits
    and lanes; and for how long the oldest waiting job could have been claimed."""
    found = held.obstacles
    return {
        "workers": len(held.workers),
        "kept_back": [
            {"worker": w.name, "paused": w.paused, "gate_closed": w.gate_closed} for w in held.kept_back
        ],
        "unhandled": None if found is None else held.unhandled[:_LANES_TOLD],
        "oldest_age_ms": None if found is None else found.oldest_age_ms,
        "pauses": None if found is None else [asdict(pause) for pause in found.pauses],
        "limits": None if found is None else [asdict(limit) | {"full": limit.full} for limit in found.limits],
        "lanes": None if found is None else [asdict(lane) for lane in found.lanes[:_LANES_TOLD]],
    }


def summary(held: Holding) -> str:
    """What holds jobs back, in a cell of a table; '' where nothing does."""
    words: list[str] = []
    if held.obstacles is not None:
        words += [
            "paused" if pause.name is None else f"{pause.name} paused" for pause in held.obstacles.pauses
        ]
        words += [str(limit) for limit in held.obstacles.limits if limit.full]
    words += [f"{worker.name} {why_kept_back(worker)}" for worker in held.kept_back]
    return "; ".join(filter(None, [*words, unhandled_words(held.unhandled, held.workers)]))


def why_kept_back(worker: WorkerInfo) -> str:
    """Why a worker claims nothing, as its last heartbeat told; '' where it may."""
    return "paused" if worker.paused else "gate closed" if worker.gate_closed else ""


def tables(held: Holding) -> list[Sequence[dict[str, Any]]]:
    """The rows for people: pauses, limits, the lanes with the most jobs, and workers that claim nothing."""
    found = held.obstacles
    if found is None:
        return []
    pauses = [
        {"paused": pause.name or "(the queue)", "until": instant(pause.until_ms) or "resumed"}
        for pause in found.pauses
    ]
    limits = [
        {
            "limit of": limit.target,
            "in hand": f"{limit.in_hand} of {limit.concurrency}" if limit.concurrency else None,
            "claims": f"{limit.used} of {limit.rate} in {limit.per_ms / 1000:g} s" if limit.rate else None,
            "free again": instant(limit.free_ms),
            "lanes waiting": limit.parked,
            "by": ", ".join(dict.fromkeys(worker for _, worker in limit.holders)) or None,
        }
        for limit in found.limits
    ]
    missing = held.unhandled if held.workers else ()
    lanes = [_lane(lane, found.srv_us, missing) for lane in found.lanes[:_LANES_SHOWN]]
    workers = [{"worker": worker.name, "claims nothing": why_kept_back(worker)} for worker in held.kept_back]
    words = unhandled_words(held.unhandled, held.workers)
    missed = [{"unhandled": words}] if words else []
    return [rows for rows in (pauses, limits, missed, lanes, workers) if rows]


def _lane(lane: LaneInfo, srv_us: int, missing: Sequence[str]) -> dict[str, Any]:
    worker = "a handler: no live worker has one" if lane.name in missing else "a worker"
    return {
        "lane": lane.name + (f"/{lane.key}" if lane.key else ""),
        "waiting": lane.waiting,
        "oldest s": round(max(0, srv_us / 1000 - lane.oldest_ms) / 1000, 1),
        "waits for": lane.waits_for or worker,
    }


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add both commands."""
    listing = commands.add_parser(
        "queues", help="the queues of a server: jobs by state, and what holds them back"
    )
    add_server(listing)
    add_json(listing)
    listing.set_defaults(run=_queues)
    workers = commands.add_parser("workers", help="the workers of a queue, and what each has in hand")
    add_queue(workers)
    add_json(workers)
    workers.set_defaults(run=_workers)


def _queues(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for found in queues(options.url, model=options.model, prefix=options.prefix):
        with opened(options, found.name) as queue:
            now, held = queue.counts(), holding(queue)
        counts = asdict(now)
        del counts["srv_us"]
        used = instant(found.used_ms)
        if options.json:
            counts |= {name: getattr(now, name) for name in _FORMER.values() if hasattr(now, name)}
            rows.append({"queue": found.name, **counts, "used": used, **told(held)})
            continue
        for unshown in ("cursor", "handing", *_FORMER):
            counts.pop(unshown, None)
        more = {
            "oldest s": held.oldest_s,
            "workers": len(held.workers),
            "used": used,
            "held back": summary(held),
        }
        rows.append({"queue": found.name, **counts, **more})
    under = f" under the prefix {options.prefix}" if options.prefix else ""
    show(rows, as_json=options.json, nothing=f"no queues{under}")
    return 0


def _workers(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        found = queue.workers.list()
        if not found and never_was(queue, options):
            return _NOT_DONE
    show([_row(worker, options.json) for worker in found], as_json=options.json, nothing="no workers")
    return 0


def _row(worker: WorkerInfo, whole: bool) -> dict[str, Any]:
    """A row of the output: all fields for programs, the most important ones for people."""
    row = {
        "worker": worker.name or worker.incarnation,
        "alive": worker.alive,
        "host": worker.host,
        "pid": worker.pid,
        "in hand": worker.in_hand,
        "concurrency": worker.concurrency,
        "handlers": ", ".join(worker.handlers),
        "started": instant(worker.started_ms),
        "beat age s": round(worker.beat_age_ms / 1000, 1),
        "claims nothing": why_kept_back(worker) or worker.unreadable or None,
    }
    return {**asdict(worker), "attributes": dict(worker.attributes)} if whole else row


# -- `ironclaim pause` and `ironclaim resume`.

#: Exit code where there was nothing to do it to.
_NOT_DONE = 1


def add_pausing(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add both commands."""
    pause = commands.add_parser(
        "pause", help="claim no jobs of a name, or of the whole queue; those in hand go on"
    )
    pause.add_argument("name", nargs="?", help="name of the jobs; without one the whole queue")
    pause.add_argument(
        "--for",
        dest="length_ms",
        metavar="LENGTH",
        type=duration_ms,
        default=0,
        help="90s, 10m, 2h; without it until `resume`",
    )
    pause.set_defaults(run=run_pause)
    resume = commands.add_parser("resume", help="end a pause")
    resume.add_argument("name", nargs="?", help="name of the jobs; without one the pause of the whole queue")
    resume.set_defaults(run=run_resume)
    for parser in (pause, resume):
        add_queue(parser)
        add_json(parser)


def run_pause(options: argparse.Namespace) -> int:
    """Pause."""
    with opened(options) as queue:
        if never_was(queue, options):
            return _NOT_DONE
        queue.pause(options.name, length_ms=options.length_ms)
    tell("paused", options.name or "the whole queue", options, length_ms=options.length_ms)
    return 0


def run_resume(options: argparse.Namespace) -> int:
    """Resume."""
    with opened(options) as queue:
        was_paused = queue.resume(options.name)
    if not was_paused:
        what = f"the name {options.name}" if options.name else "the whole queue"
        print_error(f"queue {options.queue}: {what} was not paused")
        return _NOT_DONE
    tell("resumed", options.name or "the whole queue", options)
    return 0


# -- `ironclaim top`: a queue, live in a terminal.

_STATES = ("waiting", "delayed", "blocked", "active", "dead")
#: Counters, by the word for the state that they count.
_TOTALS = {"finished": "finished", "dead": "dead_total"}
#: The former names of some fields for programs, for one release.
_FORMER = {"done": "finished_kept", "buried": "dead_total", "buried_per_s": "dead_per_s"}
#: Clear the screen and go to its top left corner.
_CLEAR = "\x1b[H\x1b[2J"


def add_top(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser("top", help="a queue, live", description="A queue, live in a terminal.")
    add_queue(parser)
    parser.add_argument("--every-s", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument("--count", type=int, default=0, help="looks before it ends; 0 = until Ctrl-C")
    add_json(parser)
    parser.set_defaults(run=run_top)


def run_top(options: argparse.Namespace) -> int:
    """Show the queue until it is interrupted."""
    if not 0.1 <= options.every_s <= 3600:
        raise Malformed("--every-s", options.every_s, "0.1 to 3600")
    live = sys.stdout.isatty() and not options.json
    with opened(options) as queue:
        if never_was(queue, options):
            return _NOT_FOUND
        for number, (look, held) in enumerate(_looks(queue, options.every_s), start=1):
            if options.json:
                print(json_text(look), flush=True)
            else:
                print((_CLEAR if live else "") + _screen(options.queue, look, held), flush=True)
            if number == options.count:
                break
    return 0


def _looks(queue: Queue, every_s: float) -> Iterator[tuple[dict[str, Any], Holding]]:
    """The present numbers with the rates since the previous ones, and what holds jobs back."""
    before: Counts | None = None
    while True:
        counts = queue.counts()
        look: dict[str, Any] = {"srv_us": counts.srv_us} | {
            state: getattr(counts, state) for state in _STATES
        }
        passed_s = (counts.srv_us - before.srv_us) / 1e6 if before else 0.0
        look["finished_kept"] = counts.finished_kept
        for state, name in _TOTALS.items():
            total = getattr(counts, name)
            look[name] = total
            look[f"{state}_per_s"] = (
                round((total - getattr(before, name)) / passed_s, 1) if before and passed_s > 0 else None
            )
        look |= {former: look[name] for former, name in _FORMER.items()}
        before, held = counts, holding(queue)
        yield look | told(held), held
        time.sleep(every_s)


def _screen(name: str, look: dict[str, Any], held: Holding) -> str:
    clock = time.strftime("%H:%M:%S", time.gmtime(look["srv_us"] / 1e6))
    states = table(
        [{state: look[state] for state in _STATES} | {"oldest s": held.oldest_s, "workers": look["workers"]}]
    )
    rates = table(
        [{"": state, "total": look[name], "per s": look[f"{state}_per_s"]} for state, name in _TOTALS.items()]
    )
    more = [table(rows) for rows in tables(held)]
    return "\n\n".join([f"{name}  {clock} UTC by the server", states, rates, *more])


# -- `ironclaim cron`: the schedules of a queue.

#: Exit code where there is nothing to do it to.
_NOT_FOUND = 1


def add_cron(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    cron = commands.add_parser(
        "cron", help="the schedules of a queue", description="The schedules of a queue, by next tick."
    )
    actions = cron.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all of them, by next tick")
    listing.set_defaults(run=_list_schedules)
    add_queue(listing)
    add_json(listing)
    for name, help, act in (
        ("enable", "let it tick again", Schedules.enable),
        ("disable", "let it not tick until it is enabled", Schedules.disable),
        ("remove", "forget it; jobs that it has made stay", Schedules.remove),
        ("run", "enqueue one of its jobs now, beside its ticks", _run_schedule),
    ):
        action = actions.add_parser(name, help=help)
        action.add_argument("schedule", help="name of the schedule")
        action.set_defaults(run=_acting(act, name))
        add_queue(action)
        add_json(action)


def _list_schedules(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        rows = [_schedule_row(schedule) for schedule in queue.schedules.list()]
        if not rows and never_was(queue, options):
            return _NOT_FOUND
    if options.json:
        rows = [renamed(row, name="schedule", job_name="job") for row in rows]
    show(rows, as_json=options.json, nothing="no schedules")
    return 0


def _acting(act: Callable[[Schedules, str], bool], name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        with opened(options) as queue:
            done = act(queue.schedules, options.schedule)
        if not done:
            print_error(f"no schedule {options.schedule} in queue {options.queue}")
            return _NOT_FOUND
        show_one({"schedule": options.schedule, "queue": options.queue, "done": name}, as_json=options.json)
        return 0

    return run


def _run_schedule(schedules: Schedules, name: str) -> bool:
    return schedules.run_now(name) is not None


def _schedule_row(schedule: Schedule) -> dict[str, Any]:
    timing = schedule.timing
    ticks = (
        f"{timing.cron} {timing.zone}"
        if timing.cron
        else f"every {timing.every_ms} ms"
        if timing.every_ms
        else ""
    )
    return {
        "schedule": schedule.name,
        "job": schedule.job_name,
        "ticks": ticks or f"every {timing.months} months {timing.zone}",
        "enabled": schedule.enabled,
        "next": instant(schedule.next_ms),
        "last": instant(schedule.last_ms),
        "count": schedule.count,
        "missed": schedule.missed,
        "skipped": schedule.skipped,
        "error": schedule.error or None,
    }


# -- `ironclaim limits` and `ironclaim history`: how much of a queue runs at once, what is kept of its ends.


def add_limits(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command for limits."""
    parser = commands.add_parser("limits", help="how many jobs of a name or key may be in hand, or claimed")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="each with how far it is used up")
    listing.set_defaults(run=_list_limits)
    setting = actions.add_parser("set", help="limit a name or a key, in place of the limit that it has")
    setting.set_defaults(run=_set_limit)
    clearing = actions.add_parser("clear", help="remove the limit of a name or a key")
    clearing.set_defaults(run=_clear_limit)
    for action in (setting, clearing):
        action.add_argument("name", nargs="?", help="name of the jobs; without one say --key")
        action.add_argument("--key", help="all jobs with this key; '*': each key without a limit of its own")
    setting.add_argument("--concurrency", type=int, default=0, metavar="N", help="most jobs in hand at once")
    setting.add_argument("--rate", type=int, default=0, metavar="N", help="most claims in --per")
    setting.add_argument(
        "--per", dest="per_ms", type=duration_ms, default=0, metavar="LENGTH", help="of --rate: 1s, 10m"
    )
    setting.add_argument(
        "--window", choices=("sliding", "fixed"), default="sliding", help="of --rate (sliding)"
    )
    for action in (listing, setting, clearing):
        add_queue(action)
        add_json(action)


def _list_limits(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        found = queue.limits()
        if not found and never_was(queue, options):
            return _NOT_DONE
    rows = [asdict(limit) | _limit_row(limit) if options.json else _limit_row(limit) for limit in found]
    show(rows, as_json=options.json, nothing="no limits")
    return 0


def _limit_row(limit: LimitInfo) -> dict[str, Any]:
    return {
        "limit of": limit.target,
        "in hand": limit.in_hand,
        "concurrency": limit.concurrency or None,
        "used": limit.used,
        "rate": limit.rate or None,
        "per ms": limit.per_ms or None,
        "full": limit.full,
        "free again": instant(limit.free_ms),
    }


def _set_limit(options: argparse.Namespace) -> int:
    given: dict[str, Any] = {
        "key": options.key,
        "concurrency": options.concurrency,
        "rate": options.rate,
        "per_ms": options.per_ms,
        "window": options.window,
    }

    def check(queue: Queue) -> None:
        admin.set_limit(queue.model.names, options.name, **given)

    with opened(options, check=check) as queue:
        queue.set_limit(options.name, **given)
    more = {name: value for name, value in given.items() if name != "key" and value}
    tell("limited", _target(options), options, **more)
    return 0


def _clear_limit(options: argparse.Namespace) -> int:
    def check(queue: Queue) -> None:
        admin.remove_limit(queue.model.names, options.name, options.key)

    with opened(options, check=check) as queue:
        if never_was(queue, options):
            return _NOT_DONE
        queue.remove_limit(options.name, key=options.key)
    tell("cleared", _target(options), options)
    return 0


def _target(options: argparse.Namespace) -> str:
    return f"key {options.key}" if options.key is not None else f"name {options.name}"


# -- `ironclaim history`: whether it is kept how jobs have ended. `ironclaim jobs history` reads it.


def add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command for the history."""
    parser = commands.add_parser("history", help="begin, end or look at what is kept of how jobs have ended")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    begin = actions.add_parser("on", help="keep how jobs end from now on; `jobs history` reads it")
    begin.add_argument("--keep", type=int, default=10_000, metavar="N", help="how many ends (%(default)s)")
    begin.add_argument("--age", dest="age_ms", type=duration_ms, metavar="LENGTH", help="for how long: 7d")
    begin.add_argument("--names", type=words, default=(), metavar="A,B,...", help="of these names alone")
    begin.add_argument(
        "--payload-bytes", type=int, default=0, metavar="N", help="also payloads of at most so many bytes"
    )
    begin.set_defaults(run=_begin)
    end = actions.add_parser("off", help="keep no more ends, and delete those that were kept")
    end.set_defaults(run=_end)
    look = actions.add_parser("show", help="what is kept")
    look.set_defaults(run=_look)
    for action in (begin, end, look):
        add_queue(action)
        add_json(action)


def _begin(options: argparse.Namespace) -> int:
    more: dict[str, Any] = {
        "age_ms": options.age_ms,
        "names": options.names or None,
        "payload_bytes": options.payload_bytes,
    }

    def check(queue: Queue) -> None:
        history.set_history(queue.model.names, options.keep, *more.values())

    with opened(options, check=check) as queue:
        queue.history.on(options.keep, **more)
    tell("history", "on", options, keep=options.keep, **more)
    return 0


def _end(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        if never_was(queue, options):
            return _NOT_DONE
        queue.history.off()
    tell("history", "off", options)
    return 0


def _look(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        rule = queue.history.rule()
        if rule is None and never_was(queue, options):
            return _NOT_DONE
    row: dict[str, Any] = {"history": "off" if rule is None else "on", "queue": options.queue}
    if rule is not None:
        row |= {"keep": rule.keep, "age_ms": rule.age_ms or None, "names": rule.names or None}
        row["payload_bytes"] = rule.payload_bytes
    show_one(row, as_json=options.json)
    return 0
