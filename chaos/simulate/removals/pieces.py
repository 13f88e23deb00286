"""Rule 1: lists go in pieces, and after the first piece comes the second. Each of these does the first one only."""

from __future__ import annotations

from chaos.simulate.patching import Removal, removal

_LIMITED = ("pieces and limits",)


def _first_only(what: str, finds: str, profiles: str | tuple[str, ...] = "pieces") -> Removal:
    """Its edit: the anchored loop, which does nothing after its first piece."""
    return removal(1, f"{what} beyond the first piece", finds, profiles)


PIECES = (
    _first_only("a bulk loses delayed jobs", "one place").by(
        "bulk-keeps-every-delayed-job",
        "for at = 1, math.min(1, #delayed), PIECE do redis.call('ZADD', due, unpack(delayed, at, "
        "math.min(at + PIECE - 1, #delayed))) end",
    ),
    _first_only("a bulk loses the entries of jobs", "one place").by(
        "bulk-keeps-every-waiting-job",
        "for at = 1, math.min(1, #lane.waiting), PIECE do redis.call('ZADD', lane.zset, "
        "unpack(lane.waiting, at, math.min(at + PIECE - 1, #lane.waiting))) end",
    ),
    _first_only("a bulk loses jobs", "one place").by(
        "bulk-keeps-every-job",
        "for at = 1, math.min(1, #jobs), PIECE do redis.call('MSET', unpack(jobs, at, math.min(at + PIECE - 1, #jobs))) end",
    ),
    _first_only("a bulk loses unique jobs", "one place").by(
        "bulk-keeps-every-unique-job",
        "for at = 1, math.min(1, #unique_jobs), PIECE do redis.call('MSET', unpack(unique_jobs, at, "
        "math.min(at + PIECE - 1, #unique_jobs))) end",
    ),
    _first_only("a bulk loses the expiries of jobs", "expiry", "expiring").by(
        "bulk-keeps-every-expiry",
        "for at = 1, math.min(1, #expiries), PIECE do redis.call('ZADD', prefix .. 'expiring', unpack(expiries, "
        "at, math.min(at + PIECE - 1, #expiries))) end",
    ),
    removal(1, "a bulk looks for known ids in its first piece only", "enqueue reply, undead, one place, lost", "pieces").by(
        "bulk-looks-for-every-known-id", "local some_known = page == 1 and redis.call('EXISTS', unpack(job_keys)) > 0"
    ),
    _first_only("a claim does not lease jobs", "one token, one place, claim reply").by(
        "every-picked-job-is-leased",
        "for at = 1, math.min(1, #entries), PIECE do redis.call('ZADD', keys.active, unpack(entries, "
        "at, math.min(at + PIECE - 1, #entries))) end",
    ),
    _first_only("a claim does not write first leases", "one token, one place, claim reply").by(
        "every-first-lease-is-written",
        "for at = 1, math.min(1, #first_leases), PIECE do redis.call('MSET', unpack(first_leases, "
        "at, math.min(at + PIECE - 1, #first_leases))) end",
    ),
    _first_only("a finish does not read leases", "finished, one place, lost").by(
        "every-run-is-read", "for at = 1, math.min(1, count), PIECE do"
    ),
    _first_only("a claim leaves jobs in their lanes", "one place").by(
        "claimed-jobs-leave-their-lane",
        "for at = 1, math.min(1, #ids), PIECE do redis.call('ZREM', lane.zset, unpack(ids, at, "
        "math.min(at + PIECE - 1, #ids))) end",
    ),
    _first_only("leases hold no slots", "limit", "pieces and slots").by(
        "every-lease-holds-a-slot",
        "for at = 1, math.min(1, #held), PIECE do redis.call('ZADD', prefix .. 'held:' .. "
        "limit.limit, unpack(held, at, math.min(at + PIECE - 1, #held))) end",
    ),
    _first_only("leases do not count in a window", "rate", _LIMITED).by(
        "every-claim-counts-in-the-rate",
        "for at = 1, math.min(1, #used), PIECE do redis.call('ZADD', key, unpack(used, at, math.min(at + PIECE - 1, #used))) end",
    ),
    _first_only("finished jobs are not among the finished", "finished").by(
        "every-finished-job-is-listed",
        "for at = 1, math.min(1, #dated), PIECE do redis.call('ZADD', prefix .. 'done', "
        "unpack(dated, at, math.min(at + PIECE - 1, #dated))) end",
    ),
    _first_only("finished jobs stay leased", "one place, one token").by(
        "every-finished-lease-ends", "for at = 1, math.min(1, #ids), PIECE do"
    ),
)
