"""Mutants of channels: scripts with one planted defect, or processes that plant one in themselves (see `planted`)."""

from __future__ import annotations

from chaos.channels.planted import DEFECTS
from chaos.mutants import Mutant
from chaos.planting import Edit

# In so short a run as that of a mutant, not every fault meets a wrap: H2.
_MUTANTS = (
    Mutant(
        name="receipt-plain-less",
        defect="the receipt of a batch is that of its numerically largest clock, so across the wrap it covers only a part of it",
        check="P5",
        verdict="violated",
        provoked_by=("subscriber-kill",),
        also=frozenset({"H2"}),
    ),
    Mutant(
        name="cursor-moved-by-fetch",
        defect="a fetch moves the cursor past what it delivers, so whoever dies or hears no answer never gets it again",
        check="P1",
        verdict="violated",
        edits=(
            Edit(
                "cursor-stays-at-a-fetch",
                "redis.call('SET', cursor, string.format('%d', upto), 'KEEPTTL')\n"
                "local more, searching = upto ~= at, #items == 0 and upto ~= at and most > 0",
            ),
        ),
        provoked_by=("net-reply-lost",),
        also=frozenset({"P3", "P6", "H0", "H2"}),
    ),
    Mutant(
        name="clock-through-tostring",
        defect="clocks of messages go through tostring, which keeps 14 digits: near the wrap several messages get the same one",
        check="P4",
        verdict="violated",
        edits=(
            Edit(
                "clocks-keep-every-digit",
                "local rounded = tonumber(tostring(position))\n"
                "local text = string.format('%d', math.max(-9007199254740991, math.min(9007199254740991, "
                "rounded)))",
            ),
        ),
        also=frozenset({"P1", "P2", "P3", "P5", "P7", "P8", "H0", "H2"}),
    ),
    Mutant(
        name="checksum-not-verified",
        defect="receipts are taken whatever their checksum says, also those of other clocks and other subscribers",
        check="P6",
        verdict="violated",
        # A receipt of another clock that is taken passes over what was not delivered yet.
        also=frozenset({"P1", "P3", "P5", "H2"}),
    ),
    Mutant(
        name="message-kept-back",
        defect="the caller of a fetch is not handed the last message of a batch, though its receipt covers it",
        check="P8",
        verdict="violated",
        also=frozenset({"H2"}),
    ),
    Mutant(
        name="inject-nothing",
        defect="faults are announced and not injected",
        check="H1",
        verdict="unknown",
        faults_do_nothing=True,
        provoked_by=("subscriber-kill",),
        also=frozenset({"H2"}),
    ),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _MUTANTS}

#: Those that are not scripts: each process plants them in itself.
PLANTED = frozenset(DEFECTS)
