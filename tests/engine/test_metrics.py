"""A queue's counters in Prometheus' text format."""

import json
import re

import pytest

from engine import AsyncQueue, Queue, join_metrics, models
from tests.engine.using import LEASE_MS, Beat, Desk


@pytest.mark.feature("BN33")
async def test_metrics_tell_states_and_counters_in_the_text_format(desk: Desk) -> None:
    desk.enqueue("j6", expires_ms=1).swept(1).enqueue("j1", "j2", "j3", "j4")
    first, second, _ = desk.claim(limit=3)
    desk.enqueue("j5", delay_ms=1000).finished(first.lease).bury(second.lease)
    text = desk.queue.metrics()
    assert 'ironclaim_jobs_expired_total{queue="desk"} 1' in text and text.endswith("\n")
    lines = text.splitlines()
    expected = {"waiting": 1, "delayed": 1, "blocked": 0, "active": 1, "dead": 1, "finished": 1}
    wanted = [f'ironclaim_jobs{{queue="desk",state="{state}"}} {number}' for state, number in expected.items()]
    assert [line for line in lines if line.startswith("ironclaim_jobs{")] == wanted
    assert 'ironclaim_jobs_finished_total{queue="desk"} 1' in lines and 'ironclaim_jobs_dead_total{queue="desk"} 1' in lines
    assert [line.split()[2:] for line in lines if line.startswith("# TYPE")] == [
        ["ironclaim_jobs", "gauge"], ["ironclaim_jobs_finished_total", "counter"], ["ironclaim_jobs_dead_total", "counter"],
        ["ironclaim_jobs_buried_total", "counter"], ["ironclaim_jobs_expired_total", "counter"],
        ["ironclaim_jobs_skipped_total", "counter"], ["ironclaim_data_losses_total", "counter"], ["ironclaim_workers", "gauge"],
        ["ironclaim_worker_places", "gauge"], ["ironclaim_worker_utilisation_ratio", "gauge"],
        ["ironclaim_arrivals_per_second", "gauge"], ["ironclaim_wanted_workers", "gauge"], ["ironclaim_jobs_waiting", "gauge"],
        ["ironclaim_oldest_waiting_seconds", "gauge"], ["ironclaim_paused", "gauge"], ["ironclaim_run_seconds", "histogram"],
    ]  # fmt: skip
    async with AsyncQueue("desk", url=desk.queue.url) as queue:
        assert await queue.metrics() == text


def test_names_ages_pauses_and_workers(desk: Desk) -> None:
    desk.enqueue("j1", "j2").enqueue("j3", name="other", key="acme")
    desk.run(Beat("a" * 16, 1, 30_000, desk.now_ms + 30_000, LEASE_MS, 1000, json.dumps({"name": "w1", "concurrency": 4})))
    desk.tick(1_500).pause("other")
    lines = desk.queue.metrics().splitlines()
    samples = [line for line in lines if line.startswith(("ironclaim_jobs_w", "ironclaim_old", "ironclaim_pau", "ironclaim_wor"))]
    assert samples == [
        'ironclaim_workers{queue="desk"} 1', 'ironclaim_worker_places{queue="desk"} 4',
        'ironclaim_worker_utilisation_ratio{queue="desk"} 0.0000', 'ironclaim_jobs_waiting{queue="desk",name="main"} 2',
        'ironclaim_jobs_waiting{queue="desk",name="other"} 1', 'ironclaim_oldest_waiting_seconds{queue="desk"} 1.5',
        'ironclaim_paused{queue="desk",name="*"} 0', 'ironclaim_paused{queue="desk",name="other"} 1',
    ]  # fmt: skip
    lines = desk.pause().tick(30_000).queue.metrics().splitlines()
    assert 'ironclaim_paused{queue="desk",name="*"} 1' in lines and 'ironclaim_workers{queue="desk"} 0' in lines


def test_the_page_of_several_queues_describes_each_metric_once(desk: Desk, ironclaim_url: str) -> None:
    desk.enqueue("j1")
    with Queue("bills", url=ironclaim_url) as bills:
        bills.enqueue("pay", {})
        each = [desk.queue.metrics(), bills.metrics()]
    lines = join_metrics(*each).splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert len(comments) == len({*comments}) == len([line for line in each[0].splitlines() if line.startswith("#")])
    assert {*lines} == {*each[0].splitlines(), *each[1].splitlines()}
    # The samples of a metric stand together, behind its description.
    named = [line.split("{")[0] if not line.startswith("#") else line.split()[2] for line in lines]
    assert len([1 for before, name in zip([None, *named], named, strict=False) if before != name]) == len({*named})
    assert (join_metrics(each[0]), join_metrics()) == (each[0], "")


def test_names_of_other_programs_are_labels_of_one_line_each(ironclaim_url: str) -> None:
    names = ['say "hi"', "back\\slash", *(f"a{end}b" for end in "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")]
    text = ""
    for name in names:
        with Queue(name, models.Bull(), url=ironclaim_url) as queue:
            queue.enqueue("send", {})
            text += queue.metrics()
    sample = re.compile(r'ironclaim_\w+\{\w+="(?:[^"\\\n]|\\[\\"n])*"(?:,\w+="(?:[^"\\\n]|\\[\\"n])*")*\} \S+')
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert not [line for line in lines if not sample.fullmatch(line)]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines), "a series that comes twice is a scrape that fails"
    assert sum(line.startswith("ironclaim_jobs{") and 'state="waiting"} 1' in line for line in lines) == len(names)


def test_an_old_keyspace_has_the_numbers_that_it_can_tell(ironclaim_url: str) -> None:
    with Queue("bull", models.Bull(), url=ironclaim_url) as queue:
        queue.enqueue("send", {})
        text = queue.metrics()
    assert 'ironclaim_jobs{queue="bull",state="waiting"} 1' in text and "ironclaim_oldest_waiting_seconds" not in text
