"""The description of a job for monitoring: its state, its envelope and the record of its runs."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import field, fields, replace
from typing import Any, Literal, TypedDict, cast, get_args

from engine import validate
from engine.errors import Malformed, ScriptFault, utf8
from engine.models.model import LANES, Model, Names
from engine.ops.base import frozen, whole
from engine.ops.jobs import Lease, Options
from engine.ops.looks import Explained, Looked
from engine.options import PLAIN, without_private
from engine.routing import read_target
from engine.serializers import BUILT_IN, Serializers, UnreadablePayload

#: `stuck`: in hand, and the lease has ended, so a sweep is about to reap it. `finished`: for as long as
#: its tombstone or its entry among the last finished ones is kept; so are `cancelled`, `discarded` and the
#: other ends. `blocked`: it waits for other jobs.
Ended = Literal["finished", "cancelled", "discarded", "skipped", "rerouted", "expired"]
JobState = Literal["waiting", "blocked", "delayed", "active", "stuck", "dead", "gone"] | Ended
_ENDED: tuple[Ended, ...] = get_args(Ended)
_OPEN: tuple[JobState, ...] = ("waiting", "blocked", "delayed", "dead", "gone")
_ERRORS_KEPT = 10


@frozen
class JobError:
    """A run that came to nothing: when (ms, server time), under which fence, whether it `failed` or its
    worker was `lost`, the error, and the end of its stack trace ('' where there is none). `number` counts
    such runs in the whole life of the job, from 1, and a requeue does not end that life."""

    at_ms: int
    fence: int
    kind: str
    error: str
    trace: str
    number: int = 0


@frozen
class JobInfo:
    """A job as it was at one instant. Times are ms of the server's clock since 1970, 0 where there is none.

    Of a job that has ended, Lanes keeps only `id`, `state`, `fence` and `ended_ms`, and of a skipped one its
    `last_error`. The other formats keep the job. `unreadable` says why a corrupt one could not be read.
    `envelope`: the stored bytes. `errors` are the last ten runs that came to nothing, the oldest first.
    `failures`: runs charged as attempts since the enqueue or the last requeue, at `requeued_ms`. `crashes`
    count from there, too.
    """

    id: str
    state: JobState
    fence: int = 0
    name: str = ""
    payload_bytes: bytes = b""
    options: Options = PLAIN
    enqueued_ms: int = 0
    due_ms: int = 0
    lease_end_ms: int = 0
    ended_ms: int = 0
    claims: int = 0
    failures: int = 0
    crashes: int = 0
    owner: str = ""
    last_error: str = ""
    errors: tuple[JobError, ...] = ()
    unreadable: str = ""
    envelope: bytes = b""
    requeued_ms: int = 0
    serializers: Serializers = field(default=BUILT_IN, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """What was enqueued, as a handler of this queue reads it; an UnreadablePayload that says why where it
        cannot be read."""
        if self.unreadable:
            return UnreadablePayload(self.unreadable, self.envelope)
        if not self.name and not self.payload_bytes:
            return UnreadablePayload(f"it is not kept of a job that is {self.state}", b"")
        return self.serializers.look(self.options.serializer, self.payload_bytes)

    @property
    def attempts(self) -> str:
        """The attempts in words: `2 of 5 used`, and why there are fewer than failed runs; '' where nothing is
        known of them."""
        if not self.name:
            return ""
        words = f"{self.failures} of {self.options.attempts} used"
        crashes = f"{self.crashes} crash{'' if self.crashes == 1 else 'es'}" if self.crashes else ""
        since = "since its requeue" if self.requeued_ms else ""
        last = self.errors[-1] if self.errors else None
        buried = (
            self.state == "dead"
            and self.failures < self.options.attempts
            and last is not None
            and last.kind == "failed"
            and last.at_ms >= self.requeued_ms
        )
        return ", ".join(filter(None, (words, crashes, since, "not to be retried" if buried else "")))

    @property
    def error_kind(self) -> str:
        """What its last error has in common with others of its kind; of a corrupt job, why it cannot be
        read."""
        return error_kind(f"unreadable: {self.unreadable}" if self.unreadable else self.last_error)

    @property
    def key(self) -> str:
        """Its tenant or limit key, '' = none."""
        return self.options.key

    @property
    def priority(self) -> int:
        """1 to 10."""
        return self.options.priority

    @property
    def headers(self) -> dict[str, str]:
        """What the producer gave as headers."""
        return dict(self.options.headers)


@frozen
class JobPage:
    """Some jobs of a state: those among `looked` places that are meant. `next` is the `offset` of the next
    page; None: this was the last one. `srv_us` is the server's time."""

    srv_us: int
    jobs: tuple[JobInfo, ...]
    looked: int
    next: int | None


def state_of(looked: Looked | Explained, srv_us: int) -> JobState:
    """The state, with `stuck` apart from `active`. Raises ScriptFault for one that is not known."""
    active: JobState = "stuck" if looked.at_ms * 1000 < srv_us else "active"
    known: dict[str, JobState] = {"active": active}
    known.update((state, state) for state in (*_ENDED, *_OPEN))
    if looked.state not in known:
        raise ScriptFault(f"inspect: a job in the state {looked.state}")
    return known[looked.state]


def payload_members(payload: Any, data: bytes) -> dict[str, Any]:
    """A payload for an answer in JSON: `payload` where JSON can say it, else its bytes as `payload_base64`.
    Where nobody here can read it, `payload_unreadable` says why."""
    in_base64 = {"payload_base64": base64.b64encode(data).decode()}
    if isinstance(payload, UnreadablePayload):
        return {**(in_base64 if data else {}), "payload_unreadable": payload.reason}
    try:
        validate.json_bytes("payload", payload, validate.PAYLOAD_BYTES_LIMIT)
    except Malformed:
        return in_base64
    return {"payload": payload}


def options_told(options: Options, *, contents: bool = True) -> dict[str, Any]:
    """The options of a job that are not the default ones, for an answer in JSON; without `contents` none of
    the private ones."""
    options = options if contents else without_private(options)
    names = [field.name for field in fields(options)]
    given = {name: getattr(options, name) for name in names if getattr(options, name) != getattr(PLAIN, name)}
    for name in ("headers", "reroute_on"):
        if name in given:
            given[name] = dict(given[name])
    if given.get("target"):
        given["target"] = read_target(given["target"]) or given["target"]
    return given


def job_info(model: Model, serializers: Serializers, job: str, looked: Looked, srv_us: int) -> JobInfo:
    """Build the description of a job that exists; `serializers` are those of its queue."""
    state, unnamed, run = state_of(looked, srv_us), "", looked.run
    try:
        model.names.known_id(job)
    except Malformed as malformed:
        unnamed = str(malformed)
        # As text that every face can show.
        job = job.encode(errors="surrogateescape").decode(errors="backslashreplace")
    # Lanes keeps no more of an ended job than its end; the other formats keep the job itself for a while.
    if state in _ENDED and not looked.envelope:
        return JobInfo(
            job, state, looked.fence, ended_ms=looked.at_ms, last_error=_text(run.get("error", b""))
        )
    claims, failures, crashes = (whole(run.get(name, b"0")) for name in ("claims", "failures", "crashes"))
    common: dict[str, Any] = {
        "lease_end_ms": looked.at_ms if state in ("active", "stuck") else 0,
        "ended_ms": looked.at_ms if state in ("dead", *_ENDED) else 0,
        "claims": claims,
        "failures": failures,
        "crashes": crashes,
        "owner": _text(run.get("owner", b"")) if state in ("active", "stuck") else "",
        "last_error": _text(run.get("error", b"")),
        "errors": _errors(run),
        "requeued_ms": whole(run.get("requeued_ms", b"0")),
        "serializers": serializers,
    }
    if unnamed:
        return JobInfo(
            job, state, looked.fence, unreadable=unnamed, envelope=_bytes(looked.envelope), **common
        )
    try:
        found = model.decode(looked.envelope, Lease(job, looked.fence, ""), 0, (claims, failures, crashes))
    except ScriptFault as fault:
        return JobInfo(
            job, state, looked.fence, unreadable=_said(str(fault)), envelope=_bytes(looked.envelope), **common
        )
    due_ms = looked.at_ms if state == "delayed" else found.due_ms
    place = {
        "name": found.name,
        "payload_bytes": found.payload,
        "options": found.options,
        "enqueued_ms": found.enqueued_ms,
    }
    return JobInfo(
        job, state, looked.fence, due_ms=due_ms, envelope=_bytes(looked.envelope), **place, **common
    )


def _errors(run: dict[str, bytes]) -> tuple[JobError, ...]:
    count = whole(run.get("errors", b"0"))
    entries: list[JobError] = []
    for number in range(max(0, count - _ERRORS_KEPT), count):
        words, _, trace = _text(run.get(f"e{number % _ERRORS_KEPT}", b"")).partition("\0")
        at_ms, fence, kind, *error = [*words.split(" ", 3), "", "", ""]
        if at_ms:
            entries.append(JobError(whole(at_ms), whole(fence), kind, error[0], trace, number + 1))
    return tuple(entries)


def _bytes(envelope: object) -> bytes:
    """What is stored of a job in one piece, also where its format has fields."""
    if isinstance(envelope, bytes):
        return envelope
    return b"\n".join(part for part in cast("Sequence[object]", envelope) if isinstance(part, bytes))


def _said(text: str) -> str:
    return utf8(text).decode()


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


# -- Which jobs of a state are meant: those of a name, with a key, with an error, of an age; and which
# page of them. Without I/O.

#: Jobs that are looked at for one answer, and of one call.
LOOKED_MAX = 10_000
PIECE = 500
#: Places of a state that one page is made of: their jobs are read in one call.
PLACES_MAX = 250
_ERROR_CHARACTERS_MAX = 200


@frozen
class Selection:
    """Jobs that meet all that is given. `error`: whole words of the last error's last line, such as
    `ValueError`; `error_like`: the kind of the last error. Ages are from the end of a job that has ended or
    died, else from its enqueue."""

    name: str | None = None
    key: str | None = None
    error: str | None = None
    older_than_ms: int = 0
    newer_than_ms: int | None = None
    error_like: str | None = None

    @property
    def everything(self) -> bool:
        """Whether every job is meant."""
        return self == Selection()

    def matches(self, job: JobInfo, now_ms: int) -> bool:
        """Whether a job is meant."""
        if self.name is not None and job.name != self.name:
            return False
        if self.key is not None and job.key != self.key:
            return False
        if self.error is not None:
            last_line = (job.last_error.strip().splitlines() or [""])[-1]
            if not re.search(rf"(?<!\w){re.escape(self.error)}(?!\w)", last_line):
                return False
        if self.error_like is not None and job.error_kind != self.error_like:
            return False
        age_ms = now_ms - (job.ended_ms or job.enqueued_ms)
        return age_ms >= self.older_than_ms and (self.newer_than_ms is None or age_ms < self.newer_than_ms)


class ListOptions(TypedDict, total=False):
    """Which jobs of a state a list has. `offset` (0) and `limit` (100) are its page, in the order of time
    (`newest_first`: from its end). Those that wait come lane by lane, each lane in its order. Only those of a
    `name`, with a `key`, whose last error has `error` as whole words (`ValueError`) or is as `error_like` but
    for ids, numbers, addresses and quoted values, or that were enqueued, died or ended so long ago."""

    offset: int
    limit: int
    newest_first: bool
    name: str | None
    key: str | None
    error: str | None
    older_than_ms: int
    newer_than_ms: int | None
    error_like: str | None


@frozen
class PageRequest:
    """A page of the jobs that are meant."""

    wanted: Selection
    offset: int
    limit: int
    newest_first: bool


def listing(
    limit_max: int,
    *,
    offset: object = 0,
    limit: object = 100,
    newest_first: object = False,
    name: object = None,
    key: object = None,
    error: object = None,
    older_than_ms: object = 0,
    newer_than_ms: object = None,
    error_like: object = None,
    names: Names = LANES,
) -> PageRequest:
    """The page that ListOptions ask for, of at most `limit_max` jobs. Raises Malformed."""
    wanted = selection(name, key, error, older_than_ms, newer_than_ms, names, error_like)
    backwards = validate.truth("newest_first", newest_first)
    first = validate.integer("offset", offset, 0, 2**48)
    return PageRequest(wanted, first, validate.integer("limit", limit, 1, limit_max), backwards)


def selection(
    name: object,
    key: object,
    error: object,
    older_than_ms: object,
    newer_than_ms: object,
    names: Names = LANES,
    error_like: object = None,
) -> Selection:
    """Which jobs are meant, checked; `names` is the rule of the queue's model. Raises Malformed."""
    if error is not None and not (
        isinstance(error, str) and 1 <= len(error.strip()) <= _ERROR_CHARACTERS_MAX
    ):
        raise Malformed(
            "error", error, f"a text of 1 to {_ERROR_CHARACTERS_MAX} characters, such as ValueError"
        )
    if error_like is not None and not (
        isinstance(error_like, str) and 1 <= len(error_like) <= ERROR_CHARACTERS_MAX
    ):
        raise Malformed(
            "error_like", error_like, f"an error, a text of 1 to {ERROR_CHARACTERS_MAX} characters"
        )
    most = validate.DURATION_MS_MAX
    return Selection(
        None if name is None else names.job_name(name),
        None if key is None else names.key("key", key),
        None if error is None else error.strip(),
        validate.integer("older_than_ms", older_than_ms, 0, most),
        None if newer_than_ms is None else validate.integer("newer_than_ms", newer_than_ms, 1, most),
        None if error_like is None else error_kind(error_like),
    )


# -- Dead jobs by name and kind of error.


@frozen
class ErrorGroup:
    """Jobs of one name that died of errors of one kind, as `error_like` finds them: how many, when the first
    and the last of them died (ms), and the last one with its error, as an example. `name` is '' where nobody
    can read them."""

    name: str
    kind: str
    count: int
    first_ms: int
    last_ms: int
    job: str
    example: str


@frozen
class ErrorGroups:
    """The groups among the `looked` jobs that died last, the largest first; `more`: others died before.
    `srv_us` is the server's time."""

    groups: tuple[ErrorGroup, ...]
    looked: int
    more: bool
    srv_us: int


def error_groups(jobs: Iterable[JobInfo]) -> tuple[ErrorGroup, ...]:
    """Jobs by name and kind of error, the largest group first."""
    found: dict[tuple[str, str], ErrorGroup] = {}
    for job in jobs:
        at_ms, of = job.ended_ms, (job.name, job.error_kind)
        example = job.unreadable or main_line(job.last_error)
        alone = ErrorGroup(*of, 1, at_ms, at_ms, job.id, example)
        known = found.get(of, alone)
        newest = alone if at_ms > known.last_ms else known
        count = 1 if known is alone else known.count + 1
        found[of] = replace(newest, count=count, first_ms=min(known.first_ms, at_ms))
    return tuple(sorted(found.values(), key=lambda group: (-group.count, -group.last_ms, group.name)))


# -- Which errors are of one kind: those that differ in ids, numbers, addresses and quoted values alone.
# Dead jobs are grouped by it wherever they are grouped, and a filter that is given one of them finds its
# group.

#: Stands in a kind for what was taken out.
TAKEN_OUT = "…"
#: The kind of a job that died without an error.
NO_ERROR = "no error"
#: Of an error's line so much is read: the engine stores no more.
ERROR_CHARACTERS_MAX = 1_000

#: The class at the start, whose digits are part of its name: `botocore.exceptions.S3UploadFailedError`.
_CLASS = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*[a-z](?=:|\Z)")
_QUOTED = "|".join(rf"(?<!\w){q}(?:\\.|[^\\{q}]|{q}(?=\w))*{q}(?!\w)" for q in "'\"`")
_IPV6 = r"(?:[0-9a-f]{0,4}:){2,7}(?:\d+(?:\.\d+){3}|[0-9a-f]{0,4})(?:%\w+)?"
#: Addresses with a scheme, quoted values, addresses of mail, UUIDs, IPv6 and MAC addresses, and words, of
#: which those with a digit are looked at.
_TAKEN = re.compile(
    rf"""
      (?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*://)[^\s'"`<>]+
    | {_QUOTED}
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)*
    | \b[0-9a-f]{{8}}-(?:[0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}}\b
    | \[{_IPV6}\](?::\d+)?
    | (?<![\w:])(?=[0-9a-f:.]*[0-9a-f]){_IPV6}(?![\w:])
    | (?<!\w)(?<!\w-)(?P<word>\w+(?:-\w+)*)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_UNITS = "ns us µs ms s secs? seconds? min mins? minutes? h hrs? hours? d days? B bytes? [kKMGT]i?B"
_JOINED = re.compile(
    rf"""
      {TAKEN_OUT}(?:(?:[./_+-]|\s*[,:;]\s*){TAKEN_OUT})+   # versions, instants, addresses with a port, lists
    | (?<![\w{TAKEN_OUT}])[-+.]{TAKEN_OUT}                 # a sign
    | {TAKEN_OUT}\s?(?:{"|".join(_UNITS.split())})\b       # a length of time or a size
    | {TAKEN_OUT}(?:\s?{TAKEN_OUT})+                       # `3 h 20 min`
    """,
    re.VERBOSE,
)
_HEX = re.compile(r"(?:0x)?[0-9a-f]{8,}|(?=[a-f]*\d)[0-9a-f]{6,}|0x[0-9a-f]+", re.IGNORECASE)
_NUMBERED = re.compile(r"([^\W\d]+)\d+")
_NUMBER = re.compile(r"\d+[^\W\d_]{0,3}")


def main_line(error: str) -> str:
    """The line of an error that says most: the first one where a class begins it, else the last one, as of a
    stack trace."""
    lines = error.strip().splitlines() or [""]
    return lines[0] if _CLASS.match(lines[0]) else lines[-1]


def error_kind(error: str) -> str:
    """The main line of an error without ids, numbers, addresses, lengths of time and quoted values. The kind
    of a kind is itself."""
    line = main_line(error)[:ERROR_CHARACTERS_MAX]
    named = _CLASS.match(line)
    head = named[0] if named else ""
    before, rest = "", line[len(head) :]
    # Each pass takes something out, so it ends: a quote that stood behind a digit is seen in the next one.
    while rest != before:
        before, rest = rest, _JOINED.sub(TAKEN_OUT, _TAKEN.sub(_without, rest))
    return head + " ".join(rest.split()) or NO_ERROR


def _without(found: re.Match[str]) -> str:
    if found["scheme"]:
        return found["scheme"] + TAKEN_OUT
    return TAKEN_OUT if found["word"] is None else _word(found["word"])


def _word(word: str) -> str:
    """`user7` -> `user…`, `order-7` -> `order-…`, `worker-a1b2c3` -> `worker-…`; what has no digit stays."""
    kept: list[str] = []
    for part in word.split("-"):
        if _HEX.fullmatch(part):
            return "-".join([*kept, TAKEN_OUT])
        if not any(map(str.isdigit, part)):
            kept.append(part)
        elif numbered := _NUMBERED.fullmatch(part):
            kept.append(numbered[1] + TAKEN_OUT)
        elif _NUMBER.fullmatch(part):
            kept.append(TAKEN_OUT)
        else:
            # An id of letters and digits: what follows is a part of it.
            return "-".join([*kept, TAKEN_OUT])
    return "-".join(kept)
