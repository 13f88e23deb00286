"""The arithmetic of the micro-benchmarks: repetitions in turns, ratios, intervals, targets, and what is printed of them."""

import re
import signal
import threading
import time

import pytest

from bench.micro.command import details
from bench.micro.rounds import in_turns, interval, quantile, ratio
from bench.micro.sampler import Sampler, tell
from bench.micro.targets import TARGETS, ratio_line, table
from tests.golden import Told, tells

KEYS = (
    *("enqueue", "bulk", "drain", "pickup_p50", "pickup_p99"),
    *("claim_deep", "claim_blocked", "claim_lanes", "bytes_valkey", "bytes_redis"),
    *("publish", "publish_batch", "fetch_calls", "wake_ms", "catch_up", "catch_up_keys"),
)


def test_each_round_begins_with_another_case() -> None:
    seen: list[str] = []
    told: list[str] = []

    def case(name: str) -> str:
        seen.append(name)
        return name

    found = in_turns({name: lambda name=name: case(name) for name in "abc"}, 4, told.append)
    assert ("".join(seen), found) == ("abcbcacababc", {name: [name] * 4 for name in "abc"})
    assert told[-1] == "repetition 4 of 4"


def test_a_ratio_compares_what_ran_side_by_side() -> None:
    # the machine halves its speed after the second repetition: each pair still says 0.5, the medians of both would not
    assert ratio([50, 50, 25, 25, 24], [100, 100, 50, 50, 60]) == 0.5
    with pytest.raises(ValueError, match="shorter"):
        ratio([1, 2], [1])


def test_quantiles_are_samples() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0), quantile([7.0], 0.5)) == (50, 99, 100, 7)


def test_the_interval_comes_from_slices_and_from_its_seed() -> None:
    even = [[1.0, 2.0, 3.0]] * 10
    assert interval([[2.0, 4.0, 6.0]] * 10, even, 0.5) == (2.0, 2.0)
    # one bad slice in ten: its samples come and go together, so the interval is wide
    low, high = interval([[10.0, 10.0, 10.0], *even[1:]], even, 0.99)
    assert (low, high) == (1.0, 10 / 3)
    spread = [[1.0 + number / 10] for number in range(10)]
    assert interval(spread, even, 0.5, seed=3) == interval(spread, even, 0.5, seed=3)
    low, high = interval(spread, even, 0.5)
    assert low < quantile([value for slice_ in spread for value in slice_], 0.5) / 2.0 < high


def printed() -> Told:
    """The last line has every number in its place; what is unknown or was not asked for is none; an interval stands beside its
    number; details are medians and leave out what failed; a profile counts lines and functions."""
    yield "all", ratio_line(dict.fromkeys(KEYS, 1.2345) | {"bytes_valkey": 438.94, "bytes_redis": 551.06})
    some = {"bytes_redis": None, "drain": 0.7}
    yield "some", (ratio_line(some), table(some))
    yield "interval", table({"pickup_p50": 1.05}, {"pickup_p50": (0.99, 1.12)})
    drained = {"jobs_per_s": [1000.0, 3000.0, 2000.0], "script_us": [9.0, 8.0, 10.0], "server_us": [12.0], "client_us": [7.0]}
    drain = {what: {"floor, batch 50": values} for what, values in drained.items()}
    memory = {"bytes_per_job": {"valkey": {"waiting": 438.0}, "redis": None}}
    yield "details", details({"enqueue": None, "drain": drain, "memory": memory})
    head = "Stack (most recent call first):\n"
    stack = f'{head}  File "/a/engine/x.py", line 3 in f\n  File "/a/engine/y.py", line 9 in <listcomp>\n'
    yield "profile", tell(stack * 3 + f'{head}  File "/a/engine/y.py", line 10 in g\n', most=15)


def test_numbers_are_printed_in_their_places() -> None:
    tells("bench/micro.txt", printed)
    assert tuple(target.key for target in TARGETS) == KEYS


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.key)
def test_the_table_says_met_and_missed_by_the_number_and_not_by_its_text(target) -> None:
    # both are printed like the bound itself
    better, worse = (target.bound + step * (1 if target.at_least else -1) for step in (1e-5, -1e-5))
    assert target.shown(better) == target.shown(worse)
    assert [line for line in table({target.key: better}) if line.endswith("  met")]
    assert [line for line in table({target.key: worse}) if line.endswith("  missed")]
    assert target.met(target.bound) and target.reach(better) > 1 > target.reach(worse)


def test_the_sampler_sees_every_thread_that_works() -> None:
    # No share of CPU time brings a sample for certain: beside six busy processes 0.1 s brought none in most tries.
    sampled = re.compile(r"%  bench/test_micro_numbers.py:\d+ spin")

    def spin() -> None:
        end_s = time.thread_time() + 30
        while not sampled.search("\n".join(sampler.lines())) and time.thread_time() < end_s:
            for _ in range(100_000):
                pass

    with Sampler() as sampler:
        thread = threading.Thread(target=spin)
        thread.start()
        thread.join()
    assert sampled.search("\n".join(sampler.lines())) and signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
