"""Rows that no recorder of this schema writes. Checks ignore them, which is as bad as missing rows, so H0 reports them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from reports.arrow import compute as pc
from reports.meaning import ENDS

#: Kinds of row, and operations, that `record.history` documents.
KINDS = (
    "process",
    "open",
    "close",
    "connection",
    "configuration",
    "operation",
    "effect",
    "effects",
    "handed",
    "misuse",
    "fault",
    "phase",
    "clock",
    "offset",
    "final",
    "drop",
)
OPERATIONS = (
    "enqueue",
    "tick",
    "claim",
    "finish",
    "retry",
    "bury",
    "release",
    "drop",
    "extend",
    "mark",
    "promote",
    "reap",
    "handle",
    "result",
    "publish",
    "subscribe",
    "unsubscribe",
    "fetch",
    "acknowledge",
)

#: Operations whose answered items concern a lease and so carry its token. Reap is absent: it may bury a job without a lease.
OF_LEASES = ("claim", *ENDS, "extend", "mark")


def tokenless(events: pa.Table) -> Any:
    """Where an item of an effect, or of an answered row about leases, lacks its token. Corrupt items need none."""
    item = events["item"]
    answered = pc.and_(pc.equal(pc.fill_null(events["type"], ""), "ok"), pc.is_in(events["f"], pa.array(OF_LEASES)))
    about_leases = pc.or_(pc.and_(pc.equal(events["kind"], "operation"), answered), pc.equal(events["kind"], "effect"))
    lacks = pc.or_(pc.is_null(pc.struct_field(item, "fence")), pc.is_null(pc.struct_field(item, "nonce")))
    corrupt = pc.equal(pc.fill_null(pc.struct_field(item, "result"), ""), "corrupt")
    return pc.and_(pc.and_(about_leases, lacks), pc.invert(corrupt))
