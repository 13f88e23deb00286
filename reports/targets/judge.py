"""The verdict on a run of another job queue: the checks, what was lost under its promise as findings, and the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports import verdict
from reports.checks.base import Check
from reports.facts import MS
from reports.targets.checks import CANNOT_BE_KNOWN, NAMES, violations
from reports.targets.facts import TargetFrames, TargetRun, build, read
from reports.verdict import DECLARED, EXAMPLES_MAX, CheckResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Kinds of violation rows, which are counted whatever their level.
KINDS = ("lost", "doubled", "late", "stranded")


def evaluate(spark: SparkSession, run: Path, spec: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The content of verdict.json, without objectives. Raises JudgeError."""
    found = read(run, spec)
    say(f"judge: checking {len(found.rows)} rows by the promise: {found.promise.words}")
    return decide(build(spark, found))


def decide(frames: TargetFrames) -> dict[str, Any]:
    """The verdict on the frames of a run."""
    run = frames.run
    totals = totals_of(frames)
    results = [*examined(frames), *doubtful(run, totals)]
    decided = verdict.decide(results, measures(frames, totals, results), {**run.spec, "findings": []})
    return {**decided, "spec": dict(run.spec), "findings": findings(run, results), "cannot_be_known": cannot_be_known()}


def examined(frames: TargetFrames) -> list[CheckResult]:
    """The results of T1 to T5."""
    results = {name: CheckResult(Check(name, words, lambda run: []), []) for name, words in NAMES.items()}
    for row in sorted(violations(frames).collect(), key=lambda row: (row["check"], len(row["subject"]), row["subject"])):
        one = results[row["check"]]
        # Missing rows may explain what rests on rows that are missing.
        level = "unproven" if row["absence"] and frames.run.holes and row["level"] == "violated" else row["level"]
        one.counts[level, row["kind"]] = one.counts.get((level, row["kind"]), 0) + 1
        examples = one.examples.setdefault(level, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(f"job {row['subject']} {row['detail']}")
            one.subjects.setdefault(level, []).append(row["subject"])
    return list(results.values())


def totals_of(frames: TargetFrames) -> dict[str, int]:
    """How many jobs were acknowledged, sent without an answer, run to their end, and acknowledged after the last fault."""
    counted = frames.jobs.agg(
        F.count("acknowledged_ns").alias("enqueued"),
        F.count_if(F.col("sent_ns").isNotNull() & F.col("acknowledged_ns").isNull()).alias("unanswered"),
        F.count_if(F.col("ends") > 0).alias("finished"),
        F.count_if(F.col("acknowledged_ns") > frames.run.healed_ns).alias("after"),
    )
    return {name: count for row in counted.collect() for name, count in row.asDict().items()}


def doubtful(run: TargetRun, totals: Mapping[str, int]) -> list[CheckResult]:
    """Why the run may prove nothing: a history with holes, faults that were not seen, no load."""
    little = [] if totals["finished"] else ["no job ran to its end"]
    little += [] if totals["after"] else ["no job was acknowledged after the last fault"]
    return [
        CheckResult(Check("H0", "the history is whole", lambda _: []), list(run.holes)),
        CheckResult(Check("H1", "every fault took effect and healed", lambda _: []), list(run.unseen)),
        CheckResult(Check("H2", "there was load, also after the last fault", lambda _: []), little),
    ]


def measures(frames: TargetFrames, totals: Mapping[str, int], results: Sequence[CheckResult]) -> dict[str, Any]:
    """The numbers of a run. What is lost, doubled, late and stranded is counted whether or not the promise allows it."""
    run = frames.run
    cuts = [row.asDict() for row in frames.cuts.collect()]
    cuts.sort(key=lambda cut: (cut["cut_ns"], cut["job"]))
    exits = [one for one in run.stages if one.name == "unplanned-exit"]
    return {
        **verdict.NO_MEASURES,
        **{name: totals[name] for name in ("enqueued", "unanswered", "finished")},
        **{kind: sum(n for one in results for (_, of), n in one.counts.items() if of == kind) for kind in KINDS},
        "exits": len(exits),
        "waited_ms": run.waited_ms,
        "faults": list(faults(run)),
        "recovery": list(recovery(run, cuts)),
        "kill": at_kills(cuts),
    }


def at_kills(cuts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What SIGKILL cost: of the jobs that it cut off, how many ran to their end later, and after how long they began again."""
    last = {cut["job"]: cut for cut in cuts}
    took = sorted((cut["again_ns"] - cut["cut_ns"]) / MS for cut in cuts if cut["again_ns"] is not None)
    return {
        "in_hand": len(last),
        "again": sum(cut["ends"] > 0 for cut in last.values()),
        "lost": sum(not cut["ends"] and not cut["held"] for cut in last.values()),
        "stranded": sum(not cut["ends"] and bool(cut["held"]) for cut in last.values()),
        "again_ms": took,
    }


def recovery(run: TargetRun, cuts: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """One line per kill; its recovery is that of the slowest job, None where one was never started again."""
    for one in run.stages:
        if one.name == "worker-kill" and one.stage == "inject":
            of_kill = [cut for cut in cuts if cut["fault"] == one.fault]
            took = [(cut["again_ns"] - cut["cut_ns"]) / MS for cut in of_kill if cut["again_ns"] is not None]
            slowest = max(took) if took and len(took) == len(of_kill) else None
            line = {"fault": one.fault, "target": one.target, "jobs": len(of_kill), "recovery_ms": slowest}
            yield {**line, "bound_ms": run.promise.bound_ms}


def faults(run: TargetRun) -> Iterable[dict[str, Any]]:
    """One line per fault, with what its witnesses saw."""
    for planned in run.spec["plan"]:
        of_fault = {one.stage: one for one in run.stages if one.fault == planned["fault"]}
        seen = [of_fault[name] for name in ("witness", "healed") if name in of_fault]
        yield {
            "fault": planned["fault"],
            "target": planned["target"],
            "witnessed": any(one.ok for one in seen if one.stage == "witness"),
            "healed": any(one.ok for one in seen if one.stage == "healed"),
            "detail": "; ".join(one.detail for one in seen),
        }


def findings(run: TargetRun, results: Sequence[CheckResult]) -> list[dict[str, Any]]:
    """What happened that the promise allows, with numbers and examples."""
    found: list[dict[str, Any]] = []
    for one in results:
        for (level, kind), count in one.counts.items():
            if level == DECLARED:
                text = f"the promise ({run.promise.words}) allows this"
                examples = one.examples[DECLARED]
                found.append({"name": kind, "text": text, "checks": [one.check.id], "rows": count, "examples": examples})
    if exits := [one for one in run.stages if one.name == "unplanned-exit"]:
        examples = [f"{one.target}: {one.detail}" for one in exits][:EXAMPLES_MAX]
        text = "workers ended by themselves and were started again"
        found.append({"name": "worker exits", "text": text, "checks": [], "rows": len(exits), "examples": examples})
    silent = [
        one for one in run.stages if one.stage == "healed" and ("started no handler" in one.detail or "was not" in one.detail)
    ]
    if silent:
        text = "processes that did nothing within 30 s after a fault had healed"
        examples = [f"{one.fault}: {one.detail}" for one in silent]
        found.append({"name": "silent after a fault", "text": text, "checks": [], "rows": len(silent), "examples": examples})
    return found


def cannot_be_known() -> list[dict[str, str]]:
    """The guarantees that nobody can judge here, and why."""
    return [{"check": name, "why": why} for name, why in CANNOT_BE_KNOWN.items()]
