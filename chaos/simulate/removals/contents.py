"""Rules 5, 15 and 25: payloads, results, and what parents leave to their children."""

from __future__ import annotations

from chaos.simulate.patching import removal

CONTENTS = (
    removal(5, "all results of a call are that of its first job", "result bytes", "quick").by(
        "each-result-is-stored-with-its-job",
        "redis.call('SET', KEYS[keys_at + 2 * count + at - 1], record .. ARGV[arguments_at + 2 * "
        "count + 2], 'PXAT', string.format('%d', until_ms))",
    ),
    removal(5, "a worker takes the result of one job for that of another", "result bytes", "quick").by(
        "each-result-belongs-to-its-job", "values.append(Value(len(values), data, ttl_ms, took_ms))"
    ),
    removal(5, "results live for a tenth of their time", "result bytes", "quick").by(
        "results-live-for-their-full-time",
        "local until_ms, id = now_ms + math.floor(tonumber(ARGV[result_at + 1]) / 10), "
        "string.sub(KEYS[keys_at + 2 * item - 2], id_at)",
    ),
    removal(5, "who reads a result is not given it", "result read", "heirs").by(
        "finished-result-is-shown",
        "return { srv_us, shown[known.outcome] or known.outcome or 'gone', known.fence, done_ms, '', '' }",
    ),
    removal(5, "who reads the result of a job that runs is told that it has finished", "result read", "heirs").by(
        "running-job-is-pending", "return { srv_us, 'finished', state[1] or '0', 0, '', '' }"
    ),
    removal(15, "all jobs of a claim have the payload of the first", "payload", "quick").by(
        "each-job-is-claimed-with-its-own-payload",
        "jobs[slot + 4], jobs[slot + 5], jobs[slot + 6] = job.failures or 0, job.crashes or 0, picked[1].raw",
    ),
    removal(15, "a repeated claim has the payload of its first job for all", "payload", "rates, network").by(
        "repeated-claim-returns-each-payload", "local raw = redis.call('GET', prefix .. 'job:' .. words[2])"
    ),
    removal(15, "all jobs of a bulk have the payload of the first", "payload", "quick").by(
        "each-bulk-job-has-its-own-payload", "items.append(head + job.nonce + tail + first.payload)"
    ),
    removal(15, "an envelope is cut short when its job is claimed", "payload", "calm").by(
        "claim-leaves-the-envelope-whole",
        "leases[at + 1] = job.id .. ' ' .. fence\nredis.call('SET', prefix .. 'job:' .. job.id, string.sub(job.raw, 1, -2))",
    ),
    removal(25, "results of parents are let go while a child lives", "heir", "heirs").by(
        "results-stay-while-a-child-lives",
        "waits = job and job.kind == 'none' and not redis.call('ZSCORE', prefix .. 'dead', child)",
    ),
    removal(25, "a child that has waited does not count as one that reads", "heir", "heirs").by(
        "waiting-child-keeps-the-results", "local _ = kept"
    ),
    removal(25, "what a parent has left is not kept for a child that comes later", "heir", "heirs").by(
        "late-children-keep-results", ""
    ),
    removal(25, "what a parent returns is not kept for a child that waits", "heir", "heirs").by(
        "parents-result-is-kept-for-waiting-children", "if waited_for == 0 then"
    ),
)
