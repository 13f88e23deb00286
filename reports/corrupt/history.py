"""A recorded history in memory, to be edited and written again: rows by file, and the rows of each job.

Whatever is edited, the file reads as if its process had written it so: rows stand in the order of their times, sequence numbers
have no gaps, and the close row counts them.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.errors import JudgeError
from reports.facts import MS, WORKER_KILLS
from reports.lines import INSTANTS

Row = dict[str, Any]

#: What a job without delay, parents, unique key or wishes shows when all goes well, in this order.
PLAIN = (*("enqueue invoke", "enqueue ok", "claim ok", "handle invoke", "handle ok"), *("effect ", "finish invoke", "finish ok"))
#: Name and boot id of a host that the run did not have.
OTHER_HOST = "another-host"
#: A fault may still show so long after it has healed.
AFTER_FAULT_NS = 5_000 * MS


@dataclass(frozen=True)
class Entry:
    """One job in one row: the file's name, the row, and the job's item in it."""

    file: str
    row: Row
    item: Row

    @property
    def label(self) -> str:
        """The operation and its type, or the kind of another row."""
        return f"{self.row.get('f') or self.row['kind']} {self.row.get('type') or ''}"


@dataclass(frozen=True)
class Life:
    """The rows of a job that was enqueued, claimed once, handled and finished."""

    job: str
    enqueue_sent: Entry
    enqueue: Entry
    claim: Entry
    start: Entry
    handled: Entry
    effect: Entry
    finish_sent: Entry
    finish: Entry

    @property
    def proc(self) -> str:
        """The worker that ran it."""
        return str(self.claim.row["proc"])

    @property
    def all(self) -> tuple[Entry, ...]:
        """Every row but those of the enqueue."""
        return self.claim, self.start, self.handled, self.effect, self.finish_sent, self.finish


class History:
    """The history of one run. `draw` chooses what is edited. Raises JudgeError when it cannot be read."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder = folder
        self.draw = draw
        self.files: dict[str, list[Row]] = {}
        try:
            for path in sorted((folder / "history").glob("*.jsonl")):
                self.files[path.name] = [json.loads(line) for line in path.read_bytes().splitlines()]
            self.spec: Row = json.loads((folder / "spec.json").read_text())
        except (OSError, ValueError) as error:
            raise JudgeError(f"the history of {folder.name} cannot be read: {error}") from error
        self.by_job: dict[str, list[Entry]] = defaultdict(list)
        for name, rows in self.files.items():
            for row in rows:
                if row["kind"] in ("operation", "effect"):
                    for item in row.get("items") or ():
                        if item.get("job"):
                            self.by_job[item["job"]].append(Entry(name, row, item))
        #: File -> place of a row that is left out when it is written, and not counted.
        self.gaps: dict[str, int] = {}
        self._numbers = itertools.count()
        self.taken: set[str] = set()
        self._plain = self._plain_lives()

    # --- what is there -----------------------------------------------------------------------------------------------------

    @property
    def harness(self) -> list[Row]:
        """The rows of the harness."""
        return self.files["harness.jsonl"]

    def windows(self) -> list[tuple[int, int]]:
        """When faults were in force, or may still have shown, in monotonic ns."""
        found: dict[str, list[int]] = defaultdict(list)
        for row in self.harness:
            if row["kind"] == "fault":
                found[row["fault"]].append(row["t_ns"])
        return [(min(times), max(times) + AFTER_FAULT_NS) for times in found.values()]

    def killed(self) -> set[str]:
        """Names of the workers that were killed."""
        return {row["target"] for row in self.harness if row["kind"] == "fault" and row["name"] in WORKER_KILLS}

    def workers(self) -> list[str]:
        """Names of the workers that lived to the end, except those inside Locust."""
        names = [row["name"] for row in self.files["manifest.jsonl"] if row.get("role") == "worker"]
        return [name for name in names if name not in self.killed() and not name.startswith("consumer-")]

    def another(self, proc: str) -> str:
        """A worker that is not this one."""
        return self.draw.choice([name for name in self.workers() if name != proc])

    @property
    def left(self) -> list[Life]:
        """The jobs that `take` may still choose."""
        return self._plain

    def take(self, wanted: Callable[[Life], bool] = lambda life: True) -> Life:
        """A job without anything special about it that no other edit has. Raises JudgeError when there is none."""
        for position, life in enumerate(self._plain):
            if life.job not in self.taken and wanted(life):
                del self._plain[position]
                self.taken.add(life.job)
                return life
        raise JudgeError("the run has too few jobs without faults around them: record a longer one")

    def find(self, wanted: Callable[[list[Entry]], bool]) -> tuple[str, list[Entry]]:
        """Any job that no other edit has and whose rows are as wanted. Raises JudgeError when there is none."""
        for job in self.draw.sample(sorted(self.by_job), len(self.by_job)):
            if job not in self.taken and wanted(self.by_job[job]):
                self.taken.add(job)
                return job, self.by_job[job]
        raise JudgeError("the run has no such job: record a longer one, with all features")

    def _plain_lives(self) -> list[Life]:
        """The lives to choose from, in a random order."""
        windows, killed = self.windows(), self.killed()

        def calm(entry: Entry) -> bool:
            return not any(begin <= entry.row["t_ns"] <= end for begin, end in windows)

        found: list[Life] = []
        for job, entries in self.by_job.items():
            by_label = {entry.label: entry for entry in entries}
            if Counter(entry.label for entry in entries) != Counter(PLAIN) or not all(map(calm, entries)):
                continue
            made, claim = by_label["enqueue ok"].item, by_label["claim ok"]
            special = any(made.get(name) for name in ("unique", "needs", "wants", "delay_ms"))
            repeated = claim.row.get("result") == "repeated" or claim.item.get("claims") != 1
            if not special and not repeated and made["result"] == "created" and claim.row["proc"] not in killed:
                found.append(Life(job, *(by_label[label] for label in PLAIN)))
        found.sort(key=lambda life: life.job)
        self.draw.shuffle(found)
        return found

    # --- edits -------------------------------------------------------------------------------------------------------------

    def remove(self, *entries: Entry) -> None:
        """Take a job out of these rows; a row that is empty then goes as well."""
        for entry in entries:
            items: list[Row] = entry.row["items"]
            position = next(at for at, item in enumerate(items) if item is entry.item)
            del items[position]
            if not items and entry.row.get("f") != "claim":
                rows = self.files[entry.file]
                del rows[next(at for at, row in enumerate(rows) if row is entry.row)]

    def alone(self, entry: Entry) -> Entry:
        """The same job in a row of its own, so that the row can be changed without the others in it."""
        if len(entry.row["items"]) == 1:
            return entry
        row = {**entry.row, "items": [entry.item], "op": f"{entry.row.get('op', '')}.{entry.item['job']}"}
        self.remove(entry)
        self.files[entry.file].append(row)
        return Entry(entry.file, row, entry.item)

    def add(self, proc: str, row: Row, *, sink: bool = False) -> Row:
        """Add a row to the file of a process."""
        made = {"v": self.files["manifest.jsonl"][0]["v"], "seq": 0, "proc": proc, **row}
        self.files[f"{proc}.sink.jsonl" if sink else f"{proc}.jsonl"].append(made)
        return made

    def call(self, proc: str, like: Row, items: Iterable[Row], at_ns: int, **columns: Any) -> None:
        """Add an operation: the invoke row and its answer, 1 ms later, copied from a completion row and sent at this instant."""
        srv_us = like["srv_us"] + (at_ns - like["first_send_ns"]) // 1_000
        times = {"first_send_ns": at_ns, "last_send_ns": at_ns, "done_ns": at_ns + MS, "srv_us": srv_us}
        number = next(self._numbers)
        answer = {**like, **times, "op": f"{proc}-corrupt-{number}", "call": f"{proc}-corrupt-{number}", "sends": 1, "errors": []}
        answer |= {"type": "ok", "proc": proc, "t_ns": at_ns + 2 * MS, "items": list(items), **columns}
        left_out = ("last_send_ns", "done_ns", "srv_us", "sends", "errors", "result")
        invoke = {name: value for name, value in answer.items() if name not in left_out}
        told = [{name: value for name, value in item.items() if name not in ("result", "outcome")} for item in answer["items"]]
        invoke |= {"type": "invoke", "t_ns": at_ns, "items": [] if answer["f"] in ("claim", "reap") else told}
        self.add(proc, invoke)
        self.add(proc, answer)

    def claimed_again(self, life: Life, proc: str, at_ns: int, **item: Any) -> Row:
        """Let another claim have the job at this instant, with a token of its own. Returns its item."""
        like = life.claim.row
        incarnation = next(row["incarnation"] for row in self.files[f"{proc}.jsonl"] if row.get("f") == "claim")
        counter = 900_000 + next(self._numbers)
        srv_ms = (like["srv_us"] + (at_ns - like["first_send_ns"]) // 1_000) // 1_000
        made = {**life.claim.item, "fence": max(srv_ms, life.claim.item["fence"] + 1), "nonce": f"{incarnation}:{counter}"}
        made |= {"deadline_ms": srv_ms + like["lease_ms"], "claims": 2, "result": "leased", **item}
        self.call(proc, like, [made], at_ns, incarnation=incarnation, counter=counter, result="leased")
        return made

    def ended(self, life: Life, proc: str, token: Row, at_ns: int, f: str = "finish", **item: Any) -> None:
        """Let a call that ends a lease be accepted at this instant."""
        outcome = {"finish": "finished", "retry": "retried", "bury": "buried", "release": "released"}.get(f)
        made = {**{name: token[name] for name in ("job", "fence", "nonce")}, "result": "ok", "outcome": outcome}
        made |= {"result_crc": life.finish.item.get("result_crc") if f == "finish" else None, **item}
        made = {name: value for name, value in made.items() if value is not None}
        self.call(proc, {**life.finish.row, "f": f}, [made], at_ns)

    def handled(
        self, life: Life, proc: str, token: Row, start_ns: int, end_ns: int, *, ok: bool = True, effect: bool = True
    ) -> None:
        """Let a handler run, and have its effect."""
        item = {name: token[name] for name in ("job", "fence", "nonce")}
        op = f"{proc}-corrupt-{next(self._numbers)}"
        base = {**life.handled.row, "proc": proc, "op": op, "first_send_ns": start_ns, "items": [item]}
        invoke = {name: value for name, value in base.items() if name != "done_ns"} | {"type": "invoke", "t_ns": start_ns}
        self.add(proc, invoke)
        self.add(proc, {**base, "type": "ok" if ok else "fail", "done_ns": end_ns, "t_ns": end_ns})
        if effect:
            sunk = {**life.effect.item, **item}
            self.add(proc, {**life.effect.row, "proc": proc, "t_ns": end_ns, "items": [sunk]}, sink=True)

    def shift(self, life: Life, by_ns: int) -> Life:
        """Everything after the enqueue happens later by so much. Returns the job's new rows."""
        moved: list[Entry] = []
        for entry in life.all:
            own = self.alone(entry)
            for name in ("t_ns", "first_send_ns", "last_send_ns", "done_ns"):
                if own.row.get(name) is not None:
                    own.row[name] += by_ns
            if own.row.get("srv_us") is not None:
                own.row["srv_us"] += by_ns // 1_000
            own.item.update({name: own.item[name] + by_ns // MS for name in ("fence", "deadline_ms") if name in own.item})
            moved.append(own)
        return Life(life.job, life.enqueue_sent, life.enqueue, *moved)

    def snapshot(self, name: str, state: str) -> Row:
        """The row of a final snapshot that lists this state."""
        return next(r for r in self.harness if r["kind"] == "final" and r["name"] == name and r.get("state") == state)

    def list_in(self, name: str, state: str, job: str, due_ms: int = 0) -> None:
        """Let a final snapshot list the job in this state."""
        row = self.snapshot(name, state)
        row["items"] = [*(row.get("items") or []), {"job": job, "due_ms": due_ms}]
        row["count"] = (row.get("count") or 0) + 1

    def unlist(self, job: str) -> None:
        """Take the job out of every final snapshot."""
        for row in self.harness:
            if row["kind"] == "final" and row.get("items"):
                kept = [item for item in row["items"] if item.get("job") != job]
                row["count"] -= len(row["items"]) - len(kept)
                row["items"] = kept

    def on_another_host(self, proc: str, clock: Callable[[int], int]) -> None:
        """Let a process have run on a host of its own, whose clock showed `clock(t)` when the harness's showed `t`."""
        for name in (f"{proc}.jsonl", f"{proc}.sink.jsonl"):
            for row in self.files.get(name, ()):
                for part in (row, *(row.get("items") or ())):
                    part.update({column: clock(part[column]) for column in INSTANTS if part.get(column) is not None})
                if row["kind"] == "open":
                    row.update({"host": OTHER_HOST, "boot_id": OTHER_HOST})

    # --- writing -----------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write the run with its edits to a new folder."""
        (folder / "history").mkdir(parents=True)
        (folder / "spec.json").write_text(json.dumps(self.spec))
        if (self.folder / "samples").is_dir():
            shutil.copytree(self.folder / "samples", folder / "samples")
        for name, rows in self.files.items():
            ordered = rows if name in ("manifest.jsonl", "harness.jsonl") else in_order(rows)
            for number, row in enumerate(ordered):
                row["seq"] = number
                if row["kind"] == "close":
                    row["rows"] = len(ordered)
            if name in self.gaps:
                del ordered[self.gaps[name]]
            lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in ordered)
            (folder / "history" / name).write_text(lines)


def in_order(rows: list[Row]) -> list[Row]:
    """The rows by the time of their writing, between the open and the close row."""
    ends = {"open": -1, "close": 1}
    return sorted(rows, key=lambda row: (ends.get(row["kind"], 0), row["t_ns"]))
