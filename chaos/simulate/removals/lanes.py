"""Rules 18 to 23: lanes and turns, limits, batches, markers, unique and dedup keys."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_PICK = "include/pick_jobs.lua"
_FREE = "include/free_slots.lua"

LANES = (
    Removal(
        18,
        "a lane that was served stays in front of the others of its band",
        (Edit(_PICK, "        turn = turn + 1\n", ""),),
        ("turns",),
        ("lanes",),
    ),
    Removal(
        18,
        "a visit empties a lane while others wait",
        (Edit(_PICK, "rival and 10 or math.huge)", "math.huge)"),),
        ("turns",),
        ("lanes",),
    ),
    Removal(
        18,
        "a lane that waits for a slot is not called when one comes free",
        (
            Edit(
                _FREE,
                "for _, lane in ipairs(redis.call('ZRANGE', prefix .. 'parked:' .. limit, 0, 99)) do",
                "for _, lane in ipairs({}) do",
            ),
        ),
        ("parked",),
        ("limits",),
    ),
    Removal(
        19,
        "a claim begins at the end of the lane",
        (
            Edit(
                _PICK,
                "redis.call('ZRANGE', head.zset, head.offset, head.offset + size - 1, ...)",
                "redis.call('ZREVRANGE', head.zset, head.offset, head.offset + size - 1, ...)",
            ),
        ),
        ("order",),
        ("calm",),
    ),
    Removal(
        19,
        "a visit goes on into lower bands",
        (Edit(_PICK, "10 - string.byte(raw, 3) > least_band then", "10 - string.byte(raw, 3) > 99 then"),),
        ("band",),
        ("lanes",),
    ),
    Removal(
        19,
        "an urgent job does not move its lane ahead",
        (
            Edit("include/to_lane.lua", "'LT', (10", "'NX', (10"),
            Edit("enqueue_many.lua", "'LT', (10", "'NX', (10"),
        ),
        ("band",),
        ("lanes",),
    ),
    Removal(
        20,
        "a lease holds no slot",
        (Edit("include/count_leases.lua", "if slots ~= '0' then", "if slots == 'none' then"),),
        ("limit",),
        ("limits",),
    ),
    Removal(
        20,
        "a lease that is reaped keeps its slot",
        (Edit("include/reap_job.lua", "if state[5] and state[5] ~= '' then", "if state[5] == 'none' then"),),
        ("held",),
        ("limits and kills",),
    ),
    Removal(
        20,
        "a renewal does not renew the slot",
        (
            Edit(
                "extend.lua",
                "redis.call('ZADD', prefix .. 'held:' .. limit, 'XX', lease.deadline_ms, lease.id)",
                "local _ = limit",
            ),
        ),
        ("held",),
        ("limits",),
    ),
    Removal(
        20,
        "what is given back unstarted still counts in its window",
        (Edit("release.lua", "      redis.call('ZREM', rate, unpack(places))\n", ""),),
        ("rate",),
        ("rates",),
    ),
    Removal(
        20,
        "claims do not count in a window",
        (Edit("include/count_leases.lua", "if rate ~= '0' then", "if rate == 'none' then"),),
        ("rate",),
        ("rates",),
    ),
    Removal(
        20,
        "a fixed window begins in its middle",
        (Edit("include/limit_room.lua", "now_ms - now_ms % per_ms or", "now_ms - now_ms % (per_ms / 2) or"),),
        ("rate",),
        ("rates",),
    ),
    Removal(
        21,
        "jobs taken ahead stay with a slow worker",
        (
            Edit(
                "engine.worker.machine.lease_table:LeaseTable.give_back_idle",
                "if oldest is None or now_ns - oldest.since_ns < waited_ns:",
                "if oldest is None or now_ns > 0:",
            ),
        ),
        ("hoard",),
        ("slow and quick",),
    ),
    Removal(
        21,
        "finishes wait for as long as jobs wait",
        (
            Edit("engine.worker.machine.acknowledgements:PendingAcknowledgements.lingers", "return in_time and ", "return "),
            Edit("engine.worker.machine.acknowledgements:PendingAcknowledgements.linger_until_ns", "LINGER_MS * MS", "1000 * MS"),
        ),
        ("linger",),
        ("quick",),
    ),
    Removal(
        22,
        "an enqueue leaves no marker",
        (Edit("enqueue.lua", "if gains then wake_push(wake) end\n", "local _ = wake, gains\n"),),
        ("marker",),
        ("calm",),
    ),
    Removal(
        22,
        "a claim leaves work and no marker",
        (
            Edit(
                "include/wake_served.lua",
                "wakes[prefix .. 'wake:' .. name] = claimable or nil",
                "wakes[prefix .. 'wake:' .. name] = nil",
            ),
        ),
        ("marker",),
        ("calm",),
    ),
    Removal(
        22,
        "a retry that is due first leaves no marker",
        (Edit("retry.lua", "if redis.call('ZRANGE', due, 0, 0)[1] == member then", "if not member then"),),
        ("marker",),
        ("calm",),
    ),
    Removal(
        22,
        "a sweep does not re-arm the marker",
        (Edit("include/wake_classes.lua", "helpers.wake_push(prefix .. 'wake:' .. class)", "local _ = class"),),
        ("marker",),
        ("crashes", "everything"),
    ),
    Removal(
        22,
        "a freed slot of a name leaves no marker",
        (Edit(_FREE, "then wakes[prefix .. 'wake:' .. class] = true end", "then name = nil end"),),
        ("marker",),
        ("limits",),
    ),
    Removal(
        22,
        "a resumed class has no marker",
        (Edit("resume.lua", "wake_classes(prefix, now_ms, { is_paused = is_paused, wake_push = wake_push })\n", ""),),
        ("marker",),
        ("pauses",),
    ),
    Removal(
        23,
        "a unique key keeps nobody out",
        (
            Edit(
                "include/unique_holder.lua",
                "if job and job.unique == unique and state ~= 'dead' then return holder, state, fence end",
                "",
            ),
        ),
        ("enqueue reply", "unique"),
        ("unique",),
    ),
    Removal(
        23,
        "a dead job keeps its unique key",
        (Edit("include/bury_job.lua", "  helpers.free_unique(prefix, job, id)\n", "  local _ = job, helpers\n"),),
        ("unique left",),
        ("unique",),
    ),
    Removal(
        23,
        "the window of a dedup key opens for nobody",
        (Edit("enqueue.lua", "if dedup_key ~= '' then redis.call('SET', dedup, id, 'PXAT', now_ms + dedup_ms) end\n", ""),),
        ("dedup",),
        ("unique",),
    ),
    Removal(
        23,
        "a job that was turned away may come in by a late copy",
        (Edit("enqueue.lua", "    reject_enqueue(job, nonce, first, not_after_ms + 20000, 3)\n", ""),),
        ("told nothing",),
        ("unique and late",),
    ),
)
