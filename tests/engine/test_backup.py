"""Backup and restore of a queue: one instant while it is worked, refusals before any write, what a kill leaves, and what a
restored queue does. The drill with real producers and workers is in test_backup_drill.py."""

import contextlib
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from chaos.topology.embedded_cluster import EmbeddedCluster
from engine import Handlers, Queue, ServerUnavailable, UnsupportedFeature, Worker, WrongKeyType, models
from engine.backup.archive import Archive, ArchiveWriter, BadBackup, Entry, ServerConnection
from engine.backup.restoring import NotEmpty, Overtaken, restore
from engine.backup.taking import BackupFailed, Taken, take
from engine.testing import EmbeddedServer, start_guarded
from tests.engine.cluster_desk import CALM_MS
from tests.engine.command.running import ROOT, ironclaim, said
from tests.engine.desk import write_run
from tests.engine.using import CUT_OFF, WRITES, Claim, Finish, at_work, kill, lent, refused, run_texts, some_handlers, wait_until

#: What a restored queue has of its own: the two keys that kept it closed, its era, and the mark in the counters.
OWN = {b"era", b"stats"}


def quiet(*_: object) -> None:
    """No progress."""


@pytest.fixture(scope="module")
def second_server() -> Iterator[EmbeddedServer]:
    """Where backups are restored."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def target(second_server: EmbeddedServer) -> Iterator[Queue]:
    second_server.flush()
    yield from lent(Queue("q", url=second_server.url))


def raw(queue: Queue) -> Any:
    """A client without decoding."""
    return redis.Redis.from_url(queue.url)


def keys_of(queue: Queue) -> dict[bytes, tuple[bytes, int]]:
    """All keys of the queue without its prefix, with value and expiry."""
    prefix, found = queue.model.keys.prefix.encode(), {}
    with raw(queue) as client:
        keys, pipeline = list(client.scan_iter(prefix + b"*", count=1000)), client.pipeline(transaction=False)
        for key in keys:
            pipeline.dump(key).pexpiretime(key)
        replies = pipeline.execute()
        for key, value, expires_ms in zip(keys, replies[::2], replies[1::2], strict=True):
            if value is not None:
                found[key[len(prefix) :]] = (value, max(0, expires_ms))
    return found


def content(file: Path) -> dict[bytes, tuple[bytes, int]]:
    """What a backup holds."""
    found = {entry.key: (entry.value, entry.expires_ms) for entry in Archive(file).entries()}
    return {key: kept for key, kept in found.items() if kept[0]}


def lasting(keys: dict[bytes, tuple[bytes, int]], now_ms: int) -> dict[bytes, tuple[bytes, int]]:
    """Those that do not expire before this."""
    return {key: kept for key, kept in keys.items() if kept[1] == 0 or kept[1] > now_ms}


def backed_up(queue: Queue, folder: Path, **more: Any) -> Path:
    file = folder / "q.backup"
    taken = take(queue, file, quiet, **more)
    assert isinstance(taken, Taken) and taken.bytes <= file.stat().st_size
    return file


@contextmanager
def load(url: str) -> Iterator[None]:
    """Two producers and a worker, in threads, for as long as the block lasts."""
    ended = threading.Event()

    def produce() -> None:
        with Queue("q", url=url) as queue:
            while not ended.is_set():
                queue.enqueue("work", {}, key=str(random.randrange(5)), delay_ms=random.choice((0, 0, 50)))

    with Queue("q", url=url) as queue:
        with at_work(Worker(queue, some_handlers(), sweep_ms=50, prefetch=20)), ThreadPoolExecutor(2) as pool:
            producers = [pool.submit(produce) for _ in range(2)]
            try:
                wait_until(lambda: queue.counts().finished > 50, "the queue is worked")
                yield
            finally:
                ended.set()
        assert [producer.result() for producer in producers] == [None, None]


@pytest.mark.slow
def test_it_holds_exactly_the_keys_of_one_instant_while_the_queue_is_worked(queue: Queue, tmp_path: Path) -> None:
    for start in range(0, 10_000, 2_500):
        queue.enqueue_many([{"name": "idle", "payload": {"n": start + number}} for number in range(2_500)])
    seen: list[dict[bytes, tuple[bytes, int]]] = []
    with load(queue.url):
        before = queue.counts().finished
        file = backed_up(queue, tmp_path, at_instant=lambda: seen.append(keys_of(queue)))
        wait_until(lambda: queue.counts().finished > before, "writes go on")
    held, archive = content(file), Archive(file)
    # What expires while it is taken may be in the one and no more in the other.
    now_ms = queue.driver.server_now_ms()
    assert lasting(held, now_ms) == lasting(seen[-1], now_ms)
    assert len(held) > 10_000 and archive.totals["entries"] > len(held), "keys changed while it was taken"
    assert archive.totals["sequence"] > 10_050 and archive.totals["paused_ms"] > 0 and not list(tmp_path.glob("*.partial"))


def goes_on(queue: Queue) -> None:
    """Wait until others have enqueued something more."""
    with raw(queue) as client:
        before = client.get(queue.model.keys.seq)
        wait_until(lambda: client.get(queue.model.keys.seq) != before, "the queue is worked")


def test_without_the_right_to_pause_only_a_quiet_queue_is_backed_up(queue: Queue, tmp_path: Path, as_user: Any) -> None:
    queue.enqueue("idle", {})
    with Queue("q", url=as_user("~* &* +@all -client|pause")) as shop:
        file = backed_up(shop, tmp_path)
        assert content(file) == keys_of(queue)
        file.unlink()
        with load(queue.url), pytest.raises(BackupFailed, match="may not run CLIENT PAUSE"):
            take(shop, file, quiet, at_instant=lambda: goes_on(queue))
        assert list(tmp_path.iterdir()) == []


def everything(queue: Queue) -> None:
    """A queue with something of each kind in it."""
    some: dict[str, Any] = {"plain": {}, "later": {"delay_ms": 3_600_000}, "once": {"unique": "u"}}
    some |= {"window": {"dedup": "d", "dedup_ms": 3_600_000}, "parent": {}, "child": {"needs": ["parent"]}}
    some |= {"limited-1": {"key": "acme"}, "limited-2": {"key": "acme"}, "paused": {}}
    for job, options in some.items():
        queue.enqueue(job.partition("-")[0], {}, id=job, **options)
    queue.set_limit(key="acme", concurrency=1)
    queue.pause("paused")
    queue.schedules.put("nightly", "plain", {}, cron="0 3 * * *")
    queue.set_retention(dead_max=7)
    queue.history.on(payload_bytes=50)


def claimed(queue: Queue, *names: str, counter: int = 1, lease_ms: int = 600_000) -> list[Any]:
    claim = Claim("ab" * 8, counter, 10, lease_ms, queue.driver.server_now_ms() + lease_ms * 4 // 5, "w", 1_000, names)
    return list(queue.driver.run(queue.model.call(claim)).jobs)


def finish(queue: Queue, lease: Any) -> str:
    return queue.driver.run(queue.model.call(Finish((lease,)))).items[0][0]


def test_a_restored_queue_goes_on_where_it_was(queue: Queue, target: Queue, tmp_path: Path) -> None:
    everything(queue)
    held = claimed(queue, "limited", "plain")
    assert sorted(job.lease.job for job in held) == ["limited-1", "plain"]
    assert finish(queue, claimed(queue, "parent", counter=2)[0].lease) == "ok"
    file = backed_up(queue, tmp_path)
    restored = restore(Archive(file), target, quiet)
    assert (restored.given_back, restored.sequence) == (2, 9)
    assert [past.id for past in target.history.list()] == ["parent"] and target.history.list() == queue.history.list()
    before, after = content(file), keys_of(target)
    # Untouched but for what had been leased.
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    leased = {b"run:limited-1", b"run:plain", b"active", b"held:k:acme"}
    places = {b"lane:plain", b"ready:plain", b"lane:limited/acme", b"ready:limited", b"parked", b"parked:k:acme", b"blocking"}
    assert leased <= changed <= leased | places | OWN
    with raw(target) as client:
        assert client.zcard("ic:{q}:active") == client.zcard("ic:{q}:held:k:acme") == 0
        assert client.zscore("ic:queues", "q") is not None and client.lrange("ic:{q}:era", 0, 0)[0].split()[1] == b"9"
        for job in held:
            run = run_texts(client, f"ic:{{q}}:run:{job.lease.job}")
            assert int(run["fence"]) > restored.instant_ms >= job.lease.fence
            assert run.get("crashes", "0") == run.get("failures", "0") == "0"
            assert run.get("nonce", "") == "" and run["claims"] == "1"
    counts = target.counts()
    assert (counts.waiting, counts.delayed, counts.blocked, counts.active, counts.finished) == (7, 1, 0, 0, 1)
    # The fence is above what was handed out, so a former holder is refused, and no crash is charged.
    again = {job.lease.job: job for job in claimed(target, "plain", "limited", counter=7)}
    assert sorted(again) == ["limited-1", "plain"], "the limit of acme holds"
    for job in held:
        newer = again[job.lease.job]
        assert newer.lease.fence > job.lease.fence and newer.crashes == newer.failures == 0
        assert finish(target, job.lease) == "stale" and finish(target, newer.lease) == "ok"
    # What keeps duplicates out, pauses and schedules came along, and the sequence goes on.
    assert target.enqueue("once", {}, unique="u").job == "once"
    assert target.enqueue("window", {}, dedup="d", dedup_ms=1_000).job == "window"
    assert target.enqueue("parent", {}, id="parent").result == "duplicate"
    assert claimed(target, "paused", counter=8) == [] and [s.name for s in target.schedules.list()] == ["nightly"]
    target.enqueue("plain", {})
    with raw(target) as client:
        assert client.get("ic:{q}:seq") == b"10"


def test_keys_nobody_can_read_are_restored_as_they_were_and_stop_no_lease(queue: Queue, target: Queue, tmp_path: Path) -> None:
    queue.enqueue_many([{"name": "send", "payload": 1, "id": name} for name in ("bad", "good", "waits")])
    claimed(queue, "send")
    prefix = queue.model.keys.prefix.encode()
    with raw(queue) as client:
        client.delete(queue.model.keys.run("bad"))
        client.rpush(queue.model.keys.run("bad"), "x")
        write_run(client, queue.model.keys.run("good"), fence=2**50)
        client.hset(prefix + b"job:\xff", "a", "b")
        client.set(prefix + b"result:\xff", b"\xfe")
    file = backed_up(queue, tmp_path)
    restored = restore(Archive(file), target, quiet)
    with raw(target) as client:
        assert client.lrange(target.model.keys.run("bad"), 0, -1) == [b"x"]
        assert client.hgetall(prefix + b"job:\xff") == {b"a": b"b"} and client.get(prefix + b"result:\xff") == b"\xfe"
    fences = sorted((job.lease.job, job.lease.fence > 2**50) for job in claimed(target, "send", counter=2))
    assert (restored.given_back, fences) == (3, [("good", True), ("waits", False)]), "no fence is handed out twice"
    assert [job.id for job in target.dead.list()] == ["bad"]
    # A value that no server reads is refused by the name of its key, and the queue stays closed. The first value, which is
    # whatever the server scans first, is another matter: it tells of the server's version.
    key = "job:good" if next(entry.key for entry in Archive(file).entries() if entry.value) != b"job:good" else "job:waits"
    spoilt = tmp_path / "spoilt"
    with ArchiveWriter(spoilt, {**Archive(file).header, "id": "b" * 16}) as archive:
        for entry in Archive(file).entries():
            archive.add(entry._replace(value=entry.value[:-1] + b"?") if entry.key == key.encode() else entry)
        archive.finish(Archive(file).totals)
    with Queue("other", url=target.url) as other, pytest.raises(BadBackup, match=rf"the value of ic:\{{other\}}:{key}"):
        restore(Archive(spoilt), other, quiet)


def test_jobs_run_once_in_a_restored_queue_of_another_name(queue: Queue, second_server: EmbeddedServer, tmp_path: Path) -> None:
    second_server.flush()
    ids = [queue.enqueue("work", {}, key=str(number % 7)).job for number in range(500)]
    held = [job.lease for counter in range(20) for job in claimed(queue, "work", counter=counter + 1)]
    for lease in held[:90]:
        finish(queue, lease)
    file, handlers, ran = backed_up(queue, tmp_path), Handlers(), []
    handlers("work")(lambda job: ran.append(job.id))
    with Queue("copy", url=second_server.url, prefix="other") as copy:
        assert restore(Archive(file), copy, quiet).given_back == 110, "in more than one call"
        Worker(copy, handlers, sweep_ms=50).run(burst=True)
        assert sorted(ran) == sorted(set(ids) - {lease.job for lease in held[:90]}) and copy.counts().finished == 500
    with redis.Redis.from_url(second_server.url) as client:
        assert {key.split(b":")[0] for key in client.scan_iter()} == {b"other"}


def test_producers_notice_the_restore(queue: Queue, tmp_path: Path) -> None:
    told: list[Any] = []
    queue.on_data_loss(told.append)
    queue.enqueue("work", {})
    file = backed_up(queue, tmp_path)
    queue.enqueue("work", {})
    with raw(queue) as client, Queue("q", url=queue.url) as other:
        client.flushall()
        restore(Archive(file), other, quiet)
    queue.close()
    queue.enqueue("work", {})
    wait_until(lambda: told, "the loss was told")
    assert (told[0].acknowledged, told[0].found, told[0].missing) == (2, 1, "sequence")


def test_it_refuses_what_is_not_empty_and_another_model_before_any_write(queue: Queue, target: Queue, tmp_path: Path) -> None:
    queue.enqueue("work", {})
    file = backed_up(queue, tmp_path)
    for key in ("job:left", "claim:left", "seq", "sweep"):
        with raw(target) as client:
            client.flushall()
            client.set(f"ic:{{q}}:{key}", "1") if key != "sweep" else client.hset("ic:{q}:sweep", "max_lease_ms", 1)
            refused(NotEmpty, f"has the key ic:{{q}}:{key}", restore, Archive(file), target, quiet)
            assert client.keys() == [f"ic:{{q}}:{key}".encode()]
            client.flushall()
    for model in (models.Bull(), models.Bridge()):
        with Queue("q", model, url=target.url) as other:
            refused(UnsupportedFeature, "no restore", restore, Archive(file), other, quiet)
            refused(UnsupportedFeature, "no backup", take, other, tmp_path / "other", quiet)
    strange = tmp_path / "strange"
    for model, why in (("bull", "of the model bull"), ("lanes", "made on redis 99, whose values this server does not read")):
        with ArchiveWriter(strange, {"id": "a", "model": model, "queue": "q", "server": "redis 99"}) as writer:
            writer.add(Entry(b"key", 0, b"a value of a later version"))
            writer.finish({"sequence": 0, "instant_ms": 0})
        refused(BadBackup, why, restore, Archive(strange), target, quiet)
        strange.unlink()
    assert keys_of(target) == {}
    restore(Archive(file), target, quiet)
    refused(NotEmpty, "this backup was restored there already", restore, Archive(file), target, quiet)
    with Queue("nobody", url=target.url) as nobody:
        refused(BackupFailed, "there is no queue nobody", take, nobody, tmp_path / "nobody", quiet)
    assert not (tmp_path / "nobody").exists() and not list(tmp_path.glob("*.partial"))


def test_a_damaged_file_is_refused_wherever_it_was_damaged(queue: Queue, tmp_path: Path) -> None:
    queue.enqueue_many([{"name": "work", "payload": {"n": number}} for number in range(200)])
    whole, bad, found = backed_up(queue, tmp_path).read_bytes(), tmp_path / "bad", set()
    seeded = random.Random(7)
    for at in (*range(40), *range(len(whole) - 40, len(whole)), *(seeded.randrange(len(whole)) for _ in range(200))):
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << seeded.randrange(8)]) + whole[at + 1 :])
        found.add(str(refused(BadBackup, "", Archive, bad)).partition(": ")[2].split(" ")[0])
    for length in range(0, len(whole), 97):
        bad.write_bytes(whole[:length])
        refused(BadBackup, r"not whole|no backup|another version", Archive, bad)
    bad.write_bytes(whole + b"x")
    refused(BadBackup, "behind its end", Archive, bad)
    assert {"damaged", "no", "it"} <= found
    bad.write_bytes(whole.replace(b"backup 1", b"backup 2", 1))
    refused(BadBackup, "another version", Archive, bad)


def test_its_connection_hears_all_that_was_told_before_a_ping_and_says_what_fails(queue: Queue, client: Any) -> None:
    with ServerConnection(queue) as connection:
        connection.ask(("SUBSCRIBE", "topic"))
        for text in "abc":
            client.publish("topic", text)
        assert [words[2] for words in connection.ping()] == [b"a", b"b", b"c"] and connection.ping() == []
        refused(ServerUnavailable, "^GET: the server answered ", connection.ask, ("GET", "a"))
        client.client_kill_filter(_type="pubsub")
        for call, given in ((connection.ask, [("PING",)]), (connection.ping, [])):
            refused(ServerUnavailable, "^the connection broke: .*; nothing is lost, begin again$", call, *given)


@contextmanager
def half_way(what: str, url: str, file: Path) -> Iterator[Any]:
    """A process that has come half-way and stands still; killed in the end, if it lives."""
    reached = file.with_name(f"{what}.reached")
    reached.unlink(missing_ok=True)
    program = [sys.executable, "-m", "tests.engine.helpers.backup_drill", what, url, str(file), str(reached)]
    process = start_guarded(program, cwd=ROOT)
    try:
        wait_until(reached.exists, "it is half-way")
        yield process
    finally:
        kill(process)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["backup", "backup-paused"])
def test_a_killed_backup_leaves_no_backup_and_holds_nobody_up(queue: Queue, tmp_path: Path, what: str) -> None:
    queue.enqueue("work", {})
    file = tmp_path / "q.backup"
    with half_way(what, queue.url, file) as process:
        kill(process)
        # Were the pause without an end, this would raise at its deadline.
        assert queue.enqueue("work", {}).created
    assert not file.exists() and file.with_name("q.backup.partial").exists()
    assert said("backup", "q", str(file), "--url", queue.url)["sequence"] == 2 and content(file).keys() >= {b"seq", b"lane:work"}
    assert not file.with_name("q.backup.partial").exists()


@pytest.mark.slow
def test_a_killed_restore_leaves_a_closed_queue_and_is_run_again(queue: Queue, target: Queue, tmp_path: Path) -> None:
    for _ in range(500):
        queue.enqueue("work", {}, key="k")
    held, file = claimed(queue, "work"), backed_up(queue, tmp_path)
    target.driver.server_now_ms()
    with half_way("restore", target.url, file) as process:
        kill(process)
        late, many = partial(target.enqueue, "work", {}, key="k", delay_ms=5), [{"name": "work", "payload": 1}]
        enqueues = (partial(target.enqueue, "work", {}), late, partial(target.enqueue_many, many))
        for call in (*enqueues, partial(claimed, target, "work")):
            refused(WrongKeyType, r"ic:\{q\}:(sweep|seq)", call)
        assert 0 < len(keys_of(target)) < len(content(file))
    kept = file.rename(tmp_path / "kept.backup")
    refused(NotEmpty, "another backup is being restored there", restore, Archive(backed_up(queue, tmp_path)), target, quiet)
    assert said("restore", str(kept), "--url", target.url)["given_back"] == len(held) == 10 and target.counts().waiting == 500
    changed = {key for key, value in content(kept).items() if keys_of(target).get(key) != value}
    assert changed <= {b"active", b"lane:work/k", *(f"run:{job.lease.job}".encode() for job in held)} | OWN


def test_the_process_that_began_last_restores(queue: Queue, target: Queue, tmp_path: Path) -> None:
    """The older one wrote its first piece and stood still: what it writes later would undo what was worked since."""
    for _ in range(1_000):
        queue.enqueue("work", {})
    archive, again = Archive(backed_up(queue, tmp_path)), []

    def overtake(*_: object) -> None:
        if not again:
            again.append(restore(archive, target, quiet))

    with pytest.raises(Overtaken), Queue("q", url=target.url) as older:
        restore(archive, older, overtake)
    assert again[0].sequence == 1_000 and target.counts().waiting == 1_000 and target.enqueue("work", {}).created


def test_the_commands_tell_what_they_did_and_what_is_wrong(queue: Queue, target: Queue, tmp_path: Path) -> None:
    queue.enqueue("work", {})
    file = tmp_path / "q.backup"
    taken = said("backup", "q", str(file), "--url", queue.url)
    assert taken["backed up"] == "q" and taken["file"] == str(file) and taken["sequence"] == 1 and taken["paused_ms"] > 0
    restored = said("restore", str(file), "--url", target.url, "--as", "copy")
    assert (restored["restored"], restored["sequence"], restored["given_back"]) == ("copy", 1, 0)
    assert restored["instant_ms"] == taken["instant_ms"]
    with Queue("copy", url=target.url) as copy:
        assert copy.counts().waiting == 1
    bad = tmp_path / "bad"
    bad.write_bytes(b"something else")
    for words, why in (
        (("restore", str(file), "--url", target.url, "--as", "copy"), "was restored there already"),
        (("restore", str(bad), "--url", target.url), f"ironclaim: {bad}: no backup, this one reads version 1\n"),
        (("restore", str(tmp_path / "none"), "--url", target.url), "No such file"),
        (("backup", "nobody", str(file), "--url", queue.url), "there is no queue nobody"),
    ):
        done = ironclaim(*words)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("script", ["restore_load", "restore_end"])
def test_rule_01_a_restore_cut_off_runs_again(queue: Queue, target: Queue, tmp_path: Path, script: str, monkeypatch: Any) -> None:
    everything(queue)
    held, archive = claimed(queue, "limited", "plain", "once"), Archive(backed_up(queue, tmp_path))
    names, run = ", ".join(f"{name} = true" for name in WRITES), target.driver.run
    for writes in range(200):
        left = [writes]

        def cut(call: Any, left: list[int] = left) -> Any:
            """Each call of the script takes the writes of those before it from what is allowed."""
            if call.script is None or call.script.name != script or left[0] < 0:
                return run(call)
            shebang, body = call.script.text.split("\n", 1)
            try:
                with raw(target) as client:
                    text = f"{shebang}\n{CUT_OFF % names}{body}"
                    reply = client.eval(text, len(call.keys), *call.keys, *call.arguments, left[0])
            except redis.ResponseError as error:
                assert "CUT OFF" in str(error), error
                left[0] = -1
                raise
            left[0] = max(0, left[0] - 1)
            return call.parse(reply)

        with raw(target) as client:
            client.flushall()
        monkeypatch.setattr(target.driver, "run", cut)
        with contextlib.suppress(redis.ResponseError):
            restore(archive, target, quiet)
        monkeypatch.undo()
        if left[0] < 0:
            with raw(target) as client:
                is_restored = client.hexists(target.model.keys.stats, "restored")
            if keys_of(target) and not is_restored:
                refused(WrongKeyType, "", target.enqueue, "plain", {})
            assert restore(archive, target, quiet).sequence == 9
        counts = target.counts()
        assert (counts.waiting, counts.delayed, counts.blocked, counts.active) == (7, 1, 1, 0), writes
        again = claimed(target, "limited", "plain", "once", counter=5)
        assert {job.lease.job for job in again} == {job.lease.job for job in held}
        if left[0] >= 0:
            break
    assert writes > 3


@pytest.mark.slow
def test_queues_of_a_cluster_are_backed_up_and_restored_by_its_url(tmp_path: Path) -> None:
    told: list[Any] = []
    with EmbeddedCluster(node_timeout_ms=CALM_MS) as cluster:
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in cluster.ports)
        with Queue("q", url=url) as source, Queue("copy", url=url) as copy:
            assert cluster.owner_of(cluster.slot_of("ic:{q}:")) != cluster.owner_of(cluster.slot_of("ic:{copy}:"))
            source.on_data_loss(told.append)
            for _ in range(300):
                source.enqueue("work", {})
            assert restore(Archive(backed_up(source, tmp_path)), copy, quiet).sequence == copy.counts().waiting == 300
            source.close()
            assert source.enqueue("work", {}).created and copy.enqueue("work", {}).created
            assert (source.counts().waiting, copy.counts().waiting) == (301, 301)
            there, elsewhere = (cluster.client(cluster.owner_of(cluster.slot_of(f"ic:{{{name}}}:"))) for name in ("q", "copy"))
            assert there.llen("ic:{q}:era") == 1 and elsewhere.llen("ic:{copy}:era") == 2 and told == []
