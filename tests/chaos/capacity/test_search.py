"""The search for the rate: tables of steps and what is tried next, and whole searches on machines whose limit is known."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.arrivals import RATE_MAX_PER_S
from chaos.capacity.command import BESIDE_STEP_S, END_S, VERIFY_STEPS, WORKER_COUNTS, guess_s
from chaos.capacity.request import Request
from chaos.capacity.search import MET, MISSED, VOID, Found, Limits, Next, Tried, decide

LIMITS = Limits(first_per_s=50, least_per_s=5, most_per_s=10_000, step_s=15, last_step_s=60)


def searched(outcome: Callable[[Next, int], str], limits: Limits = LIMITS) -> tuple[Found, list[Tried]]:
    """A whole search on a machine that answers like this; the second argument counts the steps."""
    tried: list[Tried] = []
    while not isinstance(decided := decide(tried, limits), Found):
        tried.append(Tried(decided.rate_per_s, decided.seconds, outcome(decided, len(tried))))
        assert len(tried) <= limits.steps_max
    return decided, tried


@pytest.mark.parametrize("limit_per_s", [6, 49, 50, 51, 137, 800, 3_333, 9_999])
def test_a_limit_is_found_within_five_per_cent_by_a_long_step(limit_per_s: float) -> None:
    found, tried = searched(lambda step, _: MET if step.rate_per_s <= limit_per_s else MISSED)
    assert found.rate_per_s is not None and found.high_per_s is not None
    assert found.rate_per_s <= limit_per_s < found.high_per_s <= 1.05 * found.rate_per_s
    assert tried[-1] == Tried(found.rate_per_s, 60, MET) and len(tried) <= 17


def test_a_limit_that_long_steps_see_lower_is_that_of_the_long_steps() -> None:
    found, _ = searched(lambda step, _: MET if step.rate_per_s <= (800 if step.seconds == 15 else 700) else MISSED)
    assert found.rate_per_s is not None and 600 < found.rate_per_s <= 700


@pytest.mark.parametrize(("limit_per_s", "every"), [(1_570, 0), (800, 0), (137, 0), (9_999, 0), (6, 0), (1_570, 4), (9_999, 4)])
def test_a_measurement_with_the_defaults_takes_less_than_25_minutes(limit_per_s: float, every: int) -> None:
    """By arithmetic, where each step takes 6 s more than its time, 60 s go by before the first, and some are void."""
    request = Request()
    begin_s, outcome = 60.0, lambda rate_per_s: MET if rate_per_s <= limit_per_s else MISSED
    limits = Limits(request.first_per_s, request.least_per_s, RATE_MAX_PER_S, request.step_s, request.last_step_s)
    _, tried = searched(lambda step, number: VOID if every and number % every == 1 else outcome(step.rate_per_s), limits)
    spent_s = begin_s + sum(step.seconds + BESIDE_STEP_S for step in tried)
    verify = 2 * request.verify_times * (1 + bool(every))
    spent_s += verify * (VERIFY_STEPS * request.step_s + BESIDE_STEP_S)
    searches = 0
    # Other numbers of workers, in the time that is left.
    while searches < WORKER_COUNTS - 1 and request.within_s - spent_s >= guess_s(request):
        searches += 1
        spent_s += guess_s(request) - END_S
    assert spent_s + END_S <= request.within_s == 25 * 60
    # All of them where nothing was void and the guesses are as near as usual: at most five steps each.
    usual_s = begin_s + sum(step.seconds + BESIDE_STEP_S for step in tried) + 6 * 36 + 3 * 5 * 21 + END_S
    assert every or usual_s <= request.within_s - guess_s(request) + 5 * 21 + END_S


def test_the_longest_search_leaves_time_to_verify() -> None:
    request = Request()
    longest_s = LIMITS.steps_max * (request.step_s + BESIDE_STEP_S) + 3 * request.last_step_s
    assert 60 + longest_s + 2 * request.verify_times * (VERIFY_STEPS * request.step_s + BESIDE_STEP_S) + END_S < request.within_s


def test_void_steps_now_and_then_change_nothing() -> None:
    alone, _ = searched(lambda step, _: MET if step.rate_per_s <= 800 else MISSED)
    disturbed, _ = searched(lambda step, number: VOID if number % 3 == 1 else MET if step.rate_per_s <= 800 else MISSED)
    assert disturbed == alone


def test_a_driver_that_is_full_is_a_wall_and_is_told() -> None:
    found, _ = searched(lambda step, _: MET if step.rate_per_s <= 800 else VOID)
    assert found.wall and found.rate_per_s is not None and 700 < found.rate_per_s <= 800


def test_a_machine_that_answers_at_random_ends_too() -> None:
    for seed in range(50):
        _, tried = searched(
            lambda step, number, seed=seed: (MET, MISSED, VOID)[hash((seed, number, step.rate_per_s)) % 3],
            replace(LIMITS, steps_max=12),
        )
        assert len(tried) <= 12
