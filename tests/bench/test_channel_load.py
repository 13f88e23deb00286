"""Load on channels with the real Locust, a real server and real subscribers: what is published is what all of them get."""

import itertools
import json
import os
import signal
import subprocess
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from bench.channels import reading
from bench.channels.__main__ import main as subscribe
from bench.channels.workload import CHANNELS, LONG_MS, ChannelWorkload, of_share
from engine.models.dsps import clock_ahead
from engine.testing import EmbeddedServer, free_port
from tests.bench.real_parts import HEADLESS, Page, Processes, completions, rows_of, wait_until
from tests.given import Output
from tests.golden import same

MS = 1_000_000

Delivered = dict[tuple[str, str], dict[str, int]]


def locust(processes: Processes, *arguments: str, log: str = "locust.log") -> subprocess.Popen[bytes]:
    return processes.start("locust", "-f", "bench/channel_locustfile.py", *HEADLESS, *arguments, log=log)


def publisher(processes: Processes, url: str, history: Path, *arguments: str) -> subprocess.Popen[bytes]:
    words = ("-u", "3", "--host", url, "--history", str(history), *arguments, "Publisher")
    return locust(processes, *words, log=f"{history.stem}.log")


def subscriber(processes: Processes, url: str, history: Path, share: str = "subscriber-1") -> subprocess.Popen[bytes]:
    words = ("--host", url, "--share", share, "--history", str(history))
    return processes.start("bench.channels", "subscribe", *words, log=f"{history.stem}.log")


def subscribed(path: Path) -> int:
    return len({(row["channel"], row["subscriber"]) for row in completions(path, "subscribe") if row["type"] == "ok"})


def lasting(share: str) -> list[tuple[str, str]]:
    """(channel, subscriber) of a share, where messages live for longer than any pause of the machine."""
    return [(channel.name, one.name) for channel, one in of_share(share) if channel.expire_ms == LONG_MS]


def created(*paths: Path) -> dict[str, dict[str, int]]:
    """channel -> message -> clock. One that was sent again because its answer took too long is a duplicate of itself."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in itertools.chain(*(completions(path, "publish") for path in paths)):
        for item in row["items"]:
            if item["result"] in ("created", "duplicate"):
                found[row["channel"]].setdefault(item["message"], item["clock"])
    return found


def delivered(*paths: Path) -> Delivered:
    """(channel, subscriber) -> message -> clock, in the order in which they came first."""
    found: Delivered = defaultdict(dict)
    for row in itertools.chain(*(completions(path, "fetch") for path in paths)):
        for item in row["items"] or ():
            found[row["channel"], row["subscriber"]].setdefault(item["message"], item["clock"])
    return found


def assert_everything_came(published: dict[str, dict[str, int]], got: Delivered, share: str) -> None:
    for channel, one in lasting(share):
        came = got.get((channel, one), {})
        assert came == published.get(channel, {}), f"{channel} {one}"
        clocks = list(came.values())
        assert all(after == clock_ahead(before, 1) for before, after in itertools.pairwise(clocks)), f"{channel} {one}"


def missing(published: dict[str, dict[str, int]], got: Delivered, share: str) -> bool:
    """True while not all has come that everybody of a share gets."""
    return any(len(got.get((channel, one), ())) < len(published.get(channel, ())) for channel, one in lasting(share))


def woken(path: Path) -> list[dict[str, Any]]:
    """Fetches that found a message after a wait that is shorter than any that ends by itself."""
    rows = completions(path, "fetch")
    return [row for row in rows if row["items"] and 0 < (row["waited_ms"] or 0) < reading.WAIT_MS[0] / 2]


@pytest.mark.slow
def test_everybody_gets_in_order_whatever_is_published(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    """Two publishers share the schedule; a plain process and Locust users read, until all is there."""
    sent = [tmp_path / "publisher-1.jsonl", tmp_path / "publisher-2.jsonl"]
    read, locust_read = tmp_path / "subscriber-1.jsonl", tmp_path / "consumer-1.jsonl"
    plain, users = subscriber(processes, server.url, read), len(of_share("consumer-1"))
    words = ("-u", str(users), "-r", str(users), "--host", server.url, "--subscriber-history", str(locust_read), "Subscriber")
    greenlets = locust(processes, *words, log="consumer-1.log")
    wait_until(lambda: subscribed(read) == len(of_share("subscriber-1")), "the plain subscribers")
    wait_until(lambda: subscribed(locust_read) == users, "the subscribers in Locust")
    publishers = [
        publisher(processes, server.url, path, "--seed", "3", "--part", str(part), "--parts", "2")
        for part, path in enumerate(sent)
    ]
    wait_until(lambda: sum(map(len, created(*sent).values())) > 250, "250 messages")
    for process, path in zip(publishers, sent, strict=True):
        processes.stop(process, log=f"{path.stem}.log")
    published = created(*sent)
    for process in (plain, greenlets):
        process.send_signal(signal.SIGUSR1)
    for path, share in ((read, "subscriber-1"), (locust_read, "consumer-1")):
        wait_until(lambda: not missing(published, delivered(path), share), f"the deliveries of {share}")  # noqa: B023
    processes.stop(plain, log="subscriber-1.log")
    processes.stop(greenlets, log="consumer-1.log")

    assert_everything_came(published, delivered(read), "subscriber-1")
    assert_everything_came(published, delivered(locust_read), "consumer-1")
    for path, role in ((sent[0], "publisher"), (sent[1], "publisher"), (read, "subscriber"), (locust_read, "subscriber")):
        rows = rows_of(path)
        assert (rows[0]["kind"], rows[0]["role"], rows[0]["proc"]) == ("open", role, path.stem)
        assert (rows[-1]["kind"], rows[-1]["rows"]) == ("close", len(rows))
    # Each message comes at the instant of the plan, after the start of its process, and none is before it.
    plan = list(itertools.islice(ChannelWorkload(seed=3).publishes(), 3000))
    for part, path in enumerate(sent):
        offsets: dict[frozenset[str], list[float]] = defaultdict(list)
        for each in plan:
            offsets[frozenset(one.id for one in each.messages)] += [each.offset_ms] if each.sender % 2 == part else []
        done = completions(path, "publish")
        sets = [(row["intended_ns"], frozenset(item["message"] for item in row["items"])) for row in done]
        starts = set[int].intersection(*({at_ns - round(offset * MS) for offset in offsets[ids]} for at_ns, ids in sets))
        assert len(starts) == 1 and min(row["first_send_ns"] - row["intended_ns"] for row in done) >= 0
    # Everything was acknowledged, up to the last message.
    for path in (read, locust_read):
        last = {(row["channel"], row["subscriber"]): row["cursor"] for row in completions(path, "acknowledge")}
        share = "subscriber-1" if path == read else "consumer-1"
        came = delivered(path)
        assert all(last[key] == list(came[key].values())[-1] for key in lasting(share) if came[key])
    assert woken(read) and woken(locust_read)
    output = "".join(processes.output(f"{name}.log") for name in ("publisher-1", "publisher-2", "subscriber-1", "consumer-1"))
    assert "Traceback" not in output
    assert all(word in processes.output("consumer-1.log") for word in ("delivery", "fan-out 100", "short life", "acknowledge"))


@pytest.mark.slow
def test_a_killed_process_is_replaced_by_one_of_its_share(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    sent, killed, read = tmp_path / "publisher-1.jsonl", tmp_path / "subscriber-1.jsonl", tmp_path / "subscriber-3.jsonl"
    first = subscriber(processes, server.url, killed)
    everybody = len(of_share("subscriber-1"))
    wait_until(lambda: subscribed(killed) == everybody, "the subscribers")
    source = publisher(processes, server.url, sent, "--rate", "2")
    wait_until(lambda: sum(map(len, delivered(killed).values())) > 60, "60 deliveries")
    first.kill()
    first.wait()
    second = subscriber(processes, server.url, read)
    wait_until(lambda: sum(map(len, delivered(read).values())) > 60, "60 deliveries to the replacement")
    processes.stop(source, log="publisher-1.log")
    published = created(sent)
    second.send_signal(signal.SIGUSR1)
    wait_until(lambda: not missing(published, delivered(killed, read), "subscriber-1"), "all deliveries")
    processes.stop(second, log="subscriber-3.log")
    assert {row["result"] for row in completions(read, "subscribe")} == {"exists"}
    assert rows_of(killed)[-1]["kind"] != "close"
    assert_everything_came(published, delivered(killed, read), "subscriber-1")
    assert "Traceback" not in processes.output("subscriber-3.log")


@pytest.mark.slow
def test_a_stalled_server_is_counted_and_not_hidden(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    history = tmp_path / "publisher-1.jsonl"
    source = publisher(processes, server.url, history, "--rate", "10")
    wait_until(lambda: len(completions(history, "publish")) > 50, "50 publishes")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        drops = wait_until(lambda: rows_of(history, "drop"), "a dropped publish")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    last = rows_of(history)[-1]["t_ns"]
    wait_until(lambda: any(row["intended_ns"] > last and row["type"] == "ok" for row in completions(history, "publish")), "more")
    processes.stop(source, log="publisher-1.log")
    assert all(row["count"] >= 1 and row["intended_ns"] < row["t_ns"] for row in drops)
    # Every publish of the schedule up to the end was either sent or counted as dropped.
    done, dropped = completions(history, "publish"), rows_of(history, "drop")
    plan = list(itertools.islice(ChannelWorkload(seed=1, rate=10).publishes(), len(done) + len(dropped)))
    planned = sorted(publish.messages[0].id for publish in plan)
    messages = [row["items"][0]["message"] for row in done] + [row["detail"].split(":")[0].split()[1] for row in dropped]
    assert sorted(messages) == planned
    assert "Traceback" not in processes.output("publisher-1.log")


BAD_OPTIONS = [
    (("--rate", "0"), "rate: 0.0 is not a number from 0.01 to 1000"),
    pytest.param(("--part", "2", "--parts", "2"), "part, parts: 2 of 2", marks=pytest.mark.slow),
    pytest.param(("--id-prefix", "A"), "id_prefix: 'A'", marks=pytest.mark.slow),
    pytest.param(("--share", "nobody"), "share: 'nobody' is not one of", marks=pytest.mark.slow),
    pytest.param(("--host", "http://127.0.0.1"), "url: 'http://127.0.0.1'", marks=pytest.mark.slow),
    pytest.param(("--history", "{folder}/there.jsonl"), "history: there.jsonl exists already", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("arguments", "line"), BAD_OPTIONS)
def test_bad_options_are_one_line(server: EmbeddedServer, processes: Processes, arguments: tuple[str, ...], line: str) -> None:
    assert line in processes.refused(("--host", server.url, *arguments), partial(locust, processes))


WRONG_SHARES = (
    *("--share nobody", "--seed -1", "--host http://127.0.0.1"),
    *("--history FOLDER/there.jsonl", "--history FOLDER/none/there.jsonl"),
)


def test_a_plain_process_says_what_is_wrong(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "there.jsonl").touch()
    for words in WRONG_SHARES:
        assert subscribe(["subscribe", *words.replace("FOLDER", str(tmp_path)).split()]) == 2
    same("bench/wrong_shares.txt", capsys.readouterr().err.replace(str(tmp_path), "FOLDER"))


@pytest.mark.slow
def test_by_hand_with_a_server_of_its_own(processes: Processes, tmp_path: Path) -> None:
    """Publishers and subscribers in one process, and nothing to prepare."""
    sent, read = tmp_path / "publisher-1.jsonl", tmp_path / "consumer-1.jsonl"
    words = ("-u", "14", "-r", "14", "--subscribers", "12", "--share", "subscriber-2", "--history", str(sent))
    process = locust(processes, *words, "--subscriber-history", str(read))
    wait_until(lambda: sum(map(len, delivered(read).values())) > 20, "20 deliveries")
    processes.stop(process)
    assert subscribed(read) == 12
    assert len(CHANNELS) >= len({row["channel"] for row in completions(sent, "publish")}) > 10
    assert "No --host was given, so a server was started: redis://" in processes.output()
    assert "Traceback" not in processes.output()


@pytest.mark.slow
def test_the_page_starts_a_seed_again_with_ids_of_its_own(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    port = free_port()
    words = ("--web-host", "127.0.0.1", "--web-port", str(port), "--host", server.url, "--subscribers", "4")
    process = processes.start("locust", "-f", "bench/channel_locustfile.py", *words, "--share", "subscriber-1", log="locust.log")
    page = Page(port)
    wait_until(page.up, "the web page")
    client, published = redis.Redis.from_url(server.url, decode_responses=True), 0
    for _ in range(2):
        assert page.post("/swarm", user_count="6", spawn_rate="6", host=server.url, seed="5", rate="3")["success"]
        before = published
        wait_until(lambda: len(list(client.scan_iter("c.{*}.m.*", count=1000))) > before + 60, "60 more messages")  # noqa: B023
        assert page.faults() == []
        page.post("/stop")
        wait_until(lambda: json.loads(page.get("/stats/requests"))["state"] == "stopped", "the stop")
        published = len(list(client.scan_iter("c.{*}.m.*", count=1000)))
    client.close()
    processes.stop(process)
    assert "Traceback" not in processes.output()
