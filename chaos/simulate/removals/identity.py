"""Rules 1 to 8: scripts as a whole, a repeat that returns what the first one returned, and what a failover has lost."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

IDENTITY = (
    Removal(
        1,
        "an end that was cut off stays in the history",
        (Edit("end-that-was-cut-off-is-taken-back", ""),),
        ("history",),
        ("history and cut",),
    ),
    Removal(
        1,
        "a death is taken for an end that was cut off",
        (Edit("death-that-came-true-stays-told", "return past or ''"),),
        ("history",),
        ("history",),
    ),
    Removal(
        1,
        "a job is written before its index entry",
        (
            Edit("index-entry-before-the-job", "local gains\nredis.call('SET', job, envelope)\nif waits_for[1] then"),
            Edit(
                "job-after-its-index-entry",
                "if own[1] then redis.call('MSET', job, envelope, unpack(own)) end\n"
                "if dedup_key ~= '' then redis.call('SET', dedup, id, 'PXAT', now_ms + dedup_ms) end",
            ),
        ),
        ("one place",),
        ("cut scripts",),
    ),
    Removal(
        1,
        "a claimed job leaves its lane before it is in active",
        (
            Edit(
                "every-picked-job-is-leased",
                "for _, job in ipairs(picked) do redis.call('ZREM', ask.prefix .. 'lane:' .. job.lane_name, "
                "job.id) end\n"
                "for at = 1, #entries, PIECE do redis.call('ZADD', keys.active, unpack(entries, at, "
                "math.min(at + PIECE - 1, #entries))) end",
            ),
            Edit(
                "picked-job-knows-its-limit",
                "entry.limit, entry.lane_name = head.limit, head.name",
            ),
        ),
        ("one place",),
        ("cut scripts",),
    ),
    Removal(
        1,
        "a failed job leaves active before it is in due",
        (
            Edit(
                "failed-job-is-due-before-its-lease-ends",
                "redis.call('ZREM', active, lease.id)\nredis.call('ZADD', due, lease.due_ms, member)",
            ),
        ),
        ("one place",),
        ("cut retries",),
    ),
    Removal(
        2,
        "a renewal is refused under memory pressure",
        (Edit("renewals-run-when-memory-is-full", "#!lua"),),
        ("memory",),
        ("memory",),
    ),
    Removal(
        2,
        "a claim and its finishes are refused under memory pressure",
        (Edit("claims-run-when-memory-is-full", "#!lua"),),
        ("memory",),
        ("memory",),
    ),
    Removal(
        2,
        "a sweep is refused under memory pressure",
        (Edit("sweeps-run-when-memory-is-full", "#!lua"),),
        ("memory",),
        ("memory",),
    ),
    Removal(
        3,
        "an enqueue is never void",
        (Edit("late-enqueue-is-void", ""),),
        ("undead", "late enqueue", "told nothing"),
        ("late enqueues",),
    ),
    Removal(
        3,
        "a tombstone lives for half a second",
        (Edit("tombstone-outlives-late-copies", "redis.call('SET', job_key, last.stone, 'PXAT', now_ms + 500)"),),
        ("undead",),
        ("late copies",),
    ),
    Removal(
        3,
        "jobs that left together are known by the nonce of the first",
        (
            Edit(
                "each-bulk-job-is-known-by-its-own-nonce",
                "result, state, fence, first = enqueue_known(prefix, known, string.sub(ARGV[items_at + 1], 3, 10), id)",
            ),
        ),
        ("enqueue reply", "told nothing"),
        ("late copies", "everything"),
    ),
    Removal(
        3,
        "the same id in another call is a silent success",
        (Edit("another-enqueue-of-the-same-id-is-refused", "local same = true"),),
        ("enqueue reply",),
        ("late copies", "everything"),
    ),
    Removal(
        4,
        "a claim with a lower counter leases",
        (Edit("older-claim-is-stale", "if words[1] ~= counter then return nil, jobs end"),),
        ("claim twice", "claim reply"),
        ("late claims",),
    ),
    Removal(
        4,
        "a claim that comes too late leases",
        (Edit("late-claim-is-void", ""),),
        ("late claim",),
        ("dead letters",),
    ),
    Removal(
        4,
        "a claim is not recorded",
        (Edit("claim-is-recognized-when-repeated", "known, jobs = nil, {}"),),
        ("claim twice",),
        ("late copies", "network"),
    ),
    Removal(
        4,
        "a worker gives an unanswered claim up",
        (
            Edit(
                "unanswered-calls-are-repeated",
                "case Finish() | Retry() | Bury() | Drop() | Release() | Mark() | Enqueue() if not event.fault:",
            ),
        ),
        ("claim given up",),
        ("cut off",),
    ),
    Removal(
        5,
        "the last ended token is forgotten",
        (Edit("last-ended-token-is-known", ""),),
        ("repeat",),
        ("network", "late copies"),
    ),
    Removal(
        5,
        "a tombstone does not know its token",
        (Edit("tombstone-knows-its-token", ""),),
        ("repeat",),
        ("network", "late copies"),
    ),
    Removal(
        6,
        "a fence counts by one and knows no time",
        (
            Edit(
                "fences-only-grow",
                "entry.fence = tonumber(run.fence or 0) + 1",
            ),
        ),
        ("fence",),
        ("failover and clock ahead", "failover"),
    ),
    Removal(
        6,
        "a fence is the time and may fall",
        (Edit("fences-only-grow", "entry.fence = pick.now_ms"),),
        ("fence",),
        ("clock", "clock and kills"),
    ),
    Removal(
        8,
        "a process that has told a loss tells no other",
        (Edit("each-loss-is-told", 'again = not fresh and self._told != b""'),),
        ("loss untold",),
        ("failover and clock ahead", "failover and clock behind"),
    ),
    Removal(
        8,
        "a server that a process does not know is not asked what it lacks",
        (Edit("an-unknown-server-is-asked", "if True:"),),
        ("loss untold",),
        ("failover and clock ahead", "failover and clock behind"),
    ),
)
