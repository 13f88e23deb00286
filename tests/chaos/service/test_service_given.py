"""A server that others use: keys of a run have a prefix of their own, and nothing of a run stays, however it ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from chaos.errors import HarnessError
from chaos.service.capacity import service_work
from chaos.service.file import read
from chaos.topology import given as module
from chaos.topology.given import PREFIXES, Given
from engine.testing import EmbeddedServer
from engine.testing.server import free_port
from tests.chaos.service.service import asked, written
from tests.engine.helpers.waiting import wait_until
from tests.golden import outcome, same

PASSWORD = "open-sesame"

#: Enters, writes a thousand keys, and is killed.
KILLED = """
import os, signal, sys
import redis
from chaos.topology.given import Given
with Given(sys.argv[1]) as given:
    redis.Redis.from_url(sys.argv[1]).mset({f"{given.prefix}{number}": 1 for number in range(1_000)})
    print(given.prefix, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def others(ironclaim_url: str) -> Any:
    """A client of the server, where others have keys."""
    with redis.Redis.from_url(ironclaim_url, decode_responses=True) as client:
        client.mset({"theirs": 1, "chaos-theirs": 1, "chaos-0:theirs": 1})
        yield client
        assert sorted(client.keys("*theirs")) == ["chaos-0:theirs", "chaos-theirs", "theirs"]


def test_only_the_keys_of_the_run_are_removed(others: Any, ironclaim_url: str) -> None:
    with Given(ironclaim_url) as one, Given(ironclaim_url) as other:
        assert one.prefix != other.prefix and others.smembers(PREFIXES) == {one.prefix, other.prefix}
        others.mset({f"{one.prefix}{number}": 1 for number in range(1_200)})
        others.set(f"{other.prefix}mine", 1)
        one.__exit__(None, None, None)
        assert others.keys(f"{one.prefix}*") == [] and others.exists(f"{other.prefix}mine")
        with Given(ironclaim_url) as third:
            assert third.removed == [], "the other one lives"
    assert others.keys("chaos-*mine") == []


def test_what_a_killed_run_has_left_goes_at_the_next_start(others: Any, ironclaim_url: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, ironclaim_url], capture_output=True, text=True, check=False)
    prefix = done.stdout.strip()
    assert done.returncode == -signal.SIGKILL and len(others.keys(f"{prefix}*")) > 1_000
    with Given(ironclaim_url) as given:
        assert given.removed == [prefix] and others.keys(f"{prefix}*") == []
    assert not others.exists(PREFIXES)


WRITTEN = ["", "*", "theirs", "chaos-", "chaos-*:", "chaos-0:", "chaos-0123456789abcdef:x", "CHAOS-0123456789abcdef:"]


@pytest.mark.parametrize("written", WRITTEN)
def test_what_no_run_has_made_is_no_prefix_to_remove(others: Any, ironclaim_url: str, written: str) -> None:
    """Whoever can write to the server could else have all of its keys removed."""
    others.sadd(PREFIXES, written)
    keys = others.dbsize()
    with Given(ironclaim_url) as given:
        assert given.removed == [] and others.dbsize() == keys + 1
    assert others.smembers(PREFIXES) == {written}
    others.delete(PREFIXES)


def test_a_run_that_was_silent_for_too_long_says_so(others: Any, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_S", 0.01)
    with Given(ironclaim_url) as given:
        assert given.complaint() == ""
        others.delete(f"{given.prefix}alive")
        wait_until(lambda: "another run may have removed its keys" in given.complaint(), "it says so")
        assert not others.exists(f"{given.prefix}alive")


def test_a_number_of_another_machine_says_nothing(others: Any, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Given(ironclaim_url) as far:
        who = json.loads(others.get(f"{far.prefix}alive"))
        others.set(f"{far.prefix}alive", json.dumps({**who, "process": "of another container"}))
        monkeypatch.setattr(module, "machine", lambda: "another container whose name is the same")
        with Given(ironclaim_url) as given:
            assert given.removed == []


def test_a_process_that_hides_from_other_users_lives(others: Any, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Given(ironclaim_url) as hidden:
        monkeypatch.setattr(module, "process", lambda pid: "")
        others.set(f"{hidden.prefix}alive", others.get(f"{hidden.prefix}alive"), ex=60)
        with Given(ironclaim_url) as given:
            assert given.removed == [] and others.exists(f"{hidden.prefix}alive")


def test_keys_that_are_no_text_are_removed_too(others: Any, ironclaim_url: str) -> None:
    with Given(ironclaim_url) as given:
        others.set(given.prefix.encode() + b"\xff\x00", 1)
    with redis.Redis.from_url(ironclaim_url) as raw:
        assert raw.keys("chaos-*:*\x00") == [] and raw.keys(f"{given.prefix}*") == []


def test_a_server_of_a_cluster_is_refused_and_has_nothing_of_it(tmp_path: Path) -> None:
    flags = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with EmbeddedServer(folder=tmp_path, flags=flags) as server:
        client: Any = redis.Redis.from_url(server.url)
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster has its slots")
        with pytest.raises(HarnessError, match="is one of a cluster"), Given(server.url):
            pass
        assert client.dbsize() == 0
        client.close()


def test_a_server_that_does_not_answer_is_one_line_without_its_password() -> None:
    with (
        pytest.raises(HarnessError, match=r"^the server at redis://\*\*\*@127.0.0.1:1/0: ") as caught,
        Given(f"redis://:{PASSWORD}@127.0.0.1:1/0"),
    ):
        pass
    assert PASSWORD not in str(caught.value) and "\n" not in str(caught.value)


#: Fields of the server, and what stands behind them; the line that says what is wrong stands in a text.
WRONG = [
    *('"redis://h"', "{}", "{ urls = [] }", '{ url = "sentinel://h:1/main" }', '{ url = "redis://h/0?db=3" }'),
    *('{ url = "redis://h/1/2" }', '{ url = "redis://h:port" }', '{ url = "$NO_SUCH_URL" }'),
    '{ url = "redis://h" }\ntopology = "aof"',
    '{ url = "redis://h" }\nfaults = ["worker-kill", "primary-kill"]',
    '{ url = "redis://h" }\nfaults = ["clients-killed"]',
]


def test_what_cannot_be_with_given_servers_is_one_line(tmp_path: Path) -> None:
    told = [f"servers = {value!r}: {outcome(read, written(tmp_path, servers=value))}\n" for value in WRONG]
    assert all(": HarnessError: chaos.toml: " in line and line.count("\n") == 1 for line in told)
    same("chaos/wrong_servers.txt", "".join(told))


def test_a_url_may_be_in_a_variable_and_is_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRILL_REDIS", f"redis://:{PASSWORD}@h:1/0")
    service = read(written(tmp_path, servers='{ url = "$DRILL_REDIS" }'))
    assert service.servers.endswith("@h:1/0") and PASSWORD not in service.secrets.hide(f"it is {PASSWORD}")
    assert PASSWORD not in repr(service) and {"worker-kill", "net-reply-lost"} <= {*(service.faults or ())}
    with pytest.raises(HarnessError, match="servers are given: a capacity is that of a server of the harness's own"):
        service_work(service.path, {}, [])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("nothing_left")
def test_a_drill_on_a_server_with_a_password_leaves_nothing_there_also_when_it_is_killed(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        with redis.Redis.from_url(server.url) as admin:
            admin.config_set("requirepass", PASSWORD)
        url = server.url.replace("redis://", f"redis://:{PASSWORD}@").replace("/0", "/3")
        client: Any = redis.Redis.from_url(url, decode_responses=True)
        client.set("theirs", 1)
        file = written(tmp_path, servers=f'{{ url = "{url}" }}', faults='["net-reply-lost", "worker-kill"]')
        runs = ("--runs", str(tmp_path / "runs"))

        began = subprocess.Popen([sys.executable, "-m", "chaos", "run", str(file), *runs], stdout=subprocess.DEVNULL)
        wait_until(lambda: len(client.keys("chaos-*:ic:{small}:*")) > 3, "the drill has keys")
        os.kill(began.pid, signal.SIGKILL)
        began.wait()
        assert client.keys("chaos-*") and client.keys("ic:*") == []

        done = asked("run", file, *runs, timeout_s=800)
        assert done.returncode in (0, 2), done.stdout + done.stderr
        assert "removed what killed runs had left at the server: chaos-" in done.stdout
        faults = [line for line in done.stdout.splitlines() if "1-" in line or "2-" in line]
        assert sum("yes" in line for line in faults) >= 2, done.stdout
        assert client.keys() == ["theirs"]
        kept = [path.read_text(errors="replace") for path in (tmp_path / "runs").rglob("*") if path.is_file()]
        assert PASSWORD not in done.stdout + done.stderr + "".join(kept)
        client.close()
