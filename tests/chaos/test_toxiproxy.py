"""The real Toxiproxy server and our wrapper around its client: whatever it refuses, ignores or leaves unanswered is one line."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from chaos import processes, toxiproxy_binary
from chaos.errors import HarnessError
from chaos.network import Network
from chaos.probe import Address, Silence, ask, pinged, refused, round_trip_ms, through
from chaos.targets.faults import is_gone
from chaos.toxiproxy import Toxic, ToxiproxyClient, ToxiproxyError, ToxiproxyServer, blackhole, latency
from engine.testing import EmbeddedServer
from engine.testing.server import free_port, lowest_local_port
from tests.engine.helpers.waiting import wait_until
from tests.given import script

HOST = "127.0.0.1"
#: What answers at all does so within this, however long the machine pauses.
PATIENCE_S = 60.0


def answers(address: Address) -> bool:
    return pinged(address, PATIENCE_S)


def program() -> Path:
    found = toxiproxy_binary.find()
    assert found is not None, "there is no Toxiproxy server; `make setup` builds it"
    return found


@pytest.fixture(scope="module")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToxiproxyServer]:
    with ToxiproxyServer(program(), tmp_path_factory.mktemp("toxiproxy") / "log") as server:
        yield server


@pytest.fixture
def client(toxiproxy: ToxiproxyServer) -> ToxiproxyClient:
    return ToxiproxyClient(Address(HOST, toxiproxy.port))


@pytest.fixture
def proxy(client: ToxiproxyClient, ironclaim_server: EmbeddedServer) -> tuple[str, Address]:
    """Name and address of a new proxy before the test server."""
    listen = Address(HOST, free_port())
    name = f"proxy-{listen.port}"
    client.create(name, listen=listen, upstream=Address(HOST, ironclaim_server.port))
    return name, listen


def test_free_ports_are_free_and_none_that_the_kernel_gives_out() -> None:
    taken: list[int] = []
    for _ in range(50):
        # Each at once: the tests beside this one want ports, too, and may just have got the same.
        port = free_port()
        assert 10_000 <= port < lowest_local_port()
        taken += [] if refused(Address(HOST, port)) else [port]
    assert len(taken) <= 1, taken


def test_a_url_by_way_of_a_proxy_keeps_all_but_host_and_port() -> None:
    assert through("redis://10.0.0.1:7000/2", Address(HOST, 8)) == "redis://127.0.0.1:8/2"
    assert through("redis://me:secret@10.0.0.1:7000/2", Address(HOST, 8)) == "redis://me:secret@127.0.0.1:8/2"


def test_a_toxic_bites_and_heals(client: ToxiproxyClient, proxy: tuple[str, Address], ironclaim_server: EmbeddedServer) -> None:
    name, address = proxy
    server = Address(HOST, ironclaim_server.port)
    assert answers(address)
    client.add(name, latency("upstream", 40))
    client.add(name, latency("downstream", 40))
    assert [toxic["toxicity"] for toxic in client.show(name)["toxics"]] == [1, 1]
    assert [toxic["attributes"] for toxic in client.show(name)["toxics"]] == [{"latency": 40, "jitter": 0}] * 2
    assert round_trip_ms(address, answers) >= 80
    client.heal(name)
    wait_until(lambda: round_trip_ms(address, answers) < 80, "a round trip without them")
    for stream, arrives in (("upstream", ":0"), ("downstream", ":1")):
        client.add(name, blackhole(stream))
        with pytest.raises(Silence):
            ask(address, f"SET {name}-{stream} 1", 0.1)
        # On its way it is cut off with the heal.
        wait_until(lambda: ask(server, f"EXISTS {name}-{stream}", PATIENCE_S) == arrives, f"{arrives} {stream}")  # noqa: B023
        client.heal(name)
        assert ask(server, f"EXISTS {name}-{stream}", PATIENCE_S) == arrives
    client.enable(name, False)
    assert refused(address)
    client.heal(name)
    assert client.show(name)["toxics"] == [] and client.show(name)["enabled"] is True and answers(address)


def test_a_misspelt_attribute_is_noticed(client: ToxiproxyClient, proxy: tuple[str, Address]) -> None:
    toxic = Toxic("latency", "upstream", {"latnecy": 40, "jitter": 0})
    with pytest.raises(ToxiproxyError, match=r"^toxic latency-upstream on proxy-\d+: it reads back as .*'latency': 0.*, not as "):
        client.add(proxy[0], toxic)


def test_what_the_server_refuses_is_one_line(client: ToxiproxyClient, proxy: tuple[str, Address]) -> None:
    (name, address), nonsense = proxy, Toxic("nonsense", "upstream")
    refusals = [
        (lambda: client.add(name, nonsense), r"^toxic nonsense-upstream on .* refused it: .*invalid toxic type"),
        (lambda: client.add("nobody", blackhole("upstream")), r"^toxic timeout-upstream on nobody: .*proxy not found"),
        (lambda: client.create(name, listen=Address(HOST, free_port()), upstream=address), r"proxy already exists"),
    ]
    for refusal, line in refusals:
        with pytest.raises(ToxiproxyError, match=line) as caught:
            refusal()
        assert len(str(caught.value).splitlines()) == 1


def test_a_port_in_use_is_one_line_for_all_three(client: ToxiproxyClient, proxy: tuple[str, Address], tmp_path: Path) -> None:
    name, address = proxy
    with socket.create_server((HOST, 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(HarnessError, match=rf" on port {taken}: address already in use$"):
            ToxiproxyServer(program(), tmp_path / "log", taken).__enter__()
        late = rf"^proxy late on 127.0.0.1:{taken}: Toxiproxy answered 500: .*address already in use"
        with pytest.raises(ToxiproxyError, match=late):
            client.create("late", listen=Address(HOST, taken), upstream=address)
    client.enable(name, False)
    up = rf"^proxy {name} up: Toxiproxy answered 500: .*address already in use"
    with socket.create_server((HOST, address.port)), pytest.raises(ToxiproxyError, match=up):
        client.heal(name)
    client.heal(name)
    assert answers(address)


def test_a_server_that_does_not_answer_does_not_hang_the_harness() -> None:
    with socket.create_server((HOST, 0)) as deaf:
        address = Address(HOST, deaf.getsockname()[1])
        with pytest.raises(ToxiproxyError, match=rf"^the version: Toxiproxy at {address} does not answer \(ReadTimeout\)$"):
            ToxiproxyClient(address, timeout_s=0.1).version()
    with pytest.raises(ToxiproxyError, match=r"does not answer \(ConnectionError\)"):
        ToxiproxyClient(address).version()


def test_an_http_proxy_of_the_environment_is_not_used(client: ToxiproxyClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{HOST}:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert client.version()


def test_two_servers_at_once_are_told_apart(client: ToxiproxyClient, proxy: tuple[str, Address], tmp_path: Path) -> None:
    with ToxiproxyServer(program(), tmp_path / "log") as second:
        with pytest.raises(ToxiproxyError, match="proxy not found"):
            ToxiproxyClient(Address(HOST, second.port)).show(proxy[0])
        assert client.show(proxy[0])["enabled"] is True


def test_a_program_that_is_no_toxiproxy_is_one_line(tmp_path: Path) -> None:
    fake = script(tmp_path / "fake", "echo what is a port; exit 4")
    with pytest.raises(HarnessError, match=r"/fake on port \d+: exited with code 4; what is a port$"):
        ToxiproxyServer(fake, tmp_path / "log").__enter__()
    fake.write_text("no program")
    with pytest.raises(HarnessError, match=r"/fake: Exec format error; it must be a toxiproxy-server$"):
        ToxiproxyServer(fake, tmp_path / "log").__enter__()


OWNER = """
import sys, time
from pathlib import Path
from chaos.toxiproxy import ToxiproxyServer
with ToxiproxyServer(Path(sys.argv[1]), Path(sys.argv[2])) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


def test_it_does_not_outlive_an_owner_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(program()), str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=processes.ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(child), "its end")


def test_all_proxies_heal_but_one_that_cannot(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Network(ironclaim_url, program=program(), log=tmp_path / "log") as network:
        names = [f"worker-{number}" for number in range(1, 4)]
        for name in names:
            assert network.connect(name) == through(ironclaim_url, network.proxy(name))
        network.cut(names)
        heal = ToxiproxyClient.heal

        def heal_others(client: ToxiproxyClient, name: str) -> None:
            if name == "worker-1":
                raise ToxiproxyError("worker-1 is stubborn")
            heal(client, name)

        monkeypatch.setattr(ToxiproxyClient, "heal", heal_others)
        with pytest.raises(HarnessError, match="^worker-1 is stubborn$"):
            network.heal(names)
        assert [refused(network.proxy(name)) for name in names] == [True, False, False]
        monkeypatch.setattr(ToxiproxyClient, "heal", heal)
        psutil.Process(network.pid).kill()
        wait_until(network.complaint, "its end")
        with pytest.raises(HarnessError, match="^the Toxiproxy server exited in mid-run with code -9; see "):
            network.heal(names)
        network.heal_all()


def test_a_proxy_whose_port_is_taken_gets_another(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as other, Network(ironclaim_url, program=program(), log=tmp_path / "log") as network:
        ports = iter([other.getsockname()[1], free_port()])
        monkeypatch.setattr("chaos.network.free_port", lambda: next(ports))
        network.connect("worker-1")
        assert ask(network.proxy("worker-1"), "PING", PATIENCE_S) == "+PONG"


def test_a_server_with_an_address_of_ipv6_is_reached_through_a_proxy(tmp_path: Path) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        url = f"redis://[::1]:{server.getsockname()[1]}/2"
        with Network(url, program=program(), log=tmp_path / "log") as network, ThreadPoolExecutor(1) as pool:
            network.connect("worker-1")
            asked = pool.submit(ask, network.proxy("worker-1"), "PING", PATIENCE_S)
            server.settimeout(PATIENCE_S)
            connection, _ = server.accept()
            with connection:
                # The greeting, which chooses the database, is answered, too.
                connection.sendall(b"+OK\r\n+PONG\r\n")
                assert asked.result() in ("+OK", "+PONG")
    assert through("redis://10.0.0.1:7000/2", Address("::1", 8)) == "redis://[::1]:8/2"


def test_only_a_tcp_server_can_be_proxied(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="^the server's url is 'unix:///tmp/s': proxies need one that begins with redis://$"):
        Network("unix:///tmp/s", program=program(), log=tmp_path / "log")
