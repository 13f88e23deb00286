"""Rules 6, 7 and 9 for locks: the fence, late copies, and the time for which one is held."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

LOCKS = (
    Removal(
        6,
        "the fence of a lock is the time and may fall",
        (Edit("lock-fences-only-grow", "fence, until_ms = now_ms, now_ms + ttl_ms"),),
        ("lock fence",),
        ("locks in odd times",),
    ),
    Removal(
        7,
        "a late copy takes a lock that was given back",
        (Edit("late-copy-of-a-released-lock-is-lost", ""),),
        ("lock twice",),
        ("locks", "locks and late"),
    ),
    Removal(
        7,
        "a lock is taken by a call that comes too late",
        (Edit("late-lock-is-void", "local _ = not_after_ms"),),
        ("lock late", "lock twice"),
        ("locks and late",),
    ),
    Removal(
        7,
        "a late copy of a renewal holds a lock for longer",
        (Edit("late-copy-of-a-lock-renewal-is-ignored", "if renewal and counter then"),),
        ("lock",),
        ("locks", "locks and late"),
    ),
    Removal(
        9,
        "a lock is taken 100 ms before it runs out",
        (Edit("lock-is-held-until-it-runs-out", "local held = holder and holder ~= '' and until_ms > now_ms + 100"),),
        ("lock",),
        ("locks",),
    ),
    Removal(
        9,
        "a lock that has run out is renewed",
        (Edit("expired-lock-is-not-renewed", "if holder ~= token then return { srv_us, 'lost', 0, 0 } end"),),
        ("lock",),
        ("locks",),
    ),
    Removal(
        9,
        "who has lost a lock gives back that of its holder",
        (Edit("only-the-holder-releases-a-lock", "if token and redis.call('HGET', lock, 'token') then"),),
        ("lock",),
        ("locks",),
    ),
    Removal(
        9,
        "a lock is not kept for the time that was asked for",
        (
            Edit(
                "lock-lasts-as-asked",
                "redis.call('HSET', lock, 'token', token, 'fence', string.format('%d', fence), 'until_ms', "
                "until_ms - 20, 'length_ms', ttl_ms, 'renewal', 0)",
            ),
        ),
        ("lock", "lock refused"),
        ("locks",),
    ),
)
