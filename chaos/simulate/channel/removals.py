"""What is taken away from the scripts of channels, and what must find that."""

from __future__ import annotations

from chaos.simulate.patching import removal

_WRAPS = ("wrap and late copies", "wrap")

CHANNEL_REMOVALS = (
    removal(3, "a message is published again under an id that is known", "published twice", "late copies, network").by(
        "known-ids-are-not-published-again", "if true then"
    ),
    removal(3, "a publish is never void", "late publish", "late publishes").by(
        "late-publish-is-void", "local words, refused, late = {}, 0, now_ms > not_after_ms + 1e9"
    ),
    removal(3, "a publish takes the clocks of one that was cut off", "clock order", "cut scripts").by(
        "unfinished-publishes-stay", ""
    ),
    removal(5, "an old receipt moves the cursor back", "final", "late copies, everything").by(
        "cursors-only-go-forward", "if beyond or unproven then"
    ),
    removal(0, "receipts are compared as numbers", "receipt", _WRAPS).by(
        "cursors-only-go-forward", "if beyond or unproven or receipt <= own then"
    ),
    removal(0, "clocks are compared as numbers", "receipt, delivery, clock order, liveness", _WRAPS).by(
        "clocks-are-compared-on-the-circle", "if true then return clock > other end"
    ),
    removal(0, "a clock is written as Lua writes numbers", "contract", _WRAPS).by(
        "clocks-keep-every-digit", "local text = tostring(position)"
    ),
    removal(0, "what comes after the wrap is not delivered", "delivery", _WRAPS).by(
        "the-index-goes-on-behind-the-wrap", "if true then return found end"
    ),
    removal(0, "a fetch moves the cursor", "cursor", "network").by(
        "cursor-stays-at-a-fetch",
        "if #items > 0 then redis.call('SET', cursor, items[#items - 1], 'KEEPTTL') end\n"
        "local more, searching = upto ~= at, #items == 0 and upto ~= at and most > 0",
    ),
)
