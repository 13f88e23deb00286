"""A recorded history of a channel run in memory, to be edited: the visits of subscribers, and the publishes of messages."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from reports.channels.plan import CLOCK_MAX, CLOCKS, SAVED_SLACK_NS, distance
from reports.corrupt.history import History, Row
from reports.errors import JudgeError
from reports.facts import KILLS

#: A fault of a channel run may still show so long after it has healed.
AFTER_FAULT_NS = 1_000_000_000

#: Columns of a row, and of its items, that hold a clock.
CLOCKS_OF_ROWS = ("clock", "cursor", "upto")


@dataclass(frozen=True)
class Call:
    """An operation: its invoke row and its completion row, in one file."""

    file: str
    sent: Row
    done: Row

    @property
    def both(self) -> tuple[Row, Row]:
        """The two rows."""
        return self.sent, self.done


@dataclass(frozen=True)
class Visit:
    """A fetch that brought messages for the first time, what its caller was handed, and the acknowledgement of all of it."""

    channel: str
    subscriber: str
    proc: str
    fetch: Call
    handed: Row
    acknowledge: Call

    @property
    def items(self) -> list[Row]:
        """The messages as the server answered them."""
        return self.fetch.done["items"]

    @property
    def hands(self) -> list[Row]:
        """The messages as the caller got them."""
        return self.handed["items"]

    @property
    def clock(self) -> int:
        """The clock of its last message."""
        return int(self.items[-1]["clock"])


class ChannelHistory(History):
    """The history of one channel run. Raises JudgeError when it cannot be read."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        super().__init__(folder, draw)
        self.calls: list[Call] = self._calls()
        self.publishes: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in self.calls:
            for item in call.done["items"] if call.done["f"] == "publish" else ():
                self.publishes[call.done["channel"], item["message"]].append(call)
        #: (channel, subscriber) -> its plain visits, each run of them without anything in between.
        self.runs: dict[tuple[str, str], list[list[Visit]]] = self._runs()

    # --- what is there -----------------------------------------------------------------------------------------------------

    def windows(self) -> list[tuple[int, int]]:
        """When faults were in force, or may still have shown, in monotonic ns; they begin early enough for what a restore may
        have undone."""
        found: dict[str, list[int]] = defaultdict(list)
        for row in self.harness:
            if row["kind"] == "fault":
                found[row["fault"]].append(row["t_ns"])
        return [(min(times) - SAVED_SLACK_NS, max(times) + AFTER_FAULT_NS) for times in found.values()]

    def killed(self) -> set[str]:
        """Names of the processes that were killed."""
        return {row["target"] for row in self.harness if row["kind"] == "fault" and row["name"] in KILLS}

    def stretch(self, sizes: Iterable[Callable[[Visit], bool]], *, last: bool = False, shared: bool = False) -> list[Visit]:
        """Visits that follow each other, one for each condition, on a channel that no other edit has.

        `last`: the final ones of their subscriber; `shared`: on a channel with several subscribers, else with one alone. Raises
        JudgeError when there are none.
        """
        wanted = list(sizes)
        for channel, subscriber in self.draw.sample(sorted(self.runs), len(self.runs)):
            if channel in self.taken or shared != (len(self.subscribers(channel)) > 1):
                continue
            for visits in self.runs[channel, subscriber]:
                places = range(len(visits) - len(wanted), -1, -1)
                for place in [place for place in places if not last or self.is_last(visits[-1])][: 1 if last else None]:
                    found = visits[place : place + len(wanted)]
                    if all(fits(visit) for fits, visit in zip(wanted, found, strict=True)):
                        self.taken.add(channel)
                        return found
        raise JudgeError("the run has too few deliveries without faults around them: record a longer one")

    def visit(self, fits: Callable[[Visit], bool] = lambda visit: len(visit.items) == 1, **more: bool) -> Visit:
        """One visit, of one message where nothing else is wanted."""
        return self.stretch([fits], **more)[0]

    def channel_with(self, wanted: Callable[[str], bool]) -> str:
        """A channel that no other edit has. Raises JudgeError when there is none."""
        names = [str(entry["name"]) for entry in self.spec["channels"]]
        for name in self.draw.sample(names, len(names)):
            if name not in self.taken and wanted(name):
                self.taken.add(name)
                return name
        raise JudgeError("the run has no such channel: record a longer one")

    def entry(self, channel: str) -> Row:
        """A channel's entry in the spec."""
        return next(entry for entry in self.spec["channels"] if entry["name"] == channel)

    def subscribers(self, channel: str) -> list[str]:
        """Names of a channel's subscribers."""
        return list(self.entry(channel)["subscribers"])

    def of(self, channel: str, f: str = "") -> list[Call]:
        """The answered calls on a channel, in the order of their answers."""
        return [call for call in self.calls if call.done["channel"] == channel and f in ("", call.done["f"])]

    def published(self, visit: Visit, position: int = 0) -> Call:
        """The publish of a message of a visit."""
        return self.publishes[visit.channel, visit.items[position]["message"]][0]

    def is_last(self, visit: Visit) -> bool:
        """True when nothing was delivered to its subscriber afterwards."""
        done_ns = visit.fetch.done["done_ns"]
        later = (call for call in self.of(visit.channel, "fetch") if call.done["done_ns"] > done_ns and call.done["items"])
        return not any(call.done["subscriber"] == visit.subscriber for call in later)

    # --- edits -------------------------------------------------------------------------------------------------------------

    def drop(self, file: str, *rows: Row) -> None:
        """Take whole rows out of a file."""
        gone = {id(row) for row in rows}
        self.files[file] = [row for row in self.files[file] if id(row) not in gone]

    def drop_call(self, call: Call) -> None:
        """Take both rows of a call out."""
        self.drop(call.file, *call.both)

    def drop_handed(self, visit: Visit) -> None:
        """Take out what the caller wrote."""
        self.drop(f"{visit.proc}.sink.jsonl", visit.handed)

    def renumber(self, channel: str, clock_of: Callable[[int], int]) -> None:
        """Give every clock of a channel another value, wherever it occurs."""
        for rows in self.files.values():
            for row in rows:
                if row.get("channel") != channel:
                    continue
                for part in (row, *(row.get("items") or ())):
                    part.update({name: clock_of(part[name]) for name in CLOCKS_OF_ROWS if part.get(name) is not None})

    def insert(self, proc: str, like: Row, f: str, begin_ns: int, end_ns: int, **columns: Any) -> None:
        """Add an answered call between two instants, in the manner of another one of the same subscriber."""
        number = next(self._numbers)
        left_out = ("most", "waited_ms", "upto", "lost", "more", "result")
        kept = {name: value for name, value in like.items() if f == like["f"] or name not in left_out}
        answer = {**kept, "f": f, "proc": proc, "op": f"{proc}-corrupt-{number}", "call": f"{proc}-corrupt-{number}", "items": []}
        times = {"first_send_ns": begin_ns, "last_send_ns": begin_ns, "done_ns": end_ns}
        answer |= {"type": "ok", "t_ns": end_ns, "sends": 1, "errors": [], **times, **columns}
        invoke = {name: answer[name] for name in ("kind", "f", "op", "call", "channel", "subscriber", "first_send_ns")}
        self.add(proc, {**invoke, "type": "invoke", "t_ns": begin_ns, "items": []})
        self.add(proc, answer)

    def made_anew(self, visit: Visit, begin_ns: int, end_ns: int, clock: int) -> None:
        """Let the subscriber of a visit be deleted and created again between two instants, at this clock."""
        step, like = (end_ns - begin_ns) // 4, visit.fetch.done
        self.insert(visit.proc, like, "unsubscribe", begin_ns, begin_ns + step, result="deleted")
        told = {"result": "created", "clock": clock, "cursor": clock}
        self.insert(visit.proc, like, "subscribe", begin_ns + 2 * step, begin_ns + 3 * step, **told)

    # --- reading -----------------------------------------------------------------------------------------------------------

    def _calls(self) -> list[Call]:
        """Every answered call on a channel."""
        found: list[Call] = []
        for name, rows in self.files.items():
            sent = {row["op"]: row for row in rows if row.get("type") == "invoke" and row.get("channel")}
            found += [Call(name, sent[row["op"]], row) for row in rows if row.get("type") == "ok" and row.get("channel")]
        return sorted(found, key=lambda call: call.done["done_ns"])

    def _runs(self) -> dict[tuple[str, str], list[list[Visit]]]:
        """The plain visits of every subscriber that is not slow by plan, in runs without another delivery in between."""
        times = Counter(
            (call.done["channel"], call.done["subscriber"], item["message"])
            for call in self.calls
            if call.done["f"] == "fetch"
            for item in call.done["items"]
            if item.get("message")
        )
        slow = {(str(entry["name"]), one) for entry in self.spec["channels"] for one in entry["slow"]}
        hands: dict[tuple[str, str, str], Row] = {}
        for rows in self.files.values():
            for row in rows:
                for item in row["items"] if row["kind"] == "handed" else ():
                    hands[row["channel"], row["subscriber"], item["message"]] = row
        by_reader: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in self.calls:
            place = call.done["channel"], call.done.get("subscriber") or ""
            if place not in slow and (call.done["f"] == "acknowledge" or (call.done["f"] == "fetch" and call.done["items"])):
                by_reader[place].append(call)
        windows, killed = self.windows(), self.killed()

        def plain(visit: Visit) -> bool:
            rows = [visit.fetch.sent, visit.acknowledge.done]
            for item in visit.items:
                publishes = self.publishes.get((visit.channel, item.get("message", "")), [])
                if len(publishes) != 1 or times[visit.channel, visit.subscriber, item["message"]] != 1:
                    return False
                rows += publishes[0].both
                if publishes[0].done["sends"] != 1 or any(one["result"] != "created" for one in publishes[0].done["items"]):
                    return False
            once = visit.fetch.done["sends"] == visit.acknowledge.done["sends"] == 1
            same = [item["message"] for item in visit.items] == [item["message"] for item in visit.hands]
            calm = not any(begin <= row["t_ns"] <= end for row in rows for begin, end in windows)
            whole = visit.acknowledge.done["result"] == "OK" and visit.acknowledge.done["clock"] == visit.clock
            return once and same and calm and whole and visit.proc not in killed

        found: dict[tuple[str, str], list[list[Visit]]] = {}
        for place, calls in by_reader.items():
            runs: list[list[Visit]] = [[]]
            for fetch, acknowledge in pairwise(calls):
                if fetch.done["f"] != "fetch":
                    continue
                row = hands.get((*place, fetch.done["items"][0].get("message", "")))
                visit = Visit(*place, fetch.done["proc"], fetch, row, acknowledge) if row is not None else None
                if visit is not None and acknowledge.done["f"] == "acknowledge" and plain(visit):
                    runs[-1].append(visit)
                else:
                    runs.append([])
            if any(runs):
                found[place] = list(filter(None, runs))
        return found


def after(clock: int, other: int) -> bool:
    """True when a clock comes after another one."""
    return 0 < distance(other, clock) <= CLOCK_MAX


def ahead(clock: int, steps: int) -> int:
    """The clock that comes so many steps later."""
    return (clock + steps + CLOCK_MAX) % CLOCKS - CLOCK_MAX
