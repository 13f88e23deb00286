"""Mutants of channels: scripts with one planted defect, or processes that plant one in themselves (see `planted`)."""

from __future__ import annotations

from chaos.channels.planted import DEFECTS
from chaos.mutants import Mutant

# In so short a run as that of a mutant, not every fault meets a wrap: H2.
_MUTANTS = (
    Mutant(
        "receipt-plain-less",
        "the receipt of a batch is that of its numerically largest clock, so across the wrap it covers only a part of it",
        "P5",
    ).on("subscriber-kill", also="H2"),
    Mutant(
        "cursor-moved-by-fetch",
        "a fetch moves the cursor past what it delivers, so whoever dies or hears no answer never gets it again",
        "P1",
    )
    .on("net-reply-lost", also="P3, P6, H0, H2")
    .by(
        "cursor-stays-at-a-fetch",
        "redis.call('SET', cursor, string.format('%d', upto), 'KEEPTTL')\n"
        "local more, searching = upto ~= at, #items == 0 and upto ~= at and most > 0",
    ),
    Mutant(
        "clock-through-tostring",
        "clocks of messages go through tostring, which keeps 14 digits: near the wrap several messages get the same one",
        "P4",
    )
    .on(also="P1, P2, P3, P5, P7, P8, H0, H2")
    .by(
        "clocks-keep-every-digit",
        "local rounded = tonumber(tostring(position))\n"
        "local text = string.format('%d', math.max(-9007199254740991, math.min(9007199254740991, "
        "rounded)))",
    ),
    Mutant(
        "checksum-not-verified",
        "receipts are taken whatever their checksum says, also those of other clocks and other subscribers",
        "P6",
    )
    # A receipt of another clock that is taken passes over what was not delivered yet.
    .on(also="P1, P3, P5, H2"),
    Mutant(
        "message-kept-back", "the caller of a fetch is not handed the last message of a batch, though its receipt covers it", "P8"
    ).on(also="H2"),
    Mutant("inject-nothing", "faults are announced and not injected", "H1", "unknown", faults_do_nothing=True).on(
        "subscriber-kill", also="H2"
    ),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _MUTANTS}

#: Those that are not scripts: each process plants them in itself.
PLANTED = frozenset(DEFECTS)
