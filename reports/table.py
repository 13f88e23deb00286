"""The verdict as plain text, printed at the end of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from engine.errors import counted
from reports import causes, slo
from reports.causes import explained
from reports.facts import ALL, of_channels

#: Details are cut to this length and reasons to four of it; verdict.json has the full text.
WORDS_MAX = 110

#: The width where the output goes to no terminal, and the least that a terminal is taken to have.
COLUMNS, COLUMNS_MIN = 100, 40

#: A column of text is not made narrower than this, and a cell has at most so many lines.
NARROW, CELL_LINES = 10, 3


def render(verdict: Mapping[str, Any], folder: Path = Path(), *, columns: int = COLUMNS, every: bool = False) -> str:
    """The whole table; its last line is `verdict: valid|violated|unknown`, after the sum of the objectives, if there are any.

    `folder`: that of the run. `columns`: how wide the terminal is. `every`: list the checks that are clean, too.
    """
    sections, lines = [head(verdict["spec"])], verdict.get("slo", ())
    if verdict["checks"]:
        measures = verdict["measures"]
        if of_channels(verdict["spec"]):
            sections += [messages(measures), deliveries(measures["percentiles"])]
        else:
            sections += [counts(measures), latencies(measures["latency"]), recoveries(measures["recovery"])]
        sections += [faults(measures["faults"], columns), rates(measures)]
        sections += [checks(verdict["checks"], columns, every=every)]
        sections += [not_judged(verdict["checks"]), findings(verdict["findings"], columns)]
    sections += [objectives(lines, columns), reasons(verdict), causes.lines(verdict, folder)]
    return page(sections, [*filter(None, [slo.summary(lines)]), f"verdict: {verdict['verdict']}"], columns)


def page(sections: Iterable[Sequence[str]], end: Sequence[str], columns: int) -> str:
    """The sections with their words explained, and the last lines, no line wider than the terminal."""
    told = [*explained(section for section in sections if section), end]
    return "\n\n".join("\n".join(part for line in section for part in wrapped(line, columns)) for section in told)


def wrapped(line: str, columns: int) -> list[str]:
    """A line as lines that fit, broken at spaces only: what has none is never cut."""
    if len(line) <= columns:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    fitting = textwrap.TextWrapper(max(columns, COLUMNS_MIN), subsequent_indent=f"{indent}    ")
    fitting.break_long_words = fitting.break_on_hyphens = fitting.replace_whitespace = False
    return fitting.wrap(line)


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
        *("published", "deliveries", "again", "subscribers", "lost", "told as lost", "wraps crossed"),
        *("era changes", "not sent"),
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


def faults(lines: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    """Each fault, and below it the detail that its witness recorded."""
    body = [
        [
            line["fault"],
            line["target"].replace(",", ", "),
            "yes" if line["witnessed"] else "NO",
            "yes" if line["healed"] else "NO",
        ]
        for line in lines
    ]
    below = [f"    {cut(line['detail'], 2 * WORDS_MAX)}".rstrip() for line in lines]
    heads = ("fault", "target", "witnessed", "healed")
    return grid("faults, and below each what its witness saw", heads, body, text=(1,), columns=columns, below=below)


def rates(measures: Mapping[str, Any]) -> list[str]:
    """Rates, send lag, and the recorder's share of time."""
    each, lag, share = measures["rates"], measures["send_lag"], measures["recorder_share"]
    recorder = "?" if share is None else f"{share:.2%}"
    listed = ", ".join(f"{name.removesuffix('_per_s')} {number(per_s)}/s" for name, per_s in each.items())
    lags = f"send lag p50 {number(lag['p50_ms'])} ms, p99 {number(lag['p99_ms'])} ms"
    return ["rates", f"  {listed}; {lags}; recorder {recorder} of the processes' time", *delayed(measures["delayed"])]


def delayed(late: Mapping[str, Any]) -> list[str]:
    """How late delayed jobs started, if that was measured."""
    if not late["n"]:
        return []
    lateness = ", ".join(f"{name} {number(late[f'{name}_ms'])} ms" for name in ("p50", "p99", "max"))
    return [f"  {late['n']} delayed jobs started {lateness} after they were due"]


def checks(lines: Sequence[Mapping[str, Any]], columns: int, *, every: bool) -> list[str]:
    """The checks that are not clean, or every one, and how many are."""
    names = ("violations", "declared", "possible")
    shown = [line for line in lines if every or not clean(line)]
    body = [[line["id"], line["name"], line["verdict"], *(number(line[name]) for name in names)] for line in shown]
    table = grid("checks", ("id", "check", "verdict", *names), body, right=(3, 4, 5), text=(1,), columns=columns)
    left = len(lines) - len(shown)
    if not left:
        return table
    valid = counted(left, "other check" if shown else "check")
    return [*(table or ["checks"]), f"  {valid}, all valid (--all lists them)"]


def clean(line: Mapping[str, Any]) -> bool:
    """Whether there is nothing to say about a check."""
    return line["verdict"] == "valid" and not (line["violations"] or line["declared"] or line["possible"])


def reasons(verdict: Mapping[str, Any]) -> list[str]:
    """Why the verdict is not valid, each reason once; below that of a violated check the rows that prove its first violation."""
    by_words: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in ("violated", "unknown"):
        for check in verdict["checks"]:
            if check["verdict"] == result:
                by_words.setdefault((result, check["why"]), []).append(check)
    found: list[str] = []
    for (result, why), some in by_words.items():
        found.append(f"  {', '.join(check['id'] for check in some)} {result}: {cut(why, 4 * WORDS_MAX)}")
        found += [f"    {row}" for check in some for row in check.get("evidence", ())]
    told = {f"{check['id']} {result}: {why}" for (result, why), some in by_words.items() for check in some}
    found += [f"  {cut(reason, 4 * WORDS_MAX)}" for reason in verdict["reasons"] if reason not in told]
    return ["reasons", *found] if found else []


def objectives(lines: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    """Every service level objective with its bound, the value of the run, and the result."""
    body = [[line["objective"], slo.wanted(line), slo.measured(line), line["result"], cut(line["note"])] for line in lines]
    return grid(
        "service level objectives", ("objective", "wanted", "measured", "result", "rests on"), body, text=(1, 4), columns=columns
    )


def not_judged(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parts of checks that the history cannot show."""
    words = [f"  {line['id']}: {cut(part)}" for line in lines for part in line["not_judged"]]
    return ["not judged", *words] if words else []


def findings(lines: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    """The declared findings of the model, and how many rows of each were seen."""
    body = [[line["name"], ", ".join(line["checks"]), number(line["rows"]), cut(line["text"])] for line in lines]
    return grid(
        "declared findings", ("finding", "checks", "rows", "what it is"), body, right=(2,), text=(0, 1, 3), columns=columns
    )


def grid(
    title: str,
    heads: Sequence[str],
    body: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    *,
    text: Sequence[int] = (),
    columns: int = 0,
    below: Sequence[str] = (),
) -> list[str]:
    """A titled table, columns padded to their widest cell; empty when `body` is.

    `text`: the columns whose cells may go on in the next line, so that the table is no wider than `columns`. `below`: a line for
    each row, which comes after it unless it is empty.
    """
    if not body:
        return []
    widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
    least = {at: max(len(word) for row in (heads, *body) for word in row[at].split() or [""]) for at in text}
    while columns and (room := [at for at in text if widths[at] > max(least[at], NARROW)]):
        if sum(widths) + 2 * len(widths) <= columns:
            break
        widths[max(room, key=lambda at: widths[at])] -= 1

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return ("  " + "  ".join(padded)).rstrip()

    found = [title, line(heads)]
    for cells, more in zip_longest(body, below, fillvalue=""):
        found += [*(line(row) for row in in_lines(cells, widths, text)), *filter(None, [more])]
    return found


def in_lines(cells: Sequence[str], widths: Sequence[int], text: Sequence[int]) -> list[list[str]]:
    """A row as one or more lines: the cells of text broken at spaces, with an ellipsis where that takes too many lines."""
    parts = [
        textwrap.wrap(cell, width, max_lines=CELL_LINES, placeholder=" ...", break_long_words=False, break_on_hyphens=False)
        if at in text
        else [cell]
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return [list(row) for row in zip_longest(*parts, fillvalue="")]


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
    """The text cut to a length, at a space where there is one, so that no id is cut."""
    if len(words) <= limit:
        return words
    whole = words[: limit - 3].rpartition(" ")[0]
    return f"{whole} ..." if whole else words[: limit - 3] + "..."
