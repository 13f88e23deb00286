"""Corruptions of the evidence itself: rows, files and faults that are missing or that contradict each other."""

from __future__ import annotations

from collections.abc import Callable

from reports.corrupt.channel_history import ChannelHistory
from reports.corrupt.history import History
from reports.corrupt.kinds import CHANNEL_UNSEEABLE, channel_kind, kind
from reports.facts import MS


@kind("H0", apart=True)
def row_lost(history: History) -> None:
    """A line in the middle of a file is gone, and the numbers after it are as they were."""
    history.gaps["worker-1.jsonl"] = len(history.files["worker-1.jsonl"]) // 2


@kind("H0", apart=True)
def close_row_lost(history: History) -> None:
    """A process that nobody killed did not close its file."""
    history.files["worker-1.jsonl"].pop()


@kind("H0", apart=True)
def file_lost(history: History) -> None:
    """The file of a process is gone."""
    del history.files["worker-1.jsonl"]


@kind("H0", apart=True)
def unknown_operation(history: History) -> None:
    """A row has an operation that the schema does not know."""
    row = next(row for row in history.files["worker-1.jsonl"] if row.get("f") == "mark" or row.get("f") == "extend")
    row["f"] = "touch"


def host_of_its_own(history: History, clock: Callable[[int, int, int], int]) -> str:
    """Let a worker have run on another host. `clock`: what its clock showed at an instant, and in the middle and at the begin of
    its file."""
    proc = history.workers()[0]
    times_ns = [row["t_ns"] for row in history.files[f"{proc}.jsonl"]]
    begin_ns, middle_ns = min(times_ns), (min(times_ns) + max(times_ns)) // 2
    history.on_another_host(proc, lambda at_ns: clock(at_ns, middle_ns, begin_ns))
    return proc


@kind("H0", apart=True)
def clock_of_a_host_jumps(history: History) -> None:
    """The clock of a worker's host jumps 2 s ahead in mid-run, as that of a machine that was moved."""
    host_of_its_own(history, lambda at_ns, middle_ns, _: at_ns + 2_000 * MS * (at_ns >= middle_ns))


@kind("H0", apart=True)
def clock_of_a_host_runs_fast(history: History) -> None:
    """The clock of a worker's host gains 10 ms a second."""
    host_of_its_own(history, lambda at_ns, _, begin_ns: at_ns + (at_ns - begin_ns) // 100)


@kind("H0", apart=True)
def clock_of_a_host_never_measured(history: History) -> None:
    """A worker ran on another host, whose clock nothing compares with the harness's."""
    proc = host_of_its_own(history, lambda at_ns, *_: at_ns)
    history.files[f"{proc}.jsonl"] = [row for row in history.files[f"{proc}.jsonl"] if row["kind"] != "offset"]


@kind("H1", apart=True)
def fault_without_a_witness(history: History) -> None:
    """Nobody saw a fault take effect."""
    next(row for row in history.harness if row["kind"] == "fault" and row["stage"] == "witness")["result"] = "missing"


@kind("H1", apart=True)
def fault_never_injected(history: History) -> None:
    """A planned fault did not happen."""
    fault = history.spec["plan"][-1]["fault"]
    history.files["harness.jsonl"] = [row for row in history.harness if row.get("fault") != fault]


@kind("H3", apart=True)
def reply_before_its_request(history: History) -> None:
    """A call was answered before it was sent."""
    row = next(row for row in history.files["worker-1.jsonl"] if row.get("f") == "extend" and row.get("type") == "ok")
    row["done_ns"] = row["first_send_ns"] - MS


@kind("H3", apart=True)
def load_that_lags_behind(history: History) -> None:
    """The load was sent seconds after it was meant to be."""
    for row in history.files["producer-1.jsonl"]:
        if row.get("intended_ns"):
            row["intended_ns"] -= 3_000 * MS


@kind("J24", apart=True)
def acknowledged_finish_undone(history: History) -> str:
    """A server lost an accepted finish that it was not declared to lose, and handed the job out again."""
    history.spec["loss"] = []
    life = history.take()
    proc, at_ns = history.another(life.proc), life.finish.row["done_ns"] + 1_000 * MS
    connection = next(row for row in history.files[f"{proc}.jsonl"] if row["kind"] == "connection")
    history.add(proc, {**connection, "t_ns": at_ns - MS, "server_run_id": "after", "replid": "after"})
    history.claimed_again(life, proc, at_ns)
    return life.job


# Corruptions of the evidence of a channel run: rows, files and faults that are missing or that contradict
# each other; and what such a run cannot show.


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
