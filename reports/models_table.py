"""`python -m reports models`: the models side by side, in one table of what `python -m chaos campaign models` measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import counted
from reports.page.html import NO_VALUE, Section, header, page, safe
from reports.table import grid
from reports.verdict import content, place

FILE = "models.json"
PAGE_FILE = "models.html"

#: The models.json schema that this module reads.
SCHEMA = 1

#: Placeholder for a value that could not be measured.
UNKNOWN = "?"

TITLE = "The models side by side"
LEAD = (
    "Each model got the same seed, load and faults, as far as its wire carries them, and the same jobs and calls on a server of "
    "its own for the costs. All were run by this engine. Lost, doubled and stale are what the judge found in the recorded "
    "history. Recovery is, after a kill or a freeze, the time until the last job in hand ran elsewhere; after a fault of the "
    "network, from its heal until every worker that it hit had finished a job again."
)


class Line(NamedTuple):
    """One row of the table: its group, its title, and a cell for each model."""

    group: str
    title: str
    cells: tuple[str, ...]


def side_by_side(folder: Path) -> str:
    """Write the page of a comparison and return its table as plain text. Raises JudgeError when models.json cannot be
    read."""
    found = content(folder, FILE, SCHEMA)
    place(folder / PAGE_FILE, document(found))
    return render(found)


def lines(models: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The whole table."""
    return [*verdicts(models), *costs(models), *faults(models)]


def verdicts(models: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The rows of the drill: verdict, counts of jobs by outcome, and throughput."""

    def measure(name: str) -> tuple[str, ...]:
        return each(models, lambda one: one["verdict"]["measures"][name])

    names = ("enqueued", "finished", "lost", "doubled", "refused_stale", "dead")
    return [
        Line("drill", "verdict", each(models, lambda one: one["verdict"]["verdict"])),
        Line("drill", "rows of declared findings", each(models, lambda one: sum(f["rows"] for f in one["verdict"]["findings"]))),
        *(Line("drill", name.replace("_", " "), measure(name)) for name in names),
        Line("drill", "finished a second", each(models, lambda one: one["verdict"]["measures"]["rates"]["finished_per_s"])),
    ]


def costs(models: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Throughput, commands, time and memory."""

    def cost(*path: str) -> tuple[str, ...]:
        return each(models, lambda one: dig(one["costs"], path))

    titles = dict.fromkeys(title for one in models if one["costs"] for title in one["costs"]["claim_us"])
    parts = (("enqueue", "enqueue"), ("claim and finish", "claim_and_finish"))
    return [
        Line("throughput, jobs/s", "enqueued one by one", cost("throughput", "enqueue_per_s")),
        Line("throughput, jobs/s", "drained by one worker", cost("throughput", "drain_per_s")),
        *(Line("claim, us of Redis a job", title, cost("claim_us", title)) for title in titles),
        *(Line("commands of Redis a job", title, cost("per_job", part, "commands")) for title, part in parts),
        *(Line("us of Redis a job", title, cost("per_job", part, "redis_us")) for title, part in parts),
        *(
            Line("bytes a job", state, each(models, lambda one, state=state: whole(one["costs"]["bytes"][state])))
            for state in ("waiting", "delayed", "active", "finished", "dead")
        ),
    ]


def faults(models: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The cost of each kind of fault."""
    kinds = dict.fromkeys(
        line["name"] for one in models if one["verdict"] for line in one["verdict"]["measures"].get("by_fault", ())
    )
    found: list[Line] = []
    for kind in sorted(kinds):

        def of_kind(one: Mapping[str, Any], kind: str = kind) -> Mapping[str, Any]:
            return next(line for line in one["verdict"]["measures"]["by_fault"] if line["name"] == kind)

        def counts(one: Mapping[str, Any], of_kind: Callable[[Mapping[str, Any]], Mapping[str, Any]] = of_kind) -> str:
            return " / ".join(str(of_kind(one)[name]) for name in ("lost", "doubled", "stale"))

        found.append(Line("lost / doubled / stale", kind, each(models, counts)))
        found.append(Line("recovery, s", kind, each(models, lambda one, of=of_kind: of(one)["recovery_ms"] / 1_000)))
    return sorted(found, key=lambda line: line.group)


def each(models: Sequence[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], Any]) -> tuple[str, ...]:
    """A cell for each model; a question mark for a value that the model lacks."""
    found: list[str] = []
    for one in models:
        try:
            found.append(shown(value(one)))
        except (KeyError, TypeError, StopIteration):
            found.append(UNKNOWN)
    return tuple(found)


def dig(costs: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Look up a nested value. Raises KeyError or TypeError when it is not there."""
    value: Any = costs
    for name in path:
        value = value[name]
    return value


def whole(value: float) -> int:
    """Round to whole bytes."""
    return round(value)


def shown(value: object) -> str:
    """A value as shown in the table."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1_000 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def render(found: Mapping[str, Any]) -> str:
    """The table as plain text, followed by the remarks."""
    models = found["models"]
    names = tuple(one["model"] for one in models)
    table = lines(models)
    rows: list[list[str]] = []
    for group in dict.fromkeys(line.group for line in table):
        rows.append([group, *[""] * len(names)])
        rows += [[f"  {line.title}", *line.cells] for line in table if line.group == group]
    title = f"comparison {found['id']}  seed {found['seed']}" + ("  quick" if found.get("quick") else "")
    sections = [grid(title, ("", *names), rows, right=range(1, len(names) + 1)), remarks(models)]
    return "\n\n".join("\n".join(section) for section in sections if section)


def remarks(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """What could not be measured, why a drill is not valid, and which declared findings were seen."""
    found: list[str] = []
    for one in models:
        verdict = one["verdict"] or {"reasons": [], "findings": []}
        texts = [*one["trouble"], *verdict["reasons"]]
        texts += [f"declared, {counted(f['rows'], 'row')}: {f['name']}: {f['text']}" for f in verdict["findings"]]
        found += [f"  {one['model']}: {text}" for text in texts]
    return ["remarks", *found] if found else []


def document(found: Mapping[str, Any]) -> str:
    """The page: one table, then the remarks."""
    models = found["models"]
    heads = "".join(f'<th scope="col" class="number">{safe(one["model"])}</th>' for one in models)
    rows: list[str] = []
    group = ""
    for line in lines(models):
        if line.group != group:
            group = line.group
            rows.append(f'<tr><th scope="rowgroup" colspan="{len(models) + 1}"><strong>{safe(group)}</strong></th></tr>')
        cells = "".join(f'<td class="number">{NO_VALUE if cell == UNKNOWN else safe(cell)}</td>' for cell in line.cells)
        rows.append(f'<tr><th scope="row">{safe(line.title)}</th>{cells}</tr>')
    items = "".join(f"<li>{safe(remark.strip())}</li>" for remark in remarks(models)[1:])
    quick = " Small numbers, for trying things out." if found.get("quick") else ""
    table = [
        f"<p>{safe(LEAD)}{quick}</p>",
        f'<div class="scroll" tabindex="0" role="region" aria-label="{TITLE}"><table><caption>{TITLE}</caption>',
        f'<thead><tr><th scope="col">measured</th>{heads}</tr></thead><tbody>',
        *rows,
        "</tbody></table></div>",
    ]
    sections = [
        Section("table", "What was measured", "\n".join(table)),
        Section("remarks", "Remarks", f"<ul>{items}</ul>" if items else ""),
        Section("machine", "Machine", f"<p>{safe(machine(found))}</p>"),
    ]
    return page(f"{TITLE}: {found['id']}", header("plain", f"{found['id']}, seed {found['seed']}", TITLE), sections)


def machine(found: Mapping[str, Any]) -> str:
    """The machine and the versions that were measured, in one line."""
    card, versions = found["machine"], found["versions"]
    return (
        f"{card['cores']} cores, {card['memory_bytes'] / 2**30:.1f} GiB, {card['kernel']}; load before: {card['load'][0]}; "
        f"{versions['server']}, Python {versions['python']}; commit {found['git_commit'] or 'unknown'}; {found['started_utc']}"
    )
