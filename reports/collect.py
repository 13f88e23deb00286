"""Collect the facts of one history file, block by block: sums, extremes, few distinct values, and its few rows that are not about
jobs. The rest of the judge learns everything that concerns a file as a whole from here."""

from __future__ import annotations

from functools import reduce
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reports.arrow import compute as pc
from reports.errors import row_of
from reports.facts import SLOT_NS
from reports.file_facts import CALL_SLOT_NS, LAG_STEP_NS, Collected, FileFacts, ObservedCall
from reports.folder import torn_tail
from reports.lines import Block
from reports.meaning import ENDS

# Rows that no recorder of this schema writes. Checks ignore them, which is as bad as missing rows, so H0
# reports them.


#: Kinds of row, and operations, that `record.history` documents.
KINDS = (
    *("process", "open", "close", "connection", "configuration", "operation", "effect", "effects", "handed", "misuse", "fault"),
    *("phase", "clock", "offset", "final", "drop"),
)
OPERATIONS = (
    *("enqueue", "tick", "claim", "finish", "retry", "bury", "release", "drop", "extend", "mark", "promote", "reap", "handle"),
    *("result", "publish", "subscribe", "unsubscribe", "fetch", "acknowledge"),
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


#: Kinds of row of which a file has few; they are kept as they are, but for the items of snapshots.
RARE = ("process", "configuration", "fault", "phase", "final", "drop", "clock")

#: The time order of the rows of a file is checked between blocks of this many lines.
ORDER_ROWS = 1_024

#: Operation -> item results to observe, such as `finish stale`. A run has few of these.
OBSERVED = {"enqueue": ("repeated",), "claim": ("repeated",), "finish": ("repeated", "stale"), "extend": ("ok",)}

#: Error replies of servers to observe: a call that got one is `refused OOM`, say, also if it was sent again and answered.
REFUSALS = ("OOM", "BUSY", "NOSCRIPT")

#: Fact -> the operation that succeeded, and the results of one of its items that say so.
SUCCEEDED = {
    "created": ("enqueue", ("created", "repeated")),
    "leased": ("claim", ("leased", "repeated")),
    "finished": ("finish", ("ok", "repeated")),
    "published": ("publish", ("created", "duplicate")),
}


#: Sums over the rows of a file, and sets of its distinct values.
SUMS = (
    *("rows", "corrupt", "seq_sum", "seq_square_sum", "operations", "nameless", "bootless", "timeless", "tokenless"),
    *("unintended", "disordered", "claims_sent", "claims_answered"),
)
SETS = ("slots", "answered_slots", "calls", "lags", "kind", "f", "replid", "lease_ms")


class Collector:
    """Collects the facts of one file."""

    def __init__(self, path: Path, made_of: str) -> None:
        self._path, self._made_of = path, made_of
        self._sums: dict[str, int] = dict.fromkeys(SUMS, 0)
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._sets: dict[str, set[Any]] = {name: set() for name in SETS}
        self._seen: dict[str, bool] = dict.fromkeys((*SUCCEEDED, "handled", "fetched", "acknowledged"), False)
        self._ends: dict[int, str] = {}
        #: Number of a block of lines -> its earliest and latest slot.
        self._order: dict[int, tuple[int, int]] = {}
        self._connected_ns: list[int] = []
        self._observed: list[ObservedCall] = []
        self._rare: list[dict[str, Any]] = []
        self._incarnations: dict[str, str] = {}

    def add(self, block: Block) -> None:
        """Add some lines."""
        self._sums["rows"] += len(block.rows)
        self._extreme(self._most, "version_max", block.rows["v"])
        rows = block.rows.filter(block.rows["readable"])
        self._sums["corrupt"] += len(block.rows) - len(rows)
        if not len(rows):
            return
        operations = rows.filter(pc.equal(rows["kind"], "operation"))
        self._numbers(rows)
        self._ends_of_file(rows)
        self._times(rows)
        self._of_operations(operations)
        self._of_claims(operations.filter(equal(operations["f"], "claim")))
        self._of_sends(operations.filter(one_of(operations["f"], ("enqueue", "publish"))))
        self._answers(operations.filter(equal(operations["type"], "ok")), block.events)
        completed = pc.invert(equal(operations["type"], "invoke"))
        self._refused(operations.filter(pc.and_(completed, more_than_none(operations["errors"]))))
        self._sets["replid"].update(pc.drop_null(rows["replid"]).unique().to_pylist())
        self._rows_apart(rows)

    def collected(self) -> Collected:
        """All that was collected."""
        tail = torn_tail(self._path)
        sets = {name: frozenset(self._sets[name]) for name in ("slots", "answered_slots", "calls", "lags")}
        first, last = self._least.get("seq_min"), self._most.get("seq_max")
        facts: dict[str, Any] = {
            "name": self._path.name,
            "torn": bool(tail),
            "torn_corrupt": bool(tail) and row_of(tail) is None,
            "opens_first": first is not None and self._ends[first] == "open",
            "closes_last": last is not None and self._ends[last] == "close",
            "unknown_kinds": tuple(sorted(self._sets["kind"] - set(KINDS))),
            "unknown_operations": tuple(sorted(self._sets["f"] - set(OPERATIONS))),
            "slots_back": slots_back(self._order),
            "claims_unanswered": self._sums["claims_sent"] > self._sums["claims_answered"],
            "connected_ns": tuple(sorted(self._connected_ns)),
            "observed_calls": tuple(self._observed),
            **{name: value for name, value in self._sums.items() if not name.startswith("claims_")},
        }
        facts |= self._seen | self._least | self._most | sets
        merged = {"replids": "replid", "leases_ms": "lease_ms"}
        lists = {name: sorted(self._sets[of]) for name, of in merged.items()}
        return Collected(self._made_of, FileFacts(**facts), self._rare, incarnations=self._incarnations, **lists)

    def _extreme(self, into: dict[str, int], name: str, column: pa.ChunkedArray) -> None:
        """Keep the least or greatest value of a column."""
        found = (pc.min if into is self._least else pc.max)(column).as_py()
        if found is not None:
            into[name] = (min if into is self._least else max)(into.get(name, found), found)

    def _numbers(self, rows: pa.Table) -> None:
        """The sequence numbers: extremes, sum, and sum of squares, which exceeds 64 bits."""
        numbers = rows["seq"].to_pylist()
        self._sums["seq_sum"] += sum(numbers)
        self._sums["seq_square_sum"] += sum(map(mul, numbers, numbers))
        self._extreme(self._least, "seq_min", rows["seq"])
        self._extreme(self._most, "seq_max", rows["seq"])

    def _ends_of_file(self, rows: pa.Table) -> None:
        """The first and the last row, and what open and close rows say."""
        for place in (pc.index(rows["seq"], pc.min(rows["seq"])), pc.index(rows["seq"], pc.max(rows["seq"]))):
            at = place.as_py()
            self._ends[rows["seq"][at].as_py()] = rows["kind"][at].as_py()
        opens, closes = (rows.filter(pc.equal(rows["kind"], kind)) for kind in ("open", "close"))
        self._sums["bootless"] += count(equal(pc.fill_null(opens["boot_id"], ""), ""))
        self._extreme(self._least, "opened_ns", opens["t_ns"])
        for name, column in {"closed_ns": "t_ns", "close_rows": "rows", "recorder_ns": "recorder_ns"}.items():
            self._extreme(self._most, name, closes[column])

    def _times(self, rows: pa.Table) -> None:
        """When rows were written. The instant of a fault or phase row is not the time of its writing."""
        self._extreme(self._most, "last_ns", rows["t_ns"])
        written = rows.filter(pc.invert(one_of(rows["kind"], ("fault", "phase"))))
        slots, blocks = numbers_of(written["t_ns"]) // SLOT_NS, numbers_of(written["seq"]) // ORDER_ROWS
        self._sets["slots"].update(np.unique(slots).tolist())
        # The measure of an offset row was answered at some time before it was written.
        answered = pc.and_(pc.is_valid(written["srv_us"]), pc.invert(equal(written["kind"], "offset")))
        self._sets["answered_slots"].update(np.unique(slots[flags(answered)]).tolist())
        for block in np.unique(blocks).tolist():
            of_block = [*slots[blocks == block].tolist(), *self._order.get(block, ())]
            self._order[block] = (min(of_block), max(of_block))

    def _of_operations(self, operations: pa.Table) -> None:
        """Operation rows, and what is odd about them."""
        self._sums["operations"] += len(operations)
        known = one_of(operations["type"], ("invoke", "ok", "fail", "info"))
        named = reduce(pc.and_, (known, pc.is_valid(operations["f"]), pc.is_valid(operations["op"])))
        self._sums["nameless"] += len(operations) - count(named)
        self._sets["f"].update(pc.drop_null(operations["f"]).unique().to_pylist())
        first_ns, done_ns = operations["first_send_ns"], operations["done_ns"]
        last_ns = pc.coalesce(operations["last_send_ns"], first_ns)
        latest_ns = pc.max_element_wise(last_ns, done_ns)
        pairs = ((first_ns, last_ns), (last_ns, done_ns), (latest_ns, operations["t_ns"]))
        wrong = reduce(pc.or_, (pc.fill_null(pc.greater(earlier, later), False) for earlier, later in pairs))
        self._sums["disordered"] += count(wrong)

    def _of_claims(self, claims: pa.Table) -> None:
        """Claims: their leases, their incarnations, and whether all were answered."""
        self._sums["claims_sent"] += count(equal(claims["type"], "invoke"))
        self._sums["claims_answered"] += count(one_of(claims["type"], ("ok", "fail")))
        self._sets["lease_ms"].update(pc.drop_null(claims["lease_ms"]).unique().to_pylist())
        named = claims.select(["incarnation", "proc"]).filter(pc.is_valid(claims["incarnation"]))
        pairs = named.group_by(["incarnation", "proc"]).aggregate([])
        self._incarnations.update(zip(pairs["incarnation"].to_pylist(), pairs["proc"].to_pylist(), strict=True))

    def _of_sends(self, sends: pa.Table) -> None:
        """Enqueues and publishes: when they were written, and how late they were."""
        self._extreme(self._least, "enqueue_first_ns", sends["t_ns"])
        self._extreme(self._most, "enqueue_last_ns", sends["t_ns"])
        self._sums["unintended"] += count(pc.is_null(sends["intended_ns"]))
        timed = sends.filter(pc.and_(pc.is_valid(sends["intended_ns"]), pc.is_valid(sends["first_send_ns"])))
        intended_ns, sent_ns = numbers_of(timed["intended_ns"]), numbers_of(timed["first_send_ns"])
        steps = (sent_ns - intended_ns) // LAG_STEP_NS
        self._sets["lags"].update(pairs_of(intended_ns[steps > 0] // SLOT_NS, steps[steps > 0]))

    def _answers(self, ok: pa.Table, events: pa.Table) -> None:
        """Operations that were answered ok: their times, whether some succeeded, and the few that H2 looks for."""
        self._seen["handled"] |= count(equal(ok["f"], "handle")) > 0
        calls = ok.filter(pc.invert(equal(ok["f"], "handle")))
        sent_ns = pc.coalesce(calls["last_send_ns"], calls["first_send_ns"])
        timed = flags(pc.and_(pc.is_valid(sent_ns), pc.is_valid(calls["done_ns"])))
        sent, done = (numbers_of(column)[timed] // CALL_SLOT_NS for column in (sent_ns, calls["done_ns"]))
        self._sets["calls"].update(pairs_of(sent, done))
        self._seen["fetched"] |= count(pc.and_(equal(ok["f"], "fetch"), more_than_none(ok["items"]))) > 0
        self._seen["acknowledged"] |= count(pc.and_(equal(ok["f"], "acknowledge"), equal(ok["result"], "OK"))) > 0
        published = ok.filter(equal(ok["f"], "publish"))
        in_publishes = pc.struct_field(pc.list_flatten(published["items"]), "result")
        self._seen["published"] |= count(one_of(in_publishes, SUCCEEDED["published"][1])) > 0
        self._sums["tokenless"] += len(pc.unique(events.filter(tokenless(events))["seq"]))
        answered = events.filter(equal(events["type"], "ok"))
        results, has_fence = pc.struct_field(answered["item"], "result"), pc.is_valid(pc.struct_field(answered["item"], "fence"))
        for name in ("created", "leased", "finished"):
            operation, wanted = SUCCEEDED[name]
            some = one_of(results, wanted) if name != "leased" else pc.or_(one_of(results, wanted), has_fence)
            self._seen[name] |= count(pc.and_(equal(answered["f"], operation), some)) > 0
        self._observe(ok, answered, results)

    def _observe(self, ok: pa.Table, answered: pa.Table, results: pa.ChunkedArray) -> None:
        """The calls that H2 looks for. A repeated claim has its result on the row, not on the items, because there may be no item
        left to repeat."""
        parts = [(pc.and_(equal(answered["f"], f), one_of(results, wanted)), answered, results) for f, wanted in OBSERVED.items()]
        parts.append((pc.and_(equal(ok["f"], "claim"), equal(ok["result"], "repeated")), ok, ok["result"]))
        found = set[ObservedCall]()
        for mask, table, result in parts:
            some = table.filter(mask).select(["f", "first_send_ns", "done_ns", "last_send_ns"]).to_pylist()
            for row, answer in zip(some, result.filter(mask).to_pylist(), strict=True):
                times = (row["first_send_ns"], row["done_ns"], row["last_send_ns"] or 0)
                found.add(ObservedCall(f"{row['f']} {answer}", *times))
        self._observed += sorted(found, key=lambda call: (call.first_send_ns, call.what))

    def _refused(self, calls: pa.Table) -> None:
        """Calls that a server has refused at least once, by the first word of its reply."""
        for row in calls.select(["errors", "first_send_ns", "done_ns", "last_send_ns"]).to_pylist():
            codes = {error.partition(" ")[0] for error in row["errors"] if error}
            times = (row["first_send_ns"] or 0, row["done_ns"] or 0, row["last_send_ns"] or 0)
            self._observed += [ObservedCall(f"refused {code}", *times) for code in REFUSALS if code in codes]

    def _rows_apart(self, rows: pa.Table) -> None:
        """The rows that are not about jobs."""
        self._sets["kind"].update(rows["kind"].unique().to_pylist())
        self._connected_ns += rows.filter(equal(rows["kind"], "connection"))["t_ns"].to_pylist()
        for row in rows.filter(one_of(rows["kind"], RARE)).to_pylist():
            self._sums["timeless"] += row["kind"] == "final" and row["srv_us"] is None
            row["item_count"] = len(row["items"] or ())
            row["items"] = row["items"] if row["kind"] == "fault" else None
            self._rare.append({name: value for name, value in row.items() if value is not None})


def equal(column: Any, value: str) -> Any:
    """Where a column has this value; a null has not."""
    return pc.fill_null(pc.equal(column, value), False)


def one_of(column: Any, values: tuple[str, ...]) -> Any:
    """Where a column has one of these values."""
    return pc.is_in(column, pa.array(values))


def more_than_none(items: pa.ChunkedArray) -> Any:
    """Where a list has entries."""
    return pc.fill_null(pc.greater(pc.list_value_length(items), 0), False)


def count(mask: Any) -> int:
    """How often a mask is true."""
    return pc.sum(mask).as_py() or 0


def flags(mask: Any) -> Any:
    """A mask as numpy has it."""
    return np.asarray(mask, bool)


def numbers_of(column: pa.ChunkedArray) -> Any:
    """A column of integers; 0 for null."""
    return np.asarray(pc.fill_null(column, 0), np.int64)


def pairs_of(first: Any, second: Any) -> set[tuple[int, int]]:
    """The distinct pairs of two columns of integers."""
    return set(map(tuple, np.unique(np.stack((first, second), axis=1), axis=0).tolist()))


def slots_back(order: dict[int, tuple[int, int]]) -> int:
    """The largest number of slots by which a row is older than a row of an earlier block of lines."""
    back, latest = 0, 0
    for _, (least, most) in sorted(order.items()):
        back, latest = max(back, latest - least), max(latest, most)
    return back
