"""Rules 13, 18 and 24: due times, back-off, rests, and jobs of a schedule beside each other."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_PROMOTE = "include/promote_due.lua"

TIMES = (
    Removal(
        10,
        "a worker that has died is listed for as long as the clock stepped back",
        (Edit("include/note_beat.lua", "'(' .. latest_ms, '+inf'", "'+inf', '+inf'"),),
        ("leak",),
        ("all new in odd times",),
    ),
    Removal(
        13,
        "delayed jobs are promoted 200 ms early",
        (Edit(_PROMOTE, "redis.call('ZRANGE', due, '-inf', now_ms,", "redis.call('ZRANGE', due, '-inf', now_ms + 200,"),),
        ("early",),
        ("calm",),
    ),
    Removal(
        13,
        "a delayed job goes into its lane at once",
        (Edit("enqueue.lua", "elseif due_ms > 0 then\n", "elseif due_ms > 1e15 then\n"),),
        ("early",),
        ("calm",),
    ),
    Removal(
        13,
        "delayed jobs of a bulk are due in half of the time",
        (
            Edit(
                "enqueue_many.lua",
                "delay_ms > 0 and now_ms + delay_ms or",
                "delay_ms > 0 and now_ms + math.floor(delay_ms / 2) or",
            ),
        ),
        ("early",),
        ("calm",),
    ),
    Removal(
        13,
        "a job whose parents have ended does not wait for its own time",
        (Edit("include/unblock_job.lua", "if job.due_ms > now_ms then", "if job.due_ms > now_ms + 1e9 then"),),
        ("early",),
        ("heirs",),
    ),
    Removal(
        13,
        "a failed job waits for half of its back-off",
        (Edit("retry.lua", "now_ms + tonumber(ARGV[7 * at - 1])", "now_ms + math.floor(tonumber(ARGV[7 * at - 1]) / 2)"),),
        ("retry delay",),
        ("delays",),
    ),
    Removal(
        13,
        "the wait of a failed run does not grow",
        (
            Edit(
                "engine.worker.machine.replies:ReplyHandling._fail",
                "backoff.delay_ms(job.options, job.failures, self._draw)",
                "backoff.delay_ms(job.options, 0, self._draw)",
            ),
        ),
        ("retry delay",),
        ("delays",),
    ),
    Removal(
        18,
        "a lane that rests is brought back 200 ms early",
        (Edit(_PROMOTE, "redis.call('ZRANGE', rest, '-inf', now_ms,", "redis.call('ZRANGE', rest, '-inf', now_ms + 200,"),),
        ("early",),
        ("rates",),
    ),
    Removal(
        24,
        "a schedule makes a job while the one before lives",
        (Edit("tick.lua", "last_job == '' or ended(last_job)", "true"),),
        ("overlap",),
        ("slow schedules",),
    ),
    Removal(
        24,
        "ticks that come at once make a job each",
        (Edit("tick.lua", "last_job, free = id, overlap == 'allow'", "last_job, free = id, true"),),
        ("overlap",),
        ("slow schedules",),
    ),
    Removal(
        24,
        "a schedule whose jobs may overlap waits for the one before",
        (Edit("tick.lua", "local free = overlap == 'allow' or", "local free ="),),
        ("overlap",),
        ("slow schedules",),
    ),
)
