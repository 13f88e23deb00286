"""The seeded plan of the load on channels: reproducible, of the promised rates, and together complete in any number of parts."""

import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.channels import workload
from bench.workload import WorkloadError
from tests.golden import Told, outcome, tells

ROOT = Path(__file__).parents[2]
ID = re.compile(r"[0-9a-z][0-9a-z_-]{0,62}")


def first(count: int, **settings: float) -> list[workload.PlannedPublish]:
    return list(itertools.islice(workload.ChannelWorkload(seed=7, **settings).publishes(), count))  # pyright: ignore[reportArgumentType]


def test_the_same_seed_is_the_same_load_in_another_process() -> None:
    program = (
        "import itertools; from bench.channels.workload import *\n"
        "print(list(itertools.islice(ChannelWorkload(7).publishes(), 300)))"
    )
    there = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(first(300))
    assert first(300) != list(itertools.islice(workload.ChannelWorkload(seed=8).publishes(), 300))


def test_another_rate_moves_the_instants_and_nothing_else() -> None:
    for usual, double in zip(first(200), first(200, rate=2.0), strict=True):
        assert double.offset_ms == pytest.approx(usual.offset_ms / 2, abs=0.002)
        assert (double.channel, double.new, double.sender) == (usual.channel, usual.new, usual.sender)
        assert [(one.id, one.content) for one in double.messages] == [(one.id, one.content) for one in usual.messages]


def test_parts_together_are_the_whole_and_repeats_stay_with_their_sender() -> None:
    whole = first(2000)
    parts = [workload.ChannelWorkload(seed=7).publishes(part, 3) for part in range(3)]
    end_ms = whole[-1].offset_ms
    shares = [list(itertools.takewhile(lambda publish: publish.offset_ms <= end_ms, part)) for part in parts]
    assert sorted(itertools.chain(*shares), key=lambda publish: publish.index) == whole
    owner: dict[str, int] = {}
    for part, share in enumerate(shares):
        assert all(owner.setdefault(message.id, part) == part for publish in share for message in publish.messages)


def test_what_is_published_again_is_the_same_in_every_byte() -> None:
    contents: dict[tuple[str, str], object] = {}
    repeated = 0
    for publish in first(3000):
        assert sum((publish.channel, message.id) not in contents for message in publish.messages) == publish.new
        for message in publish.messages:
            assert ID.fullmatch(message.id)
            assert contents.setdefault((publish.channel, message.id), message) == message
            repeated += message.offset_ms != publish.offset_ms
        ids = [message.id for message in publish.messages]
        assert len(set(ids)) == len(ids) <= workload.BATCH[1] + 1
    assert 60 < repeated < 500 and len({id for _, id in contents}) == len(contents)


def test_rates_batches_and_sizes_are_as_planned() -> None:
    publishes = first(6000)
    seconds = publishes[-1].offset_ms / 1000
    assert len(publishes) / seconds == pytest.approx(sum(channel.rate_per_s for channel in workload.CHANNELS), rel=0.06)
    for channel in ("fan-10", "fan-10-b"):
        sent = sum(publish.channel == channel for publish in publishes)
        assert sent / seconds == pytest.approx(4.0, rel=0.2)
    assert {publish.channel for publish in publishes} == {channel.name for channel in workload.CHANNELS}
    assert sum(publish.new > 1 for publish in publishes) / len(publishes) == pytest.approx(0.06, abs=0.015)
    sizes = [len(json.dumps(message.content)) for publish in publishes for message in publish.messages]
    assert workload.CONTENT_BYTES[0] - 40 <= min(sizes) and max(sizes) <= workload.CONTENT_BYTES[1] + 20


def test_steps_of_each_clock_are_known_before() -> None:
    publishes = first(500)
    counted = workload.ChannelWorkload(seed=7).new_messages(publishes[-1].offset_ms)
    for channel in workload.CHANNELS:
        assert counted[channel.name] == sum(publish.new for publish in publishes if publish.channel == channel.name)


def test_every_subscriber_has_one_share_and_the_fan_outs_are_1_10_100() -> None:
    shared = [(channel.name, one.name) for share in workload.SHARES for channel, one in workload.of_share(share)]
    everybody = [(channel.name, name) for channel in workload.CHANNELS for name in channel.names]
    assert sorted(shared) == sorted(everybody) and len(set(shared)) == len(shared)
    fan_outs = {channel.name: channel.fan_out for channel in workload.CHANNELS}
    assert (fan_outs["fan-10"], fan_outs["fan-10-b"], fan_outs["fan-100"], fan_outs["short"]) == (10, 10, 100, 2)
    assert sum(fan_out == 1 for fan_out in fan_outs.values()) == workload.SINGLES
    assert all(ID.fullmatch(word) for pair in everybody for word in pair)
    # Most are on time, and of those that are not there is each kind.
    kinds = [one.kind for channel in workload.CHANNELS for one in channel.subscribers]
    assert set(kinds) == {"usual", "slow", "lazy", "vanished", "lagging"}
    assert kinds.count("usual") > 0.8 * len(kinds)
    assert sum(len(channel.slow) for channel in workload.CHANNELS) == len(kinds) - kinds.count("usual")


def refused() -> Told:
    """Settings and parts that are out of bounds; parts are refused at once."""
    wrong: list[dict[str, Any]] = [{"seed": -1}, {"seed": True}, {"rate": 0}, {"rate": math.nan}, {"id_prefix": "Two Words"}]
    for one in wrong:
        yield f"{one}", outcome(workload.ChannelWorkload, **{"seed": 1, **one})
    for parts in ((0, 0), (1, 1), (-1, 2), (0, 1001)):
        yield f"parts {parts}", outcome(workload.ChannelWorkload(seed=1).publishes, *parts)


def test_what_is_out_of_bounds_is_refused() -> None:
    tells("bench/wrong_channels.txt", refused)


def test_an_unknown_share_is_refused() -> None:
    with pytest.raises(WorkloadError, match="'nobody' is not one of subscriber-1, subscriber-2, consumer-1"):
        workload.of_share("nobody")
