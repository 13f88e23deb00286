"""Recovery as drills have seen it: which run counts, and what is said without one."""

import json
from pathlib import Path
from typing import Any

from chaos.capacity.recovery import recoveries

S_NS = 1_000_000_000


def drill(runs: Path, name: str, *faults: tuple[str, float | None], verdict: str = "valid", **spec: Any) -> Path:
    """A judged run: of each fault its name and the recovery that the judge found. Its heal comes 2 s after its inject."""
    folder = runs / name
    (folder / "history").mkdir(parents=True)
    lines = [{"fault": f"{at}-{kind}", "name": kind, "recovery_ms": ms} for at, (kind, ms) in enumerate(faults)]
    described = {"model": "lanes", "mutant": "", "lease_ms": 9_000, "topology": "aof", **spec}
    content = {"verdict": verdict, "spec": described, "measures": {"by_fault": lines}}
    (folder / "verdict.json").write_text(json.dumps(content))
    rows = [
        {"kind": "fault", "fault": line["fault"], "stage": stage, "t_ns": (10 * at + later) * S_NS}
        for at, line in enumerate(lines)
        for stage, later in (("inject", 0), ("heal", 2))
    ]
    (folder / "history" / "harness.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def found(runs: Path, topology: str = "embedded") -> dict[str, float]:
    return {loss: one["ms"] for loss, one in recoveries(runs, "lanes", topology).items()}


def test_without_a_drill_it_is_the_bound_and_is_called_so(tmp_path: Path) -> None:
    for runs in (tmp_path, tmp_path / "nowhere"):
        source = f"the bound: a lease of 9 s and a sweep of 1 s, as no drill of bull is in {runs}"
        assert recoveries(runs, "bull", "aof") == {"worker-kill": {"ms": 10_000, "source": source}}


def test_the_newest_drill_of_the_model_that_has_a_figure_counts(tmp_path: Path) -> None:
    drill(tmp_path, "1", ("worker-kill", 5_000.0))
    drill(tmp_path, "2", ("worker-kill", 3_000.0), ("worker-kill", 4_200.0), ("worker-freeze", 9_100.0))
    drill(tmp_path, "3", ("worker-kill", None))
    drill(tmp_path, "4", ("net-down", 40.0))
    drill(tmp_path, "5", ("worker-kill", 1.0), model="bull")
    drill(tmp_path, "6", ("worker-kill", 1.0), verdict="violated")
    drill(tmp_path, "7", ("worker-kill", 1.0), mutant="no-fence")
    drill(tmp_path, "8", ("worker-kill", 1.0), lease_ms=3_000)
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "verdict.json").write_text("{")
    (tmp_path / "latest").symlink_to("1")
    one = recoveries(tmp_path, "lanes", "embedded")["worker-kill"]
    # Of several kills in a run the slowest.
    assert one == {"ms": 4_200.0, "source": "drilled in 2 on aof, with a lease of 9 s"}


def test_a_server_is_away_from_its_kill_until_everybody_works_again(tmp_path: Path) -> None:
    run = drill(tmp_path, "1", ("server-kill", 270.0))
    assert found(tmp_path)["server-kill"] == 2_270
    (run / "history" / "harness.jsonl").unlink()
    assert "server-kill" not in found(tmp_path)


def test_a_drill_on_the_same_servers_counts_before_a_newer_one(tmp_path: Path) -> None:
    drill(tmp_path, "1", ("primary-kill", 900.0), topology="sentinel")
    drill(tmp_path, "2", ("server-kill", 100.0), topology="aof")
    assert found(tmp_path, "sentinel")["server-kill"] == 2_900
    assert found(tmp_path, "aof")["server-kill"] == 2_100
