"""What the judge and the recorder have read stays as it is: a verdict must not depend on who has looked at a value before."""

import dataclasses
import importlib
import pkgutil
from types import ModuleType

import record
import reports

#: What is filled while files are read, or while time goes on.
FILLED = {
    *("bench.cost.Usage", "bench.recorded.Recorded", "evidence.Found", "page.draw_lanes.Lease", "page.samples.Samples"),
    *("simulation.queueing.Job", "simulation.queueing.Shard", "verdict.CheckResult"),
}


def values_of(package: ModuleType) -> dict:
    """The dataclasses of a package, by module and name."""
    start = f"{package.__name__}."
    names = [one.name for one in pkgutil.walk_packages(package.__path__, start) if "__main__" not in one.name]
    found = [value for name in names for value in vars(importlib.import_module(name)).values() if isinstance(value, type)]
    own = (one for one in found if dataclasses.is_dataclass(one) and one.__module__.startswith(start))
    return {f"{one.__module__.removeprefix(start)}.{one.__name__}": one for one in own}


def test_values_are_frozen_but_for_those_that_are_filled() -> None:
    found = values_of(reports) | values_of(record)
    assert len(found) > 90 and {name for name, one in found.items() if not one.__dataclass_params__.frozen} == FILLED
