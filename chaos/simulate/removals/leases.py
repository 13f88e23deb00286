"""Rules 9 to 13: leases, clocks, stalls, poison jobs and recovery."""

from __future__ import annotations

from chaos.simulate.patching import removal

LEASES = (
    removal(9, "a lease counts from the reply", "start without lease", "often frozen").by(
        "lease-counts-from-the-first-send", "self._lease_table.add(claimed.jobs, event.done_ns, now_ns)"
    ),
    removal(9, "a handler starts however little is left of its lease", "start without lease", "often frozen")
    .by("enough-lease-left-to-begin", "if False:")
    .by("enough-lease-left-to-swap", "or False"),
    removal(9, "a late renewal arms a whole lease", "late renewal, ghost lease", "dead letters").by(
        "late-renewal", "elseif now_ms > not_after_ms + 1e9 then"
    ),
    removal(10, "leases far ahead of the clock are left there", "liveness", "clock and kills").by(
        "leases-far-ahead-are-repaired", "ahead = {}"
    ),
    removal(10, "the time before which nothing is reaped does not follow the clock", "liveness", "clock and kills").by(
        "no-reap-time-follows-the-clock", "local no_reap_before_ms = tonumber(state.no_reap_before_ms or 0)"
    ),
    removal(
        10,
        "a limit that was changed before the clock stepped back keeps the sweeps busy",
        "busy loop",
        "limits set anew and clock",
    ).by("limit-change-follows-the-clock", "changed_ms = now_ms + 1"),
    removal(11, "the first sweep after a stall reaps", "live lease", "stalls").by(
        "no-reap-after-a-stall", "local _ = no_reap_before_ms"
    ),
    removal(11, "a renewal of a lease that has run out is refused", "live refused", "stalls, frozen").by(
        "renewal-after-the-deadline-is-accepted", "if state ~= 'held' or deadline_ms < now_ms then"
    ),
    removal(12, "every lost lease is charged as a crash", "charge", "poison and kills").by(
        "crash-charged-once", "if live then crashes = crashes + 1 end"
    ),
    removal(12, "jobs with a crash behind them run side by side", "poison pair", "poison")
    .by("crashed-jobs-run-alone", "elif self._marking is None:")
    .by("one-crashed-job-claimed-at-a-time", "return self._claiming.next_claim(free, 1000, now_ns)"),
    removal(12, "jobs with a crash behind them start unmarked", "mark, poison pair", "poison").by(
        "crashed-jobs-are-marked-before-they-begin", "elif True:"
    ),
    removal(12, "a claim takes all jobs with a crash behind them", "poison pair", "poison").by(
        "crashed-jobs-of-a-claim-are-bounded", "if crashed and pick.crashed >= 1000 then"
    ),
    removal(13, "a sweep sleeps its whole interval", "due", "calm").by("sweep-sleeps-until-the-next-due-time", "return most_ms"),
    removal(13, "a lease is renewed only at its end", "live lease", "stalls").by(
        "leases-are-renewed-early", "self.at_ns = now_ns + self._lease_ms * MS"
    ),
)
