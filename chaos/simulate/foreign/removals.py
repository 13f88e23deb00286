"""What is taken away from the scripts of the foreign models, and what must find that: the same for each of them, since they share
these scripts."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

FOREIGN_REMOVALS = (
    Removal(
        3,
        "a repeated enqueue is not known",
        (Edit("foreign-enqueue-is-recognized-when-repeated", "local record = false"),),
        ("enqueue reply", "undead", "told nothing"),
        ("late copies", "network"),
    ),
    Removal(
        3,
        "an enqueue is never void",
        (Edit("late-foreign-enqueue-is-void", "elseif false then"),),
        ("undead", "late enqueue", "told nothing"),
        ("late enqueues",),
    ),
    Removal(
        4,
        "a claim is not recorded",
        (Edit("foreign-claim-is-recognized-when-repeated", "local known, jobs = nil, {}"),),
        ("claim twice",),
        ("late claims",),
    ),
    Removal(
        4,
        "a claim that comes too late leases",
        (Edit("late-foreign-claim-is-void", ""),),
        ("late claim", "ghost lease"),
        ("dead letters",),
    ),
    Removal(
        5,
        "the last ended token is forgotten",
        (Edit("foreign-end-is-recognized-when-repeated", ""),),
        ("repeat",),
        ("late copies", "network"),
    ),
    Removal(
        5,
        "a repeated end ends the job again",
        (
            Edit(
                "foreign-end-is-recognized-when-repeated",
                "if words[3] == token then return 'held', '', run, deadline_ms or 0 end",
            ),
        ),
        ("one finish", "stale end", "repeat"),
        ("late copies", "network"),
    ),
    Removal(
        6,
        "the token of a call is not looked at",
        (
            Edit(
                "foreign-token-is-checked",
                "local listed = deadline_ms\n"
                "if listed and words[1] and words[2] ~= '' and format.mine(id, words[1] .. ':' .. words[2]) then "
                "return 'held', '', run, deadline_ms end",
            ),
        ),
        ("stale end", "stale renewal"),
        ("often frozen",),
    ),
    Removal(
        6,
        "a lease that was taken away may still end the job",
        (
            Edit(
                "only-the-holder-ends-a-foreign-job",
                "elseif state ~= 'repeated' or (deadline_ms and run.ending ~= '') then\n  deadline_ms = deadline_ms or now_ms",
            ),
        ),
        ("stale end", "one finish"),
        ("often frozen",),
    ),
    Removal(
        6,
        "a fence is the time and may fall",
        (
            Edit(
                "foreign-fences-only-grow",
                "fence = scan.now_ms, claims = tonumber(run[3] or 0) + 1, crashes = crashes }",
            ),
        ),
        ("fence",),
        ("clock and kills", "clock"),
    ),
    Removal(
        9,
        "a renewal that comes too late arms the lease",
        (Edit("late-foreign-renewal-is-void", "elseif now_ms > not_after_ms + 1e9 then"),),
        ("late renewal", "ghost lease"),
        ("dead letters", "late enqueues"),
    ),
    Removal(
        10,
        "leases that end too far ahead are left alone",
        (Edit("foreign-leases-too-far-ahead-are-cut", "local ahead = {}"),),
        ("liveness", "due"),
        ("clock and kills",),
    ),
    Removal(
        11,
        "leases are taken at once after a stall",
        (Edit("no-foreign-lease-is-taken-after-a-stall", ""),),
        ("live lease",),
        ("stalls",),
    ),
    Removal(
        12,
        "every lost lease is charged as a crash",
        (Edit("foreign-crash-is-charged-when-marked", "crashes = crashes + 1"),),
        ("charge",),
        # A claim that arrives when its worker is dead leases jobs that nobody marks.
        ("dead letters",),
    ),
    Removal(
        13,
        "leases that have ended are not taken",
        (Edit("expired-foreign-leases-are-taken", "local expired = {}"),),
        ("liveness", "due"),
        ("crashes",),
    ),
)
