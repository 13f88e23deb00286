"""Rules 13, 18 and 24: due times, back-off, rests, and jobs of a schedule beside each other."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

TIMES = (
    Removal(
        10,
        "a worker that has died is listed for as long as the clock stepped back",
        (
            Edit(
                "stopped-members-are-removed",
                "for _, other in ipairs(redis.call('ZRANGE', keys.workers, '+inf', '+inf', 'BYSCORE', 'LIMIT', 0, 100)) do",
            ),
        ),
        ("leak",),
        ("all new in odd times",),
    ),
    Removal(
        13,
        "delayed jobs are promoted 200 ms early",
        (
            Edit(
                "delayed-jobs-are-promoted-on-time",
                "for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms + 200, 'BYSCORE', 'LIMIT', 0, limit)) do",
            ),
        ),
        ("early",),
        ("calm",),
    ),
    Removal(
        13,
        "a delayed job goes into its lane at once",
        (Edit("delayed-jobs-wait", "elseif due_ms > 1e15 then"),),
        ("early",),
        ("calm",),
    ),
    Removal(
        13,
        "delayed jobs of a bulk are due in half of the time",
        (Edit("bulk-jobs-are-due-in-full-time", "due_ms = delay_ms > 0 and now_ms + math.floor(delay_ms / 2) or -delay_ms"),),
        ("early",),
        ("calm",),
    ),
    Removal(
        13,
        "a job whose parents have ended does not wait for its own time",
        (Edit("unblocked-job-waits-for-its-own-time", "if job.due_ms > now_ms + 1e9 then"),),
        ("early",),
        ("heirs",),
    ),
    Removal(
        13,
        "a failed job waits for half of its back-off",
        (
            Edit(
                "failed-job-waits-its-full-backoff",
                "due_ms = now_ms + math.floor(tonumber(ARGV[7 * at - 1]) / 2), note = error_note(run, "
                "now_ms, fence, 'failed', ARGV[7 * at], ARGV[7 * at + 1]) }",
            ),
        ),
        ("retry delay",),
        ("delays",),
    ),
    Removal(
        13,
        "the wait of a failed run does not grow",
        (Edit("backoff-grows-with-failures", "delay_ms = backoff.delay_ms(job.options, 0, self._draw)"),),
        ("retry delay",),
        ("delays",),
    ),
    Removal(
        18,
        "a lane that rests is brought back 200 ms early",
        (
            Edit(
                "resting-lanes-return-on-time",
                "for _, member in ipairs(redis.call('ZRANGE', rest, '-inf', now_ms + 200, 'BYSCORE', 'LIMIT', 0, limit)) do",
            ),
        ),
        ("early",),
        ("rates",),
    ),
    Removal(
        38,
        "a claim starts jobs that have expired",
        (Edit("expired-job-is-not-started", "elseif false then"),),
        ("expiry",),
        ("expiring",),
    ),
    Removal(
        38, "a sweep does not end jobs that have expired", (Edit("sweep-ends-expired-jobs", ""),), ("expiry",), ("expiring",)
    ),
    Removal(
        38,
        "a job that was started expires all the same",
        (Edit("started-jobs-do-not-expire", ""), Edit("older-engines-starts-count", "return true")),
        ("expiry",),
        ("expiring",),
    ),
    Removal(
        24,
        "a schedule makes a job while the one before lives",
        (Edit("schedule-waits-for-its-last-job", "local free = overlap == 'allow' or true"),),
        ("overlap",),
        ("slow schedules",),
    ),
    Removal(
        24,
        "ticks that come at once make a job each",
        (Edit("ticks-at-once-make-one-job", "last_job, free = id, true"),),
        ("overlap",),
        ("slow schedules",),
    ),
    Removal(
        24,
        "a schedule whose jobs may overlap waits for the one before",
        (Edit("schedule-waits-for-its-last-job", "local free = last_job == '' or ended(last_job)"),),
        ("overlap",),
        ("slow schedules",),
    ),
)
