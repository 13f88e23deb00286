"""Rules 7 and 24 to 26: what is done to jobs by hand, schedules, jobs that need others; and results (rule 5)."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

BY_HAND = (
    Removal(
        5,
        "a result is kept whoever has ended the lease",
        (Edit("only-the-holder-keeps-a-result", "if item then"),),
        ("result",),
        ("late copies", "crashes"),
    ),
    Removal(
        7,
        "a late copy of a requeue lets the job run again",
        (Edit("late-requeue-is-void", "local known"),),
        ("operation",),
        ("by hand",),
    ),
    Removal(
        7,
        "a job is ended by hand in whatever state it is",
        (
            Edit("discard-ends-the-named-state", "if (now ~= 'gone' or mine) then ends[#ends + 1] = { id = id, job = job } end"),
            Edit(
                "discard-tells-the-named-state",
                "for _, word in ipairs({ (now ~= 'gone' or mine) and 'done' or 'changed', mine and state or "
                "now, '-' }) do results[#results + 1] = word end",
            ),
        ),
        ("by hand",),
        ("by hand and late",),
    ),
    Removal(
        7,
        "a job is ended by a call that comes too late",
        (Edit("late-admin-action-is-void", "if now_ms > not_after_ms + 1e9 then return 'refused' end"),),
        ("operation",),
        ("by hand and late",),
    ),
    Removal(
        7,
        "a requeue leaves the crashes of the life before",
        (
            Edit(
                "requeue-resets-crashes",
                "run_write(item.run, 'failures', 0, 'requeued_ms', string.format('%d', item.ms), 'past', item.past)",
            ),
        ),
        ("charge",),
        ("crashes requeued",),
    ),
    Removal(
        24,
        "a tick does not look which tick the schedule waits for",
        (
            Edit(
                "tick-checks-version-and-time",
                "if was[1] ~= version or was[3] ~= '1' or math.max(last_ms, tonumber(expected_ms)) > now_ms then",
            ),
        ),
        ("tick", "tick twice", "undead"),
        ("schedules",),
    ),
    Removal(
        24,
        "a tick does not look at the version of the schedule",
        (
            Edit(
                "tick-checks-version-and-time",
                "if not version or was[2] ~= expected_ms or was[3] ~= '1' "
                "or math.max(last_ms, tonumber(expected_ms)) > now_ms then",
            ),
        ),
        ("tick",),
        ("schedules put anew",),
    ),
    Removal(
        25,
        "a job goes on when the first of its parents has ended",
        (
            Edit(
                "all-parents-ended-before-the-child",
                "do unblock_job(prefix, known, child, now_ms, virtual_time, wakes, events) end",
            ),
        ),
        ("parent open",),
        ("children",),
    ),
    Removal(
        25,
        "a job goes on without a parent that is lost",
        (
            Edit(
                "lost-parent-buries-the-child",
                "or fate == 'none' and math.floor(known.flags / 16) % 2 == 0 and redis.call('SISMEMBER', "
                "needs, parent.id) == 1 then",
            ),
        ),
        ("parent lost",),
        ("children",),
    ),
    Removal(
        25,
        "a job does not wait for a parent that is open",
        (Edit("child-waits-for-open-parents", "if fate == 'none' or tells then waits_for[#waits_for + 1] = parent end"),),
        ("parent open",),
        ("children",),
    ),
    Removal(
        25,
        "the end of a parent is told to nobody",
        (
            Edit(
                "children-are-told-of-the-end",
                "if feeding == 0 and redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then "
                "redis.call('ZADD', prefix .. 'handing', now_ms, '+' .. id) end",
            ),
            Edit("sweep-tells-forgotten-children", ""),
        ),
        ("blocked", "liveness"),
        ("children",),
    ),
    Removal(
        25,
        "a revived child does not wait for its parents",
        (Edit("revived-child-waits-for-its-parents", "if item.waits_for[99] then"),),
        ("parent open",),
        ("revived",),
    ),
    Removal(
        25,
        "a child is revived though a parent is lost still",
        (Edit("revived-child-has-no-lost-parent", "if not fate then return waits_for, results, parent end"),),
        ("parent lost",),
        ("revived",),
    ),
    Removal(
        25,
        "a child that runs since a revival which was cut off stays among the dead",
        (Edit("revival-that-was-cut-off-is-completed", "elseif stands(job, id) == 0 then"),),
        ("one place",),
        ("revived and cut",),
    ),
    Removal(
        26,
        "a cancel leaves a running job its lease",
        (Edit("cancel-revokes-the-lease", "if redis.call('ZSCORE', active, id) then return end"),),
        ("cancel",),
        ("by hand",),
    ),
    Removal(
        26,
        "a cancel is told to nobody before the next renewal",
        (Edit("cancel-is-published", ""),),
        ("told",),
        ("cancelled in hand",),
    ),
    Removal(
        26,
        "who renews the lease of a cancelled job is not told so",
        (Edit("cancelled-holder-is-told", "return 'stale', ''"),),
        ("cancel",),
        ("cancelled unheard",),
    ),
)
