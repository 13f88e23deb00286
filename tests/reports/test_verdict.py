"""Merging, writing, and the lines that people read."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos import cli
from record.history import ITEM_FIELDS, ROW_FIELDS
from reports import causes
from reports.causes import PATTERNS, REMEDIES, WORDS, Cause, Doubt
from reports.checks import CHECKS
from reports.errors import JudgeError, one_line
from reports.facts import Run
from reports.judge import withdraw
from reports.lines import item_type, line_schema
from reports.table import render
from reports.verdict import NO_MEASURES, CheckResult, decide, undecided, write
from tests.golden import Told, same, tells

ROOT = Path(__file__).resolve().parents[2]


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "verdict.json.new").symlink_to("/dev/full")
    with pytest.raises(JudgeError, match=r"^verdict\.json of .* cannot be written: No space left on device$"):
        write(tmp_path, undecided("why", {}))


@pytest.mark.parametrize(("file", "what"), [("verdict.json", r"verdict\.json"), ("report.html", "page")])
def test_an_older_verdict_or_page_that_cannot_be_removed_is_one_clear_line(file: str, what: str, tmp_path: Path) -> None:
    (tmp_path / file).mkdir()
    with pytest.raises(JudgeError, match=rf"^the older {what} of .* cannot be removed: Is a directory$"):
        withdraw(tmp_path)


def test_the_schema_has_every_field_and_no_narrow_integer() -> None:
    schema, item = line_schema(), item_type()
    assert schema.names == [field.name for field in ROW_FIELDS]
    assert [field.name for field in item] == [field.name for field in ITEM_FIELDS]
    types = {str(field.type) for fields in (schema, item) for field in fields if field.name != "items"}
    assert types == {"int64", "string", "list<item: string>"}
    assert (str(item.field("fence").type), str(item.field("nonce").type)) == ("int64", "string")


def test_a_spec_with_a_character_that_has_no_bytes_is_written(tmp_path: Path) -> None:
    write(tmp_path, undecided("why", {"id": "\ud800"}))
    assert json.loads((tmp_path / "verdict.json").read_text())["spec"]["id"] == "\ud800"


PLAN = [{"fault": "1-worker-kill", "name": "worker-kill", "target": "worker-2"}]

MEASURES = {
    **{**NO_MEASURES, "enqueued": 7200, "finished": 7190, "lost": None, "doubled": 0, "refused_stale": 3, "dead": 10},
    **{"dropped": 0, "latency": [{"phase": "lead-in", "n": 1200, "unfinished": 10, "p50_ms": 12.34, "p99_ms": None}]},
    "recovery": [{**PLAN[0], "connected": "proxied", "jobs": 8, "recovery_ms": 9_640.0, "bound_ms": 11_000}],
    "faults": [{**PLAN[0], "witnessed": True, "healed": False, "detail": "waitpid -9"}],
    **{"rates": {"offered_per_s": 120.0, "finished_per_s": 119.6}, "send_lag": {"p50_ms": 0.21, "p99_ms": 1.9}},
    "recorder_share": 0.0123,
}


def test_the_table_is_plain_and_aligned_and_ends_with_the_verdict() -> None:
    lacking = {"name": "no job is lost", "declared": 1, "possible": 2, "not_judged": ["the end"]}
    entry = check_entry("J4", "unknown", "there is no snapshot at the end", **lacking)
    head = {"verdict": "unknown", "reasons": ["J4 unknown: there is no snapshot at the end"], "causes": {"open": ["J4"]}}
    spec = {"id": "x", "scenario": "bench", "seed": 1, "mutant": ""}
    finding = {"name": "no token", "checks": ["J4", "J6:x"], "text": "The wire has none.", "rows": 1, "examples": []}
    same("reports/verdict.txt", render({**head, "checks": [entry], "findings": [finding], "measures": MEASURES, "spec": spec}))


def test_the_samples_of_the_pages_are_what_a_bench_prints() -> None:
    """When a check or a column comes or goes: `make bench`, its verdict.json here, and what it prints into the pages."""
    decided = json.loads(Path(__file__).with_name("bench_verdict.json").read_text())
    judging = [check for check in CHECKS if check.judges(Run(spec=decided["spec"], files={}))]
    assert [(entry["id"], entry["name"]) for entry in decided["checks"]] == [(check.id, check.name) for check in judging]
    printed = render(decided)
    assert f"\n...\n{printed}\n```" in (ROOT / "docs" / "verification.md").read_text()
    (sample,) = [block for block in (ROOT / "README.md").read_text().split("```") if "verdict: valid" in block]
    assert {*sample.splitlines()} <= {*printed.splitlines(), "...", "  ..."}


def test_a_run_that_could_not_be_looked_at_shows_why_and_the_verdict() -> None:
    decided = undecided("the history of x is empty", {})
    printed = render(decided, Path("runs/x"), columns=500).splitlines()
    assert printed[:5] == ["reasons", "  the history of x is empty", "", "what now", f"  {REMEDIES[Cause.INPUT]}"]
    assert printed[5].endswith(" -m reports judge runs/x") and printed[6:] == ["", "verdict: unknown"]
    assert json.loads(json.dumps(decided))["measures"]["lost"] is None


def check_entry(id: str, verdict: str = "valid", why: str = "", **more: Any) -> dict[str, Any]:
    return {
        **{"id": id, "name": f"the name of {id}", "verdict": verdict, "violations": int(verdict == "violated")},
        **{"declared": 0, "possible": 0, "examples": [], "why": why, "not_judged": [], **more},
    }


def decided(verdict: str, *checks: dict[str, Any], causes: dict[str, list[str]] | None = None, **spec: Any) -> dict[str, Any]:
    reasons = [f"{one['id']} {one['verdict']}: {one['why']}" for one in checks if one["verdict"] != "valid"]
    head = {"verdict": verdict, "reasons": reasons, "causes": causes or {}, "checks": list(checks)}
    return {**head, "findings": [], "measures": MEASURES, "spec": spec}


def section(printed: str, title: str) -> list[str]:
    """The lines of a section below its title; none when it is not there."""
    return next((lines[1:] for block in printed.split("\n\n") if (lines := block.splitlines())[0] == title), [])


NO_COMMAND = "  no command repeats this run: its folder does not say how it was made"
BENCH = {"id": "x", "scenario": "bench", "seed": 7, "rate_per_s": 120, "pace": {"settle_ms": 1}, "plan": PLAN}


def sections() -> Told:
    """Clean checks are one line, and all lists them; one that counted something is listed; one reason of several is said once;
    objectives are a table and a line before the verdict."""
    clean = decided("valid", check_entry("J1"), check_entry("J2"))
    yield "clean", (section(render(clean), "checks"), section(render(clean, every=True), "checks"))
    counted = decided("valid", check_entry("J1"), check_entry("J6", declared=4))
    yield "counted", section(render(counted), "checks")
    checks = [check_entry(name, "unknown", "missing rows may hide a violation") for name in ("J1", "J2", "J4")]
    holes = {"holes": ["H0", "J1", "J2", "J4"]}
    printed = render(decided("unknown", check_entry("H0", "unknown", "x is missing"), *checks, causes=holes), columns=500)
    yield "reasons", (section(printed, "reasons"), section(printed, "what now"))
    line = {"objective": "errors.lost", "bound": 0.01, "at_least": False, "unit": "share", "value": 0.05, "result": "missed"}
    head = {"verdict": "valid", "reasons": [], "checks": [], "findings": [], "measures": MEASURES, "spec": {}}
    yield "objectives", render({**head, "slo": [{**line, "note": "5 of 100"}]}).splitlines()


def errors() -> Told:
    """Each becomes one line."""
    java = "An error occurred while calling o7.parquet.\n: org.apache.X: failed\n\tat a\n"
    spark = "Job aborted\n\tat x\nCaused by: [ARITHMETIC_OVERFLOW] long overflow\n\tat y"
    full = f"{java}Caused by: java.io.IOException: disk full\n\tat b"
    for error in (ValueError(spark), KeyError(), ValueError(full), ValueError(java)):
        yield repr(error), one_line(error)


def test_sections_of_a_verdict_and_errors_say_what_they_said() -> None:
    tells("reports/sections.txt", sections, errors)


def test_a_violated_run_ends_with_its_proof_and_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path.parent)
    rows = ["worker-1.jsonl:7   1.000 s", "worker-1.jsonl:12  1.500 s"]
    run = decided(
        "violated", check_entry("J2"), check_entry("J1", "violated", "a broke", examples=["a broke"], evidence=rows), **BENCH
    )
    printed = render(run, tmp_path)
    assert section(printed, "reasons") == ["  J1 violated: a broke", *(f"    {row}" for row in rows)]
    assert printed.count("a broke") == 1
    repeat, least = (" ".join(line.split()) for line in section(render(run, tmp_path, columns=500), "what now"))
    assert repeat.startswith("repeat ") and repeat.endswith(f" -m chaos replay {tmp_path.name}")
    assert least.startswith("find the least faults ") and least.endswith(f" -m chaos shrink {tmp_path.name}")


REPEATING = [
    ({"scenario": "service", "seed": 7}, ["run chaos.toml --seed 7"]),
    ({"scenario": "service", "seed": 7, "mutant": "x"}, ["campaign mutants --only service-x --seed 7"]),
    ({"scenario": "interop both", "seed": 3}, ["run interop --seed 3"]),
    ({"scenario": "bench", "seed": 1}, []),
    ({**BENCH, "plan": []}, ["replay"]),
]


@pytest.mark.parametrize(("spec", "commands"), REPEATING)
def test_only_commands_that_can_repeat_the_run_are_named(spec: dict[str, Any], commands: list[str], tmp_path: Path) -> None:
    printed = section(render(decided("violated", check_entry("J1", "violated", "x"), **spec), tmp_path, columns=500), "what now")
    assert [line for line in printed if " -m chaos " not in line] == ([] if commands else [NO_COMMAND])
    named = [line for line in printed if " -m chaos " in line]
    assert all(f" -m chaos {command}" in line for line, command in zip(named, commands, strict=True))


def test_the_named_commands_are_those_of_the_harness(tmp_path: Path) -> None:
    for scenario in (*causes.BY_SEED, causes.SERVICE, "bench"):
        spec = {"scenario": scenario, "seed": 1, "pace": {"settle_ms": 1}, "plan": PLAN}
        for command in causes.repeated(spec, tmp_path, violated=True).values():
            assert cli.parse(command.partition(" -m chaos ")[2].partition("  (")[0].split()).command


@pytest.mark.parametrize("cause", list(Cause))
def test_an_unknown_run_ends_with_the_remedy_of_its_cause(cause: Cause) -> None:
    printed = render(decided("unknown", check_entry("J4", "unknown", "why"), causes={cause: ["J4"]}, **BENCH), columns=500)
    assert section(printed, "what now")[0] == f"  J4: {REMEDIES[cause]}"
    assert ("the rate of this run was 120/s" in printed) == (cause == Cause.SLOW)
    assert ("judge it again" in printed) == (cause in (Cause.INPUT, Cause.CRASHED))
    assert f"--replay {Path.cwd().name}" not in printed and "--shrink" not in printed


def doubted(id: str, *doubts: str, **counts: str) -> CheckResult:
    """A check with these doubts, and one row of each level, of this kind."""
    check = next(check for check in CHECKS if check.id == id)
    rows = dict.fromkeys(counts.items(), 1)
    return CheckResult(check, list(doubts), counts=rows, examples={level: ["an example"] for level in counts})


CAUSES = [
    *((doubted("H0", "a file is missing"), {Cause.HOLES}), (doubted("H1", "not injected"), {Cause.FAULT})),
    *((doubted("H2", "met nothing"), {Cause.MISSED}), (doubted("H3", "goes back in time"), {Cause.RECORDER})),
    *((doubted("H3", unknown="late load"), {Cause.SLOW}), (doubted("H3", unknown="dropped load"), {Cause.SLOW})),
    *((doubted("H3", unknown="other"), {Cause.RECORDER}), (doubted("J1", "no claim ever succeeded"), {Cause.NOTHING})),
    (doubted("J1", Doubt("the check crashed: x", Cause.CRASHED)), {Cause.CRASHED}),
    (doubted("J1", "no claim", Doubt("the check crashed: x", Cause.CRASHED)), {Cause.CRASHED, Cause.NOTHING}),
    (doubted("H0", Doubt("the snapshot came late", Cause.SLOW)), {Cause.SLOW}),
    *((doubted("J4", unproven="lost"), {Cause.HOLES}), (doubted("J4", astray="lost"), {Cause.CLOCK})),
    (doubted("J13", slow="stuck"), {Cause.SLOW}),
    (doubted("J13", unknown="stuck", slow="stuck"), {Cause.OPEN, Cause.SLOW}),
    *((doubted("J13", full="stuck"), {Cause.FULL}), (doubted("J4", possible="lost"), set[Cause]())),
    (doubted("J4", violated="lost", unproven="lost"), set[Cause]()),
]


@pytest.mark.parametrize(("found", "causes"), CAUSES)
def test_the_causes_of_an_unknown_check_are_values(found: CheckResult, causes: set[Cause]) -> None:
    assert found.causes == causes
    written = decide([found], NO_MEASURES, {})["causes"] if found.check.id not in ("J4", "J6") else None
    assert written in (None, {cause: [found.check.id] for cause in REMEDIES if cause in causes})


def test_rows_that_hide_a_violation_are_holes() -> None:
    found = doubted("J1")
    found.hidden = True
    assert found.causes == {Cause.HOLES}


def test_measures_that_crashed_are_a_cause_of_no_check() -> None:
    assert decide([doubted("J1")], NO_MEASURES, {}, "the measures crashed")["causes"] == {Cause.CRASHED: []}


@pytest.mark.parametrize("columns", [60, 72, 80, 100, 140])
@pytest.mark.parametrize("every", [False, True])
def test_no_line_is_wider_than_the_terminal_and_no_id_is_cut(columns: int, every: bool) -> None:
    run = json.loads(Path(__file__).with_name("bench_verdict.json").read_text())
    printed = render(run, columns=columns, every=every)
    assert max(map(len, printed.splitlines())) <= columns
    words = {word.strip(",;:()") for word in printed.split()}
    planned = {name for fault in run["spec"]["plan"] for name in (fault["fault"], *fault["target"].split(","))}
    assert planned and planned <= words and {line["phase"] for line in run["measures"]["latency"]} <= words


def test_a_word_is_explained_once_where_it_comes_first() -> None:
    printed = render(json.loads(Path(__file__).with_name("bench_verdict.json").read_text()), every=True, columns=500).splitlines()
    lines = {f"    {word}: {meaning}" for word, meaning in WORDS.items()}
    for word, meaning in WORDS.items():
        told = [at for at, line in enumerate(printed) if line == f"    {word}: {meaning}"]
        uses = [at for at, line in enumerate(printed) if line not in lines and PATTERNS[word].search(line)]
        assert len(told) == bool(uses), word
        if told:
            section_end = printed.index("", uses[0])
            assert uses[0] < told[0] < section_end, word
    assert {"declared", "possible", "refused stale", "not sent", "in hand", "witnessed", "lead-in"} <= {
        line.strip().partition(":")[0] for line in printed
    }


def test_an_explanation_is_half_a_line() -> None:
    assert [word for word, meaning in WORDS.items() if len(word) + len(meaning) > 85] == []
