"""What is taken away from the scripts of channels, and what must find that."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

_WRAPS = ("wrap and late copies", "wrap")

CHANNEL_REMOVALS = (
    Removal(
        3,
        "a message is published again under an id that is known",
        (Edit("known-ids-are-not-published-again", "if true then"),),
        ("published twice",),
        ("late copies", "network"),
    ),
    Removal(
        3,
        "a publish is never void",
        (Edit("late-publish-is-void", "local words, refused, late = {}, 0, now_ms > not_after_ms + 1e9"),),
        ("late publish",),
        ("late publishes",),
    ),
    Removal(
        3,
        "a publish takes the clocks of one that was cut off",
        (Edit("unfinished-publishes-stay", ""),),
        ("clock order",),
        ("cut scripts",),
    ),
    Removal(
        5,
        "an old receipt moves the cursor back",
        (Edit("cursors-only-go-forward", "if beyond or unproven then"),),
        ("final",),
        ("late copies", "everything"),
    ),
    Removal(
        0,
        "receipts are compared as numbers",
        (Edit("cursors-only-go-forward", "if beyond or unproven or receipt <= own then"),),
        ("receipt",),
        _WRAPS,
    ),
    Removal(
        0,
        "clocks are compared as numbers",
        (Edit("clocks-are-compared-on-the-circle", "if true then return clock > other end"),),
        ("receipt", "delivery", "clock order", "liveness"),
        _WRAPS,
    ),
    Removal(
        0,
        "a clock is written as Lua writes numbers",
        (Edit("clocks-keep-every-digit", "local text = tostring(position)"),),
        ("contract",),
        _WRAPS,
    ),
    Removal(
        0,
        "what comes after the wrap is not delivered",
        (Edit("the-index-goes-on-behind-the-wrap", "if true then return found end"),),
        ("delivery",),
        _WRAPS,
    ),
    Removal(
        0,
        "a fetch moves the cursor",
        (
            Edit(
                "cursor-stays-at-a-fetch",
                "if #items > 0 then redis.call('SET', cursor, items[#items - 1], 'KEEPTTL') end\n"
                "local more, searching = upto ~= at, #items == 0 and upto ~= at and most > 0",
            ),
        ),
        ("cursor",),
        ("network",),
    ),
)
