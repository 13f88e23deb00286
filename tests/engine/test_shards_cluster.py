"""Queues with shards on a cluster: the shards are on all nodes, are worked off and resharded there."""

from typing import Any

import pytest

from chaos.topology.embedded_cluster import EmbeddedCluster
from engine import NewJob, Queue, UnsupportedFeature, Worker
from engine.queue.sharding import Layout
from engine.resharding import Resharding
from tests.engine.helpers.producing import refused, some_handlers


@pytest.mark.slow
def test_shards_are_spread_worked_off_and_resharded(three_primaries: EmbeddedCluster) -> None:
    cluster = three_primaries
    cluster.flush()
    places = [url.partition("://")[2].partition("/")[0] for url in cluster.urls]
    url = f"redis+cluster://{','.join(places)}"
    owners = {cluster.owner_of(cluster.slot_of(f"{{{name}}}")) for name in Layout(1, 8).names("mails")}
    assert len(owners) == 3, "the shards are on all nodes"
    refused(UnsupportedFeature, None, Queue, "mails", url=url, shards=8, durability="replica")
    with Queue("mails", url=url, shards=8) as queue:
        jobs = [NewJob("send", number, id=f"j{number}", key=f"k{number % 9}" if number % 2 else None) for number in range(500)]
        assert {item.result for item in queue.enqueue_many(jobs)} == {"created"}
        assert {item.result for item in queue.enqueue_many(jobs)} == {"duplicate"}
        queue.enqueue("later", None, id="later", delay_ms=600_000)
        queue.set_limit("later", concurrency=16)
        with Queue("mails", url=url) as plain:
            assert Resharding(plain, 5).run().jobs == 501
        assert queue.counts().waiting == 500 and queue.jobs.state("later") == "delayed"
        assert {item.result for item in queue.enqueue_many(jobs)} == {"duplicate"}
        ran: list[Any] = []
        handlers = some_handlers(lambda job: ran.append(job.payload), "send")
        assert Worker(queue, handlers, sweep_ms=50).run(burst=True, delayed=False) == "empty"
        assert sorted(ran) == [*range(500)] and queue.counts().finished == 500
