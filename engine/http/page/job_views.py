"""What the templates show of jobs: those of a state, dead ones by error, and one with its life. Pure
functions, but for the action on many."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from engine import validate
from engine.errors import Malformed, bounded_repr, counted
from engine.http.describing import digits
from engine.http.page.looks import OneJob
from engine.http.page.rendering import length, query_of, short
from engine.models.model import ANY_TEXT
from engine.ops.admin import AdminAction, Alter
from engine.ops.looks import LISTED, Counts, Event
from engine.options import without_private
from engine.queue import admin, looks
from engine.queue.admin import ALLOWED
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.looks import PLACES_MAX, JobInfo, JobPage, Selection, main_line
from engine.queue.why import why
from engine.serializers import TEXTS, UnreadablePayload

#: As in `selecting.LOOKED_MAX`: what lies deeper is found by its id or by a filter of another state.
OFFSET_MAX = looks.LOOKED_MAX
_TEXT_CHARACTERS_MAX = 200
#: How many characters of a payload a row shows.
_PAYLOAD_LINE_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs are meant, as the address of a view says it. An empty field means all."""

    state: str = "waiting"
    name: str = ""
    key: str = ""
    error: str = ""
    error_like: str = ""
    text: str = ""
    newest: bool = False
    cursor: int = 0

    @property
    def selection(self) -> Selection:
        """What the engine calls the same, without the text."""
        name, key, error, like = (text or None for text in (self.name, self.key, self.error, self.error_like))
        return looks.selection(name, key, error, 0, None, ANY_TEXT, like)

    @property
    def narrow(self) -> bool:
        """Whether some jobs of the state are not meant."""
        return bool(self.name or self.key or self.error or self.error_like or self.text)

    def address(self, **changed: object) -> str:
        """The query of an address with some fields changed."""
        fields = {
            "state": self.state,
            "name": self.name,
            "key": self.key,
            "error": self.error,
            "error_like": self.error_like,
            "text": self.text,
        }
        fields |= {"newest": "1" if self.newest else "", "cursor": self.cursor or ""}
        return query_of(fields | changed)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a table. `at_ms` is the time that its state is about: due, lease end, death or end, else the
    enqueue."""

    id: str
    name: str
    key: str
    state: str
    priority: int
    at_ms: int
    attempts: str
    error: str
    payload: str | None


@dataclass(frozen=True, slots=True)
class JobList:
    """One look: of `seen` jobs from rank `first` on these match. `next` is the cursor of the next look."""

    rows: tuple[JobRow, ...]
    first: int
    seen: int
    next: int | None
    now_ms: int


def filter_of(query: Mapping[str, str]) -> Filter:
    """The filter of an address. Raises Malformed."""
    state = query.get("state", "waiting")
    admin.check_state(state, LISTED)
    cursor = digits(query.get("cursor", "0"))
    if cursor is None or cursor > OFFSET_MAX:
        raise Malformed("cursor", query["cursor"], f"a number from 0 to {OFFSET_MAX}")
    text = query.get("text", "").strip()
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise Malformed("text", text, f"a text of at most {_TEXT_CHARACTERS_MAX} characters")
    words = {field: query.get(field, "").strip() for field in ("name", "key", "error", "error_like")}
    made = Filter(state, **words, text=text, newest=query.get("newest") == "1", cursor=cursor)
    # What cannot be meant is refused before any call.
    assert made.selection is not None
    return made


def matching(found: JobPage, wanted: Filter, *, payloads: bool) -> tuple[JobInfo, ...]:
    """The jobs that are meant. Payloads are looked into only where they may be seen."""
    selection, now_ms = wanted.selection, found.srv_us // 1000
    return tuple(
        job
        for job in found.jobs
        if selection.matches(job, now_ms)
        and (not wanted.text or has_text(job, wanted.text, payloads=payloads))
    )


def has_text(job: JobInfo, text: str, *, payloads: bool) -> bool:
    """Whether a text is part of what may be seen of a job; upper and lower case are the same."""
    texts = [job.id, job.name, job.key, job.last_error, *(error.error for error in job.errors)]
    if payloads:
        texts.append(job.payload_bytes.decode(errors="replace"))
    return any(text.casefold() in found.casefold() for found in texts)


def job_list(found: JobPage, wanted: Filter, *, payloads: bool) -> JobList:
    """One look, filtered."""
    rows = tuple(job_row(job, payloads=payloads) for job in matching(found, wanted, payloads=payloads))
    following = found.next if found.next is not None and found.next <= OFFSET_MAX else None
    return JobList(rows, wanted.cursor, found.looked, following, found.srv_us // 1000)


def job_row(job: JobInfo, *, payloads: bool) -> JobRow:
    """A job as its row."""
    at_ms = (
        job.ended_ms or job.lease_end_ms or (job.due_ms if job.state == "delayed" else 0) or job.enqueued_ms
    )
    attempts = job.attempts if job.claims else ""
    error = job.unreadable or main_line(job.last_error)
    payload = payload_line(job)[:_PAYLOAD_LINE_SHOWN] if payloads else None
    return JobRow(job.id, job.name, job.key, job.state, job.priority, at_ms, attempts, error, payload)


def payload_line(job: JobInfo) -> str:
    """A payload in a line: its JSON as it is stored, and of any other serialiser what it reads."""
    if job.options.serializer in ("", TEXTS):
        return job.payload_bytes[: _PAYLOAD_LINE_SHOWN * 4].decode(errors="replace")
    return bounded_repr(job.payload)


def checked_limit(value: str) -> int:
    """How many jobs a bulk action may change at most. Raises Malformed."""
    number = digits(value)
    if number is None or not 1 <= number <= validate.DEAD_MAX:
        raise Malformed("limit", value, f"a number from 1 to {validate.DEAD_MAX}")
    return number


# -- One action on many jobs: how many it would change, counted one look at a time, and the action itself,
# in pieces.

#: Actions on many jobs, by the state that the jobs are in.
BULK_ACTIONS: Mapping[str, tuple[AdminAction, ...]] = {
    "dead": ("requeue", "discard"),
    "delayed": ("run_now", "cancel"),
    "waiting": ("cancel",),
    "blocked": ("cancel",),
}
#: Jobs that one request changes, and that it looks at for that.
CHANGED_MAX = 10_000
_LOOKED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Count:
    """How many of the `seen` first jobs of a state are meant; `next` is the cursor of the next look, None at
    the end. `cut`: there are more jobs than are counted."""

    matched: int
    seen: int
    next: int | None
    cut: bool


def action_of(value: str, state: str) -> AdminAction:
    """An action on jobs in this state. Raises Malformed."""
    known = {str(action): action for action in get_args(AdminAction)}
    if value not in BULK_ACTIONS.get(state, ()):
        raise Malformed(
            "action",
            value,
            f"one of {', '.join(BULK_ACTIONS.get(state, ()))}"
            if state in BULK_ACTIONS
            else f"left out: jobs that are {state} are changed one by one",
        )
    return known[value]


async def count(queue: AsyncQueue, wanted: Filter, before: Count, *, payloads: bool) -> Count:
    """Look at some more jobs. Two calls."""
    found = await queue.jobs.page(wanted.state, offset=before.next or 0, limit=PLACES_MAX)
    matched = before.matched + len(matching(found, wanted, payloads=payloads))
    cut = found.next is not None and found.next > OFFSET_MAX
    return Count(matched, before.seen + found.looked, None if cut else found.next, cut)


async def change(queue: AsyncQueue, action: AdminAction, wanted: Filter, most: int, *, payloads: bool) -> int:
    """Do something to the jobs that are meant, at most so many; how many it was done to. Each job is looked
    at once."""
    done = 0
    for shard in await queue.in_use():
        done += await _change(shard, action, wanted, most - done, payloads=payloads)
    return done


async def _change(
    queue: AsyncQueue, action: AdminAction, wanted: Filter, most: int, *, payloads: bool
) -> int:
    # What comes back into the state meanwhile, as a dead job that was requeued and died again, is not changed
    # twice.
    left = min(_LOOKED_MAX, _in_state(await queue.counts(one_call=True), wanted.state))
    done = offset = 0
    while left > 0 and done < most:
        found = await queue.jobs.page(wanted.state, offset=offset, limit=min(admin.PIECE, left))
        if not found.looked:
            break
        meant = matching(found, wanted, payloads=payloads)
        jobs = tuple(job.id for job in meant)[: most - done]
        items = (await queue.do(Alter(action, jobs, wanted.state))).items if jobs else ()
        changed = sum(item.done for item in items)
        done += changed
        left -= found.looked
        offset += found.looked - changed
    return done


def _in_state(counts: Counts, state: str) -> int:
    """How many jobs are in a state; of the waiting ones only some lanes are counted."""
    return {"dead": counts.dead, "delayed": counts.delayed, "blocked": counts.blocked}.get(state, _LOOKED_MAX)


# -- One job: its life as a timeline, and the jobs around it as a graph.

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
    ("requeue_with_children", "Requeue with children"),
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
        actions=tuple(
            (action, word) for action, word in JOB_ACTIONS if offered(action, job, bool(found.children))
        ),
        since_ms=job.enqueued_ms,
        now_ms=found.now_ms,
    )


def offered(action: str, job: JobInfo, has_children: bool = False) -> bool:
    """Whether an action can do something to a job in its state; a corrupt one can only be discarded."""
    if action == "requeue_with_children":
        return has_children and offered("requeue", job)
    if job.unreadable:
        return action == "discard" and job.state == "dead"
    state = "active" if job.state == "stuck" else job.state
    allowed = {str(known): states for known, states in ALLOWED.items()}
    # A dead job is discarded, and need not be removed as well.
    return state in allowed[action] and not (action == "remove" and state in (*ALLOWED["cancel"], "dead"))


def facts(job: JobInfo, *, payloads: bool) -> tuple[tuple[str, str], ...]:
    """Its options, those that say something; private ones only where payloads may be seen."""
    options = job.options if payloads else without_private(job.options)
    known = (
        ("Name", job.name),
        ("Key", options.key),
        ("Priority", str(options.priority) if job.name else ""),
        ("Attempts", job.attempts),
        ("Crashes", f"{job.crashes} of {options.crashes_max}" if job.crashes else ""),
        ("Claims", str(job.claims) if job.claims else ""),
        ("Fence", str(job.fence) if job.fence else ""),
        ("Worker", job.owner),
        ("Back-off", f"{options.backoff}, {length(options.backoff_ms)}" if job.name else ""),
        ("Timeout", length(options.timeout_ms) if options.timeout_ms else ""),
        ("Soft timeout", length(options.soft_timeout_ms) if options.soft_timeout_ms else ""),
        ("Expires after", length(options.expires_ms) if options.expires_ms else ""),
        ("Unique key", options.unique),
        ("Dedup key", options.dedup),
        ("Route", options.route),
        ("Target", options.target),
        ("Serializer", options.serializer),
        *((f"Header {name}", value) for name, value in options.headers),
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
    for error in job.errors:
        found.append(Moment(error.fence, "run", f"Run {error.number} claimed", fence=error.fence))
        lost = error.kind == "lost"
        title = f"Run {error.number} {'lost' if lost else 'failed'}"
        found.append(Moment(error.at_ms, "lost" if lost else "bad", title, error.error, error.trace))
    if job.requeued_ms:
        found.append(Moment(job.requeued_ms, "plain", "Requeued, with all its attempts"))
    if job.state in ("active", "stuck") and job.fence not in kept:
        title = f"Run {job.errors[-1].number + 1 if job.errors else 1} claimed"
        found.append(Moment(job.fence, "run", title, fence=job.fence, worker=job.owner))
        if job.lease_end_ms:
            stuck = job.state == "stuck"
            found.append(
                Moment(
                    job.lease_end_ms, "lost" if stuck else "plain", "Lease ended" if stuck else "Lease ends"
                )
            )
    if job.state == "delayed" and job.claims:
        found.append(Moment(job.due_ms, "plain", "Next run"))
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
    # Those of a dead job died with it, or run without it.
    children = explained.children or found.children
    feeds = max(explained.feeds, len(found.children) + found.more_children)
    right = _column(list(children), feeds, 2 if left else 1)
    if not left and not right:
        return None
    height = max(len(left), len(right), 1) * (_NODE_HEIGHT + _NODE_GAP) - _NODE_GAP
    middle = Node(job.id, short_id(job.id), job.state, _x(1 if left else 0), (height - _NODE_HEIGHT) // 2)
    lines = [_line(node, middle) for node in left] + [_line(middle, node) for node in right]
    width = _x((1 if left else 0) + bool(right)) + _NODE_WIDTH
    words = f"{job.id} needs {counted(len(parents), 'job')}, and is needed by {counted(feeds, 'job')}"
    return Graph((*left, middle, *right), tuple(lines), width, height, words)


def _column(jobs: Sequence[tuple[str, str]], count: int, column: int) -> list[Node]:
    nodes = [
        Node(job, short_id(job), state, _x(column), at * (_NODE_HEIGHT + _NODE_GAP))
        for at, (job, state) in enumerate(jobs[:_NODES_MAX])
    ]
    more = count - len(nodes)
    if more > 0:
        nodes.append(Node("", f"and {more} more", "", _x(column), len(nodes) * (_NODE_HEIGHT + _NODE_GAP)))
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
    # The page has one word for the state.
    titles = {"buried": "Dead"}
    tones = {"claimed": "run", "finished": "good", "failed": "bad", "buried": "bad", "reaped": "lost"}
    return tuple(
        Moment(
            event.srv_ms,
            tones.get(event.kind, "plain"),
            titles.get(event.kind, event.kind.capitalize()),
            short(event.detail),
        )
        for event in events
    )
