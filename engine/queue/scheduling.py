"""Schedules of a queue without I/O: checks, the steps of each change, and the description of a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Literal, cast

from engine import validate
from engine.calendar import Unreadable, calendar
from engine.errors import Malformed, OutcomeUnknown, ScriptFault, nearest
from engine.models.model import Model, Names
from engine.ops import schedules
from engine.ops.base import frozen
from engine.ops.jobs import Enqueue, Options
from engine.ops.schedules import (
    EnableSchedule,
    ListSchedules,
    Missed,
    Overlap,
    PutSchedule,
    RemoveSchedule,
    ScheduleChanged,
    SchedulePage,
    StoredSchedule,
    TickPolicy,
    Timing,
)
from engine.options import OPTIONS, JobOptions
from engine.parameters import JobName, TypedJob
from engine.queue import producing
from engine.queue.producing import Steps
from engine.queue.settings import QueueSettings, check_payload
from engine.serializers import BUILT_IN, Serializers, UnreadablePayload

#: What `put` found: no such schedule, one that it changed, or one with the same definition.
PutResult = Literal["new", "changed", "same"]

#: With `cron:`, a colon and the tick it must fit into an id of 128.
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
_CRON_CHARACTERS_MAX = 200
_EVERY_MS_LEAST = 100
_MONTHS_MAX = 1200
_TRIES = 10
#: What `put` takes beside options of jobs, and what other libraries call it.
_WORDS = ("cron", "zone", "every_ms", "months", "start_ms", "enabled", "missed", "late_ms", "overlap")
_ELSEWHERE = {
    **dict.fromkeys(("every", "interval", "seconds", "minutes", "hours", "run_every"), "every_ms"),
    **dict.fromkeys(("tz", "timezone"), "zone"),
    **{"crontab": "cron", "schedule": "cron"},
}


@frozen
class Schedule:
    """A schedule and its state. Times are server ms, 0 where there is none: `next_ms` is the next tick,
    `last_ms` the last one that made a job, `last_job` its id. Intervals count from `anchor_ms`. `count` jobs
    were made. `missed` ticks were passed by because nobody saw them in time, or because more were due than
    the 100 that are made up for; `skipped` because the job before had not ended (or another one has its
    unique key). With an `error` it does not tick until it is put again."""

    name: str
    job_name: str
    payload_bytes: bytes
    options: Options
    timing: Timing
    policy: TickPolicy
    enabled: bool
    next_ms: int
    last_ms: int
    last_job: str
    count: int
    missed: int
    skipped: int
    error: str
    anchor_ms: int = 0
    serializers: Serializers = field(default=BUILT_IN, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """The payload of its jobs; an UnreadablePayload that says why where it cannot be read."""
        if not self.job_name:
            return UnreadablePayload(self.error, b"")
        return self.serializers.look(self.options.serializer, self.payload_bytes)


def putting(
    names: Names, name: object, timing: Timing, policy: TickPolicy, job: Enqueue, enabled: object
) -> Steps[PutResult]:
    """Define or change a schedule. Raises Malformed, also when the queue has too many."""
    schedule = names.schedule(name)
    enabled_now = _flag(enabled)
    page: SchedulePage = yield ListSchedules(schedule)
    now_ms = page.srv_us // 1000
    anchor_ms = timing.start_ms or now_ms
    next_ms = calendar(timing).after(now_ms, anchor_ms)
    reply: ScheduleChanged = yield PutSchedule(schedule, timing, policy, job, next_ms, anchor_ms, enabled_now)
    if reply.found == "full":
        raise Malformed("name", schedule, f"at most {schedules.SCHEDULES_MAX} schedules in a queue")
    return cast("PutResult", reply.found)


def removing(names: Names, name: object) -> Steps[bool]:
    """Remove a schedule."""
    reply: ScheduleChanged = yield RemoveSchedule(names.schedule(name))
    return reply.found != "gone"


def enabling(names: Names, name: object, enabled: bool) -> Steps[bool]:
    """Enable or disable a schedule."""
    schedule = names.schedule(name)
    for _ in range(_TRIES):
        page: SchedulePage = yield ListSchedules(schedule)
        if not page.items:
            return False
        (stored,) = page.items
        next_ms = 0
        if enabled:
            try:
                next_ms = calendar(schedules.from_stored(Timing, stored.timing)).after(
                    page.srv_us // 1000, stored.anchor_ms
                )
            except ValueError as error:
                raise Malformed(
                    "name", schedule, f"a schedule that can tick; this one cannot: {error}"
                ) from error
        reply: ScheduleChanged = yield EnableSchedule(schedule, stored.version, next_ms)
        if reply.found != "other":
            return reply.found != "gone"
    raise OutcomeUnknown(f"schedule {schedule}: it was changed {_TRIES} times while it was looked at")


def schedule_of(stored: StoredSchedule, model: Model, serializers: Serializers) -> Schedule:
    """A schedule as the server has it; one that cannot be read says so in its `error`."""
    error = stored.error
    timing, policy, job_name, payload, options = Timing(), TickPolicy(), "", b"", Options()
    try:
        timing, policy = (
            schedules.from_stored(Timing, stored.timing),
            schedules.from_stored(TickPolicy, stored.policy),
        )
        job = model.read_template(stored.job)
        job_name, payload, options = job.name, job.payload, job.options
    except (ValueError, ScriptFault) as unreadable:
        error = error or str(unreadable)
    numbers = (
        stored.enabled,
        stored.next_ms,
        stored.last_ms,
        stored.last_job,
        stored.count,
        stored.missed,
        stored.skipped,
    )
    return Schedule(
        stored.schedule,
        job_name,
        payload,
        options,
        timing,
        policy,
        *numbers,
        error,
        stored.anchor_ms,
        serializers,
    )


def check_words(options: Mapping[str, object]) -> None:
    """Raise Malformed for an option that neither schedules nor jobs have."""
    for name, value in options.items():
        if name not in OPTIONS:
            perhaps = nearest(_ELSEWHERE.get(name, name), (*_WORDS, *OPTIONS))
            raise Malformed(name, value, f"a parameter of put or an option of jobs{perhaps}", private=True)


def _flag(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise Malformed("enabled", value, "True, False, or None for as it is")
    return value


def timing(cron: object, zone: object, every_ms: object, months: object, start_ms: object) -> Timing:
    """Check when a schedule ticks. Raises Malformed."""
    if cron is not None and (not isinstance(cron, str) or not 0 < len(cron) <= _CRON_CHARACTERS_MAX):
        raise Malformed("cron", cron, f"an expression of 1 to {_CRON_CHARACTERS_MAX} characters")
    if not isinstance(zone, str) or not _ZONE.fullmatch(zone):
        raise Malformed("zone", zone, "the IANA name of a zone, such as Europe/Berlin")
    every = validate.duration_ms("every_ms", every_ms, 0, validate.DURATION_MS_MAX)
    if 0 < every < _EVERY_MS_LEAST:
        raise Malformed("every_ms", every, f"at least {_EVERY_MS_LEAST}")
    timing = Timing(
        cron=" ".join((cron or "").split()),
        zone=zone,
        every_ms=every,
        months=validate.integer("months", months, 0, _MONTHS_MAX),
        start_ms=validate.integer("start_ms", start_ms, 0, 2**47),
    )
    if (cron is not None) + (every > 0) + (timing.months > 0) != 1:
        raise Malformed("cron", cron, "one of cron, every_ms and months")
    if every and zone != "UTC":
        raise Malformed("zone", zone, "UTC with every_ms: milliseconds know no zone")
    try:
        calendar(Timing(zone=zone, every_ms=every or 1000))
    except Unreadable as error:
        raise Malformed("zone", zone, str(error)) from error
    try:
        calendar(timing)
    except Unreadable as error:
        raise Malformed("cron", cron, f"a cron expression ({error})") from error
    return timing


def policy(missed: object, late_ms: object, overlap: object) -> TickPolicy:
    """Check what a schedule does about late ticks and overlapping jobs. Raises Malformed."""
    kinds: dict[object, Missed] = {"skip": "skip", "once": "once", "all": "all"}
    overlaps: dict[object, Overlap] = {"allow": "allow", "skip": "skip"}
    if not isinstance(missed, str) or missed not in kinds:
        raise Malformed("missed", missed, "skip, once or all")
    if not isinstance(overlap, str) or overlap not in overlaps:
        raise Malformed("overlap", overlap, "allow or skip")
    return TickPolicy(
        kinds[missed],
        validate.duration_ms("late_ms", late_ms, 0, validate.DURATION_MS_MAX),
        overlaps[overlap],
    )


def template_job(
    job_name: object,
    payload: object,
    payload_bytes_max: int,
    options: Mapping[str, object],
    serializers: Serializers,
    model: Model,
) -> Enqueue:
    """Check the job that each tick enqueues. Raises Malformed, also for an option that is not stored with a
    job."""
    draft = producing.draft(job_name, payload, payload_bytes_max, None, options, serializers, model)
    for name in ("delay_ms", "run_at_ms"):
        if getattr(draft.options, name):
            raise Malformed(name, getattr(draft.options, name), "0: the schedule says when")
    if draft.options.needs:
        raise Malformed("needs", draft.options.needs, "none: a job of a schedule waits for no other")
    job = replace(draft, job="template", nonce=b"")
    travelled = model.read_template(model.template(job)).options
    for option in fields(Options):
        if getattr(travelled, option.name) != getattr(draft.options, option.name):
            raise Malformed(
                option.name, getattr(draft.options, option.name), "an option that travels with the job"
            )
    return job


def template(queue: QueueSettings, name: JobName, payload: object, options: JobOptions) -> Enqueue:
    """Check the job that each tick of a schedule of this queue enqueues. Raises Malformed."""
    tasks, given = queue.parameters, cast("Mapping[str, object]", options)
    if isinstance(name, TypedJob):
        given, tasks = {**name.options, **given}, {**tasks, name.name: name.parameters}
        name, payload = name.name, name.parameters.write((), {}) if payload is None else payload
        if "id" in given:
            raise Malformed("id", given["id"], "left out: each tick makes an id of its own")
    job = template_job(name, payload, queue.payload_bytes_max, given, queue.serializers, queue.model)
    if tasks:
        check_payload(tasks, queue.serializers, job)
    return job
