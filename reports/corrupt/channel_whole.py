"""Corruptions of the evidence of a channel run: rows, files and faults that are missing or that contradict each other; and what
such a run cannot show."""

from __future__ import annotations

from reports.corrupt.channel_history import ChannelHistory
from reports.corrupt.kinds import CHANNEL_UNSEEABLE, channel_kind
from reports.facts import MS

#: A process of subscribers that nobody kills: those inside Locust.
READERS = "consumer-1"


@channel_kind("H0", apart=True)
def row_of_a_subscriber_lost(history: ChannelHistory) -> None:
    """A line in the middle of a file is gone, and the numbers after it are as they were."""
    history.gaps[f"{READERS}.jsonl"] = len(history.files[f"{READERS}.jsonl"]) // 2


@channel_kind("H0", apart=True)
def file_of_a_witness_lost(history: ChannelHistory) -> None:
    """The file in which callers wrote what they got is gone."""
    del history.files[f"{READERS}.sink.jsonl"]


@channel_kind("H0", apart=True)
def end_of_a_channel_not_told(history: ChannelHistory) -> None:
    """The last look at the server does not tell of one of the channels."""
    name = history.spec["channels"][-1]["name"]
    history.files["harness.jsonl"] = [
        row for row in history.harness if not (row["kind"] == "final" and row.get("channel") == name)
    ]


@channel_kind("H0", apart=True)
def unknown_operation_on_a_channel(history: ChannelHistory) -> None:
    """A row has an operation that the schema does not know."""
    next(row for row in history.files[f"{READERS}.jsonl"] if row.get("f") == "subscribe")["f"] = "touch"


@channel_kind("H1", apart=True)
def network_fault_without_a_witness(history: ChannelHistory) -> None:
    """Nobody saw a fault of the network take effect."""
    rows = (row for row in history.harness if row.get("name") == "net-latency" and row.get("stage") == "witness")
    next(rows)["result"] = "missing"


@channel_kind("H1", apart=True)
def planned_fault_never_injected(history: ChannelHistory) -> None:
    """A planned fault did not happen."""
    fault = next(entry["fault"] for entry in history.spec["plan"] if entry["name"] == "server-restart")
    history.files["harness.jsonl"] = [row for row in history.harness if row.get("fault") != fault]


@channel_kind("H3", apart=True)
def publishes_that_lag_behind(history: ChannelHistory) -> None:
    """Messages were sent seconds after they were meant to be."""
    for row in history.files["publisher-1.jsonl"]:
        if row.get("intended_ns"):
            row["intended_ns"] -= 3_000 * MS


@channel_kind("H3", apart=True)
def answer_before_its_request(history: ChannelHistory) -> None:
    """A call was answered before it was sent."""
    row = next(row for row in history.files[f"{READERS}.jsonl"] if row.get("f") == "subscribe" and row.get("type") == "ok")
    row["done_ns"] = row["first_send_ns"] - MS


@channel_kind("H3", apart=True)
def answered_twice(history: ChannelHistory) -> None:
    """A call has two answers."""
    rows = history.files[f"{READERS}.jsonl"]
    place = next(at for at, row in enumerate(rows) if row.get("f") == "subscribe" and row.get("type") == "ok")
    rows.insert(place + 1, dict(rows[place]))


CHANNEL_UNSEEABLE.update(
    {
        "message-long-on-its-way": "no check bounds the time from a publish to its delivery; the table of latencies shows it",
        "receipt-forged-in-an-untried-way": "P6 sees only the kinds of bad receipts that the load hands in",
        "both-records-wrong-alike": "recorder and witness are in one process: what changes the bytes before both of them and "
        "the publisher's checksum alike leaves no trace",
        "unread-call-cut-off-by-a-kill": "a call that a kill interrupts leaves no row of what it would have returned",
        "message-kept-too-long": "nobody looks for a message after all have read it; only memory grows, which the samples show",
        "lost-before-its-first-answer": "a publish that was never answered may have happened or not",
        "clocks-reused-after-a-restore": "a restored server may give clocks of undone messages again: possible, not violated",
    }
)
