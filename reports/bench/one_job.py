"""A history of which most rows are about one job: a handler runs from the first copy to the last, and its lease is renewed all
the time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from reports.bench.pattern import Moves, Pattern, compiled, joined
from reports.bench.recorded import MS, Recorded, Row, Window, dumped
from reports.errors import JudgeError

JOB = "one-job"
INCARNATION = "0123456789abcdef"

#: Rows of a plain job, before the copies and after them. An effect has no type.
FIRST = ("enqueue invoke", "enqueue ok", "claim invoke", "claim ok", "handle invoke")
LAST = ("effect", "handle ok", "finish invoke", "finish ok")

#: Columns that make a job a special one.
SPECIAL = ("unique", "needs", "wants", "holder", "schedule")

#: Copies that the job lives through, and rows in each, at least.
COPIES_MIN = 4
COPY_ROWS = 200_000

#: Between two calls of the job.
STEP_NS = MS // 4

#: From a renewal to its answer, and to the row of it.
ANSWER_NS = 20_000
WRITE_NS = 30_000

#: Lines of a copy and renewals are put in order in pieces of this length: rows of a file may be a little out of order.
PIECE_NS = 100 * MS

#: Stand for what does not move from copy to copy: the job with its token, and the number of a renewal in its copy.
TOKEN = b'"token":0'
NUMBER = b"NUMBER"


class OneJob:
    """The rows of that job, modelled on those of a plain one. `copies` of the span are needed for so many `rows`, if each has
    `copy_rows` without it. Raises JudgeError when the run has no plain job."""

    def __init__(self, recorded: Recorded, window: Window, rows: int, copy_rows: int) -> None:
        self.window = window
        self.like_job, self.like = plain_job(recorded, window)
        self.file, claim = self.like["claim ok"]
        self.lease_ms: int = claim["lease_ms"]
        self.copies = max(COPIES_MIN, rows // COPY_ROWS)
        self.renewals = max(1, (rows // self.copies - copy_rows) // 2)
        #: Server time in us at the monotonic instant 0.
        self.origin_us: int = claim["srv_us"] - claim["done_ns"] // 1_000
        begin_ns, end_ns = window.begin_ns, window.begin_ns + self.copies * window.length_ms * MS
        #: Operation -> when it was sent and answered.
        self.calls = {
            "enqueue": (begin_ns, begin_ns + STEP_NS),
            "claim": (begin_ns + 2 * STEP_NS, begin_ns + 3 * STEP_NS),
            "handle": (begin_ns + 4 * STEP_NS, end_ns - 3 * STEP_NS),
            "effect": (end_ns - 4 * STEP_NS, end_ns - 4 * STEP_NS),
            "finish": (end_ns - 2 * STEP_NS, end_ns - STEP_NS),
        }
        self.token: Row = {"fence": self.srv_us(self.calls["claim"][1]) // 1_000, "nonce": f"{INCARNATION}:1"}

    def srv_us(self, at_ns: Any) -> Any:
        """The server's time at an instant, or at many."""
        return self.origin_us + at_ns // 1_000

    def ends(self, name: str) -> tuple[list[bytes], list[bytes]]:
        """The lines of a file before the copies and after them."""
        here = [[self.line(label) for label in labels if self.like[label][0] == name] for labels in (FIRST, LAST)]
        return here[0], here[1]

    def line(self, label: str) -> bytes:
        """A line of the job that is not a renewal."""
        f, _, kind = label.partition(" ")
        row = dict(self.like[label][1])
        sent_ns, done_ns = self.calls[f]
        srv_us = self.srv_us(done_ns)
        told: Row = {
            "t_ns": sent_ns if kind == "invoke" else done_ns,
            "op": f"{JOB}-{f}",
            "call": f"{JOB}-{f}",
            "incarnation": INCARNATION,
            "counter": 1,
            "intended_ns": sent_ns,
            "first_send_ns": sent_ns,
            "last_send_ns": sent_ns,
            "done_ns": done_ns,
            "srv_us": srv_us,
        }
        of_job = {
            **self.token,
            "job": JOB,
            "enqueued_ms": self.srv_us(self.calls["enqueue"][1]) // 1_000,
            "deadline_ms": srv_us // 1_000 + self.lease_ms,
        }
        row.update({column: value for column, value in told.items() if column in row})
        if row["items"]:
            item = next(item for item in row["items"] if item["job"] == self.like_job)
            row["items"] = [item | {column: value for column, value in of_job.items() if column in item}]
        return dumped(row)

    def beside(self, lines: list[bytes]) -> Pattern:
        """The template of a copy of the worker's file, with the renewals between its lines."""
        begin_ns, length_ns = self.window.begin_ns, self.window.length_ms * MS
        end_ns = begin_ns + length_ns - 10 * STEP_NS
        spacing_ns = (end_ns - begin_ns) // (self.renewals + 1) // 1_000 * 1_000
        at_ns = begin_ns + 5 * STEP_NS + np.arange(self.renewals) * spacing_ns
        pieces: list[Pattern] = []
        times, done = [json.loads(line)["t_ns"] for line in lines], 0
        for from_ns in range(begin_ns, begin_ns + length_ns, PIECE_NS):
            to_ns = from_ns + PIECE_NS
            upto = next((at for at in range(done, len(times)) if times[at] >= to_ns), len(times))
            pieces.append(compiled(lines[done:upto], copies=True))
            pieces.append(self.renewed(at_ns[(at_ns >= from_ns) & (at_ns < to_ns)]))
            done = upto
        return joined(pieces)

    def renewed(self, at_ns: np.ndarray) -> Pattern:
        """Renewals of the lease that are sent at these instants."""
        if not len(at_ns):
            return compiled((), copies=True)
        sent_ns = int(at_ns[0])
        pair = compiled([dumped(row) for row in self.renewal(sent_ns)], copies=True)
        # Times grow from pair to pair; the server rounds its ms down.
        by_ns = at_ns - sent_ns
        answered_us = self.srv_us(at_ns + ANSWER_NS)
        grown = {Moves.NS: by_ns, Moves.US: by_ns // 1_000, Moves.MS: answered_us // 1_000 - answered_us[0] // 1_000}
        zero = np.zeros_like(at_ns)
        base = np.stack([value + grown.get(move, zero) for value, move in zip(pair.base, pair.moves, strict=True)], axis=1)
        token = b'"job":"%b","fence":%d,"nonce":"%b"' % (JOB.encode(), self.token["fence"], self.token["nonce"].encode())
        text = pair.text.replace(TOKEN, token)
        texts = [text.replace(NUMBER, b"%d" % number) for number in (at_ns - self.window.begin_ns) // 1_000]
        return Pattern(b"".join(texts), base.reshape(-1), np.tile(pair.moves, len(at_ns)), pair.rows * len(at_ns))

    def renewal(self, sent_ns: int) -> tuple[Row, Row]:
        """The rows of one renewal: sent, and answered."""
        claim = self.like["claim ok"][1]
        op = f"renewal-{NUMBER.decode()}"
        call = {
            "kind": "operation",
            "f": "extend",
            "op": f"{op}.0",
            "call": op,
            "queue": claim["queue"],
            "lease_ms": self.lease_ms,
        }
        start: Row = {"v": claim["v"], "seq": 0, "proc": claim["proc"]}
        token: Row = {"token": 0}
        done_ns = sent_ns + ANSWER_NS
        times = {"first_send_ns": sent_ns, "last_send_ns": sent_ns, "done_ns": done_ns, "sends": 1, "errors": []}
        told = {"result": "ok", "deadline_ms": self.srv_us(done_ns) // 1_000 + self.lease_ms}
        return (
            {**start, "t_ns": sent_ns, **call, "type": "invoke", "first_send_ns": sent_ns, "items": [token]},
            {
                **start,
                "t_ns": sent_ns + WRITE_NS,
                **call,
                "type": "ok",
                "result": "",
                **times,
                "srv_us": self.srv_us(done_ns),
                "items": [{**token, **told}],
            },
        )


def plain_job(recorded: Recorded, window: Window) -> tuple[str, dict[str, tuple[str, Row]]]:
    """A job of the span that went well and has no limit and nothing special: its id, and its rows with their files by label."""
    plain = {
        item["job"]
        for item in recorded.enqueued(window.jobs)
        if recorded.unlimited(item) and not any(item.get(name) for name in (*SPECIAL, "delay_ms"))
    }
    rows: dict[str, list[tuple[str, str, Row]]] = {job: [] for job in plain}
    sent: dict[str, tuple[str, Row]] = {}
    for name, line in recorded.job_lines():
        label = f"{line.row.get('f', line.row['kind'])} {line.row.get('type', '')}".strip()
        if label == "claim invoke":
            sent[line.row["op"]] = (name, line.row)
        for job in plain.intersection(line.jobs):
            rows[job].append((label, name, line.row))
    wanted = sorted({*FIRST, *LAST} - {"claim invoke"})
    for job, found in sorted(rows.items()):
        by_label = {label: (name, row) for label, name, row in found}
        if sorted(label for label, _, _ in found) == wanted and by_label["claim ok"][1]["op"] in sent:
            return job, {**by_label, "claim invoke": sent[by_label["claim ok"][1]["op"]]}
    raise JudgeError(f"{recorded.folder.name} has no plain job in its calm span")
