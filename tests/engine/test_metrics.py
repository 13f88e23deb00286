"""A queue's counters in Prometheus' text format."""

import json
import re

import pytest

from engine import AsyncQueue, Queue, join_metrics, models
from tests import golden
from tests.engine.using import LEASE_MS, Beat, Desk


def chosen(text: str, *starts: str) -> str:
    """The lines that start so."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith(starts))


@pytest.mark.feature("BN33")
async def test_metrics_tell_states_and_counters_in_the_text_format(desk: Desk) -> None:
    desk.enqueue("j6", expires_ms=1).swept(1).enqueue("j1", "j2", "j3", "j4")
    first, second, _ = desk.claim(limit=3)
    desk.enqueue("j5", delay_ms=1000).finished(first.lease).bury(second.lease)
    text = desk.queue.metrics()
    assert text.endswith("\n")
    starts = ("# TYPE", "ironclaim_jobs{", "ironclaim_jobs_f", "ironclaim_jobs_d", "ironclaim_jobs_e")
    golden.same("engine/metrics.txt", chosen(text, *starts))
    async with AsyncQueue("desk", url=desk.queue.url) as queue:
        assert await queue.metrics() == text


def test_names_ages_pauses_and_workers(desk: Desk) -> None:
    desk.enqueue("j1", "j2").enqueue("j3", name="other", key="acme")
    desk.run(Beat("a" * 16, 1, 30_000, desk.now_ms + 30_000, LEASE_MS, 1000, json.dumps({"name": "w1", "concurrency": 4})))
    desk.tick(1_500).pause("other")
    starts = ("ironclaim_jobs_w", "ironclaim_old", "ironclaim_pau", "ironclaim_wor")
    golden.same("engine/metrics_of_workers.txt", chosen(desk.queue.metrics(), *starts))
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
