"""The table of what was run, the package's metadata and the check of a new connection name the same versions."""

import re
import tomllib
from pathlib import Path

import pytest

from engine.errors import UnsafeServer
from engine.redis.handshake import check_server

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(product: str) -> list[tuple[int, ...]]:
    """The versions of the table's rows, lowest first."""
    found = re.findall(rf"^\| {product} ([\d.]+) \|", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE)
    return sorted(tuple(int(part) for part in version.split(".")) for version in found)


def test_the_classifiers_name_the_pythons_that_were_run() -> None:
    named = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["classifiers"]))
    assert [f"{major}.{minor}" for major, minor, _ in run("Python")] == named != []
    assert PROJECT["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize("least", [min(run("Redis")), min(run("Valkey"))], ids=str)
def test_the_servers_that_were_run_are_let_in(least: tuple[int, ...]) -> None:
    check_server({"redis_version": ".".join(map(str, least)), "maxmemory_policy": "noeviction"})


def test_nothing_older_than_the_oldest_redis_that_was_run_is_let_in() -> None:
    major, minor, _ = min(run("Redis"))
    older = f"{major}.{minor - 1}.0" if minor else f"{major - 1}.99.0"
    with pytest.raises(UnsafeServer, match="redis_version"):
        check_server({"redis_version": older, "maxmemory_policy": "noeviction"})
