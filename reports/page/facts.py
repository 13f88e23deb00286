"""The parts of the page without a figure: reasons, key numbers, checks, facts of the run, and commands to judge it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from engine.errors import counted
from reports import slo
from reports.facts import WAYS, of_channels
from reports.page.html import NO_VALUE, cell, details, marked_up, safe
from reports.page.words import milliseconds, slowest_ms

# Rows of the history as tables of the page: the evidence of the violations.

ROW_HEADS = ("row", "place", "at s", "answered at s", "process", "what", "answer", "lease or message", "job")


def proof(violations: Sequence[Mapping[str, Any]]) -> str:
    """The rows that prove the violations of a check, to unfold; empty without any."""
    parts = [f"<h3>{safe(one['example'])}</h3>{note(one)}{rows_table(one) if one['rows'] else ''}" for one in violations]
    title = "Evidence: rows of the history" + (f" for {len(parts)} violations" if len(parts) > 1 else "")
    return details(title, "".join(parts)) if parts else ""


def note(one: Mapping[str, Any]) -> str:
    """What is to be said about the rows of a violation, or why there are none."""
    return f"<p>{safe(one['note'])}</p>" if one["note"] else ""


def rows_table(one: Mapping[str, Any]) -> str:
    """The rows of one violation with their places; those that its sentence names are marked."""
    cells = [
        [
            str(number),
            f"<code>{safe(line['file'])}:{line['line']}</code>",
            f"{line['at_s']:,.3f}",
            "" if line["done_s"] is None else f"{line['done_s']:,.3f}",
            safe(line["process"]),
            f"<mark>{safe(line['what'])}</mark>" if line["named"] else safe(line["what"]),
            safe(line["answer"]),
            f"<code>{safe(line['about'])}</code>",
            safe(line["job"]),
        ]
        for number, line in enumerate(one["rows"], 1)
    ]
    more = f"<p>{one['left_out']:,} more rows are about it.</p>" if one["left_out"] else ""
    return marked_up("Rows of the history, in order of time", ROW_HEADS, cells, words=(1, 4, 5, 6, 7, 8)) + more


#: Fields of a spec that the page shows in sections of their own; the others are listed unchanged.
CARDS = ("machine", "calibration", "versions", "plan", "channels", "harness_errors", "findings")

BYTES_PER_GIB = 2**30

#: A note up to this length stays on one line.
NOTE_MAX = 48


def reasons(lines: Sequence[str]) -> str:
    """The reasons for the verdict, as HTML."""
    items = "".join(f"<li>{safe(line)}</li>" for line in lines)
    return f'<div class="reasons"><h2>Why</h2><ul>{items}</ul></div>' if items else ""


def notice(title: str, sentences: Sequence[str]) -> str:
    """What a reader must know before the numbers, as HTML; empty without sentences."""
    items = "".join(f"<p>{safe(sentence)}</p>" for sentence in sentences)
    return f'<div class="notice"><h2>{safe(title)}</h2>{items}</div>' if items else ""


def tiles(measures: Mapping[str, Any]) -> str:
    """The key numbers, as tiles."""
    recovered = [line for line in measures["recovery"] if line["jobs"]]
    ways = [way for way in WAYS if any(line.get("connected") == way for line in recovered)]
    shown = [
        ("enqueued", cell(measures["enqueued"]), ""),
        ("finished", cell(measures["finished"]), ""),
        ("lost", told(measures["lost"]), bad(measures["lost"])),
        ("doubled", told(measures["doubled"]), bad(measures["doubled"])),
        ("dead", cell(measures["dead"]), ""),
        ("stale finishes refused", cell(measures["refused_stale"]), ""),
        *((f"slowest recovery, {way}", milliseconds(slowest_ms(recovered, way)), "") for way in ways),
    ]
    if not ways:
        shown.append(("slowest recovery", milliseconds(slowest_ms(recovered, "")) if recovered else NO_VALUE, ""))
    return laid(shown)


def laid(shown: Sequence[tuple[str, str, str]]) -> str:
    """Tiles as HTML, from (name, value, class attribute)."""
    each = "".join(f"<div{kind}><dt>{name}</dt><dd>{value}</dd></div>" for name, value, kind in shown)
    return f'<dl class="tiles">{each}</dl>'


def told(count: int | None) -> str:
    """A count, or `not known` for None."""
    return "not known" if count is None else cell(count)


def bad(count: int | None) -> str:
    """The class attribute of a count that must be 0: unsure when it is None, bad when it is above 0."""
    return ' class="unsure"' if count is None else ' class="bad"' if count else ""


def objectives(lines: Sequence[Mapping[str, Any]]) -> str:
    """The service level objectives with bound, value and result."""
    rows = [
        [
            f"<code>{safe(line['objective'])}</code>",
            badge(line["result"]),
            safe(slo.measured(line)),
            safe(slo.wanted(line)),
            f'<span class="short">{safe(line["note"])}</span>' if len(line["note"]) <= NOTE_MAX else safe(line["note"]),
        ]
        for line in lines
    ]
    heads = ("objective", "result", "measured", "wanted", "rests on")
    return marked_up("Service level objectives", heads, rows, words=(1, 4)) if rows else ""


def badge(result: str) -> str:
    """A verdict or result in its colour."""
    return f'<span class="badge {safe(result)}">{safe(result)}</span>'


def checks(lines: Sequence[Mapping[str, Any]], evidence: Sequence[Mapping[str, Any]] = ()) -> str:
    """Every check with its verdict, and in full what it found or why it is unknown. `evidence`: the rows of the violations."""
    rows = [
        [
            safe(line["id"]),
            safe(line["name"]),
            badge(line["verdict"]),
            cell(line["violations"]),
            cell(line["declared"]),
            cell(line["possible"]),
            findings(line),
        ]
        for line in lines
    ]
    if not rows:
        return ""
    heads = ("id", "the check", "verdict", "violations", "declared", "possible", "found, or in doubt")
    note = (
        "<p>A check is violated only by what the history proves. What may be a violation, or rests on rows that are missing, is "
        "counted as possible. A check that lacks evidence is unknown, never a pass.</p>"
    )
    proofs = ((number, proof([one for one in evidence if one["check"] == line["id"]])) for number, line in enumerate(lines))
    below = {number: proof for number, proof in proofs if proof}
    return note + marked_up("Every check and what it came to", heads, rows, words=(1, 2, 6), below=below)


def declared(lines: Sequence[Mapping[str, Any]]) -> str:
    """The declared findings of the model, each with the rows that were seen."""
    rows: list[list[str]] = []
    for line in lines:
        rows.append([safe(line["name"]), safe(line["text"]), safe(", ".join(line["checks"])), cell(line["rows"])])
        rows[-1].append(examples(line) or "nothing")
    if not rows:
        return ""
    note = (
        "<p>This run does not promise these, for the reasons beside them. They were declared before it; violations of their "
        "checks, of the jobs that a finding is about, count as declared. All others are violations.</p>"
    )
    return note + marked_up("Declared findings", ("finding", "what it is", "checks", "rows", "seen"), rows, words=(1, 2, 4))


def findings(line: Mapping[str, Any]) -> str:
    """Why a check is not valid, with its examples, and what of it the history cannot show."""
    why = f"<p>{safe(line['why'])}</p>" if line["why"] else ""
    why += "".join(f"<p>not judged: {safe(part)}</p>" for part in line["not_judged"])
    why += f"<p>{possible(line['possible'])}</p>" if line["possible"] else ""
    why += "<p>what it counts as declared: see the declared findings</p>" if line["declared"] else ""
    return why + examples(line) or "nothing"


def examples(line: Mapping[str, Any]) -> str:
    """Its examples, to unfold; empty without any."""
    found = "".join(f"<li>{safe(example)}</li>" for example in line["examples"])
    return details(counted(len(line["examples"]), "example"), f"<ul>{found}</ul>") if found else ""


def possible(count: int) -> str:
    """What the number of possible violations of a check means."""
    what = "One row" if count == 1 else f"{count:,} rows"
    return f"{what} may break this promise: the history does not show whether that is so."


def particulars(spec: Mapping[str, Any], measures: Mapping[str, Any]) -> str:
    """Seed, versions, commit, machine, plan, and the quality of the recording."""
    if not spec:
        return ""
    plain = [(name, value) for name, value in spec.items() if name not in CARDS and value not in ("", None)]
    parts = [fields("Settings", [(name, written(value)) for name, value in plain])]
    machine = spec.get("machine")
    if isinstance(machine, dict):
        parts.append(fields("Machine", [(name, machine_fact(name, value)) for name, value in machine.items()]))
    calibration = spec.get("calibration")
    if isinstance(calibration, dict):
        told = [(name, written(value)) for name, value in calibration.items() if not isinstance(value, list)]
        parts.append(fields("Calibration before the load", told))
    versions = spec.get("versions")
    if isinstance(versions, dict):
        parts.append(fields("Versions", [(name, written(value)) for name, value in versions.items() if value]))
    parts.append(fields("Recording", recording(measures, "messages" if of_channels(spec) else "jobs")))
    errors = spec.get("harness_errors")
    if isinstance(errors, list) and errors:
        parts.append("<h3>Errors of the harness</h3><ul>" + "".join(f"<li>{safe(error)}</li>" for error in errors) + "</ul>")
    for name, title in (("plan", "The plan of the run"), ("channels", "The channels of the plan")):
        if isinstance(spec.get(name), list) and spec[name]:
            parts.append(details(title, f"<pre>{escape(json.dumps(spec[name], indent=2))}</pre>"))
    return f'<div class="cards">{"".join(part for part in parts if part)}</div>'


def fields(title: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A card of names and values."""
    lines = "".join(f"<div><dt>{safe(name.replace('_', ' '))}</dt><dd>{safe(value)}</dd></div>" for name, value in pairs)
    return f'<div class="card"><h3>{title}</h3><dl>{lines}</dl></div>' if lines else ""


def written(value: object) -> str:
    """A value of a spec: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def machine_fact(name: str, value: object) -> str:
    """A field of the machine card in readable form."""
    if name == "memory_bytes" and isinstance(value, int):
        return f"{value / BYTES_PER_GIB:.1f} GiB"
    if name == "load" and isinstance(value, list):
        return f"{', '.join(map(str, value))} (1, 5 and 15 minutes, before the run)"
    return written(value)


def recording(measures: Mapping[str, Any], unit: str) -> list[tuple[str, str]]:
    """Rates, send lag and the recorder's share: the conditions under which the numbers were measured."""
    share, lag = measures["recorder_share"], measures["send_lag"]
    return [
        *((name.removesuffix("_per_s"), rate(per_s, unit)) for name, per_s in measures["rates"].items()),
        ("not sent in time", told(measures["dropped"])),
        ("send lag p50", milliseconds(lag["p50_ms"])),
        ("send lag p99", milliseconds(lag["p99_ms"])),
        ("recorder's share", "not known" if share is None else f"{share:.2%} of the processes' time"),
        *((f"clock of {line['host']}", clock_of(line)) for line in measures["hosts"]),
    ]


def clock_of(line: Mapping[str, Any]) -> str:
    """How the clock of another host stands to the harness's."""
    ahead_ms = line["ahead_ms"]
    if ahead_ms is None:
        return "not known"
    side = "ahead of" if ahead_ms >= 0 else "behind"
    return f"{abs(ahead_ms):,.3f} ms {side} the harness's, to {line['error_ms']:,.3f} ms"


def rate(per_s: float | None, unit: str) -> str:
    """A rate as text."""
    return "not known" if per_s is None else f"{per_s:,.1f} {unit}/s"


def again(run: Path, spec: Mapping[str, Any]) -> str:
    """The commands that judge this history again and that run the same plan again."""
    name = str(spec.get("id") or run.name)
    lines = [f"python -m reports judge {shlex.quote(f'runs/{name}')}"]
    parts = ["The first line judges this history again: on any machine, without Redis, from the folder of the run alone."]
    if spec.get("scenario") in ("bench", "channels") and spec.get("pace"):
        lines.append(f"python -m chaos replay {shlex.quote(f'runs/{name}')}")
        parts.append("The second runs the same plan of faults again; what the kernel makes of it is never quite the same.")
    elif spec.get("scenario") in ("bench", "compare", "channels") and isinstance(spec.get("seed"), int):
        lines.append(f"python -m chaos {drawn_again(spec)}")
        parts.append("The second draws the same plan of faults and runs it; what the kernel makes of it is never quite the same.")
    return f"<p>{' '.join(parts)}</p><pre>" + "\n".join(map(safe, lines)) + "</pre>"


def drawn_again(spec: Mapping[str, Any]) -> str:
    """The verb that draws the plan of a run again, with its options. One of a comparison is repeated by the whole comparison."""
    verb = "run http" if spec.get("face") == "http" else {"compare": "campaign models"}.get(spec["scenario"], "run bench")
    model = spec.get("model")
    if model == "dsps":
        verb = "run channels"
    chosen = {"seed": spec["seed"], "model": model if model not in ("lanes", "dsps") else "", "mutant": spec.get("mutant")}
    only = ("seed",) if spec["scenario"] == "compare" else tuple(chosen)
    return " ".join([verb, *(f"--{name} {shlex.quote(str(chosen[name]))}" for name in only if chosen[name] not in (None, ""))])
