"""Names and ids: each model takes every text that the programs of its format take, and no text becomes another key."""

from typing import Any

import pytest
import redis

from engine import Handlers, Malformed, Queue, Worker, models
from engine.models import Spec
from tests import golden
from tests.conformance.desk import ModelDesk
from tests.conformance.models import FOREIGN, each, key_of, kind_of, put_raw, read_back, waiting_of
from tests.engine.using import Bury, EnqueueMany, Failure, refused

#: What programs check as little as each other: separators of keys and records, globs, quotes, controls, other alphabets, length.
TEXTS = (
    *("video transcoding", "Größe é", "{tag}", "a:b", "*", "?[a-z]\\", "'\"<b>&/../%20%"),
    *("line\r\nend\ttab", "nul\0end", "=+-!", " both ", "\U0001f600\u2028", "x" * 300),
)
#: Of raw keys: what no test of this file may find changed.
BYSTANDER = "ironclaim-bystander"


def queue_client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)


@pytest.fixture(params=each(FOREIGN))
def spec(request: pytest.FixtureRequest) -> Spec:
    """The models of foreign formats alone."""
    return request.param


def test_a_queue_works_jobs_of_every_name(spec: Spec, ironclaim_url: str) -> None:
    name = TEXTS[0] if kind_of(spec) in ("Bull", "Mosquito") else "q"
    handlers, ran = Handlers(), []
    for text in TEXTS:
        handlers(text)(lambda job: ran.append((job.name, job.id)))
    with Queue(name, spec, url=ironclaim_url) as queue:
        ids = {text: queue.enqueue(text, {"label": "j"}).job for text in TEXTS}
        assert set(read_back(spec, queue_client(ironclaim_url), name)) == {id.encode() for id in ids.values()}
        assert {job.name for job in queue.jobs.list("waiting")} == set(TEXTS) == set(queue.jobs.counts_by_name())
        assert [job.id for job in queue.jobs.list("waiting", name=TEXTS[0])] == [ids[TEXTS[0]]]
        for text in TEXTS:
            if text != "*":
                queue.pause(text)
                queue.resume(text)
            queue.set_limit(text, concurrency=1)
        refused(Malformed, "whole queue", queue.pause, "*")
        Worker(queue, handlers, sweep_ms=50).run(burst=True)
        assert sorted(ran) == sorted(ids.items()) and (queue.counts().waiting, queue.counts().dead) == (0, 0)
        # Slots of the limits were given back under the names that they were taken under.
        client = queue_client(ironclaim_url)
        assert not [key for key in client.keys("*held:*") if client.zcard(key)]


def test_a_job_lives_under_every_id_that_a_caller_gives(spec: Spec, ironclaim_url: str) -> None:
    desk = ModelDesk(ironclaim_url, spec)
    for text in TEXTS:
        desk.begin().redis.set(BYSTANDER, "1")
        id = desk.queue.model.check_id(text)
        call = desk.call(desk.enqueue_operation(id, nonce=b"first---", payload={"label": "j"}))
        assert (desk.send(call).result, desk.send(call).result) == ("created", "repeated")
        assert desk.redis.exists(key_of(spec, "desk", id)) and read_back(spec, desk.redis, "desk") == [id.encode()]
        again = desk.send(desk.call(desk.enqueue_operation(id, nonce=b"second--", payload={"label": "j"})))
        assert (again.result, again.state, again.holder) == ("duplicate", "waiting", id)
        # Many in one call, whose record holds all ids.
        many = desk.call(
            EnqueueMany(tuple(desk.enqueue_operation(one, nonce=b"third---", payload={"label": "j"}) for one in (id, "x")))
        )
        for found in (desk.send(many), desk.send(many)):
            assert [item.holder for item in found.items] == [id, "x"]
        claim = desk.call(desk.claim_operation(limit=1))
        first, copy = desk.send(claim), desk.send(claim)
        assert (first.result, copy.result) == ("leased", "repeated")
        assert [job.lease for job in first.jobs] == [job.lease for job in copy.jobs] and first.jobs[0].lease.job == id
        desk.ids["j"] = id
        assert desk.state("j") == "active"
        desk.run(Bury((Failure(first.jobs[0].lease, "bad"),)))
        assert [job.id for job in desk.queue.dead.list()] == [id] and desk.state("j") == "dead"
        assert desk.alter("requeue", "dead", "j")[0].done
        (x,) = [job for job in desk.claim(limit=2) if job.lease.job == "x"]
        assert desk.finish(x.lease) == [("ok", "finished")]
        # The worker is gone: a sweep reaps it, and says so again to who asks again.
        sweep = desk.tick(10_000).call(desk.sweep_operation())
        swept = [[lease.job for lease, _ in found.leases] for found in (desk.send(sweep), desk.send(sweep))]
        assert swept == [[id], [id]] and (desk.queue.jobs.remove(id).done or desk.queue.jobs.cancel(id).done)
        assert desk.state("j") in ("cancelled", "discarded", "gone") and desk.redis.get(BYSTANDER) == b"1"
        assert not desk.redis.exists(key_of(spec, "desk", id))
    desk.close()


def test_a_delayed_job_has_any_id(spec: Spec, ironclaim_url: str) -> None:
    desk = ModelDesk(ironclaim_url, spec)
    for number, text in enumerate(TEXTS):
        desk.ids[text] = desk.queue.model.check_id(text)
        desk.queue.enqueue("main", {"label": text}, id=text, delay_ms=5_000 + number)
    assert sorted(job.id for job in desk.queue.jobs.list("delayed")) == sorted(TEXTS)
    assert desk.queue.jobs.run_now(TEXTS[0]).done and desk.queue.jobs.state(TEXTS[0]) == "waiting"
    assert {job.lease.job for job in desk.tick(8_000).swept().claim(limit=50)} == set(TEXTS)
    desk.close()


def test_a_job_of_a_foreign_program_runs_under_every_id_and_name(spec: Spec, ironclaim_url: str) -> None:
    desk = ModelDesk(ironclaim_url, spec)
    for text in TEXTS:
        put_raw(spec, desk.redis, "desk", text, text)
    assert {job.id: job.name for job in desk.queue.jobs.list("waiting")} == {text: text for text in TEXTS}
    claimed = desk.run(desk.claim_operation(limit=50, classes=TEXTS))
    assert {job.lease.job: job.name for job in claimed.jobs} == {text: text for text in TEXTS} and claimed.corrupt == ()
    for job in claimed.jobs:
        assert desk.finish(job.lease) == [("ok", "finished")]
    counts = desk.queue.counts()
    assert (counts.waiting, counts.active, counts.dead) == (0, 0, 0)
    desk.close()


def test_an_id_that_is_no_text_stays_where_it_is_and_is_listed(spec: Spec, ironclaim_url: str) -> None:
    desk = ModelDesk(ironclaim_url, spec)
    bad = [b"half \xe9", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"x" * 70_000]
    for id in bad:
        put_raw(spec, desk.redis, "desk", id, "main")
    longest = ("x" * 65_536, "\u00e9" * 65_536)
    for id in longest:
        put_raw(spec, desk.redis, "desk", id, "main")
    before = desk.put("good").redis.dump(waiting_of(spec, "desk"))
    claimed = desk.run(desk.claim_operation(limit=50))
    assert {job.lease.job for job in claimed.jobs} == {desk.ids["good"], *longest} and claimed.corrupt == ()
    assert desk.finish(*(job.lease for job in claimed.jobs)) == [("ok", "finished")] * 3
    desk.tick(1_100).sweep()
    assert before and sorted(read_back(spec, desk.redis, "desk")) == sorted(bad)
    listed = desk.queue.jobs.list("waiting")
    assert len(listed) == len(bad) and all(job.unreadable for job in listed)
    assert all(isinstance(job.envelope, bytes) for job in listed), "also where the format has fields"
    assert {job.id for job in listed if len(job.id) < 100} == {r"half \xe9", r"\xed\xa0\x80", r"\xc0\xaf", r"\xf4\x90\x80\x80"}
    desk.queue.snapshot()
    desk.close()


def test_a_name_that_is_another_key_is_refused() -> None:
    """Bull's jobs lie directly below the names of queues; what Node and the engine write there is not taken for a job. Lanes
    keeps its rule."""
    handlers = Handlers()
    handlers("video transcoding")(lambda job: None)

    def queue(name: Any, spec: Spec | None = None, **more: Any) -> Queue:
        return Queue(name, spec, url="redis://127.0.0.1:1", **more)

    for spec in FOREIGN.values():
        for wrong in ("", "\udcff", 5, "x" * 65_537):
            refused(Malformed, "^name: ", queue("q", spec).enqueue, wrong, {})
    named = {"queue": queue, "Bull": models.Bull, "Worker": Worker, "handlers": handlers}
    golden.refusals("conformance/refused_names.txt", {**named, "bull": queue("a", models.Bull()), "lanes": queue("q")}, Malformed)


@pytest.mark.parametrize("spec", [models.Bull(), models.Mosquito()])
def test_no_two_queues_have_keys_in_common(spec: Spec) -> None:
    """Whatever the ids and names are: what follows a queue's prefix is never all of another one's, and a key in it."""
    names = ("a", "a:run", "a::run", "a%3arun", "a:", "a::", "a:::run", "a:took", "a:7", "a::B", "B::a", "run", "a:run:x")
    prefixes = {name: Queue(name, spec, url="redis://127.0.0.1:1").model.keys.prefix for name in names}
    for name, prefix in prefixes.items():
        for other, longer in prefixes.items():
            # Of keys of `name` none begins with a colon.
            assert name == other or not longer.startswith(prefix) or longer[len(prefix)] == ":"
    assert len(set(prefixes.values())) == len(names)
