"""What jobs of one name share on a Mosquito keyspace (MQ16)."""

from dataclasses import replace
from typing import Any

import pytest

from engine import Malformed, Queue, UnsupportedFeature, WrongKeyType, models
from engine.queue.admin import JobMetadata
from tests.engine.using import SetMetadata, refused

pytestmark = pytest.mark.feature("MQ16", model="mosquito")


def test_metadata_is_the_originals_hash(ironclaim_url: str, client: Any) -> None:
    with Queue("ok_job", models.Mosquito(layout="live"), url=ironclaim_url) as queue:
        metadata = JobMetadata(queue, "ok_job")
        assert metadata.get() == {}
        client.hset("mosquito:job_metadata:ok_job", "seen", "1")
        assert metadata.add("seen") == 2 and metadata.add("seen", -5) == -3
        metadata.set(cursor="17", owner="me")
        metadata.set(owner=None)
        assert metadata.get() == {"seen": "-3", "cursor": "17"} == client.hgetall("mosquito:job_metadata:ok_job")


def test_adding_is_done_once_however_often_it_is_sent(ironclaim_url: str) -> None:
    with Queue("ok_job", models.Mosquito(), url=ironclaim_url) as queue:
        metadata = JobMetadata(queue, "ok_job")
        metadata.add("seen")
        call = queue.model.call(_added())
        assert [queue.driver.run(call).values for _ in range(3)] == [(2,), (2,), (2,)]
        late = replace(_added(), op_id="2" * 16, not_after_ms=queue.driver.run(call).srv_us // 1000 - 1)
        assert queue.driver.run(queue.model.call(late)).result == "refused" and metadata.get() == {"seen": "2"}


def test_what_does_not_fit_is_refused(ironclaim_url: str, client: Any) -> None:
    with Queue("ok_job", models.Mosquito(), url=ironclaim_url) as queue:
        metadata = JobMetadata(queue, "ok_job")
        for bad in (lambda: metadata.set(a=5), lambda: metadata.set(), lambda: metadata.add("a", 1.5)):  # type: ignore[arg-type]
            refused(Malformed, None, bad)
        metadata.set(a="text")
        refused(Exception, "holds no number", metadata.add, "a")
        assert metadata.get() == {"a": "text"}
        client.set("mosquito:job_metadata:bad", "x")
        refused(WrongKeyType, "job_metadata:bad is a string", JobMetadata(queue, "bad").set, a="text")
    with Queue("q", url=ironclaim_url) as queue, pytest.raises(UnsupportedFeature, match="lanes"):
        JobMetadata(queue, "ok_job")


def _added() -> SetMetadata:
    return SetMetadata("ok_job", (), (("seen", 1),), op_id="1" * 16, not_after_ms=2**45)
