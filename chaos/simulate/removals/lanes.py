"""Rules 18 to 23: lanes and turns, limits, batches, markers, unique and dedup keys."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

LANES = (
    Removal(
        18,
        "a lane that was served stays in front of the others of its band",
        (Edit("served-lane-goes-behind-its-band", ""),),
        ("turns",),
        ("lanes",),
    ),
    Removal(
        18,
        "a visit empties a lane while others wait",
        (
            Edit(
                "visit-leaves-room-for-others",
                "local most = math.min(pick.ask.limit - #pick.jobs, class.room, head.limit and head.limit.room or math.huge)",
            ),
        ),
        ("turns",),
        ("lanes",),
    ),
    Removal(
        18,
        "a lane that waits for a slot is not called when one comes free",
        (Edit("freed-slot-calls-parked-lanes", "for _, lane in ipairs({}) do"),),
        ("parked",),
        ("limits",),
    ),
    Removal(
        19,
        "a claim begins at the end of the lane",
        (
            Edit(
                "lane-is-served-from-its-head",
                "if not pick.first then return redis.call('ZREVRANGE', head.zset, head.offset, head.offset + count - 1, ...) end",
            ),
        ),
        ("order",),
        ("calm",),
    ),
    Removal(
        19,
        "a visit goes on into lower bands",
        (Edit("visit-stays-in-its-band", "elseif least_band and 10 - string.byte(entry.raw) % 16 > 99 then"),),
        ("band",),
        ("lanes",),
    ),
    Removal(
        19,
        "an urgent job does not move its lane ahead",
        (
            Edit(
                "urgent-job-moves-its-lane-ahead",
                "redis.call('ZADD', prefix .. 'ready:' .. job.class, 'NX', (10 - job.priority) * BAND + virtual_time, job.lane)",
            ),
            Edit(
                "urgent-new-job-moves-its-lane-ahead",
                "if is_parked == 0 then redis.call('ZADD', ready, 'NX', ready_score, lane_name) end",
            ),
            Edit(
                "urgent-bulk-job-moves-its-lane-ahead",
                "redis.call('ZADD', lane.ready, 'NX', (10 - lane.best) * BAND + virtual_time, lane.name)",
            ),
        ),
        ("band",),
        ("lanes",),
    ),
    Removal(
        20,
        "a lease holds no slot",
        (Edit("lease-holds-a-slot", "if slots == 'none' then"),),
        ("limit",),
        ("limits",),
    ),
    Removal(
        20,
        "a lease that is reaped keeps its slot",
        (
            Edit(
                "reaped-lease-frees-its-slot",
                "if state[5] == 'none' then free_slots(prefix, state[5], id, virtual_time, wakes) end",
            ),
        ),
        ("held",),
        ("limits and kills",),
    ),
    Removal(
        20,
        "a renewal does not renew the slot",
        (Edit("renewal-renews-the-slot", "local _ = limit"),),
        ("held",),
        ("limits",),
    ),
    Removal(
        20,
        "what is given back unstarted still counts in its window",
        (Edit("unstarted-job-leaves-the-rate", ""),),
        ("rate",),
        ("rates",),
    ),
    Removal(
        20,
        "claims do not count in a window",
        (Edit("claims-count-in-the-rate", "if rate == 'none' then"),),
        ("rate",),
        ("rates",),
    ),
    Removal(
        20,
        "a fixed window begins in its middle",
        (
            Edit(
                "fixed-window-begins-at-its-start",
                "local start_ms = kind == 'fixed' and now_ms - now_ms % (per_ms / 2) or now_ms - per_ms + 1",
            ),
        ),
        ("rate",),
        ("rates",),
    ),
    Removal(
        21,
        "jobs taken ahead stay with a slow worker",
        (Edit("jobs-taken-ahead-are-given-back", "if oldest is None or now_ns > 0:"),),
        ("hoard",),
        ("slow and quick",),
    ),
    Removal(
        21,
        "finishes wait for as long as jobs wait",
        (
            Edit("finishes-linger-while-handlers-are-busy", "return count + more < startable"),
            Edit("finishes-linger-briefly", "return self._finishes_since_ns + 1000 * MS if self.finishes else None"),
        ),
        ("linger",),
        ("quick",),
    ),
    Removal(
        22,
        "an enqueue leaves no marker",
        (Edit("new-work-leaves-a-marker", "local _ = wake, gains"),),
        ("marker",),
        ("calm",),
    ),
    Removal(
        22,
        "a claim leaves work and no marker",
        (Edit("claim-leaves-a-marker", "wakes[prefix .. 'wake:' .. name] = nil"),),
        ("marker",),
        ("calm",),
    ),
    Removal(
        22,
        "a retry that is due first leaves no marker",
        (Edit("first-due-retry-leaves-a-marker", "if not member then wakes[prefix .. 'wake:' .. lease.job.class] = true end"),),
        ("marker",),
        ("calm",),
    ),
    Removal(
        22,
        "a sweep does not re-arm the marker",
        (Edit("sweep-leaves-a-marker", "local _ = class"),),
        ("marker",),
        ("crashes", "everything"),
    ),
    Removal(
        22,
        "a freed slot of a name leaves no marker",
        (Edit("freed-slot-leaves-a-marker", "if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 then name = nil end"),),
        ("marker",),
        ("limits",),
    ),
    Removal(
        22,
        "a resumed class has no marker",
        (Edit("resumed-class-leaves-a-marker", ""),),
        ("marker",),
        ("pauses",),
    ),
    Removal(
        23,
        "a unique key keeps nobody out",
        (Edit("unique-key-is-held", ""),),
        ("enqueue reply", "unique"),
        ("unique",),
    ),
    Removal(
        23,
        "a dead job keeps its unique key",
        (Edit("dead-job-frees-its-unique-key", "local _ = job"),),
        ("unique left",),
        ("unique",),
    ),
    Removal(
        23,
        "the window of a dedup key opens for nobody",
        (
            Edit(
                "job-after-its-index-entry",
                "if own[1] then redis.call('MSET', job, envelope, unpack(own)) else redis.call('SET', job, envelope) end",
            ),
        ),
        ("dedup",),
        ("unique",),
    ),
    Removal(
        23,
        "a job that was turned away may come in by a late copy",
        (Edit("late-copy-of-a-rejected-enqueue-stays-out", ""),),
        ("told nothing",),
        ("unique and late",),
    ),
)
