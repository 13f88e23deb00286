"""Rules 7 and 24 to 26: what is done to jobs by hand, schedules, jobs that need others; and results (rule 5)."""

from __future__ import annotations

from chaos.simulate.patching import removal

BY_HAND = (
    removal(5, "a result is kept whoever has ended the lease", "result", "late copies, crashes").by(
        "only-the-holder-keeps-a-result", "if item then"
    ),
    removal(7, "a late copy of a requeue lets the job run again", "operation", "by hand").by(
        "late-requeue-is-void", "local known"
    ),
    removal(7, "a job is ended by hand in whatever state it is", "by hand", "by hand and late")
    .by("discard-ends-the-named-state", "if (now ~= 'gone' or mine) then ends[#ends + 1] = { id = id, job = job } end")
    .by(
        "discard-tells-the-named-state",
        "for _, word in ipairs({ (now ~= 'gone' or mine) and 'done' or 'changed', mine and state or "
        "now, '-' }) do results[#results + 1] = word end",
    ),
    removal(7, "a job is ended by a call that comes too late", "operation", "by hand and late").by(
        "late-admin-action-is-void", "if now_ms > not_after_ms + 1e9 then return 'refused' end"
    ),
    removal(7, "a requeue leaves the crashes of the life before", "charge", "crashes requeued").by(
        "requeue-resets-crashes",
        "run_write(item.run, 'failures', 0, 'requeued_ms', string.format('%d', item.ms), 'past', item.past)",
    ),
    removal(24, "a tick does not look which tick the schedule waits for", "tick, tick twice, undead", "schedules").by(
        "tick-checks-version-and-time",
        "if was.version ~= version or was.enabled ~= '1' or math.max(last_ms, tonumber(expected_ms)) > now_ms then",
    ),
    removal(24, "a tick does not look at the version of the schedule", "tick", "schedules put anew").by(
        "tick-checks-version-and-time",
        "if not version or was.next_ms ~= expected_ms or was.enabled ~= '1' "
        "or math.max(last_ms, tonumber(expected_ms)) > now_ms then",
    ),
    removal(25, "a job goes on when the first of its parents has ended", "parent open", "children").by(
        "all-parents-ended-before-the-child", "do unblock_job(prefix, known, child, now_ms, virtual_time, wakes, events) end"
    ),
    removal(25, "a job goes on without a parent that is lost", "parent lost", "children").by(
        "lost-parent-buries-the-child",
        "or fate == 'none' and math.floor(known.flags / 16) % 2 == 0 and redis.call('SISMEMBER', needs, parent.id) == 1 then",
    ),
    removal(25, "a job does not wait for a parent that is open", "parent open", "children").by(
        "child-waits-for-open-parents", "if fate == 'none' or tells then waits_for[#waits_for + 1] = parent end"
    ),
    removal(25, "the end of a parent is told to nobody", "blocked, liveness", "children")
    .by(
        "children-are-told-of-the-end",
        "if feeding == 0 and redis.call('SISMEMBER', prefix .. 'feeding', id) == 1 then "
        "redis.call('ZADD', prefix .. 'handing', now_ms, '+' .. id) end",
    )
    .by("sweep-tells-forgotten-children", ""),
    removal(25, "a revived child does not wait for its parents", "parent open", "revived").by(
        "revived-child-waits-for-its-parents", "if item.waits_for[99] then"
    ),
    removal(25, "a child is revived though a parent is lost still", "parent lost", "revived").by(
        "revived-child-has-no-lost-parent", "if not fate then return waits_for, results, parent end"
    ),
    removal(25, "a child that runs since a revival which was cut off stays among the dead", "one place", "revived and cut").by(
        "revival-that-was-cut-off-is-completed", "elseif stands(job, id) == 0 then"
    ),
    removal(26, "a cancel leaves a running job its lease", "cancel", "by hand").by(
        "cancel-revokes-the-lease", "if redis.call('ZSCORE', active, id) then return end"
    ),
    removal(26, "a cancel is told to nobody before the next renewal", "told", "cancelled in hand").by("cancel-is-published", ""),
    removal(26, "who renews the lease of a cancelled job is not told so", "cancel", "cancelled unheard").by(
        "cancelled-holder-is-told", "return 'stale', ''"
    ),
)
