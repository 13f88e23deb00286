"""Rules 6, 7 and 9 for locks: the fence, late copies, and the time for which one is held."""

from __future__ import annotations

from chaos.simulate.patching import removal

LOCKS = (
    removal(6, "the fence of a lock is the time and may fall", "lock fence", "locks in odd times").by(
        "lock-fences-only-grow", "fence, until_ms = now_ms, now_ms + ttl_ms"
    ),
    removal(7, "a late copy takes a lock that was given back", "lock twice", "locks, locks and late").by(
        "late-copy-of-a-released-lock-is-lost", ""
    ),
    removal(7, "a lock is taken by a call that comes too late", "lock late, lock twice", "locks and late").by(
        "late-lock-is-void", "local _ = not_after_ms"
    ),
    removal(7, "a late copy of a renewal holds a lock for longer", "lock", "locks, locks and late").by(
        "late-copy-of-a-lock-renewal-is-ignored", "if renewal and counter then"
    ),
    removal(9, "a lock is taken 100 ms before it runs out", "lock", "locks").by(
        "lock-is-held-until-it-runs-out", "local held = holder and holder ~= '' and until_ms > now_ms + 100"
    ),
    removal(9, "a lock that has run out is renewed", "lock", "locks").by(
        "expired-lock-is-not-renewed", "if holder ~= token then return { srv_us, 'lost', 0, 0 } end"
    ),
    removal(9, "who has lost a lock gives back that of its holder", "lock", "locks").by(
        "only-the-holder-releases-a-lock", "if token and redis.call('HGET', lock, 'token') then"
    ),
    removal(9, "a lock is not kept for the time that was asked for", "lock, lock refused", "locks").by(
        "lock-lasts-as-asked",
        "redis.call('HSET', lock, 'token', token, 'fence', string.format('%d', fence), 'until_ms', "
        "until_ms - 20, 'length_ms', ttl_ms, 'renewal', 0)",
    ),
)
