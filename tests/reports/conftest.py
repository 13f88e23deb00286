"""Judges that use the Spark session of the suite, and a browser."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from reports import checks, findings, folder, frames, load, page, samples, verdict
from reports.judge import judge, tables_folder
from tests.reports.browser import window as window
from tests.reports.good_run import healthy
from tests.reports.story import Story

Judge = Callable[[Path], dict[str, Any]]
Told = Callable[..., Any]

#: Judges a run by some of the checks, without measures: (verdict, why) by check.
Checked = Callable[..., dict[str, tuple[str, str]]]
RowsOf = Callable[..., dict[str, set[tuple[str, str, str]]]]


def violations_of(run: Path, spark: SparkSession) -> list[Row]:
    """The violation rows of a run that was judged. Fails, with the run, where its judge has left none."""
    table = run / "tables" / "violations.parquet"
    assert table.exists(), f"the checks of {run} crashed, or it was not judged: see its verdict.json"
    return spark.read.parquet(str(table)).collect()


def lines_of(told: Mapping[str, tuple[str, str]], rows: Iterable[Row]) -> str:
    """What checks say, and all columns of each violation, a line for each. Claims are counted through a whole run: in which order
    its cases came is nothing of theirs."""
    verdicts = (f"{check} {verdict}: {why}" for check, (verdict, why) in told.items())
    found = (" | ".join(f"{name} {row[name]}" for name in sorted(row.asDict())) for row in rows)
    uncounted = partial(re.sub, r"(/[0-9a-f]{16}):\d+", r"\1:n")
    return "\n".join([*map(uncounted, verdicts), *sorted(map(uncounted, found)), ""])


def by_subject(rows: Iterable[Row]) -> dict[str, set[tuple[str, str, str]]]:
    """What each subject was found for: check, kind and level."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for row in rows:
        found.setdefault(row["subject"], set()).add((row["check"], row["kind"], row["level"]))
    return found


def verdict_of(run: Path, spark: SparkSession, draw: Told = lambda *_: None, say: Told = lambda *_: None) -> dict[str, Any]:
    """Judge a run's folder in the session of the suite. The page has tests of its own: it is not drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write_report", draw)
        return judge(run, spark=spark, say=say)


@pytest.fixture(scope="session")
def judged(spark: SparkSession) -> Judge:
    """Judge a run folder in the shared session."""
    return partial(verdict_of, spark=spark)


@pytest.fixture(scope="session")
def checked(spark: SparkSession) -> Checked:
    """Judge a run folder by the checks that a test is about: the others cost most of the time."""

    def decide(run: Path, *ids: str) -> dict[str, tuple[str, str]]:
        files, spec = folder.history_files(run), json.loads((run / "spec.json").read_text())
        history, tables = load.read_history(spark, run, files), tables_folder(run)
        built = frames.build(history, load.collect_facts(history, spec, samples.cpu_usage(run)), tables)
        found = findings.examine(built, tables, [check for check in checks.CHECKS if check.id in ids])
        return {one.check.id: told(one) for one in found}

    return decide


@pytest.fixture
def rows_of(checked: Checked, spark: SparkSession) -> RowsOf:
    """The violation rows of some checks, by what they are about: check, kind and level of each."""

    def judge(run: Path, *ids: str) -> dict[str, set[tuple[str, str, str]]]:
        checked(run, *ids)
        return by_subject(violations_of(run, spark))

    return judge


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A valid run that is still being written."""
    return healthy(tmp_path / "run")


@pytest.fixture
def run(story: Story) -> Path:
    """The folder of a valid run."""
    return story.write()


def steady(text: str, folder: Path) -> str:
    """A printed text or a page, without where it lies and the style of pages."""
    named = re.sub(r"[\w./-]*/python[\d.]*(?= -m )", "python", text.replace(str(folder), "FOLDER"))
    return re.sub(r"<style\b.*?</style>", "<style/>", named, flags=re.DOTALL)


def told(found: verdict.CheckResult) -> tuple[str, str]:
    """Verdict and reason of a check."""
    return found.verdict, found.why
