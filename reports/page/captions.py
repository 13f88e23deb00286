"""The caption above each figure, and its alternative text for screen readers."""

from __future__ import annotations

from typing import NamedTuple


class Caption(NamedTuple):
    """A figure's title, an explanation of what it shows, and its alternative text."""

    title: str
    lead: str
    alt: str = ""


FAULTS = Caption(
    "What was broken on purpose",
    "Every fault needs a witness: something that looks at the world and could fail to see it. A fault that was not seen to "
    "bite, or not seen to heal, makes the run unknown.",
)
PHASES = Caption(
    "Latency by phase",
    "Exact percentiles for each phase of the run, by the time at which a job should have been sent. A percentile is left out "
    "when fewer than ten jobs lie beyond it, because it would be an accident. A job that never finished counts as endless.",
    "A row per phase and a panel per latency, with marks for p50, p90, p99, p99.9 and the longest, on a logarithmic scale.",
)
LATENCY = Caption(
    "Latency over time",
    "Each point sums up {width} of jobs, by the time at which they should have been sent. Shaded: a fault that was seen to "
    "bite and to heal; hatched: one that was not. Few jobs stand behind each p99 here, so read its shape; the percentiles that "
    "count are those of the phases. Jobs that never came to an end are marked at the upper edge.",
    "p50, p99 and the longest latency over time on a logarithmic scale, one panel for each kind of latency, faults shaded.",
)
LOAD = Caption(
    "Rates and backlog",
    "Jobs are offered by a schedule that does not wait for the system. What is finished must follow it, and the backlog must "
    "come back down after each fault. Re-sent: a call that needed more than one send. Repeated: the engine recognised a call "
    "that it had done already. Refused: a word about a lease that was no longer held. Unanswered: it may have happened and may "
    "not; the checks allow for both.",
    "Offered and finished jobs per second; waiting, delayed and active jobs; re-sent, repeated, refused and unanswered calls.",
)
RECOVERY = Caption(
    "Recovery after kills",
    "For every job that a killed worker held: the time from its death, as the kernel reported it, to the next start of the "
    "job's handler elsewhere. For a worker that is connected directly that takes about two seconds, because the server sees its "
    "connection close. Behind a proxy, which may keep it open, the lease must run out first: nine seconds by default. The bound "
    "allows two seconds more.",
    "A row per kill with one dot for each job in hand: seconds until it ran elsewhere, against the lease and the bound.",
)
LANES = Caption(
    "Who held what: {title}",
    "A lane for each worker. Above, grey: all its leases. Below: the jobs that were in hand when the fault came, one letter "
    "for each job, with the end of the fence of each lease. A job's next lease carries a higher fence, and by that the server "
    "knows whom to refuse.",
    "Lanes of {workers} workers with {leases} leases of {jobs} jobs: {title}.",
)
OFFENDERS = Caption(
    "The first jobs that broke a promise",
    "The first examples of the checks that found a violation, from their first lease to their last. One letter is one job; the "
    "end of the fence of each lease stands beside it.",
    LANES.alt,
)
EVIDENCE = Caption(
    "The first violation, row by row",
    "{check}: {example}. Each mark is a row of the history that is about it, in the lane of the process that wrote it, with its "
    "number in the table below; a bar lasts from the first send of a call to its answer, and a hollow mark had none. What the "
    "sentence names has a colour of its own, and is underlined in the table, which has file and line of each row.",
    "Lanes of processes with {rows} rows of the history that are about the first violation of {check}.",
)
MACHINE = Caption(
    "What the machine had to do",
    "Load, server and workers share one machine. Where all of its cores are in use, latencies say as much about it as about "
    "the engine.",
    "Cores in use by role, stacked, and the memory of the server's data, over time.",
)
