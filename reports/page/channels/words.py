"""The sentences of the page of a channel run, and its key numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.page.facts import bad, laid, told
from reports.page.html import cell
from reports.page.words import faults, milliseconds

FOOTER = (
    "Ironclaim. A message stays with its subscriber until it is acknowledged, in the order of its channel, also across the wrap; "
    "what has expired before is told as lost."
)


def tiles(measures: Mapping[str, Any]) -> str:
    """The key numbers, as tiles."""
    crossed, planned = measures.get("wraps_crossed"), measures.get("wrap_channels")
    short = crossed is not None and planned is not None and crossed < planned
    wraps = "not known" if crossed is None else f"{crossed:,} of {planned:,}" if planned is not None else cell(crossed)
    shown = [
        ("published", cell(measures.get("published")), ""),
        ("deliveries", cell(measures.get("deliveries")), ""),
        ("subscribers", cell(measures.get("subscribers")), ""),
        ("lost", told(measures["lost"]), bad(measures["lost"])),
        ("told as lost", cell(measures.get("lost_declared")), ""),
        ("delivered again", cell(measures.get("redelivered")), ""),
        ("wraps crossed", wraps, ' class="unsure"' if short else ""),
    ]
    return laid(shown)


def story(decided: Mapping[str, Any]) -> list[str]:
    """The run in a few sentences: messages lost, clocks, faults and latency."""
    measures = decided["measures"]
    sentences = [lost(measures), again(measures), clocks(measures), *faults(measures["faults"]), latency(measures)]
    return [sentence for sentence in sentences if sentence]


def lost(measures: Mapping[str, Any]) -> str:
    """The numbers of published, delivered and lost messages, in one sentence."""
    published, deliveries, missing = measures.get("published"), measures.get("deliveries"), measures["lost"]
    if published is None or deliveries is None:
        return "It cannot be told what was published and delivered."
    head = f"{published:,} messages were published and delivered {deliveries:,} times, once for each subscriber"
    if missing is None:
        return f"{head}; it cannot be told whether any was lost."
    return f"{head}; {({0: 'none was lost', 1: 'one was lost'}).get(missing, f'{missing:,} were lost')}."


def again(measures: Mapping[str, Any]) -> str:
    """Redeliveries, which are expected after a fault, and messages that fetches reported as lost."""
    parts: list[str] = []
    if measures.get("redelivered"):
        parts.append(f"{measures['redelivered']:,} deliveries came again, since the first had not been acknowledged")
    if measures.get("lost_declared"):
        parts.append(f"fetches told their subscribers of {measures['lost_declared']:,} messages that were gone")
    if measures.get("dropped"):
        parts.append(f"{measures['dropped']:,} could not be sent in time and were not sent at all")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def clocks(measures: Mapping[str, Any]) -> str:
    """Crossings of the wrap and changes of the era, in one sentence."""
    crossed, planned, turns = (measures.get(name) for name in ("wraps_crossed", "wrap_channels", "era_changes"))
    if not planned or crossed is None:
        return ""
    head = f"The clocks of {planned:,} channels were set shortly before the wrap; {crossed:,} of them crossed it under load"
    if not turns:
        return f"{head}."
    went = "a clock went back once" if turns == 1 else f"clocks went back {turns:,} times, one time for each channel and restore"
    return f"{head}; {went}, which was seen and told as a new era."


def latency(measures: Mapping[str, Any]) -> str:
    """How long messages took, over the whole run."""
    parts: list[str] = []
    for line in measures["percentiles"]:
        if line["phase"] == "all" and line["p50_ms"] is not None:
            known = ((name, line[field]) for name, field in TAILS if line[field] is not None)
            tail = next((f" ({name} {milliseconds(value)})" for name, value in known), "")
            parts.append(f"{line['series']}: {milliseconds(line['p50_ms'])}{tail}")
    if not parts:
        return ""
    return f"Over the whole run, faults included, half of the messages were received within: {', '.join(parts)}."


#: The tail percentile shown beside a median: the highest that enough messages support.
TAILS = (("p99.9", "p99_9_ms"), ("p99", "p99_ms"), ("p90", "p90_ms"))
