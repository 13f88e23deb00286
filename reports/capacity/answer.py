"""Everything that a measurement and a question give, as one value: what text, file and page are made of."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from reports.capacity import measurement
from reports.capacity.basis import Basis, basis
from reports.capacity.fit import Law, Refused, fit, points
from reports.capacity.little import Bottleneck, Little, bottleneck, little
from reports.capacity.measurement import Measurement
from reports.capacity.plan import Numbers, numbers
from reports.capacity.prediction import Confirmed, Prediction, confirmed, predict
from reports.capacity.question import EXTRAPOLATION_MAX, Prices, Question, beyond
from reports.capacity.question import read as read_prices
from reports.capacity.words import Figure, figures
from reports.errors import JudgeError
from reports.simulation.measured import of_plan
from reports.simulation.system import Outcome

SCHEMA = 1

#: Multiples of the asked rate whose plans the page lists.
RATES = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Everything that was found out, for the text, the file and the page."""

    found: Measurement
    law: Law | Refused
    basis: Basis
    prices: Prices
    asked: Question
    plan: Numbers
    figures: tuple[Figure, ...]
    little: tuple[Little, ...]
    bottleneck: Bottleneck
    prediction: Prediction
    confirmed: Confirmed
    #: Plans of other rates, as far as they lie within what was measured.
    others: tuple[tuple[Question, Numbers], ...]
    simulated: Outcome | None


def answer(options: argparse.Namespace) -> Answer:
    """Everything about one question."""
    found = measurement.read(options.plan)
    law = fit(points(found), options.seed)
    known, priced = basis(found, law), read_prices(options.prices)
    asked = question(options, found)
    plan = numbers(asked, known, priced)
    far = beyond(asked, known)
    if far and not options.simulate:
        raise JudgeError(
            f"{'; '.join(far)}: a plan goes at most {EXTRAPOLATION_MAX:g} times beyond a measurement. Measure nearer to it, ask "
            f"for at most {EXTRAPOLATION_MAX * known.rate_met:,.0f} jobs/s, or let --simulate answer"
        )
    return Answer(
        found=found,
        law=law,
        basis=known,
        prices=priced,
        asked=asked,
        plan=plan,
        figures=tuple(figures(asked, known, priced, plan)),
        little=little(found),
        bottleneck=bottleneck(found),
        prediction=predict(found),
        confirmed=confirmed(found),
        others=tuple(ladder(asked, known, priced)),
        simulated=of_plan(found, known, asked, plan, seed=options.seed) if options.simulate else None,
    )


def question(options: argparse.Namespace, found: Measurement) -> Question:
    """What is asked; what was not given is as measured."""
    measured: dict[str, Any] = {"rate": found.met[-1].finished_per_s, **asdict(found.target)}
    given = {name: getattr(options, name) for name in Question.__dataclass_fields__}
    chosen: dict[str, Any] = {name: measured.get(name) if value is None else value for name, value in given.items()}
    return Question(**chosen)


def ladder(asked: Question, known: Basis, priced: Prices) -> list[tuple[Question, Numbers]]:
    """The plans of multiples of the rate that are answered without simulation."""
    rows: list[tuple[Question, Numbers]] = []
    for times in RATES:
        other = Question(**{**asdict(asked), "rate": asked.rate * times, "workers": None})
        if not beyond(other, known):
            rows.append((other, numbers(other, known, priced)))
    return rows


def as_json(made: Answer) -> dict[str, Any]:
    """The content of plan.json."""
    refused = made.law.reason if isinstance(made.law, Refused) else None
    return {
        "schema": SCHEMA,
        "measured": made.found.made,
        "machine": asdict(made.found.machine),
        "question": asdict(made.asked),
        "plan": asdict(made.plan),
        "figures": [asdict(one) for one in made.figures],
        "fit": {"refused": refused} if refused else asdict(made.law),
        "little": [{"rate": one.step.rate, **asdict(one.step.in_system), "holds": one.holds} for one in made.little],
        "bottleneck": {"name": made.bottleneck.name, "shares": dict(made.bottleneck.shares)},
        "prediction": asdict(made.prediction),
        "confirmed": {**asdict(made.confirmed), "holds": made.confirmed.holds},
        "simulated": simulated(made.simulated),
    }


def simulated(came: Outcome | None) -> dict[str, Any] | None:
    """What the simulation of the plan said."""
    if came is None:
        return None
    return {
        "p50_ms": came.percentile(0.5),
        "p99_ms": came.percentile(0.99),
        "waiting": came.waiting,
        "jobs": len(came.latencies_ms),
    }


def fitted(law: Law | Refused) -> str:
    """The fit in a sentence."""
    if isinstance(law, Refused):
        return f"refused: {law.reason}"
    (least, most), (low, high), (few, many) = law.rate_of_one_interval, law.contention_interval, law.coherence_interval
    return (
        f"one worker does {law.rate_of_one:,.0f} jobs/s ({least:,.0f} to {most:,.0f}), contention {law.contention:.3f} "
        f"({low:.3f} to {high:.3f}), coherence {law.coherence:.4f} ({few:.4f} to {many:.4f}); largest residual {law.residual:.1%}"
    )


def simulation_words(made: Answer) -> str:
    """The simulation in a sentence."""
    came = made.simulated
    if came is None or not len(came.latencies_ms):
        return "no job finished"
    p99_ms = came.percentile(0.99)
    verb = "meets" if p99_ms <= made.asked.p99_ms else "misses"
    return (
        f"p50 {came.percentile(0.5):.1f} ms, p99 {p99_ms:.1f} ms, which {verb} {made.asked.p99_ms:g} ms; {came.waiting:,.1f} "
        f"jobs wait on average ({len(came.latencies_ms):,} jobs, random arrivals, measured service times)"
    )
