"""Rules 7 and 24 to 26: what is done to jobs by hand, schedules, jobs that need others; and results (rule 5)."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_HAND_OVER = "include/hand_over.lua"
_ANY_STATE = "(now ~= 'gone' or mine)"

BY_HAND = (
    Removal(
        5,
        "a result is kept whoever has ended the lease",
        (Edit("include/finish_jobs.lua", "if leaves[item] and seals[item] then", "if item then"),),
        ("result",),
        ("late copies", "crashes"),
    ),
    Removal(
        7,
        "a late copy of a requeue lets the job run again",
        (Edit("requeue.lua", "local known = administered(op, not_after_ms, now_ms)", "local known"),),
        ("operation",),
        ("by hand",),
    ),
    Removal(
        7,
        "a job is ended by hand in whatever state it is",
        (
            Edit("discard.lua", "if now == state or mine then ends", f"if {_ANY_STATE} then ends"),
            Edit("discard.lua", "(now == state or mine) and 'done' or 'changed'", f"{_ANY_STATE} and 'done' or 'changed'"),
        ),
        ("by hand",),
        ("by hand and late",),
    ),
    Removal(
        7,
        "a job is ended by a call that comes too late",
        (Edit("include/administered.lua", "if now_ms > not_after_ms then", "if now_ms > not_after_ms + 1e9 then"),),
        ("operation",),
        ("by hand and late",),
    ),
    Removal(
        7,
        "a requeue leaves the crashes of the life before",
        (Edit("requeue.lua", "'failures', 0, 'crashes', 0,", "'failures', 0,"),),
        ("charge",),
        ("crashes requeued",),
    ),
    Removal(
        24,
        "a tick does not look which tick the schedule waits for",
        (Edit("tick.lua", " or was[2] ~= expected_ms", ""),),
        ("tick", "tick twice", "undead"),
        ("schedules",),
    ),
    Removal(
        24,
        "a tick does not look at the version of the schedule",
        (Edit("tick.lua", "if was[1] ~= version or", "if"),),
        ("tick",),
        ("schedules put anew",),
    ),
    Removal(
        25,
        "a job goes on when the first of its parents has ended",
        (Edit(_HAND_OVER, "if redis.call('SCARD', needs) == 0 then helpers", "do helpers"),),
        ("parent open",),
        ("kin",),
    ),
    Removal(
        25,
        "a job goes on without a parent that is lost",
        (Edit(_HAND_OVER, "or fate == 'lost' and", "or fate == 'none' and"),),
        ("parent lost",),
        ("kin",),
    ),
    Removal(
        25,
        "a job does not wait for a parent that is open",
        (Edit("include/read_parents.lua", "if fate == 'open' or", "if fate == 'none' or"),),
        ("parent open",),
        ("kin",),
    ),
    Removal(
        25,
        "the end of a parent is told to nobody",
        (
            Edit(
                "include/finish_jobs.lua", "if feeding and redis.call('SISMEMBER'", "if feeding == 0 and redis.call('SISMEMBER'"
            ),
            Edit("promote.lua", "mend_feeding(prefix, now_ms, helpers)\n", ""),
        ),
        ("blocked", "liveness"),
        ("kin",),
    ),
    Removal(
        26,
        "a cancel leaves a running job its lease",
        (
            Edit(
                "include/end_job.lua",
                "if redis.call('ZSCORE', active, id) then redis.call('HSET', run, 'nonce', '') end",
                "if redis.call('ZSCORE', active, id) then return end",
            ),
        ),
        ("cancel",),
        ("by hand",),
    ),
    Removal(
        26,
        "who renews the lease of a cancelled job is not told so",
        (Edit("include/token_state.lua", "job.outcome == 'cancelled' and 'cancelled' or ''", "''"),),
        ("cancel",),
        ("by hand", "all in trouble"),
    ),
)
