"""Rules 18 to 23: lanes and turns, limits, batches, markers, unique and dedup keys."""

from __future__ import annotations

from chaos.simulate.patching import removal

LANES = (
    removal(18, "a lane that was served stays in front of the others of its band", "turns", "lanes").by(
        "served-lane-goes-behind-its-band", ""
    ),
    removal(18, "a visit empties a lane while others wait", "turns", "lanes").by(
        "visit-leaves-room-for-others",
        "local most = math.min(pick.ask.most - #pick.jobs, class.room, head.limit and head.limit.room or math.huge)",
    ),
    removal(18, "a lane that waits for a slot is not called when one comes free", "parked", "limits").by(
        "freed-slot-calls-parked-lanes", "for _, lane in ipairs({}) do"
    ),
    removal(19, "a claim begins at the end of the lane", "order", "calm").by(
        "lane-is-served-from-its-head",
        "if not pick.first then return redis.call('ZREVRANGE', head.zset, head.offset, head.offset + count - 1, ...) end",
    ),
    removal(19, "a visit goes on into lower bands", "band", "lanes").by(
        "visit-stays-in-its-band", "elseif least_band and 10 - string.byte(entry.raw) % 16 > 99 then"
    ),
    removal(19, "an urgent job does not move its lane ahead", "band", "lanes")
    .by(
        "urgent-job-moves-its-lane-ahead",
        "redis.call('ZADD', prefix .. 'ready:' .. job.class, 'NX', (10 - job.priority) * BAND + virtual_time, job.lane)",
    )
    .by(
        "urgent-new-job-moves-its-lane-ahead",
        "if is_parked == 0 then redis.call('ZADD', ready, 'NX', ready_score, lane_name) end",
    )
    .by(
        "urgent-bulk-job-moves-its-lane-ahead",
        "redis.call('ZADD', lane.ready, 'NX', (10 - lane.best) * BAND + virtual_time, lane.name)",
    ),
    removal(20, "a lease holds no slot", "limit", "limits").by("lease-holds-a-slot", "if slots == 'none' then"),
    removal(20, "a lease that is reaped keeps its slot", "held", "limits and kills").by(
        "reaped-lease-frees-its-slot", "if limits == 'none' then free_slots(prefix, limits, id, virtual_time, wakes) end"
    ),
    removal(20, "a renewal does not renew the slot", "held", "limits").by("renewal-renews-the-slot", "local _ = limit"),
    removal(20, "what is given back unstarted still counts in its window", "rate", "rates").by(
        "unstarted-job-leaves-the-rate", ""
    ),
    removal(20, "claims do not count in a window", "rate", "rates").by("claims-count-in-the-rate", "if rate == 'none' then"),
    removal(20, "a fixed window begins in its middle", "rate", "rates").by(
        "fixed-window-begins-at-its-start",
        "local start_ms = kind == 'fixed' and now_ms - now_ms % (per_ms / 2) or now_ms - per_ms + 1",
    ),
    removal(21, "jobs taken ahead stay with a slow worker", "hoard", "slow and quick").by(
        "jobs-taken-ahead-are-given-back", "if oldest is None or now_ns > 0:"
    ),
    removal(21, "finishes wait for as long as jobs wait", "linger", "quick")
    .by("finishes-linger-while-handlers-are-busy", "return count + more < startable")
    .by("finishes-linger-briefly", "return self._finishes_since_ns + 1000 * MS if self.finishes else None"),
    removal(22, "an enqueue leaves no marker", "marker", "calm").by("new-work-leaves-a-marker", "local _ = wake, gains"),
    removal(22, "a claim leaves work and no marker", "marker", "calm").by(
        "claim-leaves-a-marker", "wakes[prefix .. 'wake:' .. name] = nil"
    ),
    removal(22, "a retry that is due first leaves no marker", "marker", "calm").by(
        "first-due-retry-leaves-a-marker", "if not member then wakes[prefix .. 'wake:' .. lease.job.class] = true end"
    ),
    removal(22, "a sweep does not re-arm the marker", "marker", "crashes, everything").by(
        "sweep-leaves-a-marker", "local _ = class"
    ),
    removal(22, "a freed slot of a name leaves no marker", "marker", "limits").by(
        "freed-slot-leaves-a-marker", "if redis.call('ZCARD', prefix .. 'ready:' .. class) > 0 then name = nil end"
    ),
    removal(22, "a resumed class has no marker", "marker", "pauses").by("resumed-class-leaves-a-marker", ""),
    removal(23, "a unique key keeps nobody out", "enqueue reply, unique", "unique").by("unique-key-is-held", ""),
    removal(23, "a dead job keeps its unique key", "unique left", "unique").by("dead-job-frees-its-unique-key", "local _ = job"),
    removal(23, "the window of a dedup key opens for nobody", "dedup", "unique").by(
        "job-after-its-index-entry",
        "redis.call(own[1] and 'MSET' or 'SET', job, envelope, unpack(own))",
    ),
    removal(23, "a job that was turned away may come in by a late copy", "told nothing", "unique and late").by(
        "late-copy-of-a-rejected-enqueue-stays-out", ""
    ),
)
