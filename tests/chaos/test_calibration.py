"""The calibration: which rate samples stand for, what it says, and one on the real parts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos import calibration, cli, errors, run
from chaos.calibration import HEADROOM, LAG_MAX_MS, RATES_PER_S, TRIAL_S, Calibration, Samples, calibrate, judged
from chaos.channels.plan import PACE
from chaos.channels.spec import ChannelSpec, Crossings
from chaos.interrupts import Interrupts
from chaos.plan import Plan
from chaos.scenarios.channels import Channels
from chaos.spec import RunSpec
from engine.testing import EmbeddedServer
from reports.catch_up import LAG_HIGHEST_MS, LAG_OF_CALIBRATION
from tests.given import Output, Patch

SECOND_NS = 1_000_000_000
TOO_SLOW = "this machine is too slow: it does not carry 40 jobs/s"


def samples(rate_per_s: int, *, lag_ms: Callable[[float], float] = lambda _: 5.0, waiting: int = 0, part: float = 1.0) -> Samples:
    """What a trial of a rate sees: sends that are evenly spaced, each as late as `lag_ms` has it at its second."""
    offered_per_s = rate_per_s * HEADROOM * part
    times_s = [number / offered_per_s for number in range(round(offered_per_s * TRIAL_S))]
    lags = [(round(at_s * SECOND_NS), lag_ms(at_s)) for at_s in times_s]
    return Samples(lags, [(round(at_s * SECOND_NS), waiting) for at_s in (0.5, 1.0, 1.5)], [0.4, 0.2, 42.0])


def test_the_median_of_the_round_trips_counts() -> None:
    assert judged(120, samples(120)).ping_ms == 0.4


def test_what_waits_before_the_first_send_and_after_the_last_does_not_count() -> None:
    seen = samples(120)
    waiting = [(-1, 900), *seen.waiting, (3 * SECOND_NS, 900), (4 * SECOND_NS, 900)]
    assert not judged(120, replace(seen, waiting=waiting)).complaint


def carrying(most_per_s: int) -> Callable[[int], Samples]:
    """A machine that carries so much."""
    return lambda rate_per_s: samples(rate_per_s, lag_ms=lambda at_s: 5.0 if rate_per_s <= most_per_s else 250.0)


def test_the_spec_keeps_what_was_seen() -> None:
    kept = json.loads(json.dumps(calibrate(carrying(100)).for_spec()))
    assert (kept["rate_per_s"], kept["lag_ms"], kept["ping_ms"]) == (90, 5.0, 0.4)
    assert [one["rate_per_s"] for one in kept["trials"]] == [120, 90]


def test_what_is_carried_is_within_what_the_judge_allows() -> None:
    assert LAG_MAX_MS * LAG_OF_CALIBRATION <= LAG_HIGHEST_MS


@pytest.mark.slow
def test_channels_publish_at_the_same_part_of_their_rates() -> None:
    """And their clocks are preset for that: they wrap when they should."""
    made = Channels(spec=ChannelSpec(id="x", seed=1), plan=Plan(1, PACE, ()), crossings=Crossings())
    slower, usual = made.at_rate(calibrate(carrying(60))), made.at_rate(calibrate(carrying(120)))
    assert slower.rate == 0.5 and slower.calibration["rate_per_s"] == 60
    assert slower.channels != usual.channels == made.at_rate(calibrate(carrying(500))).channels


def test_a_machine_that_is_too_slow_is_said_before_the_load(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(run, "calibrated", lambda *_: calibrate(carrying(10)))
    assert cli.main(["run", "bench", "--faults", "worker-kill", "--runs", str(tmp_path)], Interrupts()) == 2
    said = capsys.readouterr().out.splitlines()
    assert said[-2].startswith(TOO_SLOW) and said[-1] == "verdict: unknown" and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_calibration_on_the_real_parts_leaves_nothing_behind(ironclaim_server: EmbeddedServer, monkeypatch: Patch) -> None:
    """Whatever this machine carries, the senders had their time, and the server answered."""
    # Longer than a pause of the machine, in which nothing is sent in time.
    monkeypatch.setattr(calibration, "TRIAL_S", 8.0)
    found: Calibration = calibration.calibrated("lanes", Interrupts(), asked_per_s=40)
    assert found.rate_per_s == 40 and found.last.sent > 0 and found.last.ping_ms > 0 and found.last.server > 0
    assert RATES_PER_S[-1] == 40


def test_workers_that_cannot_start_are_one_line(monkeypatch: Patch) -> None:
    monkeypatch.setattr("chaos.processes.worker_command", lambda *_: ["sh", "-c", "echo no luck; exit 3"])
    with pytest.raises(errors.HarnessError, match=r"^calibration: worker-\d: exit code 3 \(no luck\)$"):
        calibration.calibrated("lanes", Interrupts())


def test_a_spec_without_a_calibration_has_an_empty_one() -> None:
    assert RunSpec(id="x", seed=1).calibration == {}
