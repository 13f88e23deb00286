"""Turn each history file into Parquet tables, of which the judge reads only the columns that it needs, and into its facts.

The JSON lines stay the record. In the folder `parquet` of the run there are for each of them:

- `<file>.events.parquet`: the events of `reports.lines`, each with the `replid` of the last connection before it. An operation
  appears once: as its completion (type ok, fail or info), or as its invocation (type invoke) if it never had one. A job that a
  completion leaves out was not answered: it appears as invoked, unless the whole operation failed.
- `<file>.rows.parquet`: the rows that are not about jobs, with their items.
- `<file>.facts.json`: see `reports.collect`.

Times of another host than the harness's are moved to the harness's clock on the way (see `reports.hosts`).

They are made again when the history file, or what this module makes of one, has changed.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from record.history import SCHEMA_VERSION
from reports.arrow import compute as pc
from reports.collect import Collector
from reports.errors import JudgeError
from reports.file_facts import Collected
from reports.hosts import Host
from reports.lines import Block, events_schema, parsed, rows_schema

#: Folder of the tables in the folder of a run.
FOLDER = "parquet"

#: Changes whenever the same history would give other tables.
FORM = f"2 {SCHEMA_VERSION}"

#: Bytes that are parsed at once: 10,000 to 20,000 lines.
BLOCK_BYTES = 8 * 1024 * 1024

#: Rows of a table that are written at once, as a unit that one reader takes.
GROUP_ROWS = 256 * 1024

#: Threads that convert: parsing, joining and compressing release the interpreter's lock.
THREADS = len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Converted:
    """What a history file was turned into."""

    rows: Path
    events: Path
    facts: Path

    @classmethod
    def of(cls, run: Path, file: Path) -> Converted:
        """Where it is for a history file of a run."""
        folder = run / FOLDER
        return cls(*(folder / f"{file.name}.{part}" for part in ("rows.parquet", "events.parquet", "facts.json")))

    def collected(self) -> Collected | None:
        """The facts; None when there are none yet, or unreadable ones."""
        return Collected.read(self.facts)


def convert(
    run: Path, files: Sequence[Path], begun: Callable[[int], None] = lambda size: None, hosts: Sequence[Host] = ()
) -> list[tuple[Converted, Collected]]:
    """Convert these history files, except those that have not changed since: where their tables are, and their facts. `begun` is
    called first with the number of bytes to convert, if there are any. Raises JudgeError when something cannot be written."""
    away = {name: host for host in hosts if host.at_ns for name in host.files}
    known = {file: current(run, file, away.get(file.name)) for file in files}
    wanted = [file for file, collected in known.items() if collected is None]
    if wanted:
        begun(sum(file.stat().st_size for file in wanted))
        try:
            (run / FOLDER).mkdir(exist_ok=True)
            with ThreadPoolExecutor(THREADS) as pool:
                known |= {file: convert_file(file, Converted.of(run, file), pool, away.get(file.name)) for file in wanted}
        except OSError as error:
            raise JudgeError(f"the history of {run.name} cannot be converted: {error.strerror or error}") from error
    return [(Converted.of(run, file), collected) for file, collected in known.items() if collected is not None]


def current(run: Path, file: Path, host: Host | None = None) -> Collected | None:
    """The facts of a history file that was converted as it is now, else None. They are written last."""
    found = Converted.of(run, file)
    collected = found.collected()
    whole = collected is not None and collected.made_of == stamp(file, host) and found.rows.exists() and found.events.exists()
    return collected if whole else None


def stamp(file: Path, host: Host | None) -> str:
    """What the facts say of the file that they are about: another content, or another clock of its host, has another stamp."""
    stat = file.stat()
    clock = f" {zlib.crc32(repr((host.at_ns, host.shifts_ns)).encode())}" if host else ""
    return f"{FORM} {stat.st_size} {stat.st_mtime_ns}{clock}"


def convert_file(file: Path, to: Converted, pool: ThreadPoolExecutor, host: Host | None) -> Collected:
    """Convert one history file, and return its facts."""
    to.facts.unlink(missing_ok=True)
    collector, settling = Collector(file, stamp(file, host)), Settling()
    with Writer(to.rows, rows_schema()) as rows, Writer(to.events, events_schema()) as events, file.open("rb") as content:
        for block in ahead(pool, lambda lines: parsed(lines, file.name, host), blocks(content)):
            collector.add(block)
            rows.add(block.rows.filter(block.whole))
            events.add(settling.add(block))
        events.add(settling.open)
    collected = collector.collected()
    collected.write(to.facts)
    return collected


class Writer:
    """A table that is written in groups of rows, and gets its name when all of it is there."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._fresh, self._schema = path, path.with_suffix(".new"), schema
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> Writer:
        self._writer = pq.ParquetWriter(self._fresh, self._schema, compression="zstd", compression_level=1)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            if kind is None:
                self._fresh.replace(self._path)
        finally:
            self._fresh.unlink(missing_ok=True)

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        together = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        self._waiting = []
        if len(together):
            self._writer.write_table(together.select(self._schema.names).cast(self._schema), row_group_size=GROUP_ROWS)


def blocks(file: io.BufferedReader) -> Iterator[list[bytes]]:
    """The lines of a file, some thousands at a time; blank ones are left out."""
    rest = b""
    while part := file.read(BLOCK_BYTES):
        whole, newline, after = part.rpartition(b"\n")
        if newline:
            yield lines_of(rest + whole)
            rest = after
        else:
            rest += part
    yield lines_of(rest)


def lines_of(block: bytes) -> list[bytes]:
    return [line for line in block.split(b"\n") if line.strip()]


def ahead(pool: ThreadPoolExecutor, work: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
    """The results of `work` in order, with a few of them in progress ahead of the reader."""
    waiting: list[Any] = []
    for part in parts:
        waiting.append(pool.submit(work, part))
        if len(waiting) > THREADS:
            yield waiting.pop(0).result()
    for one in waiting:
        yield one.result()


class Settling:
    """The invocations of a file whose completion has not come yet, block by block."""

    def __init__(self) -> None:
        self.open = events_schema().empty_table()
        self._replid: str | None = None

    def add(self, block: Block) -> pa.Table:
        """The events of a block but its invocations, which are kept until they are answered."""
        events = self._with_replid(block)
        invoked = pc.equal(pc.fill_null(events["type"], ""), "invoke")
        rest = events.filter(pc.invert(invoked))
        waiting = pa.concat_tables([self.open, events.filter(invoked)])
        if len(waiting):
            failed = block.rows.filter(pc.equal(pc.fill_null(block.rows["type"], ""), "fail")).select(["proc", "op"])
            self.open = waiting.filter(unanswered(waiting, rest.filter(pc.is_valid(rest["op"])), failed))
        return rest

    def _with_replid(self, block: Block) -> pa.Table:
        """The events of a block, each with the last replid before it."""
        events = block.events
        if self._replid is not None:
            known = pc.fill_null(events["replid"], self._replid)
            events = events.set_column(events.schema.get_field_index("replid"), "replid", known)
        found = pc.drop_null(block.rows["replid"])
        self._replid = found[-1].as_py() if len(found) else self._replid
        return events


def unanswered(waiting: pa.Table, answers: pa.Table, failed: pa.Table) -> pa.Array:
    """Which of the waiting invocations have no answer: neither one that names their job, nor the failure of their operation."""

    def named(events: pa.Table) -> dict[str, Any]:
        return {"proc": events["proc"], "op": events["op"], "job": pc.struct_field(events["item"], "job")}

    keys = pa.table({**named(waiting), "place": pa.array(range(len(waiting)), pa.int64())})
    left = keys.join(pa.table(named(answers)), ["proc", "op", "job"], join_type="left anti")
    left = left.join(failed, ["proc", "op"], join_type="left anti")
    mask = np.zeros(len(waiting), bool)
    mask[left["place"].to_numpy()] = True
    return pa.array(mask)
