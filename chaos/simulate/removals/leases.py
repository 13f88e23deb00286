"""Rules 9 to 13: leases, clocks, stalls, poison jobs and recovery."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

LEASES = (
    Removal(
        9,
        "a lease counts from the reply",
        (Edit("lease-counts-from-the-first-send", "self._lease_table.add(claimed.jobs, event.done_ns, now_ns)"),),
        ("start without lease",),
        ("often frozen",),
    ),
    Removal(
        9,
        "a handler starts however little is left of its lease",
        (
            Edit("enough-lease-left-to-begin", "if False:"),
            Edit("enough-lease-left-to-swap", "or False"),
        ),
        ("start without lease",),
        ("often frozen",),
    ),
    Removal(
        9,
        "a late renewal arms a whole lease",
        (Edit("late-renewal", "elseif now_ms > not_after_ms + 1e9 then"),),
        ("late renewal", "ghost lease"),
        ("dead letters",),
    ),
    Removal(
        10,
        "leases far ahead of the clock are left there",
        (Edit("leases-far-ahead-are-repaired", "ahead = {}"),),
        ("liveness",),
        ("clock and kills",),
    ),
    Removal(
        10,
        "the time before which nothing is reaped does not follow the clock",
        (Edit("no-reap-time-follows-the-clock", "local no_reap_before_ms = tonumber(state.no_reap_before_ms or 0)"),),
        ("liveness",),
        ("clock and kills",),
    ),
    Removal(
        10,
        "a limit that was changed before the clock stepped back keeps the sweeps busy",
        (Edit("limit-change-follows-the-clock", "changed_ms = now_ms + 1"),),
        ("busy loop",),
        ("limits set anew and clock",),
    ),
    Removal(
        11,
        "the first sweep after a stall reaps",
        (Edit("no-reap-after-a-stall", "local _ = no_reap_before_ms"),),
        ("live lease",),
        ("stalls",),
    ),
    Removal(
        11,
        "a renewal of a lease that has run out is refused",
        (Edit("renewal-after-the-deadline-is-accepted", "if state ~= 'held' or deadline_ms < now_ms then"),),
        ("live refused",),
        ("stalls", "frozen"),
    ),
    Removal(
        12,
        "every lost lease is charged as a crash",
        (Edit("crash-charged-once", "if live then crashes = crashes + 1 end"),),
        ("charge",),
        ("poison and kills",),
    ),
    Removal(
        12,
        "jobs with a crash behind them run side by side",
        (
            Edit("crashed-jobs-run-alone", "elif self._marking is None:"),
            Edit("one-crashed-job-claimed-at-a-time", "return self._claiming.next_claim(free, 1000, now_ns)"),
        ),
        ("poison pair",),
        ("poison",),
    ),
    Removal(
        12,
        "jobs with a crash behind them start unmarked",
        (Edit("crashed-jobs-are-marked-before-they-begin", "elif True:"),),
        ("mark", "poison pair"),
        ("poison",),
    ),
    Removal(
        12,
        "a claim takes all jobs with a crash behind them",
        (Edit("crashed-jobs-of-a-claim-are-bounded", "if crashed and pick.crashed >= 1000 then"),),
        ("poison pair",),
        ("poison",),
    ),
    Removal(
        13,
        "a sweep sleeps its whole interval",
        (Edit("sweep-sleeps-until-the-next-due-time", "return most_ms"),),
        ("due",),
        ("calm",),
    ),
    Removal(
        13,
        "a lease is renewed only at its end",
        (Edit("leases-are-renewed-early", "self.at_ns = now_ns + self._lease_ms * MS"),),
        ("live lease",),
        ("stalls",),
    ),
)
