"""One job: its life as a timeline, and the jobs around it as a graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from engine.http.page.looks import OneJob
from engine.http.page.rendering import length, short
from engine.ops.looks import Event
from engine.queue.admin import ALLOWED
from engine.queue.looks import JobInfo
from engine.queue.why import why
from engine.serializers import UnreadablePayload

#: Bytes of a payload or an envelope that the page shows.
_PAYLOAD_OF_JOB_SHOWN = 64 * 1024
#: Size of the figures in units of their own, and of a node of the graph.
_BAR_WIDTH = 1_000
_NODE_WIDTH, _NODE_HEIGHT, _NODE_GAP, _COLUMN_GAP = 230, 44, 12, 90
#: Characters of an id that a node has room for.
_NODE_TEXT = 27
#: Nodes of one column.
_NODES_MAX = 10

#: What may be done to a job from the page, in the order of its buttons, with the word on it.
JOB_ACTIONS = (
    ("run_now", "Run now"),
    ("requeue", "Requeue"),
    ("cancel", "Cancel"),
    ("discard", "Discard"),
    ("remove", "Remove"),
)


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job at a time (ms). `tone` colours it: plain, run, good, bad or lost."""

    at_ms: int
    tone: str
    title: str
    detail: str = ""
    trace: str = ""
    fence: int = 0
    worker: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a job's life, in units of the figure."""

    x: float
    width: float
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Node:
    """A job of the graph, and where it is drawn. `job` is empty for a note such as `and 4 more`."""

    job: str
    label: str
    state: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Parents, the job, and what waits for it, with the lines between them."""

    nodes: tuple[Node, ...]
    lines: tuple[str, ...]
    width: int
    height: int
    words: str


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the page shows it. `payload` is None where it is hidden; `cut`: it is longer than what is
    shown."""

    job: JobInfo
    sentence: str
    facts: tuple[tuple[str, str], ...]
    moments: tuple[Moment, ...]
    bars: tuple[Bar, ...]
    bars_width: int
    graph: Graph | None
    payload: str | None
    payload_bytes: int
    cut: bool
    actions: tuple[tuple[str, str], ...]
    since_ms: int
    now_ms: int


def job_view(found: OneJob, *, payloads: bool) -> JobView:
    """A job with its timeline and its graph."""
    job = found.job
    raw = job.envelope if job.unreadable else job.payload_bytes
    return JobView(
        job=job,
        sentence="" if found.explained is None else why(job.id, found.explained).sentence,
        facts=facts(job, payloads=payloads),
        moments=moments(job, found.now_ms),
        bars=bars(job, found.now_ms),
        bars_width=_BAR_WIDTH,
        graph=graph(found),
        payload=payload_text(job) if payloads and raw else None,
        payload_bytes=len(raw),
        cut=len(raw) > _PAYLOAD_OF_JOB_SHOWN,
        actions=tuple((action, word) for action, word in JOB_ACTIONS if offered(action, job)),
        since_ms=job.enqueued_ms,
        now_ms=found.now_ms,
    )


def offered(action: str, job: JobInfo) -> bool:
    """Whether an action can do something to a job in its state; a corrupt one can only be discarded."""
    if job.unreadable:
        return action == "discard" and job.state == "dead"
    state = "active" if job.state == "stuck" else job.state
    allowed = {str(known): states for known, states in ALLOWED.items()}
    # A dead job is discarded, and need not be removed as well.
    return state in allowed[action] and not (action == "remove" and state in (*ALLOWED["cancel"], "dead"))


def facts(job: JobInfo, *, payloads: bool) -> tuple[tuple[str, str], ...]:
    """Its options, those that say something; headers only where payloads may be seen."""
    options = job.options
    known = (
        ("Name", job.name),
        ("Key", options.key),
        ("Priority", str(options.priority) if job.name else ""),
        ("Attempts", f"{job.failures} failed of {options.attempts}" if job.name else ""),
        ("Crashes", f"{job.crashes} of {options.crashes_max}" if job.crashes else ""),
        ("Claims", str(job.claims) if job.claims else ""),
        ("Fence", str(job.fence) if job.fence else ""),
        ("Worker", job.owner),
        ("Back-off", f"{options.backoff}, {length(options.backoff_ms)}" if job.name else ""),
        ("Timeout", length(options.timeout_ms) if options.timeout_ms else ""),
        ("Expires after", length(options.expires_ms) if options.expires_ms else ""),
        ("Unique key", options.unique),
        ("Dedup key", options.dedup),
        ("Route", options.route),
        ("Target", options.target),
        ("Serializer", options.serializer),
        *((f"Header {name}", value) for name, value in (options.headers if payloads else ())),
    )
    return tuple((name, value) for name, value in known if value)


def moments(job: JobInfo, now_ms: int) -> tuple[Moment, ...]:
    """What is known of a job's life, the oldest first. A fence is the time of its claim, unless the clock
    stepped back."""
    found: list[Moment] = []
    if job.enqueued_ms:
        found.append(Moment(job.enqueued_ms, "plain", "Enqueued"))
    if job.due_ms > job.enqueued_ms and not job.claims:
        found.append(Moment(job.due_ms, "plain", "Due" if job.due_ms > now_ms else "Was due"))
    kept = {error.fence for error in job.errors}
    for number, error in enumerate(
        job.errors, start=max(0, job.failures + job.crashes - len(job.errors)) + 1
    ):
        found.append(Moment(error.fence, "run", f"Attempt {number} claimed", fence=error.fence))
        lost = error.kind == "lost"
        title = f"Attempt {number} lost" if lost else f"Attempt {number} failed"
        found.append(Moment(error.at_ms, "lost" if lost else "bad", title, error.error, error.trace))
    if job.state in ("active", "stuck") and job.fence not in kept:
        title = f"Attempt {job.failures + job.crashes + 1} claimed"
        found.append(Moment(job.fence, "run", title, fence=job.fence, worker=job.owner))
        if job.lease_end_ms:
            stuck = job.state == "stuck"
            found.append(
                Moment(
                    job.lease_end_ms, "lost" if stuck else "plain", "Lease ended" if stuck else "Lease ends"
                )
            )
    if job.state == "delayed" and job.claims:
        found.append(Moment(job.due_ms, "plain", "Next attempt"))
    if job.ended_ms:
        tone = {"finished": "good", "dead": "bad"}.get(job.state, "plain")
        detail = (job.last_error or job.unreadable) if job.state == "dead" else ""
        known = job.errors[-1].error if job.errors else ""
        found.append(Moment(job.ended_ms, tone, job.state.capitalize(), "" if detail == known else detail))
    # The order of equal times is the one above.
    return tuple(sorted(found, key=lambda moment: moment.at_ms))


def bars(job: JobInfo, now_ms: int) -> tuple[Bar, ...]:
    """A job's life from its enqueue to its end, or until now: when it waited, and each run. Empty where that
    is not known."""
    end_ms = job.ended_ms or now_ms
    if not job.enqueued_ms or end_ms <= job.enqueued_ms:
        return ()
    runs = [
        (error.fence, error.at_ms, "lost" if error.kind == "lost" else "bad", error.error)
        for error in job.errors
    ]
    if job.state in ("active", "stuck"):
        runs.append((job.fence, now_ms, "run", f"runs on {job.owner}" if job.owner else "runs"))
    whole_ms = end_ms - job.enqueued_ms
    found: list[Bar] = []
    at_ms = job.enqueued_ms
    for began_ms, ended_ms, tone, title in runs:
        began_ms, ended_ms = (min(max(ms, at_ms), end_ms) for ms in (began_ms, ended_ms))
        found.append(_bar(at_ms, began_ms, job.enqueued_ms, whole_ms, "plain", "waited"))
        found.append(_bar(began_ms, max(began_ms, ended_ms), job.enqueued_ms, whole_ms, tone, title))
        at_ms = max(began_ms, ended_ms)
    found.append(
        _bar(at_ms, end_ms, job.enqueued_ms, whole_ms, "plain", "waited" if job.ended_ms else "waits")
    )
    return tuple(bar for bar in found if bar.width > 0 or bar.tone != "plain")


def _bar(from_ms: int, to_ms: int, start_ms: int, whole_ms: int, tone: str, title: str) -> Bar:
    scale = _BAR_WIDTH / whole_ms
    # A run of a moment still has to be seen.
    least = 0.0 if tone == "plain" else 4.0
    width = max((to_ms - from_ms) * scale, least)
    x = min((from_ms - start_ms) * scale, _BAR_WIDTH - width)
    return Bar(round(x, 1), round(width, 1), tone, f"{title}, {length(to_ms - from_ms)}")


def graph(found: OneJob) -> Graph | None:
    """The jobs that it needs at the left, those that need it at the right; None where there are neither."""
    job, explained = found.job, found.explained
    if explained is None:
        return None
    states = dict(explained.needs)
    # Those that it needed when it was enqueued; where more than some are still open, the state of the others
    # is not known.
    parents = [
        (parent, states.get(parent, "ended" if len(states) >= explained.needed else ""))
        for parent in job.options.needs
    ]
    parents = parents or list(explained.needs)
    left = _column(parents, max(len(parents), explained.needed), 0)
    calls = (("on success", job.options.on_success), ("on failure", job.options.on_failure))
    callbacks = [(call.name, when) for when, call in calls if call]
    column = 2 if left else 1
    right = _column(list(explained.children), explained.feeds, column)
    called = _column(callbacks, len(callbacks), column, first=len(right), link=False)
    right = [*right, *called]
    if not left and not right:
        return None
    height = max(len(left), len(right), 1) * (_NODE_HEIGHT + _NODE_GAP) - _NODE_GAP
    middle = Node(job.id, short_id(job.id), job.state, _x(1 if left else 0), (height - _NODE_HEIGHT) // 2)
    lines = [_line(node, middle) for node in left] + [_line(middle, node) for node in right]
    width = _x((1 if left else 0) + bool(right)) + _NODE_WIDTH
    words = f"{job.id} needs {len(parents)} jobs; {explained.feeds} need it"
    return Graph((*left, middle, *right), tuple(lines), width, height, words)


def _column(
    jobs: Sequence[tuple[str, str]], count: int, column: int, *, first: int = 0, link: bool = True
) -> list[Node]:
    nodes = [
        Node(job if link else "", short_id(job), state, _x(column), (first + at) * (_NODE_HEIGHT + _NODE_GAP))
        for at, (job, state) in enumerate(jobs[:_NODES_MAX])
    ]
    more = count - len(nodes)
    if more > 0:
        nodes.append(
            Node("", f"and {more} more", "", _x(column), (first + len(nodes)) * (_NODE_HEIGHT + _NODE_GAP))
        )
    return nodes


def _x(column: int) -> int:
    return column * (_NODE_WIDTH + _COLUMN_GAP)


def _line(left: Node, right: Node) -> str:
    """A curve from the right edge of one node to the left edge of another."""
    x1, y1 = left.x + _NODE_WIDTH, left.y + _NODE_HEIGHT // 2
    x2, y2 = right.x, right.y + _NODE_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"


def short_id(job: str) -> str:
    """An id as a node has room for it."""
    return job if len(job) <= _NODE_TEXT else f"{job[: _NODE_TEXT - 9]}…{job[-8:]}"


def payload_text(job: JobInfo) -> str:
    """A payload as people read it: JSON with indents, else its bytes as Python writes them, and why nobody
    can read it. A long one is cut, and not read."""
    raw = job.envelope if job.unreadable else job.payload_bytes
    if len(raw) > _PAYLOAD_OF_JOB_SHOWN:
        return raw[:_PAYLOAD_OF_JOB_SHOWN].decode(errors="replace")
    payload = job.payload
    if isinstance(payload, UnreadablePayload):
        return repr(raw) if job.unreadable else f"{raw!r}\n{payload.reason}"
    try:
        # A lone surrogate has no UTF-8, so it is shown as the bytes have it.
        return json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False).encode().decode()
    except (TypeError, ValueError, RecursionError):
        return repr(raw)


def recorded(events: Sequence[Event]) -> tuple[Moment, ...]:
    """What the event stream of the queue has of a job."""
    tones = {"claimed": "run", "finished": "good", "failed": "bad", "buried": "bad", "reaped": "lost"}
    return tuple(
        Moment(event.srv_ms, tones.get(event.kind, "plain"), event.kind.capitalize(), short(event.detail))
        for event in events
    )
