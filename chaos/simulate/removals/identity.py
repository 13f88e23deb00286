"""Rules 1 to 6: scripts as a whole, and a repeat that returns what the first one returned."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_PICK = "include/pick_jobs.lua"
_CLAIM = "include/claim_jobs.lua"

IDENTITY = (
    Removal(
        1,
        "a job is written before its index entry",
        (
            Edit("enqueue.lua", "local gains\nif waits_for", "local gains\nredis.call('SET', job, envelope)\nif waits_for"),
            Edit("enqueue.lua", " else redis.call('SET', job, envelope) end\nif dedup_key", " end\nif dedup_key"),
        ),
        ("one place",),
        ("cut scripts",),
    ),
    Removal(
        1,
        "a claimed job leaves its lane before it is in active",
        (
            Edit(
                _CLAIM,
                "  for at = 1, #entries, PIECE do redis.call('ZADD', keys.active,",
                "  for _, job in ipairs(picked) do redis.call('ZREM', prefix .. 'lane:' .. job.lane_name, job.id) end\n"
                "  for at = 1, #entries, PIECE do redis.call('ZADD', keys.active,",
            ),
            Edit(_PICK, "limit = head.limit, ran = run[1],", "limit = head.limit, ran = run[1], lane_name = head.name,"),
        ),
        ("one place",),
        ("cut scripts",),
    ),
    Removal(
        1,
        "a failed job leaves active before it is in due",
        (
            Edit(
                "retry.lua",
                "    redis.call('ZADD', due, lease.due_ms, member)\n  end\n",
                "    redis.call('ZREM', active, lease.id)\n    redis.call('ZADD', due, lease.due_ms, member)\n  end\n",
            ),
        ),
        ("one place",),
        ("cut retries",),
    ),
    Removal(
        2,
        "a renewal is refused under memory pressure",
        (Edit("extend.lua", "#!lua flags=allow-oom", "#!lua"),),
        ("memory",),
        ("memory",),
    ),
    Removal(
        2,
        "a claim and its finishes are refused under memory pressure",
        (Edit("claim.lua", "#!lua flags=allow-oom", "#!lua"),),
        ("memory",),
        ("memory",),
    ),
    Removal(
        2,
        "a sweep is refused under memory pressure",
        (Edit("reap.lua", "#!lua flags=allow-oom", "#!lua"),),
        ("memory",),
        ("memory",),
    ),
    Removal(
        3,
        "an enqueue is never void",
        (Edit("enqueue.lua", "if now_ms > not_after_ms then return { srv_us, 'refused', '', 0, id } end\n", ""),),
        ("undead", "late enqueue", "told nothing"),
        ("late enqueues",),
    ),
    Removal(
        3,
        "a tombstone lives for half a second",
        (Edit("include/finish_jobs.lua", "math.max(struct.unpack('>I6', seal, 9), now_ms) + 20000", "now_ms + 500"),),
        ("undead",),
        ("late copies",),
    ),
    Removal(
        3,
        "the same id in another call is a silent success",
        (Edit("include/enqueue_known.lua", "local same = known.enqueue_nonce == nonce", "local same = true"),),
        ("enqueue reply",),
        ("late copies", "everything"),
    ),
    Removal(
        4,
        "a claim with a lower counter leases",
        (
            Edit(
                "include/claim_known.lua",
                "if words[1] ~= counter then return 'stale', jobs end",
                "if words[1] ~= counter then return nil, jobs end",
            ),
        ),
        ("claim twice", "claim reply"),
        ("late claims",),
    ),
    Removal(
        4,
        "a claim that comes too late leases",
        (Edit(_CLAIM, "if now_ms > ask.not_after_ms then return 'void', jobs, corrupt end", ""),),
        ("late claim",),
        ("dead letters",),
    ),
    Removal(
        4,
        "a claim is not recorded",
        (Edit(_CLAIM, "if known then return known, jobs, corrupt end", "known, jobs = nil, {}"),),
        ("claim twice",),
        ("late copies", "network"),
    ),
    Removal(
        4,
        "a worker gives an unanswered claim up",
        (
            Edit(
                "engine.worker.machine.replies:ReplyHandling._failed",
                "case Claim() | Finish() | Retry() | Bury() | Drop()",
                "case Finish() | Retry() | Bury() | Drop()",
            ),
        ),
        ("claim given up",),
        ("cut off",),
    ),
    Removal(
        5,
        "the last ended token is forgotten",
        (Edit("include/token_state.lua", "if ended[1] == fence .. ':' .. nonce then return 'repeated', ended[2] end", ""),),
        ("repeat",),
        ("network", "late copies"),
    ),
    Removal(
        5,
        "a tombstone does not know its token",
        (
            Edit(
                "include/token_state.lua",
                "if job.fence == fence and job.nonce == nonce then return 'repeated', job.outcome end",
                "",
            ),
        ),
        ("repeat",),
        ("network", "late copies"),
    ),
    Removal(
        6,
        "a fence counts by one and knows no time",
        (Edit(_PICK, "math.max(tonumber(run[1] or 0) + 1, now_ms)", "tonumber(run[1] or 0) + 1"),),
        ("fence",),
        ("failover", "late copies"),
    ),
    Removal(
        6,
        "a fence is the time and may fall",
        (Edit(_PICK, "math.max(tonumber(run[1] or 0) + 1, now_ms)", "now_ms"),),
        ("fence",),
        ("clock", "clock and kills"),
    ),
)
