"""H0: the history is whole. Every conclusion that a check draws from a missing row depends on it.

Exactly the files of the manifest exist; their rows are numbered from 0 without gaps; the first row opens the file and the last
closes it with the right number of rows. A killed process need not close its file or complete its last line (rule 32), but its
rows up to the kill must be there. The clock of each host is known (see `reports.hosts`), and all rows are of the run that the
spec describes. Finally the history must contain successful enqueues, claims and finishes, or there is nothing to judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.causes import Cause, Doubt
from reports.channels.frames import ChannelFrames
from reports.channels.plan import planned
from reports.channels.witness import MESSAGE, SAID_SINCE, cut_off, paired
from reports.channels.witness import sinks as sinks_of_channels
from reports.checks.base import Check, Flag, sentence, token
from reports.facts import MS, Run
from reports.file_facts import FileFacts
from reports.frames import Frames
from reports.windows import of_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST = "manifest.jsonl"

#: A worker writes a row at least once per sweep, so a killed worker's last row is at most a sweep plus this before the kill.
TAIL_MS = 2_000

#: The deadline snapshot may be taken up to this much late.
SNAPSHOT_LATE_MS = 5_000

#: Operations that must have succeeded in a run: the flag of `FileFacts`, and the reason to give when no file has it.
OF_JOBS = {"created": "no enqueue", "leased": "no claim", "finished": "no finish"}
OF_CHANNELS = {"published": "no publish", "fetched": "no fetch that brought a message", "acknowledged": "no acknowledgement"}

#: Name prefixes of faults that do not make the server begin a new era.
CLIENTS = ("worker-", "producer-", "app-", "subscriber-", "net-")


def doubts(run: Run) -> list[str]:
    """All reasons not to trust the history."""
    return holes(run) + idle(run)


def holes(run: Run) -> list[str]:
    """Rows that are missing, unreadable or of another run. With any of these, the absence of a row proves nothing."""
    return lost_rows(run) + contradictions(run) + misplaced_snapshots(run)


def lost_rows(run: Run) -> list[str]:
    """Rows that are missing or unreadable, and so may hide a violation."""
    declared = {process.file for process in run.processes} | {MANIFEST}
    found = [] if MANIFEST in run.files else [f"history file {MANIFEST} is missing"]
    found += [
        f"history file {name} is declared in the manifest and missing" for name in sorted(declared - set(run.files) - {MANIFEST})
    ]
    if MANIFEST in run.files:
        found += [f"history file {name} is not declared in the manifest" for name in sorted(set(run.files) - declared)]
    excused = {process.file for process in run.processes if process.name in run.killed}
    for file in run.files.values():
        found += file_holes(file, killed=file.name in excused)
    return found + [host.trouble for host in run.hosts if host.trouble] + cut_tails(run)


def cut_tails(run: Run) -> list[str]:
    """Files of killed processes that end too long before the kill: rows that were written are missing."""
    bound_ms = TAIL_MS + run.sweep_ms
    found: list[str] = []
    for kill in run.kills:
        names = {process.file for process in run.processes if process.name == kill.target and process.role == "worker"}
        for file in run.files_of(kill.target):
            if file.name in names and file.last_ns is not None and kill.inject_ns - file.last_ns > bound_ms * MS:
                early_ms = (kill.inject_ns - file.last_ns) // MS
                found.append(
                    f"history file {file.name} ends {early_ms} ms before {kill.fault}, more than {bound_ms} ms: rows are missing"
                )
    return found


def contradictions(run: Run) -> list[str]:
    """Rows that do not fit the run that the spec describes."""
    found = [f"claims asked for a lease of {lease} ms, the spec says {run.lease_ms} ms" for lease in other_leases(run)]
    enqueues_ns = [file.enqueue_first_ns for file in run.files.values() if file.enqueue_first_ns is not None]
    planned = run.spec.get("workers")
    if enqueues_ns and planned is not None:
        workers = [process for process in run.processes if process.role == "worker" and not process.in_locust]
        started = sum(process.t_ns < min(enqueues_ns) for process in workers)
        if started != planned:
            found.append(f"{started} workers were started before the first enqueue, the spec says {planned}")
    found += missing_consumers(run)
    if len(run.replids) > 1 and not of_cluster(run) and all(str(entry.get("name")).startswith(CLIENTS) for entry in run.plan):
        found.append(f"the server had {len(run.replids)} eras, and no fault of it was planned")
    return found


def missing_consumers(run: Run) -> list[str]:
    """Fewer or more workers inside Locust than the spec asks for. Older specs do not state a number."""
    planned = run.spec.get("consumers")
    names = {process.name for process in run.processes if process.role in ("worker", "subscriber") and process.in_locust}
    if planned is None or len(names) == planned:
        return []
    return [f"{len(names)} consumers inside Locust were started, the spec says {planned}"]


def other_leases(run: Run) -> list[int]:
    """Lease durations of claims, in ms, that differ from the spec."""
    # Of a service each kind of worker may have a lease of its own.
    return sorted(run.leases_ms - {run.lease_ms, *(run.spec.get("leases_ms") or ())})


def misplaced_snapshots(run: Run) -> list[str]:
    """Snapshots at the wrong time: the deadline snapshot too late, the end snapshot before it or before the last enqueue."""
    found: list[str] = []
    deadline, end, heal_ns = run.snapshots.get("deadline"), run.snapshots.get("end"), run.last_heal_ns
    latest_ms = run.liveness_ms + SNAPSHOT_LATE_MS
    if deadline is not None and heal_ns is not None and deadline.t_ns - heal_ns > latest_ms * MS:
        waited_ms = (deadline.t_ns - heal_ns) // MS
        words = f"the snapshot at the deadline was taken {waited_ms} ms after the last heal, not within {latest_ms} ms"
        found.append(Doubt(words, Cause.SLOW))
    if deadline is not None and end is not None and end.t_ns < deadline.t_ns:
        found.append(f"the snapshot at the end was taken {(deadline.t_ns - end.t_ns) // MS} ms before the one at the deadline")
    enqueues_ns = [file.enqueue_last_ns for file in run.files.values() if file.enqueue_last_ns is not None]
    if end is not None and enqueues_ns and end.t_ns < max(enqueues_ns):
        found.append(f"jobs were enqueued until {(max(enqueues_ns) - end.t_ns) // MS} ms after the snapshot at the end")
    return found


def file_holes(file: FileFacts, *, killed: bool) -> list[str]:
    """What is wrong with one file."""
    name, found = f"history file {file.name}", list[str]()
    corrupt = file.corrupt - (file.torn_corrupt and killed)
    if corrupt > 0:
        found.append(f"{name} has {corrupt} corrupt {'line' if corrupt == 1 else 'lines'}")
    if file.torn and not killed:
        found.append(f"{name} ends in mid-line, and its process was not killed")
    rows = file.rows - file.corrupt
    if rows <= 0:
        return found or [f"{name} is empty"]
    if not found and not numbered(file, rows):
        found.append(f"{name} has {rows} rows numbered {file.seq_min} to {file.seq_max}: rows are missing")
    if not file.opens_first:
        found.append(f"{name} does not start with its open row")
    if file.close_rows is None:
        if not killed:
            found.append(f"{name} has no close row, and its process was not killed")
    elif not file.closes_last:
        found.append(f"{name} has rows after its close row")
    elif file.close_rows != rows and not found:
        found.append(f"{name} has {rows} rows, its close row says {file.close_rows}")
    lacks = (
        (file.nameless, "operation rows without f, op or a known type"),
        (file.bootless, "open rows without a boot id"),
        (file.timeless, "final rows without the server's time"),
        (file.tokenless, "rows about leases without a fence or a nonce"),
    )
    found += [f"{name} has {count} {words}" for count, words in lacks if count]
    unknown = (("rows of kind", file.unknown_kinds), ("operations named", file.unknown_operations))
    return found + [f"{name} has {words} {', '.join(names)}, which nobody knows" for words, names in unknown if names]


def numbered(file: FileFacts, rows: int) -> bool:
    """True when each number from 0 on occurs once: a lost line whose place a duplicate took changes one of the sums."""
    sums = (rows * (rows - 1) // 2, (rows - 1) * rows * (2 * rows - 1) // 6)
    return (file.seq_min, file.seq_max) == (0, rows - 1) and (file.seq_sum, file.seq_square_sum) == sums


def idle(run: Run) -> list[str]:
    """Operations that never succeeded: a run in which nothing happened must not pass."""
    if not any(file.operations for file in run.files.values()):
        return ["the history holds no operation"]
    wanted = OF_CHANNELS if run.of_channels else OF_JOBS
    return [f"{words} ever succeeded" for flag, words in wanted.items() if not run.has(flag)] + untold_ends(run)


def untold_ends(run: Run) -> list[str]:
    """Channels of the spec that the snapshot at the end does not contain."""
    end = run.snapshots.get("end")
    listed = end.states if end else {}
    return (
        [f"no snapshot at the end tells of channel {name}" for name in planned(run) if name not in listed]
        if run.of_channels
        else []
    )


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Missing rows of killed processes, found by comparing single operations with rows of other processes."""
    found = list[tuple["DataFrame", Flag]]()
    if any(kill.leases for kill in frames.run.kills):
        found.append(lost_claims(frames))
    sinks = {process.name for process in frames.run.processes if process.role == "sink"}
    if killed := sorted(frames.run.killed & sinks):
        found.append(lost_effects(frames, killed))
    return found


def lost_claims(frames: Frames) -> tuple[DataFrame, Flag]:
    """Leases that the harness saw the killed process hold, but whose claims are missing from that process's own rows.

    A leased job may still have been queued inside the worker, but a kill interrupts at least one handler, so the history must
    show at least one handler start.
    """
    shown = F.concat_ws(" ", "job", token())
    tests = list[tuple[str, str, str]]()
    for kill in frames.run.kills:
        tests += [(lease, kill.target, kill.fault) for lease in kill.leases]
    expected = F.array(
        *(
            F.struct(F.lit(lease).alias("lease"), F.lit(who).alias("proc"), F.lit(fault).alias("fault"))
            for lease, who, fault in tests
        )
    )
    own = frames.tokens.where(F.col("claim_done_ns").isNotNull() & shown.isin([lease for lease, *_ in tests]))
    seen = own.agg(
        F.collect_set(F.concat_ws("@", shown, "proc")).alias("claimed"),
        F.collect_set(F.when(F.col("start_ns").isNotNull(), F.concat_ws("@", shown, "proc"))).alias("started"),
    )
    one = seen.select("claimed", "started", F.explode(expected).alias("expected")).select("claimed", "started", "expected.*")
    mark = F.concat_ws("@", "lease", "proc")
    some = F.max(F.array_contains("started", mark))
    per_kill = one.groupBy("fault", "proc").agg(
        F.count_if(~F.array_contains("claimed", mark)).alias("lost"), some.alias("started"), F.count("*").alias("held")
    )
    words = F.when(
        F.col("lost") > 0,
        sentence(
            "left ", F.col("held"), " jobs in hand, and the history of ", F.col("proc"), " lacks the claims of ", F.col("lost")
        ),
    ).otherwise(sentence("cut handlers off, and the history of ", F.col("proc"), " shows no start of one"))
    hole = (F.col("lost") > 0) | ~F.col("started")
    return per_kill, Flag("lost claim", hole, words, absence=False, level="unknown", subject="fault")


def lost_effects(frames: Frames, killed: list[str]) -> tuple[DataFrame, Flag]:
    """Handlers of a killed process that returned without an effect in its sink, though the sink is written before they
    return."""
    own = frames.eventful.events.where(F.col("proc").isin(killed) & F.col("fence").isNotNull())
    handled = (F.col("f") == "handle") & (F.col("type") == "ok")
    runs = own.groupBy("job", "fence", "nonce", "proc").agg(
        F.count_if(handled).alias("handled"), F.count_if(F.col("kind") == "effect").alias("effects")
    )
    words = sentence("was handled by ", F.col("proc"), ", which was killed later, and its sink lacks the effect")
    hole = (F.col("handled") > 0) & (F.col("effects") == 0)
    return runs, Flag("lost effect", hole, words, absence=False, level="unknown")


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Messages that a killed subscriber had acknowledged, though its second witness, which is written before that, lacks them."""
    run = frames.run
    if run.version < SAID_SINCE or not run.killed.intersection(sinks_of_channels(run)):
        return []
    last = paired(frames).where((F.col("turn") == MESSAGE) & cut_off(run) & F.col("proc").isin(sorted(run.killed)))
    words = sentence(
        "got ", F.col("message"), " and acknowledged it in ", F.col("proc"), ", which was killed later, and its sink lacks it"
    )
    lost = Flag("lost handing", F.col("acked_later"), words, absence=False, level="unknown", subject="who")
    return [(last.withColumn("who", F.concat_ws("/", "channel", "subscriber")), lost)]


CHECK = Check("H0", "the history is whole", doubts, more=more, channels=channels)
