"""Rules 5, 15 and 25: payloads, results, and what parents leave to their children."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_FINISH = "include/finish_jobs.lua"

CONTENTS = (
    Removal(
        5,
        "all results of a call are that of its first job",
        (Edit(_FINISH, "record .. ARGV[place + 2]", "record .. ARGV[arguments_at + 2 * count + 2]"),),
        ("result bytes",),
        ("quick",),
    ),
    Removal(
        5,
        "a worker takes the result of one job for that of another",
        (
            Edit(
                "engine.worker.machine.acknowledgements:PendingAcknowledgements.take_finishes",
                "values.append(Value(item, data, ttl_ms, took_ms))",
                "values.append(Value(len(values), data, ttl_ms, took_ms))",
            ),
        ),
        ("result bytes",),
        ("quick",),
    ),
    Removal(
        5,
        "results live for a tenth of their time",
        (Edit(_FINISH, "now_ms + tonumber(ARGV[place + 1])", "now_ms + math.floor(tonumber(ARGV[place + 1]) / 10)"),),
        ("result bytes",),
        ("quick",),
    ),
    Removal(
        5,
        "who reads a result is not given it",
        (Edit("look.lua", "known.fence, done_ms, record, ''", "known.fence, done_ms, '', ''"),),
        ("result read",),
        ("heirs",),
    ),
    Removal(
        5,
        "who reads the result of a job that runs is told that it has finished",
        (Edit("look.lua", "return { srv_us, 'pending', state[1]", "return { srv_us, 'finished', state[1]"),),
        ("result read",),
        ("heirs",),
    ),
    Removal(
        15,
        "all jobs of a claim have the payload of the first",
        (Edit("include/claim_jobs.lua", "job.failures, job.crashes, job.raw", "job.failures, job.crashes, picked[1].raw"),),
        ("payload",),
        ("quick",),
    ),
    Removal(
        15,
        "a repeated claim has the payload of its first job for all",
        (
            Edit(
                "include/claim_known.lua",
                "redis.call('GET', prefix .. 'job:' .. id)",
                "redis.call('GET', prefix .. 'job:' .. words[2])",
            ),
        ),
        ("payload",),
        ("rates", "network"),
    ),
    Removal(
        15,
        "all jobs of a bulk have the payload of the first",
        (
            Edit(
                "engine.models.lanes:Lanes._enqueue_many",
                "items.append(common[1] + job.payload)",
                "items.append(common[1] + first.payload)",
            ),
        ),
        ("payload",),
        ("quick",),
    ),
    Removal(
        15,
        "an envelope is cut short when its job is claimed",
        (
            Edit(
                "include/claim_jobs.lua",
                "    leases[at + 1] = job.id .. ' ' .. fence\n",
                "    leases[at + 1] = job.id .. ' ' .. fence\n"
                "    redis.call('SET', prefix .. 'job:' .. job.id, string.sub(job.raw, 1, -2))\n",
            ),
        ),
        ("payload",),
        ("calm",),
    ),
    Removal(
        25,
        "results of parents are let go while a child lives",
        (Edit("include/let_go.lua", "waits = job and job.kind ~= 'T' and", "waits = job and job.kind == 'none' and"),),
        ("heir",),
        ("heirs",),
    ),
    Removal(
        25,
        "a child that has waited does not count as one that reads",
        (
            Edit(
                "include/hand_over.lua",
                "if kept then redis.call('SADD', prefix .. 'heirs:' .. parent, child) end",
                "local _ = kept",
            ),
        ),
        ("heir",),
        ("heirs",),
    ),
    Removal(
        25,
        "what a parent has left is not kept for a child that comes later",
        (Edit("enqueue.lua", "if results and results[1] then keep_results(prefix, id, results, now_ms) end\n", ""),),
        ("heir",),
        ("heirs",),
    ),
    Removal(
        25,
        "what a parent returns is not kept for a child that waits",
        (Edit(_FINISH, "      if waited_for then\n", "      if waited_for == 0 then\n"),),
        ("heir",),
        ("heirs",),
    ),
)
