"""The verdict as plain text, printed at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports import slo
from reports.facts import of_channels
from reports.ranks import ALL

#: Reasons and details are cut to this length, because longer ones wrap in most terminals; verdict.json has the full text.
WORDS_MAX = 110


def render(verdict: Mapping[str, Any]) -> str:
    """The whole table; its last line is `verdict: valid|violated|unknown`, after the sum of the objectives, if there are any."""
    sections, lines = [head(verdict["spec"])], verdict.get("slo", ())
    if verdict["checks"]:
        measures = verdict["measures"]
        if of_channels(verdict["spec"]):
            sections += [messages(measures), deliveries(measures["percentiles"])]
        else:
            sections += [counts(measures), latencies(measures["latency"]), recoveries(measures["recovery"])]
        sections += [faults(measures["faults"]), rates(measures), checks(verdict["checks"])]
        sections += [not_judged(verdict["checks"]), findings(verdict["findings"])]
    sections.append(objectives(lines))
    if verdict["reasons"]:
        sections.append(["reasons", *(f"  {cut(reason, 4 * WORDS_MAX)}" for reason in verdict["reasons"])])
    sections.append([*filter(None, [slo.summary(lines)]), f"verdict: {verdict['verdict']}"])
    return "\n\n".join("\n".join(section) for section in sections if section)


def head(spec: Mapping[str, Any]) -> list[str]:
    """The line that identifies the run."""
    names = (
        ("scenario", "scenario"),
        ("seed", "seed"),
        ("model", "model"),
        ("mutant", "mutant"),
        ("topology", "topology"),
        ("durability", "durability"),
        ("rate_per_s", "jobs/s"),
    )
    words = [f"{label} {spec[name]}" for name, label in names if spec.get(name) not in (None, "")]
    return ["  ".join([f"run {spec['id']}", *words])] if "id" in spec else []


def counts(measures: Mapping[str, Any]) -> list[str]:
    """Counts of the jobs by outcome."""
    titles = ("enqueued", "finished", "lost", "doubled", "refused stale", "dead", "not sent")
    names = ("enqueued", "finished", "lost", "doubled", "refused_stale", "dead", "dropped")
    return grid("jobs", titles, [[number(measures[name]) for name in names]], right=range(len(names)))


def messages(measures: Mapping[str, Any]) -> list[str]:
    """Counts of the messages of a channel run by outcome."""
    titles = (
        "published",
        "deliveries",
        "again",
        "subscribers",
        "lost",
        "told as lost",
        "wraps crossed",
        "era changes",
        "not sent",
    )
    names = ("published", "deliveries", "redelivered", "subscribers", "lost", "lost_declared")
    crossed = f"{number(measures.get('wraps_crossed'))} of {number(measures.get('wrap_channels'))}"
    cells = [*(number(measures.get(name)) for name in names), crossed]
    cells += [number(measures.get(name)) for name in ("era_changes", "dropped")]
    return grid("messages", titles, [cells], right=range(len(titles)))


def deliveries(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Latency of deliveries by fan-out, over all phases; the page shows each phase."""
    names = ("p50_ms", "p99_ms", "p99_9_ms", "max_ms")
    whole = [line for line in lines if line["phase"] == ALL]
    body = [[line["series"], number(line["n"]), *(number(line[name]) for name in names)] for line in whole]
    title = "latency in ms, from the intended publish to the receipt; ? where too few lie beyond it"
    return grid(title, ("group", "deliveries", "p50", "p99", "p99.9", "longest"), body, right=(1, 2, 3, 4, 5))


def latencies(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """End-to-end latency per phase."""
    body = [
        [line["phase"], number(line["n"]), number(line["unfinished"]), *(endless(line[name]) for name in ("p50_ms", "p99_ms"))]
        for line in lines
    ]
    title = "latency in ms, from the intended enqueue (plus its delay) to the accepted finish"
    return grid(title, ("phase", "jobs", "unfinished", "p50", "p99"), body, right=(1, 2, 3, 4))


def recoveries(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Per kill, how the process was connected, where the run tells it, and the time until the jobs that it held ran elsewhere."""
    told = any(line.get("connected") for line in lines)
    body = [
        [
            line["fault"],
            line["target"],
            *([line.get("connected") or "?"] if told else []),
            number(line["jobs"]),
            seconds(line["recovery_ms"]),
            seconds(line["bound_ms"]),
        ]
        for line in lines
    ]
    title = "recovery, from waitpid to the next handler start, slowest of the jobs in hand"
    heads = ("kill", "worker", *(["connected"] if told else []), "in hand", "recovery", "bound")
    return grid(title, heads, body, right=tuple(range(len(heads) - 3, len(heads))))


def faults(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each fault with the detail that its witness recorded."""
    body = [
        [
            line["fault"],
            line["target"],
            "yes" if line["witnessed"] else "NO",
            "yes" if line["healed"] else "NO",
            cut(line["detail"]),
        ]
        for line in lines
    ]
    return grid("faults", ("fault", "target", "witnessed", "healed", "witness"), body)


def rates(measures: Mapping[str, Any]) -> list[str]:
    """Rates, send lag, and the recorder's share of time."""
    each, lag, share = measures["rates"], measures["send_lag"], measures["recorder_share"]
    recorder = "?" if share is None else f"{share:.2%}"
    listed = ", ".join(f"{name.removesuffix('_per_s')} {number(per_s)}/s" for name, per_s in each.items())
    lags = f"send lag p50 {number(lag['p50_ms'])} ms, p99 {number(lag['p99_ms'])} ms"
    return [
        "rates",
        f"  {listed}; {lags}; recorder {recorder} of the processes' time",
        *delayed(measures["delayed"]),
    ]


def delayed(late: Mapping[str, Any]) -> list[str]:
    """How late delayed jobs started, if that was measured."""
    if not late["n"]:
        return []
    lateness = ", ".join(f"{name} {number(late[f'{name}_ms'])} ms" for name in ("p50", "p99", "max"))
    return [f"  {late['n']} delayed jobs started {lateness} after they were due"]


def checks(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every check with its verdict; below a violated one the rows that prove its first violation."""
    names = ("violations", "declared", "possible")
    body = [[line["id"], line["name"], line["verdict"], *(number(line[name]) for name in names)] for line in lines]
    title, heads, *rows = grid("checks", ("id", "check", "verdict", *names), body, right=(3, 4, 5))
    return [title, heads, *(words for row, line in zip(rows, lines, strict=True) for words in (row, *proof(line)))]


def proof(line: Mapping[str, Any]) -> list[str]:
    """The first violation of a check and its rows."""
    evidence = line.get("evidence")
    return [f"      {cut(line['examples'][0], 2 * WORDS_MAX)}", *(f"        {row}" for row in evidence)] if evidence else []


def objectives(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every service level objective with its bound, the value of the run, and the result."""
    body = [[line["objective"], slo.wanted(line), slo.measured(line), line["result"], cut(line["note"])] for line in lines]
    return grid("service level objectives", ("objective", "wanted", "measured", "result", "rests on"), body)


def not_judged(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parts of checks that the history cannot show."""
    words = [f"  {line['id']}: {cut(part)}" for line in lines for part in line["not_judged"]]
    return ["not judged", *words] if words else []


def findings(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The declared findings of the model, and how many rows of each were seen."""
    body = [[line["name"], ", ".join(line["checks"]), number(line["rows"]), cut(line["text"])] for line in lines]
    return grid("declared findings", ("finding", "checks", "rows", "what it is"), body, right=(2,))


def grid(title: str, heads: Sequence[str], body: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """A titled table, columns padded to their widest cell; empty when `body` is."""
    if not body:
        return []
    widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return ("  " + "  ".join(padded)).rstrip()

    return [title, line(heads), *(line(cells) for cells in body)]


def number(value: float | int | None) -> str:
    """A count as it is, a measure with one decimal, `?` for None."""
    if value is None:
        return "?"
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def endless(value_ms: float | None) -> str:
    """A percentile in ms; `inf` for None: it falls among jobs that never finished."""
    return "inf" if value_ms is None else number(value_ms)


def seconds(value_ms: float | None) -> str:
    """ms as seconds; `?` for None."""
    return "?" if value_ms is None else f"{value_ms / 1_000:.1f} s"


def cut(words: str, limit: int = WORDS_MAX) -> str:
    """The text cut to a length."""
    return words if len(words) <= limit else words[: limit - 3] + "..."
