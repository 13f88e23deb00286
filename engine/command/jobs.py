"""`ironclaim jobs`, `ironclaim why` and `ironclaim dead`: look at jobs, and act on single ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

from engine import validate
from engine.command.arguments import add_json, add_queue, duration_ms, never_was, opened
from engine.command.output import instant, json_text, print_error, renamed, show, show_one, tell
from engine.errors import counted
from engine.ops.admin import Altered
from engine.ops.looks import listed
from engine.queue import looks
from engine.queue.history import OUTCOMES, HistoryOptions, PastJob, wanted
from engine.queue.looks import JobError, JobInfo, main_line, options_told, payload_members
from engine.queue.producing import JOBS_MAX
from engine.queue.synchronous import Queue
from engine.queue.workflows import SHOWN

Act = Callable[[Queue, str], Altered]

#: Exit code where there is nothing to do it to, or the job was not in a state for it.
_NOT_DONE = 1
#: Jobs that a requeue has left dead, of those that it names.
_LEFT_TOLD = 5
#: Options that `ironclaim jobs show` has a line for.
_OWN_LINES = ("priority", "key", "headers")


def _cancel(queue: Queue, job: str) -> Altered:
    return queue.jobs.cancel(job)


def _run_now(queue: Queue, job: str) -> Altered:
    return queue.jobs.run_now(job)


def _remove(queue: Queue, job: str) -> Altered:
    return queue.jobs.remove(job)


#: Name, what it does, how that is told when it is done, and help.
_ALTERING: tuple[tuple[str, Act, str, str], ...] = (
    ("cancel", _cancel, "cancelled", "it ends without having run; a running one loses its lease"),
    ("run-now", _run_now, "claimable", "a delayed job is claimable at once"),
    ("remove", _remove, "removed", "forget a job that nobody runs"),
)


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the three commands."""
    jobs = commands.add_parser("jobs", help="look at jobs, cancel, remove or run single ones")
    actions = jobs.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = _action(actions, "list", _list, "the jobs of a state")
    listing.add_argument(
        "--state",
        default="waiting",
        help="waiting, delayed, blocked, active, stuck, dead or finished (waiting)",
    )
    _range(listing)
    _selected(listing, "enqueue, death or end")
    history = _action(actions, "history", _history, "how jobs have ended: what became of order 7")
    history.add_argument("--key", help="only those with this id, key or unique key")
    history.add_argument("--name", help="only those of this name")
    history.add_argument("--outcome", choices=OUTCOMES, help="only those that ended like this")
    history.add_argument(
        "--newer-than", type=duration_ms, metavar="AGE", help="only those that ended not so long ago: 24h"
    )
    history.add_argument(
        "--older-than", type=duration_ms, default=0, metavar="AGE", help="only those that ended so long ago"
    )
    history.add_argument("--before", metavar="PLACE", help="go on behind the entry with this place (--json)")
    history.add_argument("--limit", type=int, default=20, help="how many at most (%(default)s)")
    _action(actions, "times", _times, "how long the handlers of each name took")
    _action(actions, "show", _show, "everything about one job", "job")
    workflow = _action(
        actions,
        "workflow",
        _workflow,
        "the jobs that need each other, of which this is one; or cancel or retry them",
        "job",
    )
    workflow.add_argument("--limit", type=int, default=SHOWN, help="how many to show (%(default)s)")
    does = workflow.add_mutually_exclusive_group()
    does.add_argument("--cancel", action="store_true", help="cancel all that have not ended")
    does.add_argument("--retry", action="store_true", help="requeue all that are dead")
    for name, act, done, help in _ALTERING:
        _action(actions, name, _altering(act, done), help, "job")
    why = commands.add_parser(
        "why", help="why a job does not run, in one sentence", description="Why a job does not run."
    )
    why.add_argument("job", help="id of the job")
    why.set_defaults(run=_why)
    add_queue(why)
    add_json(why)
    dead = commands.add_parser("dead", help="the jobs that will not run again by themselves")
    actions = dead.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = _action(actions, "list", _dead, "each with its last error")
    _range(listing)
    _selected(listing, "death")
    grouped = _action(
        actions, "by-error", _by_error, "how many died of each kind of error: ids and numbers do not count"
    )
    grouped.add_argument("--limit", type=int, default=10_000, help="how many are looked at (%(default)s)")
    requeue = _action(
        actions,
        "requeue",
        _requeue,
        "let a job start anew, all of them, or those of a name, key, error or age",
    )
    requeue.add_argument("job", nargs="?", help="id of the job")
    requeue.add_argument("--all", action="store_true", help="all dead jobs")
    requeue.add_argument(
        "--with-children", action="store_true", help="of one job: also those that died with it"
    )
    _selected(requeue, "death")
    discard = _action(
        actions, "discard", _discard, "forget a dead job, all of them, or those of a name, key, error or age"
    )
    discard.add_argument("job", nargs="?", help="id of the job")
    discard.add_argument("--all", action="store_true", help="all dead jobs")
    _selected(discard, "death")
    clear = _action(actions, "clear", _clear, "forget all dead jobs that are old enough")
    clear.add_argument("--older-than", type=duration_ms, required=True, help="90s, 10m, 2h, 7d; 0s for all")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],  # pyright: ignore[reportPrivateUsage]
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,
    *arguments: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=help)
    for argument in arguments:
        parser.add_argument(argument, help=f"id of the {argument}")
    parser.set_defaults(run=run)
    add_queue(parser)
    add_json(parser)
    return parser


def _range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offset", type=int, default=0, help="how many to pass by")
    parser.add_argument("--limit", type=int, default=20, help="how many at most (%(default)s)")
    parser.add_argument("--newest-first", action="store_true", help="the newest first")


def _selected(parser: argparse.ArgumentParser, since: str) -> None:
    parser.add_argument("--name", help="only those of this name")
    parser.add_argument("--key", help="only those with this key")
    parser.add_argument("--error", help="only those whose last error has these words: ValueError")
    parser.add_argument(
        "--error-like", metavar="ERROR", help="only those whose last error is of the kind of this one"
    )
    parser.add_argument(
        "--older-than",
        type=duration_ms,
        default=0,
        metavar="AGE",
        help=f"only those whose {since} is so long ago: 2h",
    )
    parser.add_argument(
        "--newer-than", type=duration_ms, metavar="AGE", help="only those where it is not so long ago"
    )


def _selection(options: argparse.Namespace) -> dict[str, Any]:
    """Which jobs are meant, as the methods of a queue take it."""
    ages = {"older_than_ms": options.older_than, "newer_than_ms": options.newer_than}
    errors = {"error": options.error, "error_like": options.error_like}
    return {"name": options.name, "key": options.key, **errors, **ages}


def _page(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "offset": options.offset,
        "limit": options.limit,
        "newest_first": options.newest_first,
        **_selection(options),
    }


def _check_page(options: argparse.Namespace, queue: Queue) -> None:
    looks.listing(validate.PAGE_MAX, **_page(options), names=queue.model.names)


def _check_job(options: argparse.Namespace, queue: Queue) -> None:
    queue.model.names.known_id(options.job)


def _list(options: argparse.Namespace) -> int:
    with opened(options, check=partial(_check_page, options)) as queue:
        found = queue.jobs.list(options.state, **_page(options))
        if not found and never_was(queue, options):
            return _NOT_DONE
    _show_jobs(found, options, f"no job is {options.state}")
    return 0


def _past(options: argparse.Namespace) -> HistoryOptions:
    """Which entries of the history are meant."""
    return {
        "key": options.key,
        "name": options.name,
        "outcome": options.outcome,
        "newer_than_ms": options.newer_than,
        "older_than_ms": options.older_than,
        "before": options.before,
        "limit": options.limit,
    }


def _check_past(options: argparse.Namespace, queue: Queue) -> None:
    wanted(queue.model.names, **_past(options))


def _history(options: argparse.Namespace) -> int:
    with opened(options, check=partial(_check_past, options)) as queue:
        found = queue.history.list(**_past(options))
        if not found and never_was(queue, options):
            return _NOT_DONE
        if not found and found.rule is None:
            print_error(f"queue {options.queue} keeps no history: ironclaim history on begins one")
            return _NOT_DONE
    rows = [_past_row(past) if options.json else _past_line(past) for past in found]
    show(rows, as_json=options.json, nothing="no job that is meant has ended since the history began")
    return 0


def _past_row(past: PastJob) -> dict[str, Any]:
    """An entry for programs."""
    kept = {} if past.stored is None else payload_members(past.payload, past.stored)
    times = {name: instant(getattr(past, f"{name}_ms")) for name in ("enqueued", "started", "ended")}
    return {**past.told, **times, **kept}


def _past_line(past: PastJob) -> dict[str, Any]:
    """An entry for people."""
    return {
        "ended": instant(past.ended_ms),
        "job": past.id,
        "name": past.name,
        "outcome": past.outcome,
        "key": past.key or None,
        "worker": past.worker or None,
        "waited ms": past.waited_ms,
        "ran ms": past.ran_ms,
        "claims": past.claims,
        "payload bytes": past.payload_bytes,
        "error": main_line(past.error) or None,
    }


def _times(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        found = queue.stats()
        if not found and never_was(queue, options):
            return _NOT_DONE
    rows: list[dict[str, Any]] = []
    for times in found:
        for outcome, runs in (("succeeded", times.succeeded), ("failed", times.failed)):
            if runs.count:
                percentiles = {
                    f"p{percent} ms": round(runs.percentile_ms(percent), 3) for percent in (50, 95, 99)
                }
                rows.append(
                    {
                        "name": times.name,
                        "outcome": outcome,
                        "runs": runs.count,
                        "mean ms": round(runs.mean_ms, 3),
                        **percentiles,
                        "most ms": runs.most_ms,
                        "since": instant(times.since_ms),
                    }
                )
    show(rows, as_json=options.json, nothing="no worker has told of a run yet")
    return 0


def _dead(options: argparse.Namespace) -> int:
    with opened(options, check=partial(_check_page, options)) as queue:
        found = queue.dead.list(**_page(options))
        if not found and never_was(queue, options):
            return _NOT_DONE
    _show_jobs(found, options, "no job is dead")
    return 0


def _show(options: argparse.Namespace) -> int:
    with opened(options, check=partial(_check_job, options)) as queue:
        job = queue.jobs.get(options.job)
    if job is None:
        return _unknown(options)
    whole = _whole(job)
    if options.json:
        whole = renamed(whole, id="job")
    else:
        whole["errors"] = "\n".join(map(_error_text, job.errors)) or None
    show_one(whole, as_json=options.json)
    return 0


def _why(options: argparse.Namespace) -> int:
    with opened(options, check=partial(_check_job, options)) as queue:
        found = queue.jobs.why(options.job)
    if not found.known and not options.json:
        return _unknown(options)
    row = {"job": found.job, "queue": options.queue, "state": found.state, "why": found.sentence}
    print(json_text(renamed(row, id="job")) if options.json else found)
    return 0 if found.known else _NOT_DONE


def _altering(act: Act, done: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        with opened(options, check=partial(_check_job, options)) as queue:
            altered = act(queue, options.job)
        return _end(altered, done, options)

    return run


def _requeue(options: argparse.Namespace) -> int:
    return _of_dead(options, "requeue", "requeued")


def _discard(options: argparse.Namespace) -> int:
    return _of_dead(options, "discard", "discarded")


def _of_dead(options: argparse.Namespace, action: Literal["requeue", "discard"], done: str) -> int:
    """Change one dead job, or those that are meant."""
    wanted = _selection(options)
    if bool(options.job) == (options.all or any(wanted.values())):
        flags = "--all, --name, --key, --error, --error-like, --older-than or --newer-than"
        print_error(f"dead {action}: name a job, or say {flags}")
        return 2
    if action == "requeue" and options.with_children and not options.job:
        print_error("dead requeue: --with-children is for one job, which is named")
        return 2
    with opened(options) as queue:
        requeues = action == "requeue"
        if requeues and options.with_children:
            altered = queue.dead.requeue(options.job, with_children=True)
            return _end_with_children(altered, options, _left_words(queue, altered))
        if options.job:
            act = queue.dead.requeue if requeues else queue.dead.discard
            return _end(act(options.job), done, options)
        if never_was(queue, options):
            return _NOT_DONE
        act_on_all = queue.dead.requeue_all if requeues else queue.dead.discard_all
        count = act_on_all(**wanted)
    tell(done, count, options)
    return 0


def _by_error(options: argparse.Namespace) -> int:
    def check(_: Queue) -> None:
        validate.integer("limit", options.limit, 1, looks.LOOKED_MAX)

    with opened(options, check=check) as queue:
        found = queue.dead.by_error(limit=options.limit)
        if not found.looked and never_was(queue, options):
            return _NOT_DONE
    rows = [
        {
            "error": group.kind,
            "name": group.name or None,
            "jobs": group.count,
            "first": instant(group.first_ms),
            "last": instant(group.last_ms),
            "example": group.job,
        }
        for group in found.groups
    ]
    if options.json:
        rows = [renamed(row, kind="error", count="jobs", job="example") for row in rows]
    show(rows, as_json=options.json, nothing="no job is dead")
    if found.more:
        looked = counted(found.looked, "job")
        print_error(f"these are the errors of the {looked} that died last; others died before")
    return 0


def _end_with_children(altered: Altered, options: argparse.Namespace, left: object) -> int:
    """What came of a job and of those that died with it. Where it was requeued before, they count."""
    if options.json:
        show_one({**_ended(altered, options), **_counted(altered)}, as_json=True)
    elif altered.done:
        tell("requeued", altered.job, options, was=altered.state, children=altered.children, left=left)
    elif altered.children:
        tell("children", altered.children, options, left=left)
    else:
        return _end(altered, "requeued", options)
    return 0 if altered.done or altered.children else _NOT_DONE


def _left_words(queue: Queue, altered: Altered) -> object:
    """How many that were buried with a parent stay dead, and which: `1: ship-9, for charge-9 is dead`."""
    found = queue.workflows.get(altered.job, limit=JOBS_MAX) if altered.left else None
    if found is None:
        return altered.left
    states, below, words = {job.id: job.state for job in found.jobs}, {altered.job}, list[str]()
    # Parents come before their children.
    for job in found.jobs:
        if job.id == altered.job or below.isdisjoint(job.needs):
            continue
        below.add(job.id)
        if job.state == "dead":
            dead = [parent for parent in job.needs if states.get(parent) == "dead"]
            words.append(
                f"{job.id}, for {listed(dead)} {'is' if len(dead) == 1 else 'are'} dead" if dead else job.id
            )
    more = len(words) - _LEFT_TOLD
    return f"{altered.left}: {'; '.join(words[:_LEFT_TOLD])}{f'; and {more} more' if more > 0 else ''}"


def _counted(altered: Altered) -> dict[str, int]:
    return {"children": altered.children, "left": altered.left}


def _workflow(options: argparse.Namespace) -> int:
    def check(queue: Queue) -> None:
        _check_job(options, queue)
        validate.integer("limit", options.limit, 1, JOBS_MAX)

    with opened(options, check=check) as queue:
        if options.cancel or options.retry:
            change = queue.workflows.cancel if options.cancel else queue.workflows.retry
            changed = change(options.job)
            row = {
                "job": options.job,
                "queue": options.queue,
                "changed": changed.changed,
                "left": changed.left,
            }
            row = renamed(row, id="job") if options.json else row
            show_one({**row, "more": changed.more}, as_json=options.json)
            return 0
        found = queue.workflows.get(options.job, limit=options.limit)
    if found is None:
        return _unknown(options)
    if options.json:
        print(json_text({"queue": options.queue, "counts": found.counts, **asdict(found)}))
        return 0
    rows = [{**asdict(job), "needs": ", ".join(job.needs) or None} for job in found.jobs]
    show(rows, as_json=False, nothing="")
    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items())
    print(f"{counts}{'; there are more: --limit' if found.more else ''}")
    return 0


def _clear(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        if never_was(queue, options):
            return _NOT_DONE
        count = queue.dead.clear(older_than_ms=options.older_than)
    tell("cleared", count, options)
    return 0


def _unknown(options: argparse.Namespace) -> int:
    print_error(f"queue {options.queue} knows no job {options.job}")
    return _NOT_DONE


def _ended(altered: Altered, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "id": altered.job,
        "job": altered.job,
        "queue": options.queue,
        "result": altered.result,
        "state": altered.state,
        "holder": altered.holder,
    }


def _end(altered: Altered, done: str, options: argparse.Namespace) -> int:
    if options.json:
        show_one(_ended(altered, options), as_json=True)
    elif altered.done:
        tell(done, altered.job, options, was=altered.state)
    elif altered.state == "gone":
        return _unknown(options)
    else:
        why = {
            "changed": f"it is {altered.state}",
            "held": f"job {altered.holder} has its unique key",
            "corrupt": "nobody can read it, so that it cannot run",
        }
        print_error(f"job {altered.job} stays as it is: {why[altered.result]}")
    return 0 if altered.done else _NOT_DONE


def _show_jobs(found: Sequence[JobInfo], options: argparse.Namespace, nothing: str) -> None:
    rows = [_row(job) for job in found]
    # For people the attempts are told in words, once.
    shown_rows = [renamed(row, id="job") if options.json else _without(row, "failures") for row in rows]
    show(shown_rows, as_json=options.json, nothing=nothing)


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in row.items() if field != name}


def _row(job: JobInfo) -> dict[str, Any]:
    return {
        "job": job.id,
        "name": job.name,
        "state": job.state,
        "priority": _kept(job, job.priority),
        "key": job.key or None,
        "enqueued": instant(job.enqueued_ms),
        "due": instant(job.due_ms),
        "failures": _kept(job, job.failures),
        "attempts": job.attempts or None,
        "error": main_line(job.last_error) or job.unreadable or None,
    }


def _kept(job: JobInfo, value: Any) -> Any:
    """A value of a job; None where it is not kept of one that has ended, because a default would be taken for
    a fact."""
    return value if job.name else None


def _error_text(error: JobError) -> str:
    """A run that came to nothing, with its stack trace as it was printed."""
    head = f"{instant(error.at_ms)} {error.kind}, fence {error.fence}: {error.error}"
    return "\n".join([head, *(f"  {line}" for line in error.trace.splitlines())])


def _whole(job: JobInfo) -> dict[str, Any]:
    more = {name: value for name, value in options_told(job.options).items() if name not in _OWN_LINES}
    return {
        **_row(job),
        "ended": instant(job.ended_ms),
        "owner": job.owner or None,
        "lease end": instant(job.lease_end_ms),
        "fence": job.fence if job.name else job.fence or None,
        "claims": _kept(job, job.claims),
        "crashes": _kept(job, job.crashes),
        "headers": _kept(job, job.headers),
        "options": _kept(job, more),
        **payload_members(job.payload, job.payload_bytes),
        "errors": [
            renamed({**asdict(error), "at_ms": instant(error.at_ms)}, at="at_ms") for error in job.errors
        ],
    }
