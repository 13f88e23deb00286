"""The sentences of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.facts import DIRECT, PROXIED, WAYS, finding_name

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

#: What the servers of a durability promise with an answer.
PROMISES = {
    "server": "an answer means that the primary has the write, and a replica may not have it yet",
    "replica": "an answer means that a replica has the write, too",
    "always": "an answer means that the write is on the disk",
    "everysec": "an answer means that the server has the write in memory; it is on the disk within a second",
}

#: Headline of a valid run in which declared findings were seen.
LOSSY = "Every check ran, had evidence, and found nothing wrong apart from losses that were declared before the run."
APART = "Every check ran, had evidence, and found nothing wrong apart from what the model declares."


def servers(spec: Mapping[str, Any]) -> str:
    """Topology and durability of a run; empty where its spec names none."""
    if spec.get("scenario") == "attended":
        return "on a given server"
    named = [f"{name} {spec[name]}" for name in ("topology", "durability") if isinstance(spec.get(name), str) and spec[name]]
    return ", ".join(named)


def lost(decided: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The declared losses that were seen, as they stand in the spec, each with the `rows` and `examples` of its finding."""
    seen = {one["name"]: one for one in decided.get("findings", ()) if one["rows"]}
    entries = [entry for entry in decided.get("spec", {}).get("loss") or () if isinstance(entry, dict)]
    found = [(entry, seen.get(finding_name(str(entry.get("fault"))))) for entry in entries]
    return [{**entry, "rows": one["rows"], "examples": one["examples"]} for entry, one in found if one]


def losses(decided: Mapping[str, Any]) -> list[str]:
    """What the servers lost, why that is what they promise, and what avoids it; empty when they lost nothing."""
    found, spec = lost(decided), decided["spec"]
    if not found:
        return []
    gone = decided["measures"]["lost"]
    said = [f"Acknowledged writes were lost in this run. Of the jobs, {counted(gone, 'lost for good')}."]
    for one in found:
        # A job that is gone says most.
        examples = sorted(one["examples"], key=lambda example: not example.startswith(LOST_JOBS))
        example = f", such as: {examples[0]}" if examples else ""
        said.append(f"Lost by {one['fault']}: {one['text']}. It explains {rows_of(one['rows'])} of the checks{example}.")
    promise = PROMISES.get(str(spec.get("durability")))
    why = f": {promise}" if promise else ""
    said.append(f"This is what the servers of the run promise ({servers(spec)}){why}. So it was declared before the run.")
    for other in dict.fromkeys(one["avoided_by"] for one in found if "avoided_by" in one):
        faults = ", ".join(one["fault"] for one in found if one.get("avoided_by") == other)
        better = f"DURABILITY={other} avoids what {faults} lost: {PROMISES.get(other, '')}."
        said.append(better if other else f"No durability of this topology avoids what {faults} lost.")
    return said


def rows_of(count: int) -> str:
    """A number of contradictions as text."""
    return "one contradiction" if count == 1 else f"{count:,} contradictions"


def planted(decided: Mapping[str, Any]) -> list[str]:
    """The defect that was planted, what was expected of it, and whether that came; empty for the clean engine."""
    spec = decided["spec"]
    told = spec.get("planted")
    if not isinstance(told, dict) or not told:
        name = spec.get("mutant")
        return [f"A defect was planted in this run on purpose: {name}. This is not the clean engine."] if name else []
    said = [f"A defect was planted in this run on purpose, {told.get('name')}: {told.get('defect')}."]
    check, wanted = told.get("check"), told.get("verdict")
    found = next((line["verdict"] for line in decided["checks"] if line["id"] == check), "not judged")
    came = "So it was." if found == wanted else f"It was not: {check} is {found}."
    said.append(f"It was expected that {check} is {wanted}, which makes the verdict {wanted}. {came}")
    return said


def title(decided: Mapping[str, Any]) -> str:
    """The verdict in the words of its heading."""
    verdict = str(decided["verdict"])
    return f"{verdict}, with declared loss" if verdict == "valid" and lost(decided) else verdict


def headline(decided: Mapping[str, Any]) -> str:
    """The meaning of the verdict, in one sentence."""
    verdict = str(decided["verdict"])
    if verdict == "valid" and lost(decided):
        return LOSSY
    return APART if verdict == "valid" and any(one["rows"] for one in decided["findings"]) else HEADLINES.get(verdict, "")


def objectives(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many service level objectives were missed, met, and cannot be judged, in one sentence, if there are any."""
    if not lines:
        return []
    counts = [(sum(line["result"] == result for line in lines), words) for result, words in OBJECTIVES.items()]
    told = ", ".join(f"{count} {words}" for count, words in counts if count)
    return [f"Service level objectives: {told}."]


#: The check that no job is lost.
LOST_JOBS = "J4"

#: The check that a worker without the lease changes nothing any more.
LATE_CALLS = "J3"

#: Result of an objective -> its words.
OBJECTIVES = {"missed": "missed", "unknown": "cannot be judged", "met": "met"}


def story(decided: Mapping[str, Any]) -> list[str]:
    """The run in a few sentences: jobs lost and doubled, faults, recovery and latency."""
    measures = decided["measures"]
    sentences = [
        lost_and_doubled(measures),
        fate(measures, kept_out(decided)),
        *faults(measures["faults"]),
        *recovery(measures["recovery"]),
        by_way(measures["recovery"]),
    ]
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


def kept_out(decided: Mapping[str, Any]) -> bool:
    """Whether every late call of a worker that had lost its lease was refused, as far as the run shows."""
    return all(line["verdict"] != "violated" for line in decided.get("checks", ()) if line["id"] == LATE_CALLS)


def fate(measures: Mapping[str, Any], all_refused: bool) -> str:
    """The outcomes of the other jobs, in one sentence. `all_refused`: no late call was accepted."""
    parts: list[str] = []
    if measures["finished"] is not None:
        parts.append(f"{measures['finished']:,} were finished")
    if measures["dead"]:
        parts.append(f"{measures['dead']:,} used up their attempts and were kept among the dead, with the reason")
    if measures["refused_stale"]:
        count = measures["refused_stale"]
        one = count == 1
        late = "one late finish by a worker that had lost its lease was refused"
        late = late if one else f"{count:,} late finishes by workers that had lost their lease were refused"
        proper = f", as {'it' if one else 'they'} must be"
        parts.append(late + (proper if all_refused else f", but not every one of them: see {LATE_CALLS}"))
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
        bound_s, way = line["bound_ms"] / 1_000, WAYS.get(line.get("connected", ""))
        killed = f"When {line['target']}{f', connected {way},' if way else ''} was killed it held"
        head = f"{killed} {line['jobs']} {'job' if line['jobs'] == 1 else 'jobs'}"
        if not line["jobs"]:
            found.append(f"{killed} no job.")
        elif line["recovery_ms"] is None:
            found.append(f"{head}; not all of them ran elsewhere afterwards ({bound_s:.1f} s were allowed).")
        else:
            last = "it" if line["jobs"] == 1 else "the last of them"
            found.append(f"{head}; {last} ran elsewhere {line['recovery_ms'] / 1_000:.1f} s later ({bound_s:.1f} s are allowed).")
    return found


def by_way(lines: Sequence[Mapping[str, Any]]) -> str:
    """When two seconds hold and when a lease must run out, with what was measured; empty unless workers of both kinds were
    killed."""
    slowest = {way: slowest_ms(lines, way) for way in WAYS}
    if None in slowest.values():
        return ""
    of_direct, of_proxied = milliseconds(slowest[DIRECT]), milliseconds(slowest[PROXIED])
    return (
        f"Work of a directly connected worker went on after {of_direct}, because the server sees its connection close; behind a "
        f"proxy, which may keep it open, after {of_proxied}, because the lease has to run out."
    )


def slowest_ms(lines: Sequence[Mapping[str, Any]], way: str) -> float | None:
    """The slowest recovery of the workers that were connected in one way, with "" of all. None when no jobs were in hand, or not
    all of them ran again."""
    found = [line["recovery_ms"] for line in lines if line["jobs"] and way in ("", line.get("connected"))]
    return max(found) if found and None not in found else None


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
    # What would be written as 1000 ms is 1.00 s, and what would be 10.00 ms is 10 ms.
    if value_ms >= 999.5:
        return f"{value_ms / 1_000:,.2f} s"
    return f"{value_ms:.0f} ms" if value_ms >= 9.995 else f"{value_ms:.2f} ms"
