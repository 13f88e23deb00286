"""Rules 9 to 13: leases, clocks, stalls, poison jobs and recovery."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_IN_HAND = "engine.worker.machine.lease_table:LeaseTable."
_LEARNING = "engine.worker.machine.replies:ReplyHandling."
_DECIDING = "engine.worker.machine.plan:Planning."

LEASES = (
    Removal(
        9,
        "a lease counts from the reply",
        (Edit(_LEARNING + "_claimed", "self._call_slots.first_send_ns(event)", "event.done_ns"),),
        ("start without lease",),
        ("often frozen",),
    ),
    Removal(
        9,
        "a handler starts however little is left of its lease",
        (
            Edit(_IN_HAND + "_begin", "if held.lease_until_ns - now_ns < self._margin_ns:", "if False:"),
            Edit(_IN_HAND + "swap", "head.lease_until_ns - now_ns < self._margin_ns", "False"),
        ),
        ("start without lease",),
        ("often frozen",),
    ),
    Removal(
        9,
        "a late renewal arms a whole lease",
        (Edit("extend.lua", "elseif now_ms > not_after_ms then", "elseif now_ms > not_after_ms + 1e9 then"),),
        ("late renewal", "ghost lease"),
        ("dead letters",),
    ),
    Removal(
        10,
        "leases far ahead of the clock are left there",
        (Edit("reap.lua", "if lease_ms == 0 then ahead = {} end", "ahead = {}"),),
        ("liveness",),
        ("clock and kills",),
    ),
    Removal(
        10,
        "the time before which nothing is reaped does not follow the clock",
        (Edit("include/sweep_clock.lua", "math.min(tonumber(kept[5] or 0), now_ms + half_ms)", "tonumber(kept[5] or 0)"),),
        ("liveness",),
        ("clock and kills",),
    ),
    Removal(
        11,
        "the first sweep after a stall reaps",
        (Edit("reap.lua", "if now_ms < no_reap_before_ms then expired = {} end\n", "local _ = no_reap_before_ms\n"),),
        ("live lease",),
        ("stalls",),
    ),
    Removal(
        11,
        "a renewal of a lease that has run out is refused",
        (Edit("extend.lua", "if state ~= 'held' or deadline_ms == 0 then", "if state ~= 'held' or deadline_ms < now_ms then"),),
        ("live refused",),
        ("stalls", "frozen"),
    ),
    Removal(
        12,
        "every lost lease is charged as a crash",
        (Edit("include/reap_job.lua", "if live and (crashes == 0 or state[4] == fence .. ':' .. nonce) then", "if live then"),),
        ("charge",),
        ("poison and kills",),
    ),
    Removal(
        12,
        "jobs with a crash behind them run side by side",
        (
            Edit(_IN_HAND + "_begin", "elif self._crashed is None:", "elif self._marking is None:"),
            Edit(_DECIDING + "_next_claim", "0 if self._lease_table.has_crashed else 1", "1000"),
        ),
        ("poison pair",),
        ("poison",),
    ),
    Removal(
        12,
        "jobs with a crash behind them start unmarked",
        (Edit(_IN_HAND + "_begin", "elif not held.job.crashes or held.marked:", "elif True:"),),
        ("mark", "poison pair"),
        ("poison",),
    ),
    Removal(
        12,
        "a claim takes all jobs with a crash behind them",
        (
            Edit(
                "include/pick_jobs.lua",
                "if crashes > 0 and crashed >= ask.crashed_max then",
                "if crashes > 0 and crashed >= 1000 then",
            ),
        ),
        ("poison pair",),
        ("poison",),
    ),
    Removal(
        13,
        "a sweep sleeps its whole interval",
        (Edit("include/next_ms.lua", "return math.max(0, soonest - now_ms)", "return most_ms"),),
        ("due",),
        ("calm",),
    ),
    Removal(
        13,
        "a lease is renewed only at its end",
        (Edit("engine.worker.machine.deadlines:Renewing.begin", "self._every_ns", "self._lease_ms * MS"),),
        ("live lease",),
        ("stalls",),
    ),
)
