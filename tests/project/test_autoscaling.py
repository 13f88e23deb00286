"""The page on autoscaling: its files are YAML that fits together, and ask for metrics that the engine has."""

import re
from pathlib import Path

import pytest
import yaml

from engine import Queue, Scaling
from engine.command.serve import SCALING, attribute

GUIDES = Path(__file__).resolve().parents[2] / "docs/guides"
PAGE = (GUIDES / "autoscaling.md").read_text()
FILES = [file for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for file in yaml.safe_load_all(text)]
PROMETHEUS, KEDA, ADAPTER, AUTOSCALER = FILES
#: A name of a metric in a text, and the queue that is asked for beside it.
METRIC = re.compile(r"\bironclaim_[a-z_]+\b")


@pytest.fixture
def exported(ironclaim_url: str) -> set[str]:
    """The names of all metrics."""
    with Queue("shop", url=ironclaim_url) as queue:
        return set(re.findall(r"^# TYPE (\S+) ", queue.metrics(), re.MULTILINE))


def test_the_files_ask_for_metrics_that_are_there(exported: set[str]) -> None:
    (trigger,) = KEDA["spec"]["triggers"]
    (rule,) = ADAPTER["externalRules"]
    external = AUTOSCALER["spec"]["metrics"][0]["external"]
    asked = {*METRIC.findall(trigger["metadata"]["query"]), *METRIC.findall(rule["seriesQuery"]), external["metric"]["name"]}
    assert asked == {"ironclaim_wanted_workers"} and asked <= exported
    assert set(METRIC.findall(PAGE)) <= exported


def test_the_table_of_metrics_is_what_is_exported(exported: set[str]) -> None:
    table = re.findall(r"^\| (`ironclaim_[^|]*)\|", (GUIDES / "observing.md").read_text(), re.MULTILINE)
    assert {name for row in table for name in METRIC.findall(row)} == exported


def test_the_files_scale_the_workers_of_the_page_on_deploying() -> None:
    deploying = (GUIDES / "deploying.md").read_text()
    workers = next(yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", deploying, re.DOTALL)[0]))
    assert workers["spec"]["template"]["spec"]["containers"][0]["command"][1] == "worker"
    for file in (KEDA, AUTOSCALER):
        assert file["spec"]["scaleTargetRef"]["name"] == workers["metadata"]["name"]
    (query,) = re.findall(r'queue="(\w+)"', KEDA["spec"]["triggers"][0]["metadata"]["query"])
    selected = AUTOSCALER["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"]["queue"]
    (scrape,) = PROMETHEUS["scrape_configs"]
    assert scrape["metrics_path"] == f"/api/queues/{query}/metrics" and query == selected


def test_each_bounds_the_workers_as_the_metric_does() -> None:
    bounds = {name: int(value) for name, value in re.findall(r"ironclaim serve .*--workers-(min) (\d+) --workers-(?:max)", PAGE)}
    bounds |= {name: int(value) for name, value in re.findall(r"--workers-(max) (\d+)", PAGE)}
    keda, autoscaler = KEDA["spec"], AUTOSCALER["spec"]
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (bounds["min"], bounds["max"])
    assert (autoscaler["minReplicas"], autoscaler["maxReplicas"]) == (bounds["min"], bounds["max"])
    # So many replicas as the metric says: it is divided by one.
    assert KEDA["spec"]["triggers"][0]["metadata"]["threshold"] == "1"
    assert AUTOSCALER["spec"]["metrics"][0]["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}


def test_the_table_of_options_is_that_of_the_command() -> None:
    rows = re.findall(r"^\| (`--[^|]*)\|[^|]*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    told: dict = {}
    for flags, defaults in rows:
        told |= dict(zip(re.findall(r"--[a-z-]+", flags), defaults.split(", "), strict=True))
    assert sorted(told) == sorted(flag for flag, _, _ in SCALING)
    for flag, text in told.items():
        default = getattr(Scaling(), attribute(flag))
        assert (text == "not known" and not default) or float(text.replace(",", "")) == default, flag
