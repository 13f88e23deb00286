"""The whole command with short steps on real parts. On a busy machine its numbers mean nothing, but what it did must agree."""

import json
import re
from pathlib import Path

import pytest

from bench.arrivals import RATE_MAX_PER_S
from chaos.capacity.request import Request
from chaos.capacity.search import MET, MISSED, VOID, Limits, Next, Tried, decide
from chaos.cli import main
from chaos.interrupts import Interrupts
from reports.capacity.little import little
from reports.capacity.measurement import Measurement, read, read_as

pytestmark = pytest.mark.usefixtures("nothing_left")

STEP_S = 3.0


MEASURED = [
    ("lanes", "embedded"),
    pytest.param("bull", "embedded", marks=pytest.mark.nightly),
    *(pytest.param("lanes", several, marks=pytest.mark.nightly) for several in ("replica", "sentinel", "cluster")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "topology"), MEASURED)
def test_short_steps_predict_and_verify(tmp_path: Path, capfd: pytest.CaptureFixture[str], model: str, topology: str) -> None:
    words = f"capacity --model {model} --topology {topology} --runs {tmp_path / 'runs'}"
    words += f" --step {STEP_S:g}s --last-step {STEP_S:g}s --verify-times 1 --no-scaling --p99-ms 5000"
    words += " --workers 1 --handlers 1 --handler-ms 15 --payload 1kb"
    with Interrupts() as interrupts:
        code = main(words.split(), interrupts)
    out, err = capfd.readouterr()
    last = re.fullmatch(r"capacity: rate=(\S+) interval=(\S+) met_below=(\d)/1 missed_above=(\d)/1", out.strip().splitlines()[-1])
    assert last is not None, (out, err)
    assert code == 0 if last[3] == last[4] == "1" else code in (1, 2)

    columns = json.loads((tmp_path / "runs" / "latest" / "measurement.json").read_text())
    found = read_as(Measurement, columns, "measurement")
    assert (found.target.model, found.target.topology) == (model, topology)
    assert (found.target.payload_bytes, found.target.handler_ms) == (1_024, 15)
    # What a server keeps for its replicas is no job's.
    assert 1_024 < found.memory.bytes_per_waiting < 2_500 and found.machine.server
    tried = [Tried(step.rate, step.seconds, VOID if step.void else MET if step.meets else MISSED) for step in found.steps]
    # each step was the one that the steps before it decided
    request = Request(workers=1, handlers_at_once=1, handler_ms=15, step_s=STEP_S, p99_ms=5_000)
    limits = Limits(request.first_per_s, request.least_per_s, RATE_MAX_PER_S, STEP_S, STEP_S)
    assert [decide(tried[:at], limits) for at in range(len(tried))] == [Next(step.rate_per_s, STEP_S) for step in tried]
    for step in found.steps:
        assert step.workers == 1 and step.handlers_at_once == 1 and 0 <= step.finished <= step.offered
        # a send whose answer was lost counts as dropped, and may have created its job
        assert step.offered - step.dropped <= sum(each.count for each in step.latency_ms.histogram) <= step.offered
        # no handler was quicker than it was told to be, and no job quicker than its handler
        assert step.service_ms.mean >= 15 and step.latency_ms.p50 >= 15 and step.report_ms.mean > 0
        # Nothing is sent in pipelines, so each command that clients send is a round trip; those inside of scripts are none.
        sent = sum(one.calls for one in step.server.sent.values())
        assert step.server.round_trips == pytest.approx(sent, rel=0.2, abs=0.5) and step.server.inside
        # one handler cannot do more
        assert step.finished <= step.seconds * 1_000 / 15 + 1
    # what the one handler cannot do was not met, on however quick a machine
    assert all(not step.meets for step in found.steps if step.rate > 150)
    # The law of Little holds on each, also where the backlog grows.
    assert [one.step.rate for one in little(found) if not one.holds] == []


#: A busy machine may spoil a comparison; it cannot make a wrong simulator near.
TRIES = 3


@pytest.mark.nightly
def test_the_simulator_is_near_to_three_measured_points(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A low rate, a medium one, and an overload; handlers are slow, so that they and not the processor are what is scarce."""
    words = "capacity --validate --workers 1 --handlers 8 --handler-ms 100 --last-step 60s --runs"
    codes = list[int]()
    while 0 not in codes and len(codes) < TRIES:
        with Interrupts() as interrupts:
            codes.append(main([*words.split(), str(tmp_path / "runs")], interrupts))
    out, err = capfd.readouterr()
    assert codes[-1] == 0, (codes, out, err)
    assert out.strip().splitlines()[-1].startswith("simulation: points=3 near=9/9 ")
    found = read(tmp_path / "runs" / "latest")
    assert [step.rate for step in found.sound] == [8, 24, 56, 104]
    assert found.sound[-1].waiting.slope_interval[0] > 0 and not found.sound[-1].meets
