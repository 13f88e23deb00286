"""The estimate of the server's time: early by the travel of the reply, never ahead (rule 3)."""

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine import Queue
from engine.ops.base import ServerClock
from tests.engine.using import refused

YEAR_US = 366 * 86_400 * 1_000_000


def test_nothing_is_known_before_the_first_reply() -> None:
    clock = ServerClock()
    assert not clock.known
    refused(RuntimeError, "not known before the first reply", clock.now_ms, 0)


def test_it_counts_from_the_arrival() -> None:
    clock = ServerClock()
    clock.learn(srv_us=5_000_000, arrival_ns=1_000_000_000)
    assert clock.known and clock.now_ms(1_000_000_000) == 5_000 and clock.now_ms(1_000_999_999) == 5_000
    assert clock.now_ms(1_001_000_000) == 5_001 and clock.now_ms(3_500_000_000) == 7_500


def test_the_latest_reply_counts_also_when_the_server_steps_back() -> None:
    clock = ServerClock()
    clock.learn(5_000_000, 1_000_000_000)
    clock.learn(2_000_000, 2_000_000_000)
    assert clock.now_ms(2_000_000_000) == 2_000
    clock.learn(9_000_000, 3_000_000_000)
    assert clock.now_ms(3_000_000_000) == 9_000


@given(st.integers(0, 100 * YEAR_US), st.integers(0, YEAR_US), st.integers(0, 10**10), st.integers(0, YEAR_US * 1000))
def test_it_never_runs_ahead(srv_us: int, boot_us: int, travel_ns: int, later_ns: int) -> None:
    """The server said `srv_us` at some instant, the reply travelled, and time went on."""
    clock, said_ns = ServerClock(), boot_us * 1000
    clock.learn(srv_us, said_ns + travel_ns)
    now_ns = said_ns + travel_ns + later_ns
    true_us = srv_us + (now_ns - said_ns) // 1000
    behind_us = true_us - clock.now_ms(now_ns) * 1000
    # Behind by the travel and by less than one millisecond of rounding, up to a microsecond of each division.
    assert 0 <= behind_us <= travel_ns // 1000 + 1_001


def test_a_real_server(ironclaim_url: str, client: Any) -> None:
    with Queue("q", url=ironclaim_url) as queue:
        for _ in range(20):
            estimate_ms = queue.driver.server_now_ms()
            seconds, micros = client.time()
            assert estimate_ms <= seconds * 1000 + micros // 1000
            queue.counts()
        assert abs(queue.driver.server_now_ms() - time.time() * 1000) < 60_000
