"""`python -m bench scale` at a tiny size: every call of every dimension is measured, and leaves the queue as large."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import engine
from bench.micro import place, scale, scale_states
from bench.micro.desk import Desk
from bench.micro.scale_calls import OWN_BULK, STEPS, Meter
from engine.ops.looks import Count
from engine.testing import EmbeddedServer
from tests.bench.real_parts import TWO_CORES, silent
from tests.golden import Told, answers, tells

pytestmark = TWO_CORES


@pytest.mark.parametrize("name", scale_states.STATES)
def test_each_dimension_is_measured_at_each_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "ROUNDS_LEAST", 1)
    monkeypatch.setattr(scale, "BASE_JOBS", 200)
    own = {step: dimensions for step, dimensions in STEPS.items() if name in dimensions}
    plain = {step: dimensions for step, dimensions in STEPS.items() if not dimensions}
    # All steps in one of the dimensions; in each other its own and a few more.
    monkeypatch.setattr(scale, "STEPS", STEPS if name == "waiting" else own | dict(islice(plain.items(), 2)))
    state = replace(scale_states.STATES[name], sizes=(2, 20))
    found = scale.measure({name: state}, 0.0, silent)
    assert set(found) == {state.title} and len(found[state.title]) >= (30 if name == "waiting" else 2)
    for title, sizes in found[state.title].items():
        assert set(sizes) == {2, 20}, title
        assert all(value > 0 for values in sizes.values() for value in values), title


def test_a_step_leaves_the_queue_as_large_as_it_was(server: EmbeddedServer) -> None:
    with engine.Queue("scale", url=server.url, connect=scale.CONNECT) as queue:
        desk = Desk(queue, place.client(server))
        scale_states.fill_fast(desk, 1_500)
        assert queue.counts().waiting == 1_500
        for step in STEPS:
            meter = Meter(desk)
            step(meter)
            after = queue.counts()
            assert [getattr(after, state) for state in ("waiting", "delayed", "active", "dead")] == [1_500, 0, 0, 0], step
            assert meter.took_ms, step


def test_a_fast_fill_makes_jobs_like_any_other(server: EmbeddedServer) -> None:
    with engine.Queue("scale", url=server.url, connect=scale.CONNECT) as queue:
        desk = Desk(queue, place.client(server))
        scale_states.fill_fast(desk, 2_345, priority=3)
        assert queue.counts().waiting == 2_345
        assert len({job.lease.job for job in queue.driver.run(desk.claims.call(1_000)).jobs}) == 1_000
        with pytest.raises(RuntimeError, match="was sent 2 times"):
            meter, call = Meter(desk), queue.model.call(Count())
            desk.plain.config_resetstat = lambda: queue.driver.run(call)  # type: ignore[method-assign]
            place.client(server).config_resetstat()
            meter.send("counts", call)


def growth_is_the_exponent_over_the_last_decade() -> Told:
    """None of what is too small to matter, or of nothing to compare."""
    times_ms = ({10: 9.0, 100: 1.0, 1_000: 10.0}, {100: 2.0, 10_000: 2.0}, {10: 0.01, 100: 0.1}, {10: 5.0})
    yield from answers([(scale.growth, times_ms)])


def a_call_misses_when_it_is_slow_or_grows() -> Told:
    flat, slow, steep, own = ([0.1] * 19 + [9.0], [6.0] * 20, [1.0] * 20, [7.0] * 20)
    found = {"flat": {10: [0.1] * 20, 100: flat}, "slow": {10: slow, 100: slow}, "steep": {10: [0.1] * 20, 100: steep}}
    table = scale.rows({"lanes": {**found, OWN_BULK: {10: own, 100: own}}})
    yield "rows", table
    yield "last line", scale.last_line(table)
    # Imported here, because matplotlib takes a second of each process that only collects this module.
    from bench.micro.figure import draw_scale, markdown

    yield "page", [line for line in markdown(table, "a machine").splitlines() if line.startswith("| ")]
    with TemporaryDirectory() as folder:
        draw_scale(table, "a machine", figure := Path(folder, "scale.png"))
        yield "a figure", figure.stat().st_size > 10_000


def test_what_grows_is_told() -> None:
    tells("bench/scale.txt", growth_is_the_exponent_over_the_last_decade, a_call_misses_when_it_is_slow_or_grows)
