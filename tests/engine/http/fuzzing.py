"""Asks for the operations of the OpenAPI document in many ways, well and badly; schemathesis judges the answers: `ask` for one
operation so many times, the same in every run, `campaign` for all of them as long as it is told, each time in other ways."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis

#: How long a campaign lasts: `make test-nightly MINUTES=10`.
MINUTES = float(os.environ.get("IRONCLAIM_FUZZ_MINUTES") or "2")
#: How long a test of a campaign may last, on a machine with many other things to do.
CAMPAIGN_S = 60 * MINUTES + 3_600

#: Method, pattern of the path, and the check that such an operation cannot pass.
Unfit = tuple[str, str, str]


def ask(operation: Any, examples: int, excluded: list[Any], headers: dict[str, str] | None = None) -> None:
    """Ask for one operation, in so many ways, always with these headers. `excluded`: checks that it cannot pass."""

    slow = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.data_too_large]
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    same: dict[str, Any] = {"database": None, "derandomize": True, "phases": phases}

    @hypothesis.settings(max_examples=examples, deadline=None, suppress_health_check=slow, **same)
    @hypothesis.given(case=operation.as_strategy())
    def judge(case: schemathesis.Case) -> None:
        case.call_and_validate(timeout=120, excluded_checks=excluded, headers=headers)

    judge()


def campaign(base: str, folder: Path, paths: str, unfit: Sequence[Unfit], token: str = "") -> None:
    """Ask for everything below these paths (a pattern) for MINUTES, with schemathesis's whole program: the bounds of each
    argument, then at random, and calls that follow from each other. Fails with what it has found, with the seed that repeats it
    and a line of curl for each."""
    settings = folder / "schemathesis.toml"
    settings.write_text("\n".join(_settings(unfit, token)))
    report = folder / "report.json"
    command: list[str | Path] = [Path(sys.executable).with_name("schemathesis"), "--no-color", "--config-file", settings]
    command += ["run", f"{base}/openapi.json", "--include-path-regex", paths, "--max-time", str(round(60 * MINUTES))]
    command += ["--report", "json", "--report-json-path", report]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    found = json.loads(report.read_text())
    assert not found["failures"] and not found["errors"] and not found["operations"]["errored"], done.stdout
    print(f"{found['test_cases']['generated']} requests")
    assert found["test_cases"]["generated"] > 100


def _settings(unfit: Sequence[Unfit], token: str) -> list[str]:
    """The lines of schemathesis's file of settings. Streams do not end, so those are not asked for."""
    lines = ["continue-on-failure = true", "request-timeout = 120", 'suppress-health-check = ["all"]']
    lines += ["[generation]", 'database = "none"']
    if token:
        lines += ["[headers]", f'Authorization = "Bearer {token}"']
    lines += ["[[operations]]", 'include-path-regex = "/events$"', "enabled = false"]
    for method, path, check in unfit:
        lines += ["[[operations]]", f'include-method = "{method}"', f"include-path-regex = {json.dumps(path)}"]
        lines += [f"checks.{check}.enabled = false"]
    return lines
