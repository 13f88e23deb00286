"""Small functions of the harness on both sides of each bound: what comes of each, as one text."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chaos import catalogue, plan
from chaos.calibration import Samples, calibrate, judged
from chaos.campaigns import mutants, nightly
from chaos.capacity import figures, prediction
from chaos.capacity.options import DURATIONS, SIZES, quantity
from chaos.capacity.prediction import ABOVE, BELOW, Prediction
from chaos.capacity.request import Request
from chaos.capacity.search import MET, MISSED, VOID, VOIDS_MAX, Tried, decide
from chaos.channels import plan as channel_plan
from chaos.channels.spec import ChannelSpec
from chaos.judge import Verdict
from chaos.spec import RunSpec
from chaos.targets import spec as target_spec
from reports.folder import loss_faults
from tests.chaos import test_mutant_outcomes as of_mutants
from tests.chaos import test_nightly as of_nights
from tests.chaos.capacity.test_search import LIMITS
from tests.chaos.test_calibration import carrying, samples
from tests.chaos.test_mutant_outcomes import CAUGHT, MUTANT, UNKNOWN, VALID, with_checks
from tests.golden import Told, answers, tells

#: The long step, and what follows when it misses what a short one met.
LONG = ((94, MET), (100, MISSED), (96, MET), (96, MISSED, 60))
#: Rates and what came of them, in 15 s where nothing else is said.
TRIED: list[tuple[tuple[Any, ...], ...]] = [
    # The ramp, and downwards, when the first is too much.
    *((), ((50, MET),), ((50, MET), (100, MET)), ((9_000, MET),), ((10_000, MET),), ((10_000, MET), (10_000, MET, 60))),
    *(((50, MISSED),), ((50, MISSED), (25, MISSED), (12.5, MISSED), (6.2, MISSED)), ((50, MISSED), (5, MISSED))),
    # Bisection.
    *(((50, MET), (100, MISSED)), ((50, MET), (100, MISSED), (75, MISSED)), ((50, MET), (100, MISSED), (75, MET))),
    *(((50, MET), (100, MISSED), (96, MET)), ((50, MET), (100, MISSED), (96, MET), (96, MET, 60)), LONG, (*LONG, (94, MET, 60))),
    # A step that proves nothing is repeated, and a rate that proves nothing is a wall.
    *(((50, MET), (100, VOID)), ((50, MET), *[(100, VOID)] * VOIDS_MAX), ((50, MET, 60), *[(52, VOID)] * VOIDS_MAX)),
    *(((50, MET), (52, MISSED), *[(50, VOID, 60)] * (VOIDS_MAX - 1)), ((5, VOID),) * 3),
    # What met above a rate that missed does not count.
    ((50, MET), (100, MISSED), (200, MET)),
]
WRONG_REQUESTS: list[dict[str, Any]] = [
    *({"rate_per_s": 0}, {"rate_per_s": -3}, {"rate_per_s": float("nan")}, {"rate_per_s": 5_000, "workers": 2}, {"p99_ms": 15}),
    *({"p99_ms": 20}, {"handler_ms": 9_000, "p99_ms": 30_000}, {"payload_bytes": 0}, {"step_s": 0}, {"workers": 0}),
    *({"model": "sql"}, {"topology": "ring"}, {"topology": "cluster", "model": "bull"}),
]
BUSY, TIMES = "the driver used 0.9 of its core", range(1, 101)
AGREED = [(BELOW, MET), (ABOVE, MISSED)]
ENDS: list[list[tuple[float, str]]] = [
    *(AGREED * 3, AGREED * 2, [*AGREED * 2, (BELOW, MET), (ABOVE, MET)], [*AGREED * 2, (BELOW, VOID), (ABOVE, VOID)]),
    *([(BELOW, MISSED), (ABOVE, MISSED)] * 3, []),
]


def next_try(*told: tuple[Any, ...]) -> object:
    return decide([Tried(one[0], one[2] if len(one) == 3 else 15, one[1]) for one in told], LIMITS)


def size(text: str) -> float:
    return quantity(SIZES)(text)


def length(text: str) -> float:
    return quantity(DURATIONS)(text)


def requested(changes: dict[str, Any]) -> object:
    return Request(**changes)


def target_ms(handler_ms: float, p99_ms: float | None = None) -> float:
    return Request(handler_ms=handler_ms, p99_ms=p99_ms).p99_target_ms


def met(void: str | None, p99_ms: float, slope_low: float, dropped: int) -> str:
    return figures.outcome(void, p99_ms=p99_ms, target_ms=100, slope_low_per_s=slope_low, dropped=dropped)


def verified(outcomes: list[tuple[float, str]]) -> object:
    return (found := prediction.verdict(outcomes, 3)), found.holds


def predicted(low: float, high: float) -> str:
    return Prediction(1_000, low, high).words()


def lost(topology: str, durability: str) -> object:
    """What the spec of a run says may be lost."""
    derived = RunSpec("run", 1, topology=topology, durability=durability).derived()
    return sorted(entry["fault"] for entry in derived["loss"]), loss_faults(list(derived["loss"]))


def of_jobs(changes: dict[str, Any]) -> object:
    return RunSpec(**{"id": "run", "seed": 1, **changes})


def drawn(kind: str, load: str = catalogue.JOBS, topology: str = "embedded") -> object:
    """A plan of this kind of fault; one that is no kind of such a run is refused with those that are."""
    if load == catalogue.CHANNELS:
        return channel_plan.draw(1, publishers=channel_plan.publisher_names(2), topology=topology, kinds=(kind,)).faults
    return plan.draw(1, workers=plan.worker_names(3), topology=topology, kinds=(kind,), load=load).faults


def drawn_of_targets(kind: str) -> object:
    return target_spec.draw(7, workers=4, kinds=(kind,)).faults


def of_channels(changes: dict[str, Any]) -> object:
    return ChannelSpec(**{"id": "run", "seed": 1, **changes})


CALLS: tuple[tuple[Callable[..., object], Sequence[Any]], ...] = (
    (next_try, TRIED),
    *((size, ("2kb", "200", "1.5MB", "", "kb", "2zb", "-1kb", "2 kb kb", "1e9h")), (length, ("1h", "90"))),
    *((requested, WRONG_REQUESTS), (target_ms, [*[(ms, at) for ms in (20, 200, 5, 0.5) for at in (None, 300)]])),
    (figures.percentile, [([], 0.99), ([7], 0.99), ([*TIMES], 0.99), ([*TIMES], 0.5), ([1, 2], 0.99), ([1, 2], 0.5)]),
    (figures.void_reason, [(0.8, 20, 100, 8), (0.81, 0, 100, 60), (0.1, 21, 100, 60), (0.1, 0, 100, 7)]),
    (met, [(None, 100, 0, 0), (None, 100, -5, 0), (None, 100.1, -5, 0), (None, 30, 0.1, 0), (None, 30, -5, 1)]),
    *((met, [(BUSY, 30, -5, 0), (BUSY, 300, 5, 9)]), (verified, ENDS)),
    (predicted, [(910, 1_090), (900, 1_100), (890, 1_010), (990, 1_110)]),
    (prediction.last_line, [(800.0, Prediction(812.5, 800, 850), prediction.Verdict(3, 2, 3))]),
    (prediction.last_line, [(rate, None, prediction.Verdict(0, 0, 3)) for rate in (800.0, None)]),
    (lost, [("embedded", ""), ("aof", "always"), ("aof", "everysec"), ("replica", "server"), ("sentinel", "server")]),
    (lost, [("sentinel", "replica"), ("cluster", "server"), ("cluster", "replica")]),
    (lost, [("sentinels", ""), ("aof", "replica"), ("sentinel", "everysec")]),
    (
        of_jobs,
        [{"model": "resque"}, *[{"face": "http", **one} for one in ({"face": "grpc"}, {"model": "bull"}, {"topology": "aof"})]],
    ),
    (drawn, ["net-dwon", ("slot-move", catalogue.JOBS, "sentinel"), "app-kill", ("server-pause", catalogue.HTTP)]),
    (drawn, [("worker-kill", catalogue.CHANNELS), ("snapshot-restore", catalogue.CHANNELS, "sentinel")]),
    (drawn_of_targets, ["earthquake"]),
    (of_channels, [{"seed": -1}, {"publishers": 0}, {"rate": 0.01}]),
)


def calls() -> Told:
    """Each of these calls."""
    yield from answers(CALLS)


def calibrated() -> Told:
    """Samples of 120 a second: a rate is carried when most slices are in time. And the first that is carried is picked."""
    at_once = [(number, 1.0) for number in range(480)]
    seen = {
        **{"quick": samples(120), "hardly sent": samples(120, part=0.7)},
        "late within the bound": samples(120, lag_ms=lambda at_s: 99.0),
        "one long pause": samples(120, lag_ms=lambda at_s: 900.0 if at_s < 0.7 else 5.0),
        "late in every slice": samples(120, lag_ms=lambda at_s: 130.0 if at_s % 0.25 < 0.02 else 1.0),
        **{"some wait": samples(120, waiting=24), "a backlog": samples(120, waiting=25), "nothing sent": Samples([], [], [])},
        **{f"a server in scripts for {part}": replace(samples(120), scripts_s=part) for part in (1.4, 1.5)},
        "all at one instant": replace(samples(120), lags=at_once),
    }
    for name, one in seen.items():
        yield name, judged(120, one).complaint
    for most_per_s, asked_per_s in ((500, None), (70, None), (10, None), (500, 300), (70, 300), (500, 20)):
        found = calibrate(carrying(most_per_s), asked_per_s)
        yield f"carries {most_per_s}, asked {asked_per_s}", (found.rate_per_s, len(found.trials), found.words())


def ended() -> Told:
    """Why a mutant is missed, and the last lines and exit codes of mutants and of nights: 0 is only for all as it must be."""
    missed = {
        **{"valid": VALID, "crashed": Verdict("unknown", reasons=("the judge crashed",))},
        "others": Verdict("violated", {"J6": "violated"}, ("J6 violated: two",)),
        **{"unknown": with_checks(CAUGHT, J3="unknown"), "more": with_checks(CAUGHT, "lost", J4="violated")},
        "a doubt": with_checks(CAUGHT, "a row", ("open",), J4="unknown"),
        **{"unmet": with_checks(CAUGHT, J3="valid"), "caught": CAUGHT, "nothing": UNKNOWN},
    }
    for name, found in missed.items():
        yield f"missed, {name}", mutants.missed(MUTANT, found)
        # Only what proves nothing is drilled again; a false alarm of the clean engine stays one.
        yield f"again, {name}", [of_mutants.result("a", mutant, found).again for mutant in (MUTANT, None)]
    known = {"caught": CAUGHT, "valid": VALID, "unknown": UNKNOWN}
    for names in ("caught valid", "valid valid", "caught caught", "caught unknown", "unknown unknown", "valid unknown", ""):
        results = [of_mutants.result("ab"[at], (MUTANT, None)[at], known[name]) for at, name in enumerate(names.split())]
        yield f"mutants {names}", (mutants.last_line(results), mutants.exit_code(results))
    for names in ("valid valid", "valid unknown", "valid violated unknown", "unknown unknown", ""):
        nights = [of_nights.result(name) for name in names.split()]
        yield f"nights {names}", (nightly.last_line(nights), nightly.exit_code(nights))


def test_small_functions_say_what_they_said() -> None:
    tells("chaos/edges.txt", calls, calibrated, ended)
