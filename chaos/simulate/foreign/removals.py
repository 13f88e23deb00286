"""What is taken away from the scripts of the foreign models, and what must find that: the same for each of them, since they share
these scripts."""

from __future__ import annotations

from chaos.simulate.patching import removal

FOREIGN_REMOVALS = (
    removal(3, "a repeated enqueue is not known", "enqueue reply, undead, told nothing", "late copies, network").by(
        "foreign-enqueue-is-recognized-when-repeated", "local record = false"
    ),
    removal(3, "an enqueue is never void", "undead, late enqueue, told nothing", "late enqueues").by(
        "late-foreign-enqueue-is-void", "elseif false then"
    ),
    removal(4, "a claim is not recorded", "claim twice", "late claims").by(
        "foreign-claim-is-recognized-when-repeated", "local known, jobs = nil, {}"
    ),
    removal(4, "a claim that comes too late leases", "late claim, ghost lease", "dead letters").by(
        "late-foreign-claim-is-void", ""
    ),
    removal(5, "the last ended token is forgotten", "repeat", "late copies, network").by(
        "foreign-end-is-recognized-when-repeated", ""
    ),
    removal(5, "a repeated end ends the job again", "one finish, stale end, repeat", "late copies, network").by(
        "foreign-end-is-recognized-when-repeated", "if words[3] == token then return 'held', '', run, deadline_ms or 0 end"
    ),
    removal(6, "the token of a call is not looked at", "stale end, stale renewal", "often frozen").by(
        "foreign-token-is-checked",
        "local listed = deadline_ms\n"
        "if listed and words[1] and words[2] ~= '' and wire_mine(format, id, words[1] .. ':' .. words[2]) then "
        "return 'held', '', run, deadline_ms end",
    ),
    removal(6, "a reaped lease may still end the job", "stale end, one finish", "often frozen").by(
        "only-the-holder-ends-a-foreign-job",
        "elseif state ~= 'repeated' or (deadline_ms and run.ending ~= '') then\n  deadline_ms = deadline_ms or now_ms",
    ),
    removal(6, "a fence is the time and may fall", "fence", "clock and kills, clock").by(
        "foreign-fences-only-grow", "fence = scan.now_ms, claims = tonumber(run[3] or 0) + 1, crashes = crashes }"
    ),
    removal(9, "a renewal that comes too late arms the lease", "late renewal, ghost lease", "dead letters, late enqueues").by(
        "late-foreign-renewal-is-void", "elseif now_ms > not_after_ms + 1e9 then"
    ),
    removal(10, "leases that end too far ahead are left alone", "liveness, due", "clock and kills").by(
        "foreign-leases-too-far-ahead-are-cut", "local ahead = {}"
    ),
    removal(11, "leases are reaped at once after a stall", "live lease", "stalls").by(
        "no-foreign-lease-is-taken-after-a-stall", ""
    ),
    # A claim that arrives when its worker is dead leases jobs that nobody marks.
    removal(12, "every lost lease is charged as a crash", "charge", "dead letters").by(
        "foreign-crash-is-charged-when-marked", "crashes = crashes + 1"
    ),
    removal(13, "leases that have ended are not taken", "liveness, due", "crashes").by(
        "expired-foreign-leases-are-taken", "local expired = {}"
    ),
    # Where due times are whole seconds, workers sweep at those anyway.
    removal(13, "the next job to be due wakes nobody", "due", "calm", exact=True).by(
        "first-due-foreign-job-leaves-a-marker", "return false"
    ),
)
