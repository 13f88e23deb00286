"""Rules 1 to 8: scripts as a whole, a repeat that returns what the first one returned, and what a failover has lost."""

from __future__ import annotations

from chaos.simulate.patching import removal

IDENTITY = (
    removal(1, "an end that was cut off stays in the history", "history", "history and cut").by(
        "end-that-was-cut-off-is-taken-back", ""
    ),
    removal(1, "a death is taken for an end that was cut off", "history", "history").by(
        "death-that-came-true-stays-told", "return past or ''"
    ),
    removal(1, "a job is written before its index entry", "one place", "cut scripts")
    .by("index-entry-before-the-job", "local gains\nredis.call('SET', job, envelope)\nif waits_for[1] then")
    .by(
        "job-after-its-index-entry",
        "if own[1] then redis.call('MSET', job, envelope, unpack(own)) end\n"
        "if dedup_key ~= '' then redis.call('SET', dedup, id, 'PXAT', now_ms + dedup_ms) end",
    ),
    removal(1, "a claimed job leaves its lane before it is in active", "one place", "cut scripts")
    .by(
        "every-picked-job-is-leased",
        "for _, job in ipairs(picked) do redis.call('ZREM', ask.prefix .. 'lane:' .. job.lane_name, "
        "job.id) end\n"
        "for at = 1, #entries, PIECE do redis.call('ZADD', keys.active, unpack(entries, at, "
        "math.min(at + PIECE - 1, #entries))) end",
    )
    .by("picked-job-knows-its-limit", "entry.limit, entry.lane_name = head.limit, head.name"),
    removal(1, "a failed job leaves active before it is in due", "one place", "cut retries").by(
        "failed-job-is-due-before-its-lease-ends",
        "redis.call('ZREM', active, lease.id)\nredis.call('ZADD', due, lease.due_ms, member)",
    ),
    removal(2, "a renewal is refused under memory pressure", "memory", "memory").by("renewals-run-when-memory-is-full", "#!lua"),
    removal(2, "a claim and its finishes are refused under memory pressure", "memory", "memory").by(
        "claims-run-when-memory-is-full", "#!lua"
    ),
    removal(2, "a sweep is refused under memory pressure", "memory", "memory").by("sweeps-run-when-memory-is-full", "#!lua"),
    removal(3, "an enqueue is never void", "undead, late enqueue, told nothing", "late enqueues").by("late-enqueue-is-void", ""),
    removal(3, "a tombstone lives for half a second", "undead", "late copies").by(
        "tombstone-outlives-late-copies", "redis.call('SET', job_key, last.stone, 'PXAT', now_ms + 500)"
    ),
    removal(
        3, "jobs that left together are known by the nonce of the first", "enqueue reply, told nothing", "late copies, everything"
    ).by(
        "each-bulk-job-is-known-by-its-own-nonce",
        "result, state, fence, first = enqueue_known(prefix, known, string.sub(ARGV[items_at + 1], 3, 10), id)",
    ),
    removal(3, "the same id in another call is a silent success", "enqueue reply", "late copies, everything").by(
        "another-enqueue-of-the-same-id-is-refused", "local same = true"
    ),
    removal(4, "a claim with a lower counter leases", "claim twice, claim reply", "late claims").by(
        "older-claim-is-stale", "if words[1] ~= counter then return nil, jobs end"
    ),
    removal(4, "a claim that comes too late leases", "late claim", "dead letters").by("late-claim-is-void", ""),
    removal(4, "a claim is not recorded", "claim twice", "late copies, network").by(
        "claim-is-recognized-when-repeated", "known, jobs = nil, {}"
    ),
    removal(4, "a worker gives an unanswered claim up", "claim given up", "cut off").by(
        "unanswered-calls-are-repeated",
        "case Finish() | Retry() | Bury() | Drop() | Release() | Mark() | Enqueue() if not event.fault:",
    ),
    removal(5, "the last ended token is forgotten", "repeat", "network, late copies").by("last-ended-token-is-known", ""),
    removal(5, "a tombstone does not know its token", "repeat", "network, late copies").by("tombstone-knows-its-token", ""),
    removal(6, "a fence counts by one and knows no time", "fence", "failover and clock ahead, failover").by(
        "fences-only-grow", "entry.fence = tonumber(run.fence or 0) + 1"
    ),
    removal(6, "a fence is the time and may fall", "fence", "clock, clock and kills").by(
        "fences-only-grow", "entry.fence = pick.now_ms"
    ),
    removal(
        8, "a process that has told a loss tells no other", "loss untold", "failover and clock ahead, failover and clock behind"
    ).by("each-loss-is-told", 'again = not fresh and self._told != b""'),
    removal(
        8,
        "a server that a process does not know is not asked what it lacks",
        "loss untold",
        "failover and clock ahead, failover and clock behind",
    ).by("an-unknown-server-is-asked", "if True:"),
)
