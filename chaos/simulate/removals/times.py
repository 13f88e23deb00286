"""Rules 13, 18 and 24: due times, back-off, rests, and jobs of a schedule beside each other."""

from __future__ import annotations

from chaos.simulate.patching import removal

TIMES = (
    removal(10, "a worker that has died is listed for as long as the clock stepped back", "leak", "all new in odd times").by(
        "stopped-members-are-removed",
        "for _, other in ipairs(redis.call('ZRANGE', keys.workers, '+inf', '+inf', 'BYSCORE', 'LIMIT', 0, 100)) do",
    ),
    removal(13, "delayed jobs are promoted 200 ms early", "early", "calm").by(
        "delayed-jobs-are-promoted-on-time",
        "for _, member in ipairs(redis.call('ZRANGE', due, '-inf', now_ms + 200, 'BYSCORE', 'LIMIT', 0, limit)) do",
    ),
    removal(13, "a delayed job goes into its lane at once", "early", "calm").by("delayed-jobs-wait", "elseif due_ms > 1e15 then"),
    removal(13, "delayed jobs of a bulk are due in half of the time", "early", "calm").by(
        "bulk-jobs-are-due-in-full-time", "due_ms = delay_ms > 0 and now_ms + math.floor(delay_ms / 2) or -delay_ms"
    ),
    removal(13, "a job whose parents have ended does not wait for its own time", "early", "heirs").by(
        "unblocked-job-waits-for-its-own-time", "if job.due_ms > now_ms + 1e9 then"
    ),
    removal(13, "a failed job waits for half of its back-off", "retry delay", "delays").by(
        "failed-job-waits-its-full-backoff",
        "due_ms = now_ms + math.floor(tonumber(ARGV[7 * at - 1]) / 2), note = error_note(run, "
        "now_ms, fence, 'failed', ARGV[7 * at], ARGV[7 * at + 1]) }",
    ),
    removal(13, "the wait of a failed run does not grow", "retry delay", "delays").by(
        "backoff-grows-with-failures", "delay_ms = backoff_delay_ms(job.options, 0, self._draw)"
    ),
    removal(18, "a lane that rests is brought back 200 ms early", "early", "rates").by(
        "resting-lanes-return-on-time",
        "for _, member in ipairs(redis.call('ZRANGE', rest, '-inf', now_ms + 200, 'BYSCORE', 'LIMIT', 0, limit)) do",
    ),
    removal(38, "a claim starts jobs that have expired", "expiry", "expiring").by(
        "expired-job-is-not-started", "elseif false then"
    ),
    removal(38, "a sweep does not end jobs that have expired", "expiry", "expiring").by("sweep-ends-expired-jobs", ""),
    removal(38, "a job that was started expires all the same", "expiry", "expiring")
    .by("started-jobs-do-not-expire", "")
    .by("older-engines-starts-count", "return true"),
    removal(24, "a schedule makes a job while the one before lives", "overlap", "slow schedules").by(
        "schedule-waits-for-its-last-job", "local free = overlap == 'allow' or true"
    ),
    removal(24, "ticks that come at once make a job each", "overlap", "slow schedules").by(
        "ticks-at-once-make-one-job", "last_job, free = id, true"
    ),
    removal(24, "a schedule whose jobs may overlap waits for the one before", "overlap", "slow schedules").by(
        "schedule-waits-for-its-last-job", "local free = last_job == '' or ended(last_job)"
    ),
)
