"""Parse lines of a history file into Arrow tables: one row per line, and one row per item of what is about jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from record.history import ITEM_FIELDS, ROW_FIELDS, Field
from reports.arrow import compute as pc
from reports.hosts import Host

#: Columns that every readable row has.
NEEDED = ("v", "seq", "kind", "proc", "t_ns")

#: Columns of rows and of items that are instants of the monotonic clock.
INSTANTS = ("t_ns", "intended_ns", "first_send_ns", "last_send_ns", "done_ns")
ITEM_INSTANTS = ("intended_ns",)

#: Kinds of row whose items are events, except in rows about channels.
OF_ITEMS = ("operation", "effect", "effects", "final")


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a file, parsed.

    `rows`: one row per line, with the columns of `record.history`, the file as `source`, and `readable`: it parsed and has all
    `NEEDED` columns. `events`: one row per item of an operation on jobs, an effect or a snapshot: the columns of its row, `item`,
    and its `position`. `whole`: which rows are not split up into events.
    """

    rows: pa.Table
    events: pa.Table
    whole: pa.BooleanArray


def arrow_type(column: Field) -> pa.DataType:
    """The Arrow type of one column: integers have 64 bits, tokens are strings."""
    if column.type == "items":
        return pa.list_(item_type())
    if column.type == "list[str]":
        return pa.list_(pa.string())
    return pa.int64() if column.type == "int" else pa.string()


@cache
def item_type() -> pa.StructType:
    """One entry of `items`."""
    return pa.struct([pa.field(column.name, arrow_type(column)) for column in ITEM_FIELDS])


@cache
def line_schema() -> pa.Schema:
    """A line as it is parsed."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in ROW_FIELDS])


@cache
def rows_schema() -> pa.Schema:
    """The rows of a block."""
    return pa.schema([*line_schema(), pa.field("source", pa.string()), pa.field("readable", pa.bool_())])


@cache
def events_schema() -> pa.Schema:
    """The events of a block."""
    kept = [column for column in rows_schema() if not pa.types.is_list(column.type) and column.name != "readable"]
    return pa.schema([*kept, pa.field("item", item_type()), pa.field("position", pa.int64())])


def parsed(lines: list[bytes], source: str, host: Host | None = None) -> Block:
    """The rows and events of some lines of the file `source`. `host`: whose clock its times are of, None for the harness's."""
    table = parse(lines)
    if host is not None:
        table = moved(table, host)
    readable = reduce(pc.and_, (pc.is_valid(table[name]) for name in NEEDED))
    rows = table.append_column("source", pa.repeat(source, len(table))).append_column("readable", readable)
    of_jobs = pc.and_(pc.is_in(table["kind"], pa.array(OF_ITEMS)), pc.is_null(table["channel"]))
    split = pc.and_(readable, of_jobs).combine_chunks()
    return Block(rows, exploded(rows, split), pc.invert(split))


def moved(table: pa.Table, host: Host) -> pa.Table:
    """The rows with their times on the harness's clock."""
    for name in INSTANTS:
        table = table.set_column(table.schema.get_field_index(name), name, on_clock(table[name].combine_chunks(), host))
    items = table["items"].combine_chunks()
    values = items.values
    parts = [values.field(at) for at in range(values.type.num_fields)]
    for at in (values.type.get_field_index(name) for name in ITEM_INSTANTS):
        parts[at] = on_clock(parts[at], host)
    whole = pa.StructArray.from_arrays(parts, fields=list(values.type), mask=values.is_null())
    inside = pa.ListArray.from_arrays(items.offsets, whole, type=items.type, mask=items.is_null())
    return table.set_column(table.schema.get_field_index("items"), "items", inside)


def on_clock(times_ns: pa.Array, host: Host) -> pa.Array:
    """Instants of a host on the harness's clock; nulls stay."""
    known = pc.is_valid(times_ns)
    return pa.array(host.moved(pc.fill_null(times_ns, 0)), pa.int64(), mask=~np.asarray(known))


def exploded(rows: pa.Table, split: pa.BooleanArray) -> pa.Table:
    """One row per item of the rows that are split; its `replid` is that of the last connection before it in the block."""
    items = rows["items"].combine_chunks()
    parents, flat = np.asarray(pc.list_parent_indices(items)), pc.list_flatten(items)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(items), 0))
    positions = np.arange(len(parents)) - (np.cumsum(lengths) - lengths)[parents]
    kept = np.asarray(split)[parents]
    if not kept.all():
        parents, positions, flat = parents[kept], positions[kept], flat.filter(pa.array(kept))
    of_rows = rows.set_column(rows.schema.get_field_index("replid"), "replid", pc.fill_null_forward(rows["replid"]))
    columns = {name: taken(of_rows[name], parents) for name in events_schema().names if name not in ("item", "position")}
    return pa.table({**columns, "item": flat, "position": pa.array(positions, pa.int64())}).select(events_schema().names)


def taken(column: pa.ChunkedArray, places: Any) -> Any:
    """The values at these places. Most columns have no value in most blocks, which is much quicker."""
    return column.take(pa.array(places)) if column.null_count < len(column) else pa.nulls(len(places), column.type)


def parse(lines: list[bytes]) -> pa.Table:
    """One row per line. A line that is no object, or has a value of another type, is a row of nulls, found by halving what does
    not parse; only its `v` is kept, so that a newer schema is recognized."""
    if not lines:
        return line_schema().empty_table()
    data = b"\n".join(lines)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=line_schema(), unexpected_field_behavior="ignore"),
        )
        # One line may hold two objects, and an object may go on in the next line.
        if len(table) == len(lines):
            return table
    except pa.ArrowInvalid:
        pass
    if len(lines) == 1:
        return pa.Table.from_pylist([{"v": version(lines[0])}], line_schema())
    middle = len(lines) // 2
    return pa.concat_tables([parse(lines[:middle]), parse(lines[middle:])])


def version(line: bytes) -> int | None:
    """The schema version of a line that does not fit this schema."""
    try:
        found = json.loads(line)["v"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if type(found) is int and abs(found) < 2**63 else None
