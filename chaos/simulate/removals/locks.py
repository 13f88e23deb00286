"""Rules 6, 7 and 9 for locks: the fence, late copies, and the time for which one is held."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

LOCKS = (
    Removal(
        6,
        "the fence of a lock is the time and may fall",
        (Edit("lock_acquire.lua", "math.max(fence + 1, now_ms), now_ms + ttl_ms", "now_ms, now_ms + ttl_ms"),),
        ("lock fence",),
        ("locks in odd times",),
    ),
    Removal(
        7,
        "a late copy takes a lock that was given back",
        (Edit("lock_acquire.lua", "if redis.call('EXISTS', op) == 1 then return { srv_us, 'lost', 0, 0 } end\n", ""),),
        ("lock twice",),
        ("locks", "locks and late"),
    ),
    Removal(
        7,
        "a lock is taken by a call that comes too late",
        (
            Edit(
                "lock_acquire.lua",
                "if now_ms > not_after_ms then return { srv_us, 'refused', 0, 0 } end\n",
                "local _ = not_after_ms\n",
            ),
        ),
        ("lock late", "lock twice"),
        ("locks and late",),
    ),
    Removal(
        7,
        "a late copy of a renewal holds a lock for longer",
        (Edit("lock_extend.lua", "if tonumber(kept[4]) < tonumber(counter) then", "if kept[4] and counter then"),),
        ("lock",),
        ("locks", "locks and late"),
    ),
    Removal(
        9,
        "a lock is taken 100 ms before it runs out",
        (Edit("lock_acquire.lua", "kept[1] ~= '' and until_ms > now_ms\n", "kept[1] ~= '' and until_ms > now_ms + 100\n"),),
        ("lock",),
        ("locks",),
    ),
    Removal(
        9,
        "a lock that has run out is renewed",
        (Edit("lock_extend.lua", "if kept[1] ~= token or until_ms <= now_ms then", "if kept[1] ~= token then"),),
        ("lock",),
        ("locks",),
    ),
    Removal(
        9,
        "who has lost a lock gives back that of its holder",
        (
            Edit(
                "lock_release.lua",
                "if redis.call('HGET', lock, 'token') == token then",
                "if redis.call('HGET', lock, 'token') then",
            ),
        ),
        ("lock",),
        ("locks",),
    ),
    Removal(
        9,
        "a lock is not kept for the time that was asked for",
        (Edit("lock_acquire.lua", "'until_ms', until_ms, 'length_ms'", "'until_ms', until_ms - 20, 'length_ms'"),),
        ("lock", "lock refused"),
        ("locks",),
    ),
)
