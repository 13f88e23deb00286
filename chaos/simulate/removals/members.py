"""Rules 7, 9, 11 and 13: beats and the look for orphans; what removes many jobs, and what bounds those that are kept."""

from __future__ import annotations

from chaos.simulate.patching import removal

MEMBERS = (
    removal(7, "a late copy of a beat lists who has left", "member", "beats of workers that leave").by(
        "late-beat-is-ignored", "if last < -1 then return reply(beat.until_ms > 0 and 'repeated' or 'left') end"
    ),
    removal(7, "a beat that ran out on its way lists who is gone", "member", "beats").by("beat-that-ran-out-lists-nobody", ""),
    removal(7, "a late copy of a report of times is added once more", "times", "beats").by("repeated-report-counts-once", ""),
    removal(7, "a clean removes what has come since it began", "clean", "cleared").by(
        "clean-keeps-what-came-later", "if readable then stays = stays or not (timed or all) and job.enqueued_ms > before_ms end"
    ),
    removal(7, "a clean removes what is too young", "clean", "cleared").by(
        "clean-keeps-the-young", "local stays = false and not (all and entry.score > now_ms)"
    ),
    removal(7, "a drain takes what runs", "clean", "cleared").by(
        "clean-takes-the-named-state",
        "for _, entry in ipairs(jobs_in(prefix, state == 'waiting' and 'active' or state, offset, limit, false, now_ms)) do",
    ),
    removal(7, "an obliteration forgets the classes of jobs that are left", "class", "cleared").by(
        "classes-with-jobs-are-kept", "if left >= 0 then"
    ),
    removal(7, "the history is kept however long it is", "kept", "history").by("history-is-bounded", ""),
    removal(7, "a finish is not in the history", "history", "history").by("finished-job-is-in-the-history", ""),
    removal(7, "of the dead those go first that died last", "kept", "kept").by(
        "oldest-dead-go-first", "for _, id in ipairs(redis.call('ZREVRANGE', dead, 0, math.min(over, 50) - 1)) do"
    ),
    removal(7, "the finished are kept however many they are", "kept", "kept").by(
        "finished-jobs-are-bounded", "if ended > 1e6 then redis.call('ZREMRANGEBYRANK', prefix .. 'done', 0, -1) end"
    ),
    removal(9, "a renewal shows no life to the look for orphans", "live member", "beats, beats in trouble").by(
        "renewal-shows-life", "if deadline_ms < 0 then"
    ),
    removal(11, "the look for orphans reaps what it finds after a stall", "live member, live lease", "beats and stalls")
    .by("orphans-are-left-after-a-stall", "if stalled ~= nil then")
    .by(
        "beats-wait-after-a-stall",
        "local orphaned = redis.call('ZCOUNT', keys.workers, '-inf', '(' .. string.format('%d', now_ms)) > 0",
    ),
    removal(13, "nobody succeeds a leader that has died", "unswept", "followers").by("silent-leader-is-succeeded", ""),
    removal(13, "the followers do not check the leader one by one", "unswept", "followers").by(
        "followers-look-after-the-leader", "pass"
    ),
    removal(13, "who takes the lead does not sweep", "unswept", "followers, beats").by("new-leader-sweeps", "pass"),
    removal(13, "nobody looks for the leases of workers that have stopped beating", "orphan", "beats").by(
        "orphans-are-looked-for", "if False:"
    ),
)
