"""Rules 5, 15 and 25: payloads, results, and what parents leave to their children."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

CONTENTS = (
    Removal(
        5,
        "all results of a call are that of its first job",
        (
            Edit(
                "each-result-is-stored-with-its-job",
                "redis.call('SET', KEYS[keys_at + 2 * count + at - 1], record .. ARGV[arguments_at + 2 * "
                "count + 2], 'PXAT', string.format('%d', until_ms))",
            ),
        ),
        ("result bytes",),
        ("quick",),
    ),
    Removal(
        5,
        "a worker takes the result of one job for that of another",
        (Edit("each-result-belongs-to-its-job", "values.append(Value(len(values), data, ttl_ms, took_ms))"),),
        ("result bytes",),
        ("quick",),
    ),
    Removal(
        5,
        "results live for a tenth of their time",
        (
            Edit(
                "results-live-for-their-full-time",
                "local until_ms, id = now_ms + math.floor(tonumber(ARGV[result_at + 1]) / 10), "
                "string.sub(KEYS[keys_at + 2 * item - 2], id_at)",
            ),
        ),
        ("result bytes",),
        ("quick",),
    ),
    Removal(
        5,
        "who reads a result is not given it",
        (
            Edit(
                "finished-result-is-shown",
                "return { srv_us, shown[known.outcome] or known.outcome or 'gone', known.fence, done_ms, '', '' }",
            ),
        ),
        ("result read",),
        ("heirs",),
    ),
    Removal(
        5,
        "who reads the result of a job that runs is told that it has finished",
        (Edit("running-job-is-pending", "return { srv_us, 'finished', state[1] or '0', 0, '', '' }"),),
        ("result read",),
        ("heirs",),
    ),
    Removal(
        15,
        "all jobs of a claim have the payload of the first",
        (
            Edit(
                "each-job-is-claimed-with-its-own-payload",
                "jobs[slot + 4], jobs[slot + 5], jobs[slot + 6] = job.failures or 0, job.crashes or 0, picked[1].raw",
            ),
        ),
        ("payload",),
        ("quick",),
    ),
    Removal(
        15,
        "a repeated claim has the payload of its first job for all",
        (Edit("repeated-claim-returns-each-payload", "local raw = redis.call('GET', prefix .. 'job:' .. words[2])"),),
        ("payload",),
        ("rates", "network"),
    ),
    Removal(
        15,
        "all jobs of a bulk have the payload of the first",
        (Edit("each-bulk-job-has-its-own-payload", "items.append(head + job.nonce + tail + first.payload)"),),
        ("payload",),
        ("quick",),
    ),
    Removal(
        15,
        "an envelope is cut short when its job is claimed",
        (
            Edit(
                "claim-leaves-the-envelope-whole",
                "leases[at + 1] = job.id .. ' ' .. fence\n"
                "redis.call('SET', prefix .. 'job:' .. job.id, string.sub(job.raw, 1, -2))",
            ),
        ),
        ("payload",),
        ("calm",),
    ),
    Removal(
        25,
        "results of parents are let go while a child lives",
        (
            Edit(
                "results-stay-while-a-child-lives",
                "waits = job and job.kind == 'none' and not redis.call('ZSCORE', prefix .. 'dead', child)",
            ),
        ),
        ("heir",),
        ("heirs",),
    ),
    Removal(
        25,
        "a child that has waited does not count as one that reads",
        (Edit("waiting-child-keeps-the-results", "local _ = kept"),),
        ("heir",),
        ("heirs",),
    ),
    Removal(
        25,
        "what a parent has left is not kept for a child that comes later",
        (Edit("late-children-keep-results", ""),),
        ("heir",),
        ("heirs",),
    ),
    Removal(
        25,
        "what a parent returns is not kept for a child that waits",
        (Edit("parents-result-is-kept-for-waiting-children", "if waited_for == 0 then"),),
        ("heir",),
        ("heirs",),
    ),
)
