"""H3: the instruments are sound. The recorders wrote in order, and the load generator kept up with its schedule.

Every call has at most one completion; a killed process writes nothing after its death; the instants of a row are in order, and
so are the rows of a file. Latencies count from the intended instant, so a late load generator would measure its own delay.
Hence there are bounds on the producers' send lag outside of faults (see `reports.catch_up`), on the jobs that they did not send
at all, and on the CPU of the processes inside Locust. Beyond a bound, or if an enqueue has no intended send time, the check is
unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.catch_up import lag_max_ms, late, spans
from reports.channels.frames import ChannelFrames
from reports.checks.base import Check, Flag, sentence
from reports.facts import LOAD, MS, SLOT_NS, Run, Usage
from reports.frames import Frames
from reports.samples import S
from reports.windows import SERVERS, Span, windows, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Bound of the share of the load that was not sent outside of faults; fewer jobs than DROPPED_MIN prove nothing.
DROPPED_MAX = 0.01
DROPPED_MIN = 10

#: Bound of the CPU of a process inside Locust: it can use one core, and its requests queue up when that core is nearly full.
#: Producers of 120 jobs/s took 6 to 12 % of it, and 36 % in their busiest five seconds.
CPU_MAX = 0.8

#: Looks at the clocks that are so far apart were not made in time. They come once a second, also on a busy machine.
LOOKS_APART_MS = 3_000

#: CPU is averaged over this many samples, which come once a second.
CPU_SAMPLES = 5

#: The processes of a run are starved when they wait for a core for this part of the time in which they could run: they have a
#: quarter of the processor time that they have work for. It was 0.4 in a drill on two cores beside work of idle priority, and
#: 0.75 beside ten busy processes. Of processes that hardly have work this says nothing: they must wait for half a core at least.
STARVED = 0.75
STARVED_MIN = 0.5

#: Outside of faults the load was late in so many slots of LATE_NS: 1 in 100 jobs of a minute. Unlike that part of a whole run it
#: is the same when the history is grown.
LATE_SLOTS = 3
LATE_NS = 60_000 * MS

#: A thread may take the instant of a row up to this many time slots before it writes the row.
SLOTS_BACK_MAX = 1


def doubts(run: Run) -> list[str]:
    """Killed processes that still write, rows in the wrong order, sends without an intended time, and a Locust that is too
    busy."""
    return living_dead(run) + out_of_order(run) + unintended(run) + busy(run)


def living_dead(run: Run) -> list[str]:
    """Killed processes that went on writing."""
    found: list[str] = []
    for kill in run.kills:
        for file in run.files_of(kill.target):
            if file.close_rows is not None:
                found.append(f"{kill.target} closed {file.name}, and {kill.fault} says that it was killed")
            elif file.last_ns is not None and file.last_ns > kill.witness_ns:
                after_ms = (file.last_ns - kill.witness_ns) // MS
                found.append(f"{kill.target} wrote to {file.name} {after_ms} ms after it was seen dead at {kill.fault}")
    return found


def out_of_order(run: Run) -> list[str]:
    """Files whose rows go back in time, or contradict themselves."""
    found: list[str] = []
    for file in run.files.values():
        owners = {process.name for process in run.processes if process.file == file.name}
        if file.slots_back > SLOTS_BACK_MAX + frozen_slots(run, owners):
            back_ms = file.slots_back * SLOT_NS // MS
            found.append(f"history file {file.name} goes back in time by about {back_ms} ms")
        if file.disordered:
            found.append(f"history file {file.name} has {file.disordered} operation rows whose instants are not in their order")
    return found


def unintended(run: Run) -> list[str]:
    """Producers with rows that lack an intended send time, so that their lag cannot be computed."""
    what = "publishes" if run.of_channels else "enqueues"
    return [
        f"{process.name} wrote {file.unintended} rows of {what} that do not say when they were meant to be sent"
        for process in run.processes
        if process.role in LOAD and (file := run.files.get(process.file)) and file.unintended
    ]


def frozen_slots(run: Run, owners: set[str]) -> int:
    """The longest freeze of one of the processes, in time slots: a row begun before a freeze is written after it."""
    spans_ns = [
        window.heal_ns - window.inject_ns
        for window in windows(run)
        if window.name == "worker-freeze" and owners.intersection(window.targets)
    ]
    return -(-max(spans_ns, default=0) // SLOT_NS)


def busy(run: Run) -> list[str]:
    """Processes inside Locust that exceeded the CPU bound under load, or that were not sampled under load."""
    sent_ns = [at for file in run.files.values() for at in (file.enqueue_first_ns, file.enqueue_last_ns) if at is not None]
    found: list[str] = []
    faults, away = spans(run), elsewhere(run)
    for name in dict.fromkeys(process.name for process in run.processes if process.in_locust and sent_ns):
        usages = [one for one in run.cpu.get(name, ()) if min(sent_ns) <= one.start_ns and one.end_ns <= max(sent_ns)]
        if not usages and name in away:
            continue
        share = busiest([one for one in usages if quiet(one, faults)] or usages)
        if share is None:
            found.append(f"the CPU of {name} was not sampled while there was load")
        elif share > CPU_MAX:
            found.append(f"{name} used {share:.0%} of a core, more than {CPU_MAX:.0%}: latencies may be its own")
    return found


def elsewhere(run: Run) -> list[str]:
    """Processes inside Locust on other hosts than the harness's, which can sample only those beside it."""
    files = {file for host in run.hosts[1:] for file in host.files}
    return sorted({process.name for process in run.processes if process.in_locust and process.file in files})


def not_judged(run: Run) -> list[str]:
    """The CPU of processes that nobody sampled, because they ran on other hosts: of these only the send lag shows that they kept
    up."""
    names = [name for name in elsewhere(run) if name not in run.cpu]
    return [f"the CPU of {', '.join(names)}, on other hosts"] if names else []


def quiet(usage: Usage, faults: Sequence[Span]) -> bool:
    """True when no fault overlaps the time between the two samples."""
    return all(usage.end_ns < from_ns or to_ns < usage.start_ns for from_ns, to_ns in faults)


def busiest(usages: list[Usage]) -> float | None:
    """The greatest mean share over `CPU_SAMPLES` usages in a row, or over all when there are fewer."""
    size = min(CPU_SAMPLES, len(usages))
    parts = [usages[at : at + size] for at in range(len(usages) - size + 1)]
    return max((sum(one.share for one in part) / size for part in parts), default=None) if size else None


def slow(run: Run) -> bool:
    """True when the machine was so slow, at some time, that what took long then says nothing of the engine; or when no samples
    came with the history, so that the processes may have had no core. None of it is less in a run that is longer."""
    return stood_still(run) or starved(run) or lagged(run) or unsampled(run)


def stood_still(run: Run) -> bool:
    """True when the harness, which looks at the clocks once a second, did not come to it for `LOOKS_APART_MS`, though no fault
    kept the server from answering: what takes long then says nothing of the engine. It is no doubt of the history."""
    most_ns = LOOKS_APART_MS * MS
    apart = [(before.t_ns, after.t_ns) for before, after in pairwise(run.clocks) if after.t_ns - before.t_ns >= most_ns]
    away = [(one.inject_ns, one.healed_ns + most_ns) for one in windows(run) if one.targets == (SERVERS,)]
    for since_ns, to_ns in apart:
        explained = [until_ns for from_ns, until_ns in away if from_ns <= to_ns and since_ns <= until_ns]
        if to_ns - max(explained, default=since_ns) >= most_ns:
            return True
    return False


def starved(run: Run) -> bool:
    """True when for `CPU_SAMPLES` seconds in a row, since the first enqueue, the processes of the run had so few turns on a core
    that what takes long then says nothing of the engine. It is no doubt of the history."""
    recent: deque[Usage] = deque()
    had = lacked = 0.0
    for usage in loaded(run):
        recent.append(usage)
        had, lacked = had + usage.share * usage.took_s, lacked + usage.waited * usage.took_s
        while recent[0].end_ns <= usage.end_ns - CPU_SAMPLES * S:
            over = recent.popleft()
            had, lacked = had - over.share * over.took_s, lacked - over.waited * over.took_s
        if lacked > max(STARVED * (had + lacked), STARVED_MIN * CPU_SAMPLES):
            return True
    return False


def unsampled(run: Run) -> bool:
    """True when there was load and no sample of any process: the samples were not kept with the history."""
    return any(file.enqueue_first_ns is not None for file in run.files.values()) and not loaded(run)


def loaded(run: Run) -> list[Usage]:
    """The CPU usage of all processes since the first enqueue, in the order of its ends."""
    since_ns = min((file.enqueue_first_ns for file in run.files.values() if file.enqueue_first_ns is not None), default=0)
    usages = [usage for usage in chain.from_iterable(run.cpu.values()) if usage.start_ns >= since_ns]
    return sorted(usages, key=attrgetter("end_ns"))


def lagged(run: Run) -> bool:
    """True when outside of faults the load was late, or not sent, in `LATE_SLOTS` slots of `LATE_NS`."""
    faults = spans(run)
    calm_ns = [at_ns for at_ns in late(run) if all(at_ns + SLOT_NS < from_ns or to_ns < at_ns for from_ns, to_ns in faults)]
    return any(last_ns - first_ns < LATE_NS for first_ns, last_ns in zip(calm_ns, calm_ns[LATE_SLOTS - 1 :], strict=False))


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Operations with two completions, the send lag, and jobs that were not sent."""
    return [answered_twice(frames), *late_load(calm_jobs(frames), frames.run, "jobs")]


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Operations with two completions, the send lag, and publishes that were not sent, of a channel run."""
    words = sentence("has two completions of operation ", F.col("op"))
    twice = Flag("two completions", F.col("answers") > 1, words, absence=False, level="unknown", subject="proc")
    publishes = frames.calls.where(F.col("f") == "publish").withColumn("enqueue_sent_ns", F.col("first_send_ns"))
    calm = publishes.where(~within(F.col("intended_ns"), spans(frames.run)))
    return [(frames.calls, twice), *late_load(calm, frames.run, "publishes")]


def late_load(calm: DataFrame, run: Run, what: str) -> list[tuple[DataFrame, Flag]]:
    """The send lag outside of faults, and the load that was not sent at all."""
    faults = spans(run)
    dropped = sum(drop.count for drop in run.drops if not any(begin <= drop.t_ns <= end for begin, end in faults))
    return [send_lag(calm, lag_max_ms(run)), *([not_sent(calm, dropped, what)] if dropped >= DROPPED_MIN else [])]


def answered_twice(frames: Frames) -> tuple[DataFrame, Flag]:
    """Operations with two completion rows. One row may name a job more than once, but not twice at the same position."""
    completed = frames.eventful.events.where((F.col("kind") == "operation") & (F.col("type") != "invoke"))
    answer = F.struct("type", "done_ns", "srv_us")
    both = completed.groupBy("job", "proc", "op").agg(
        F.min(answer).alias("first"),
        F.max(answer).alias("last"),
        F.count("*").alias("rows"),
        F.size(F.collect_set("position")).alias("places"),
    )
    words = sentence("has two completions of operation ", F.col("op"), " of ", F.col("proc"))
    twice = (F.col("first") != F.col("last")) | (F.col("rows") > F.col("places"))
    return both, Flag("two completions", twice, words, absence=False, level="unknown")


def send_lag(calm: DataFrame, max_ms: int) -> tuple[DataFrame, Flag]:
    """The 99th percentile of the producers' send lag outside of faults."""
    lag_ms = (F.col("enqueue_sent_ns") - F.col("intended_ns")) / MS
    lag = calm.agg(F.percentile(lag_ms, 0.99).alias("lag_ms")).withColumn("who", F.lit("the producers"))
    words = sentence("sent with a lag of ", F.round("lag_ms", 1), f" ms at p99 outside faults, more than {max_ms} ms")
    return lag, Flag("late load", F.col("lag_ms") > max_ms, words, absence=False, level="unknown", subject="who")


def not_sent(calm: DataFrame, dropped: int, what: str) -> tuple[DataFrame, Flag]:
    """The share of the offered load outside of faults that the producers did not send."""
    lost = F.lit(dropped)
    offered = F.col("sent") + lost
    sent = calm.agg(F.count("enqueue_sent_ns").alias("sent")).withColumn("who", F.lit("the producers"))
    words = sentence(f"did not send {dropped} of ", offered, f" {what} outside faults, more than {DROPPED_MAX:.0%}")
    return sent, Flag("dropped load", lost > DROPPED_MAX * offered, words, absence=False, level="unknown", subject="who")


def calm_jobs(frames: Frames) -> DataFrame:
    """The jobs that should have been sent outside of faults."""
    return frames.jobs.where(~within(F.col("intended_ns"), spans(frames.run)))


CHECK = Check("H3", "recorder and load are sound", doubts, more=more, channels=channels, not_judged=not_judged)
