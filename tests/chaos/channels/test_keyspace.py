"""The keys of channels as the harness presets and reads them, on a real server with a real channel."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from chaos.channels.keyspace import Keyspace, gone_back
from chaos.channels.spec import Channel as SpecChannel
from engine import Channel
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from record.history import HistoryFile, load_file

WRAPPING = SpecChannel("wrapping", "one", ("a", "b"), (), 2, 1_500, CLOCK_MAX - 1)
CHANNELS = (WRAPPING, SpecChannel("plain", "one", ("a",), (), 1, 60_000))


@pytest.fixture
def keyspace(ironclaim_url: str) -> Iterator[Keyspace]:
    made = Keyspace(ironclaim_url, CHANNELS)
    yield made
    made.close()


def now_ms(client: redis.Redis) -> int:
    """The server's clock."""
    seconds, micros = client.time()  # pyright: ignore
    return seconds * 1_000 + micros // 1_000


def test_a_preset_clock_is_that_of_a_channel_that_was_published_to(keyspace: Keyspace, ironclaim_url: str) -> None:
    client = redis.Redis.from_url(ironclaim_url)
    before_ms = now_ms(client)
    keyspace.preset()
    after_ms = now_ms(client)
    assert client.keys() == [b"c.{wrapping}.clock"]
    assert client.get("c.{wrapping}.clock") == str(CLOCK_MAX - 1).encode()
    # ceil(1.5 s + 15 s)
    assert before_ms + 17_000 <= int(str(client.pexpiretime("c.{wrapping}.clock"))) <= after_ms + 17_000
    with Channel("wrapping", url=ironclaim_url) as channel:
        assert channel.subscribe("a").clock == CLOCK_MAX - 1
        clocks = [channel.publish(f"m{number}", number).clock for number in range(3)]
        assert clocks == [CLOCK_MAX, CLOCK_MIN, CLOCK_MIN + 1]
        assert [message.clock for message in channel.fetch("a").messages] == clocks


def test_who_has_not_read_everything_is_behind(keyspace: Keyspace, ironclaim_url: str, tmp_path: Path) -> None:
    keyspace.preset()
    with Channel("wrapping", url=ironclaim_url) as channel:
        for name in ("a", "b"):
            channel.subscribe(name)
        assert keyspace.look().behind() == []
        for number in range(2):
            channel.publish(f"m{number}", number)
        receipt = channel.fetch("b").receipt
        assert receipt is not None
        channel.acknowledge("b", receipt)
    look = keyspace.look()
    assert look.behind() == [("wrapping", "a")] and look.clocks == {"wrapping": CLOCK_MIN, "plain": None}
    assert look.cursors == {"wrapping": {"a": CLOCK_MAX - 1, "b": CLOCK_MIN}, "plain": {"a": None}}
    keyspace.end(HistoryFile(tmp_path / "harness.jsonl", proc="harness", role="harness"), 17)
    finals = [row for row in load_file(tmp_path / "harness.jsonl").rows if row["kind"] == "final"]
    assert [(row["name"], row["channel"], row["clock"], row["t_ns"]) for row in finals] == [
        ("end", "wrapping", CLOCK_MIN, 17),
        ("end", "plain", None, 17),
    ]
    assert finals[0]["items"] == [{"subscriber": "a", "cursor": CLOCK_MAX - 1}, {"subscriber": "b", "cursor": CLOCK_MIN}]
    assert finals[1]["items"] == [{"subscriber": "a"}]


def test_clocks_that_went_back_are_told_from_those_that_wrapped() -> None:
    before = {"same": 5, "on": 5, "wrapped": CLOCK_MAX, "back": 5, "back over the wrap": CLOCK_MIN, "gone": 5, "never": None}
    now = {"same": 5, "on": 6, "wrapped": CLOCK_MIN, "back": 4, "back over the wrap": CLOCK_MAX, "gone": None, "never": None}
    assert gone_back(before, now) == ["back", "back over the wrap", "gone"]
