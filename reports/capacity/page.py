"""The page of a measurement: the plan, the knee, the fit, the server's budget, and sliders for what-if. Its script is in it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from reports.capacity import draw
from reports.capacity.answer import Answer, fitted, simulation_words
from reports.capacity.fit import Law, points
from reports.capacity.little import TOLERANCE
from reports.capacity.measurement import Command, Measurement, Server
from reports.capacity.plan import SHARDS_MAX
from reports.capacity.question import EXTRAPOLATION_MAX
from reports.capacity.words import duration
from reports.page import ink
from reports.page.facts import fields, laid
from reports.page.html import POLICY, Section, cell, details, header, marked_up, page, safe, table

#: Field of the question -> its label and unit, the lowest and the highest value, and whether the slider moves the logarithm.
SLIDERS: dict[str, tuple[str, float, float, bool]] = {
    "rate": ("rate, jobs/s", 1, 1e6, True),
    "p99_ms": ("target of the p99, ms", 1, 1e5, True),
    "handler_ms": ("handler, ms", 0.1, 1e5, True),
    "payload_bytes": ("payload, bytes", 1, 2**20, True),
    "backlog_s": ("backlog, s", 1, 604_800, True),
    "retained_s": ("finished jobs are kept, s", 1, 604_800, True),
    "worker_utilisation": ("workers are busy at most", 0.05, 1, False),
    "server_utilisation": ("servers are busy at most", 0.05, 1, False),
}

#: Commands that call others.
SCRIPTS = ("evalsha", "eval", "fcall")

#: Bars of the server's budget.
SHARES_MAX = 14

#: Number of the plan -> its label.
RESULTS = {
    "workers": "workers, one to spare",
    "shards": "shards",
    "capacity": "capacity, jobs/s",
    "utilisation": "busy workers",
    "server_share": "busy servers",
    "memory_gib": "memory, GiB",
    "network_mbit_per_s": "network, Mbit/s",
    "drain_s": "backlog drained in, s",
    "worker_lost_headroom": "headroom after a worker's loss",
    "primary_lost_s": "a primary's loss made up in, s",
    "cost_per_million": "cost per million jobs",
}


def document(made: Answer) -> str:
    """The whole page."""
    script = Path(__file__).with_name("sliders.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    with ink.drawing():
        sections = [
            Section("plan", "The plan, and what it was derived from", plans(made)),
            Section("what-if", "What if", sliders(made)),
            Section("knee", "The knee", knee(made)),
            Section("scaling", "Scaling of workers", scaling(made)),
            Section("budget", "The server's time", budget(made.found)),
            Section("checks", "Cross-checks of the steps", steps(made)),
            Section("measured", "What was measured", cards(made)),
        ]
    asked, plan = made.asked, made.plan
    title = f"{plan.workers} workers and {plan.shards} {'shard' if plan.shards == 1 else 'shards'} for {asked.rate:,.0f} jobs/s"
    tone = "valid" if made.confirmed.holds else "unknown"
    tiles = [(safe(one.name), safe(one.value), "") for one in made.figures]
    head = (f'<p class="headline">{safe(made.confirmed.words)}</p>', laid(tiles))
    header_of = header(f"plain {tone}", f"measured {made.found.made}", title, *head)
    policy = f"{POLICY}; script-src 'sha256-{digest}'"
    return page(title, header_of, sections, main="wide wraps", after=f"<script>{script}</script>", policy=policy)


def plans(made: Answer) -> str:
    """The numbers with their derivations, and the plans of other rates."""
    asked = made.asked
    lead = (
        f"{asked.rate:,.0f} jobs/s of {asked.payload_bytes:,.0f} bytes with a handler of {asked.handler_ms:g} ms and a p99 of at "
        f"most {asked.p99_ms:g} ms, {asked.model} on {asked.topology}. Bottleneck: {made.bottleneck.words}."
    )
    simulated = f"<p>Simulated: {safe(simulation_words(made))}.</p>" if made.simulated is not None else ""
    rows = [[safe(one.name), safe(one.value), safe(one.derived)] for one in made.figures]
    heads = (
        *("jobs/s", "workers", "shards", "memory GiB", "network Mbit/s", "drained in"),
        *("after a worker's loss", "cost per million"),
    )
    others = [
        [
            f"{question.rate:,.0f}",
            cell(plan.workers),
            cell(plan.shards),
            f"{plan.memory_gib:,.2f}",
            f"{plan.network_mbit_per_s:,.0f}",
            "never" if plan.drain_s is None else duration(plan.drain_s),
            f"{plan.worker_lost_headroom:+.0%}",
            f"{plan.cost_per_million:,.3f}",
        ]
        for question, plan in made.others
    ]
    return (
        f"<p>{safe(lead)}</p>{simulated}"
        + marked_up("The plan", ("", "plan", "derived from"), rows, words=(1, 2))
        + marked_up("Plans of other rates, within what was measured", heads, others)
    )


def sliders(made: Answer) -> str:
    """The sliders, their results, and the numbers that the script computes with."""
    asked = asdict(made.asked)
    inputs = "".join(slider(name, float(asked[name])) for name in SLIDERS)
    results = "".join(f'<div><dt>{safe(label)}</dt><dd id="if-{name}"></dd></div>' for name, label in RESULTS.items())
    known = {
        "basis": asdict(made.basis),
        "prices": asdict(made.prices),
        "shards_max": SHARDS_MAX,
        "extrapolation_max": EXTRAPOLATION_MAX,
    }
    # In a script element only `<` could end the data.
    data = json.dumps(known).replace("<", "\\u003c")
    return (
        f'<form id="sliders" class="cards">{inputs}</form>'
        f'<p id="doubt" class="key" role="status"></p><dl class="tiles">{results}</dl>'
        f'<script type="application/json" id="basis">{data}</script>'
    )


def slider(name: str, value: float) -> str:
    """One slider, at this value."""
    label, least, most, log = SLIDERS[name]
    low, high, at = (math.log10(max(one, least)) if log else one for one in (least, most, value))
    return (
        f'<div class="card"><label for="slide-{name}">{safe(label)}: <strong id="at-{name}"></strong></label>'
        f'<input type="range" id="slide-{name}" name="{name}" min="{low:.6f}" max="{max(high, at):.6f}" step="any" '
        f'value="{at:.9f}"{" data-log=1" if log else ""}></div>'
    )


def figure(drawn: draw.Figure, name: str, alt: str) -> str:
    """A figure of the page."""
    return (
        f'<figure class="scroll" tabindex="0" role="region" aria-label="{safe(alt)}">{ink.svg(drawn, name, safe(alt))}</figure>'
    )


def knee(made: Answer) -> str:
    """p99 by rate, and the steps as a table."""
    found, predicted = made.found, made.prediction
    words = predicted.reason or (
        f"from {predicted.steps} of its steps, {predicted.workers} workers sustain {predicted.rate:,.0f} jobs/s, surely between "
        f"{predicted.low:,.0f} and {predicted.high:,.0f}"
    )
    rows = [
        [step.rate, step.workers, step.latency_ms.p50, step.latency_ms.p99, step.waiting.mean, step.utilisation, step.dropped,
         step.meets, step.void or ""]
        for step in sorted(found.steps, key=lambda step: step.rate)
    ]  # fmt: skip
    heads = ("jobs/s", "workers", "p50 ms", "p99 ms", "waiting", "busy places", "not sent", "met", "void")
    verified = [[one.rate, one.times, one.p99_ms, one.meets] for one in found.verify]
    lines = table("The steps", heads, rows, words=(7, 8))
    lines += (
        table("Runs that verified the prediction", ("jobs/s", "times", "p99 ms", "met"), verified, words=(3,)) if verified else ""
    )
    alt = f"p99 by offered rate for each number of workers, with the target of {found.target.p99_ms:g} ms"
    return f"<p>Prediction: {safe(words)}.</p>{figure(draw.knee(found, predicted), 'knee', alt)}{details('The steps', lines)}"


def scaling(made: Answer) -> str:
    """The fit, or why there is none."""
    measured, law = points(made.found), made.law if isinstance(made.law, Law) else None
    words = f"<p>Fit: {safe(fitted(made.law))}.</p>"
    if not measured:
        return words
    rows = [[one.workers, one.met, one.missed, law.rate(one.workers) if law else None] for one in measured]
    lines = table("Sustainable rates", ("workers", "met, jobs/s", "missed, jobs/s", "law, jobs/s"), rows)
    alt = "sustainable rate by number of worker processes, as measured and as fitted"
    return f"{words}{figure(draw.scaling(law, measured), 'scaling', alt)}{details('The points', lines)}"


def budget(found: Measurement) -> str:
    """Microseconds of the server per job: by command at the highest rate that met, and at each offered rate."""
    step = found.met[-1]
    server = step.server
    parts = shares(server)
    if not parts:
        return ""
    sent = sum(one.us for one in server.sent.values())
    words = (
        f"{server.us_per_job:,.1f} us of processor a job at {step.rate:,.0f} jobs/s. Its commands took {sent:,.1f} us by the "
        "clock; beside them there are the network and the reading of requests. A job takes "
        f"{server.round_trips:,.2f} round trips, in which clients send {calls(server.sent):,.2f} commands; scripts call "
        f"{calls(server.inside):,.1f} more, at no further round trip."
    )
    rows = [
        [name, one.calls, one.us, words]
        for words, commands in (("sent by clients", server.sent), ("in scripts", server.inside))
        for name, one in ordered(commands)
    ]
    heads = ("command", "calls per job", "us per job", "")
    lines = table("By command; the time of a script has that of the commands in it", heads, rows, words=(3,))
    drawn = figure(draw.budget(parts), "budget", "microseconds of the server per job by command")
    return f"<p>{safe(words)}</p>{drawn}{details('By command', lines)}{rates(found)}"


def rates(found: Measurement) -> str:
    """What the server does for a job at each offered rate."""
    rows = [
        [step.rate, step.workers, step.server.us_per_job, step.server.round_trips, calls(step.server.sent),
         calls(step.server.inside), step.server.cpu_share]
        for step in found.sound
    ]  # fmt: skip
    heads = ("jobs/s", "workers", "us per job", "round trips", "commands sent", "commands in scripts", "busy server")
    lead = "At a low rate a job seems dear: workers that find nothing ask again. Plans use the highest rate that met."
    return f"<p>{safe(lead)}</p>{table('Per job at each offered rate', heads, rows)}"


def calls(commands: Mapping[str, Command]) -> float:
    """Calls per job of all of them."""
    return sum(one.calls for one in commands.values())


def ordered(commands: Mapping[str, Command]) -> list[tuple[str, Command]]:
    """The most expensive first."""
    return sorted(commands.items(), key=lambda pair: -pair[1].us)


def shares(server: Server) -> list[tuple[str, float]]:
    """The server's time in commands, none of it twice: scripts without the commands in them, those, and other commands."""
    inside = sum(one.us for one in server.inside.values())
    scripts = sum(one.us for name, one in server.sent.items() if name in SCRIPTS)
    parts = [("Lua of the scripts", max(0.0, scripts - inside))] if scripts else []
    parts += [(f"{name}, in scripts", one.us) for name, one in server.inside.items()]
    parts += [(f"{name}, sent", one.us) for name, one in server.sent.items() if name not in SCRIPTS]
    return sorted(parts, key=lambda pair: -pair[1])[:SHARES_MAX]


def steps(made: Answer) -> str:
    """Little's law on every step."""
    rows = [
        [one.step.rate, one.step.workers, one.counted, one.step.in_system.certain, one.step.in_system.possible, one.by_rate,
         one.off, "yes" if one.holds else "no"]
        for one in made.little
    ]  # fmt: skip
    lead = (
        "Little's law: the jobs in the system are the rate times the mean time in it, or one of the three was measured wrongly. "
        "At each look of a step the server counts them; by the times of sends, handlers and reports, so many were there "
        f"certainly, and so many possibly. The count must lie between, or at most {TOLERANCE:.0%} beyond."
    )
    heads = ("jobs/s", "workers", "counted", "certainly", "possibly", "rate x mean latency", "beyond by", "agrees")
    return f"<p>{safe(lead)}</p>{table('Jobs in the system', heads, rows, words=(7,))}"


def cards(made: Answer) -> str:
    """Machine, target, and what a job takes."""
    found = made.found
    groups = (("Machine", found.machine), ("Target", found.target), ("Memory", found.memory), ("Network", found.network))
    shown = "".join(fields(title, [(name, str(value)) for name, value in asdict(group).items()]) for title, group in groups)
    recovery = fields("Recovery", [(name, f"{one.ms:,.0f} ms, {one.source}") for name, one in found.recovery.items()])
    return f'<div class="cards">{shown}{recovery}</div>'
