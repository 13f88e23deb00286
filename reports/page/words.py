"""The sentences of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Latency -> its title in a figure, in order of display.
LATENCY_TITLES = {
    "service": "Service: an enqueue, from its first send to its answer",
    "intended": "Intended: an enqueue, from when it should have been sent",
    "queue_delay": "Queue delay: from when a job was due to its claim",
    "end_to_end": "End to end: from when a job should have been sent (plus its delay) to its accepted finish",
}
LATENCY_NAMES = {"service": "service", "intended": "intended", "queue_delay": "queue delay", "end_to_end": "end to end"}

HEADLINES = {
    "valid": "Every check ran, had evidence, and found nothing wrong.",
    "violated": "The recorded history proves that a promise was broken.",
    "unknown": "The evidence does not suffice to decide. This is not a pass.",
}

#: Headline of a valid run in which declared findings were seen.
APART = "Every check ran, had evidence, and found nothing wrong apart from what the model declares."


def headline(decided: Mapping[str, Any]) -> str:
    """The meaning of the verdict, in one sentence."""
    verdict = str(decided["verdict"])
    return APART if verdict == "valid" and any(one["rows"] for one in decided["findings"]) else HEADLINES.get(verdict, "")


def objectives(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many service level objectives were missed, met, and cannot be judged, in one sentence, if there are any."""
    if not lines:
        return []
    counts = [(sum(line["result"] == result for line in lines), words) for result, words in OBJECTIVES.items()]
    told = ", ".join(f"{count} {words}" for count, words in counts if count)
    return [f"Service level objectives: {told}."]


#: Result of an objective -> its words.
OBJECTIVES = {"missed": "missed", "unknown": "cannot be judged", "met": "met"}


def story(decided: Mapping[str, Any]) -> list[str]:
    """The run in a few sentences: jobs lost and doubled, faults, recovery and latency."""
    measures = decided["measures"]
    sentences = [lost_and_doubled(measures), fate(measures), *faults(measures["faults"]), *recovery(measures["recovery"])]
    return [sentence for sentence in (*sentences, latency(measures)) if sentence]


def lost_and_doubled(measures: Mapping[str, Any]) -> str:
    """The numbers of enqueued, lost and doubled jobs, in one sentence."""
    enqueued = measures["enqueued"]
    told = [counted(measures["lost"], "lost"), counted(measures["doubled"], "finished twice")]
    head = "Of the jobs" if enqueued is None else f"Of {enqueued:,} jobs"
    return f"{head}, {told[0]} and {told[1]}."


def counted(count: int | None, what: str) -> str:
    """A count as text; for None, that it is not known."""
    if count is None:
        return f"it cannot be told how many were {what}"
    return {0: f"none was {what}", 1: f"one was {what}"}.get(count, f"{count:,} were {what}")


def fate(measures: Mapping[str, Any]) -> str:
    """The outcomes of the other jobs, in one sentence."""
    parts: list[str] = []
    if measures["finished"] is not None:
        parts.append(f"{measures['finished']:,} were finished")
    if measures["dead"]:
        parts.append(f"{measures['dead']:,} used up their attempts and were kept among the dead, with the reason")
    if measures["refused_stale"]:
        parts.append(
            f"{measures['refused_stale']:,} late finishes by workers that had lost their lease were refused, as they must be"
        )
    if measures["dropped"]:
        parts.append(f"{measures['dropped']:,} could not be sent in time and were not sent at all")
    return f"{'; '.join(parts)}." if parts else ""


def faults(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The number of injected faults, and how many were verified."""
    if not lines:
        return ["No fault was injected."]
    count, seen = len(lines), sum(1 for line in lines if line["witnessed"] and line["healed"])
    if seen == count:
        return [f"{count} faults were injected; each was seen to bite and seen to heal."]
    some = "none" if seen == 0 else f"only {seen}"
    return [
        f"{count} faults were injected; {some} of them was seen both to bite and to heal, "
        "so the run proves less than was planned."
    ]


def recovery(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """How long the jobs of killed workers took to run elsewhere."""
    found: list[str] = []
    for line in lines:
        bound_s = line["bound_ms"] / 1_000
        head = f"When {line['target']} was killed it held {line['jobs']} jobs"
        if not line["jobs"]:
            found.append(f"When {line['target']} was killed it held no job.")
        elif line["recovery_ms"] is None:
            found.append(f"{head}; not all of them ran elsewhere afterwards ({bound_s:.1f} s were allowed).")
        else:
            found.append(
                f"{head}; the last of them ran elsewhere {line['recovery_ms'] / 1_000:.1f} s later ({bound_s:.1f} s are allowed)."
            )
    return found


def latency(measures: Mapping[str, Any]) -> str:
    """How long jobs took, over the whole run."""
    for line in measures["percentiles"]:
        if line["series"] == "end_to_end" and line["phase"] == "all":
            parts = [
                f"{share} {milliseconds(line[name])}"
                for name, share in (("p50_ms", "half of the jobs were finished within"), ("p99_ms", "99 in 100 within"))
                if line[name] is not None
            ]
            return f"Over the whole run, faults included, {' and '.join(parts)} of when they were due." if parts else ""
    return ""


def milliseconds(value_ms: float | None) -> str:
    """A duration as text; `?` for None."""
    if value_ms is None:
        return "?"
    if value_ms >= 1_000:
        return f"{value_ms / 1_000:,.2f} s"
    return f"{value_ms:.0f} ms" if value_ms >= 10 else f"{value_ms:.2f} ms"
