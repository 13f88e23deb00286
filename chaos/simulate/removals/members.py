"""Rules 7, 9, 11 and 13: beats and the look for orphans; what removes many jobs, and what bounds those that are kept."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_KEEP = "include/keep_bounds.lua"

MEMBERS = (
    Removal(
        7,
        "a late copy of a beat lists who has left",
        (Edit("include/note_beat.lua", "if last >= tonumber(beat.counter) then", "if last < -1 then"),),
        ("member",),
        ("beats",),
    ),
    Removal(
        7,
        "a late copy of a report of times is added once more",
        (
            Edit(
                "tell_took.lua",
                "if tonumber(redis.call('GET', told) or 0) >= tonumber(counter) then return { srv_us, 'repeated' } end\n",
                "",
            ),
        ),
        ("times",),
        ("beats",),
    ),
    Removal(
        7,
        "a clean removes what has come since it began",
        (Edit("clean.lua", "job.sequence > era_sequence or ", ""),),
        ("clean",),
        ("cleared",),
    ),
    Removal(
        7,
        "a clean removes what is too young",
        (
            Edit(
                "clean.lua",
                "local stays = timed and entry.score > (known and now_ms - older_than_ms or before_ms) and",
                "local stays = false and",
            ),
        ),
        ("clean",),
        ("cleared",),
    ),
    Removal(
        7,
        "a drain takes what runs",
        (Edit("clean.lua", "jobs_in(prefix, state,", "jobs_in(prefix, state == 'waiting' and 'active' or state,"),),
        ("clean",),
        ("cleared",),
    ),
    Removal(
        7,
        "an obliteration forgets the classes of jobs that are left",
        (Edit("forget.lua", "if left == 0 then", "if left >= 0 then"),),
        ("class",),
        ("cleared",),
    ),
    Removal(
        7,
        "of the dead those go first that died last",
        (Edit(_KEEP, "redis.call('ZRANGE', dead, 0,", "redis.call('ZREVRANGE', dead, 0,"),),
        ("kept",),
        ("kept",),
    ),
    Removal(
        7,
        "the finished are kept however many they are",
        (Edit(_KEEP, "tonumber(kept[1] or done_max)", "1e6"),),
        ("kept",),
        ("kept",),
    ),
    Removal(
        9,
        "a renewal shows no life to the look for orphans",
        (
            Edit(
                "include/take_orphans.lua", "if worker and deadline_ms >= now_ms + worker.more_ms then", "if deadline_ms < 0 then"
            ),
        ),
        ("live member",),
        ("beats", "beats in trouble"),
    ),
    Removal(
        11,
        "the look for orphans takes what it finds after a stall",
        (
            Edit(
                "include/take_orphans.lua", "if not stalled and now_ms >= tonumber(kept[1] or 0) then", "if stalled ~= nil then"
            ),
            Edit("include/note_beat.lua", "local orphaned = now_ms >= quiet_ms and", "local orphaned ="),
        ),
        ("live member", "live lease"),
        ("beats and stalls",),
    ),
    Removal(
        13,
        "nobody looks for the leases of workers that have stopped beating",
        (Edit("engine.worker.machine.sweeping:Sweeping.beaten", "if reply.orphaned:", "if False:"),),
        ("orphan",),
        ("beats",),
    ),
)
