"""Rules 7, 9, 11 and 13: beats and the look for orphans; what removes many jobs, and what bounds those that are kept."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

MEMBERS = (
    Removal(
        7,
        "a late copy of a beat lists who has left",
        (Edit("late-beat-is-ignored", "if last < -1 then return reply(beat.until_ms > 0 and 'repeated' or 'left') end"),),
        ("member",),
        ("beats of workers that leave",),
    ),
    Removal(
        7,
        "a beat that ran out on its way lists who is gone",
        (Edit("beat-that-ran-out-lists-nobody", ""),),
        ("member",),
        ("beats",),
    ),
    Removal(
        7,
        "a late copy of a report of times is added once more",
        (Edit("repeated-report-counts-once", ""),),
        ("times",),
        ("beats",),
    ),
    Removal(
        7,
        "a clean removes what has come since it began",
        (
            Edit(
                "clean-keeps-what-came-later",
                "if readable then stays = stays or not (timed or all) and job.enqueued_ms > before_ms end",
            ),
        ),
        ("clean",),
        ("cleared",),
    ),
    Removal(
        7,
        "a clean removes what is too young",
        (Edit("clean-keeps-the-young", "local stays = false and not (all and entry.score > now_ms)"),),
        ("clean",),
        ("cleared",),
    ),
    Removal(
        7,
        "a drain takes what runs",
        (
            Edit(
                "clean-takes-the-named-state",
                "for _, entry in ipairs(jobs_in(prefix, state == 'waiting' and 'active' or state, offset, "
                "limit, false, now_ms)) do",
            ),
        ),
        ("clean",),
        ("cleared",),
    ),
    Removal(
        7,
        "an obliteration forgets the classes of jobs that are left",
        (Edit("classes-with-jobs-are-kept", "if left >= 0 then"),),
        ("class",),
        ("cleared",),
    ),
    Removal(
        7,
        "the history is kept however long it is",
        (Edit("history-is-bounded", ""),),
        ("kept",),
        ("history",),
    ),
    Removal(
        7,
        "a finish is not in the history",
        (Edit("finished-job-is-in-the-history", ""),),
        ("history",),
        ("history",),
    ),
    Removal(
        7,
        "of the dead those go first that died last",
        (Edit("oldest-dead-go-first", "for _, id in ipairs(redis.call('ZREVRANGE', dead, 0, math.min(over, 50) - 1)) do"),),
        ("kept",),
        ("kept",),
    ),
    Removal(
        7,
        "the finished are kept however many they are",
        (Edit("finished-jobs-are-bounded", "if ended > 1e6 then redis.call('ZREMRANGEBYRANK', prefix .. 'done', 0, -1) end"),),
        ("kept",),
        ("kept",),
    ),
    Removal(
        9,
        "a renewal shows no life to the look for orphans",
        (Edit("renewal-shows-life", "if deadline_ms < 0 then"),),
        ("live member",),
        ("beats", "beats in trouble"),
    ),
    Removal(
        11,
        "the look for orphans takes what it finds after a stall",
        (
            Edit("orphans-are-left-after-a-stall", "if stalled ~= nil then"),
            Edit(
                "beats-wait-after-a-stall",
                "local orphaned = redis.call('ZCOUNT', keys.workers, '-inf', '(' .. string.format('%d', now_ms)) > 0",
            ),
        ),
        ("live member", "live lease"),
        ("beats and stalls",),
    ),
    Removal(
        13,
        "nobody succeeds a leader that has died",
        (Edit("silent-leader-is-succeeded", ""),),
        ("unswept",),
        ("followers",),
    ),
    Removal(
        13,
        "the followers do not look after the leader in turn",
        (Edit("followers-look-after-the-leader", "pass"),),
        ("unswept",),
        ("followers",),
    ),
    Removal(
        13,
        "who takes the lead does not sweep",
        (Edit("new-leader-sweeps", "pass"),),
        ("unswept",),
        ("followers", "beats"),
    ),
    Removal(
        13,
        "nobody looks for the leases of workers that have stopped beating",
        (Edit("orphans-are-looked-for", "if False:"),),
        ("orphan",),
        ("beats",),
    ),
)
