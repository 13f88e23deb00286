"""H2: each planned fault hit the engine at work: the situation that it should provoke occurred at least once. Else the run
proves nothing about the fault and is unknown. Kinds of fault that are not in the plan are not required.

| fault | what must have happened |
|---|---|
| worker-kill | a job that the killed worker had leased ran elsewhere |
| worker-freeze | a finish of a lease that had expired during the freeze was refused |
| lease-expired | the end of a lease that it had ended was refused |
| worker-oom | as after worker-kill |
| net-latency | a renewal was sent and answered while the network was slow, and took at least the added latency |
| net-reply-lost | an enqueue, a claim and a finish were each answered by a repeat |
| net-down, dns-change | a process that was cut off connected again and had a call answered |
| server-kill, server-restart, snapshot-restore, clients-killed, worker-cut | a process connected again and had a call answered |
| memory-full | a call was refused for want of memory |
| script-busy, scripts-flushed | a call was refused because the server was busy, or did not know the script |

Runs of channels: `reports.channels.coverage`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.channels import coverage
from reports.channels.frames import ChannelFrames
from reports.checks.base import Check, Flag, sentence, token
from reports.checks.j1_no_overlap import EXPIRED
from reports.facts import KILLS, MS, SLOT_NS, Run
from reports.file_facts import ObservedCall
from reports.frames import Frames
from reports.windows import Window, processes_hit, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Latency in ms that a slow network adds to a call: 50 in each direction, less a tenth for the inaccuracy of the timers.
SLOW_MS = 90


#: True when a call belongs to the window of a fault.
Fits = Callable[[ObservedCall, Window], bool]


def after(call: ObservedCall, window: Window) -> bool:
    """True when the call was answered after the heal and before the next fault."""
    return window.heal_ns <= call.done_ns <= window.next_ns


def inside(call: ObservedCall, window: Window) -> bool:
    """True when the call was sent and answered while the fault was in force."""
    return window.inject_ns <= call.first_send_ns and call.done_ns <= window.heal_ns


def slow(call: ObservedCall, window: Window) -> bool:
    """True when the call was sent and answered while the network was slow, and took at least the added latency."""
    return inside(call, window) and call.took_ns >= SLOW_MS * MS


def across(call: ObservedCall, window: Window) -> bool:
    """True when the call was in flight at some time while the fault was in force."""
    return call.first_send_ns <= window.heal_ns and window.inject_ns <= call.done_ns <= window.next_ns


#: Kind of fault -> the calls that it must have provoked, each from at least one process that it hits.
WANTED: dict[str, tuple[tuple[str, Fits, str], ...]] = {
    "worker-freeze": (("finish stale", after, "no finish of a zombie was refused"),),
    "net-latency": (("extend ok", slow, "no renewal was sent and answered while the network was slow"),),
    "net-reply-lost": (
        ("enqueue repeated", across, "no enqueue was answered by a repeat"),
        ("claim repeated", across, "no claim was answered by a repeat"),
        ("finish repeated", across, "no finish was answered by a repeat"),
    ),
}


#: The same where the load does not matter.
REFUSED: dict[str, tuple[tuple[str, Fits, str], ...]] = {
    "memory-full": (("refused OOM", across, "no call was refused for want of memory"),),
    "script-busy": (("refused BUSY", across, "no call was refused because the server was busy"),),
    "scripts-flushed": (("refused NOSCRIPT", across, "no call was refused because its script was not there"),),
}

#: Faults after which processes connect again: after the heal, or, where a server threw them out, also before it.
CUT = ("net-down", "dns-change")
THROWN_OUT = ("server-kill", "server-restart", "snapshot-restore", "clients-killed", "worker-cut")


def doubts(run: Run) -> list[str]:
    """The required effects of the planned faults that did not occur."""
    found = coverage.doubts(run) if run.of_channels else list[str]()
    by_fault = {window.fault: window for window in windows(run)}
    killed = {kill.fault for kill in run.kills}
    for entry in run.plan:
        fault, name, window = str(entry.get("fault")), str(entry.get("name")), by_fault.get(str(entry.get("fault")))
        for what, fits, words in (*(() if run.of_channels else WANTED.get(name, ())), *REFUSED.get(name, ())):
            if window is None or not any(fits(call, window) for call in done(run, what, window)):
                found.append(f"{fault}: {words}")
        if name in (*CUT, *THROWN_OUT) and (
            window is None or not any(came_back(run, target, window) for target in processes_hit(run, window))
        ):
            found.append(f"{fault}: no process that was cut off connected again and was answered")
        if name in KILLS and fault not in killed:
            found.append(f"{fault}: {UNSEEN if run.of_channels else NOTHING_RAN}")
    return found


def done(run: Run, what: str, window: Window) -> list[ObservedCall]:
    """The observed calls of one kind from all processes that a fault hits."""
    files = [file for target in processes_hit(run, window) for file in run.files_of(target)]
    return [call for file in files for call in file.observed_calls if call.what == what]


def came_back(run: Run, process: str, window: Window) -> bool:
    """True when a process connected again, and was answered in a time slot after the heal."""
    first, last = window.heal_ns // SLOT_NS, window.next_ns // SLOT_NS
    since_ns = window.inject_ns if window.name in THROWN_OUT else window.heal_ns
    for file in run.files_of(process):
        connected = any(since_ns <= at_ns <= window.next_ns for at_ns in file.connected_ns)
        if connected and any(first < slot <= last for slot in file.answered_slots):
            return True
    return False


NOTHING_RAN = "no job in hand ran elsewhere"
UNSEEN = "no kill was seen"


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Kills after which none of the leased jobs ran elsewhere, and leases that were ended and that nobody was refused."""
    return [*idle_kills(frames), *unrefused(frames)]


def unrefused(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Faults that ended leases, of none of which an end was refused."""
    ended = {str(entry.get("fault")): list[str]() for entry in frames.run.plan if entry.get("name") == EXPIRED}
    if not ended:
        return []
    for stage in frames.run.stages:
        if stage.fault in ended:
            ended[stage.fault] += stage.leases
    shown = F.when(F.col("refused"), F.concat_ws(" ", "job", token()))
    refused = frames.eventful.tokens.agg(F.collect_set(shown).alias("refused"))
    faults = F.array(
        *(
            F.struct(F.lit(fault).alias("fault"), F.array(*map(F.lit, leases)).cast("array<string>").alias("leases"))
            for fault, leases in ended.items()
        )
    )
    each = refused.select("refused", F.explode(faults).alias("of")).select("refused", "of.*")
    met = F.arrays_overlap("refused", "leases")
    words = sentence("proves nothing: no end of a lease that it had ended was refused")
    return [(each, Flag("idle strike", ~met, words, absence=True, level="unknown", subject="fault"))]


def idle_kills(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Kills after which none of the leased jobs ran elsewhere."""
    kills = frames.run.kills
    if not kills:
        return []
    ran_on = F.when(F.col("recovery_ns").isNotNull() & ~F.col("ended"), F.col("fault"))
    hit = frames.in_hand.agg(F.collect_set(ran_on).alias("hit"))
    faults = F.array(*(F.lit(kill.fault) for kill in kills))
    missed = hit.select(F.explode(F.array_except(faults, "hit")).alias("fault"))
    words = sentence(f"proves nothing: {NOTHING_RAN}")
    return [(missed, Flag("idle kill", F.lit(True), words, absence=True, level="unknown", subject="fault"))]


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """The required situations of a channel run that did not occur."""
    unseen = Flag("uncovered", F.lit(True), F.col("words"), absence=False, level="unknown", subject="who")
    return [(frame, unseen) for frame in coverage.unmet(frames)]


CHECK = Check("H2", "every fault met the engine at work", doubts, more=more, channels=channels)
