"""Names and ids of old keyspaces in addresses: a space, a question mark or a letter with an accent is a part of its segment."""

import re
from urllib.parse import quote

import pytest

from engine import Queue, Worker, models
from tests.engine.helpers.producing import some_handlers
from tests.engine.http.serving import asking

QUEUE, NAME = 'video trans"coding" é?#%', 're "encode" é'
IDS = ("a b c", "é {x}*?[y]#%2F", "batch", "<b>'\"&;=+", "x" * 300, "\U0001f600", " . ", "a\x9fb\xa0\u200d\u2028")
#: In no address: a proxy might take them for another path. Lists show those of other programs.
NOT_IN_PATHS = ("a/b", "back\\slash", "line\nend", "nul\0", "a\x7fb", "\ufffd", ".", "..", "y" * 2_000)


@pytest.mark.parametrize(
    "model", ["bull", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bridge", "bananas:live", "mosquito:live"))]
)
def test_jobs_of_every_id_are_found_changed_and_shown(model: str, ironclaim_url: str) -> None:
    of_queue = f"/api/queues/{quote(QUEUE, safe='')}"
    with asking(ironclaim_url, model=model, allow_changes=True, show_payloads=True) as client:
        for id in NOT_IN_PATHS:
            job = {"name": NAME, "payload": {"n": "1"}, "id": id}
            refused = [client.post(f"{of_queue}/jobs", json=job), client.post(f"{of_queue}/jobs/batch", json={"jobs": [job]})]
            told = [(answer.status_code, answer.json()["field"]) for answer in refused]
            assert told == [(422, "id"), (422, "jobs[0].id")], id
        with Queue(QUEUE, models.named(model), url=ironclaim_url) as queue:
            queue.enqueue(NAME, {"n": "1"}, id="a/b")
        for id in IDS:
            answer = client.post(f"{of_queue}/jobs", json={"name": NAME, "payload": {"n": "1"}, "id": id})
            assert (answer.status_code, answer.json()["id"]) == (201, id), answer.text
            assert answer.headers["location"] == f"{of_queue}/jobs/{quote(id, safe='')}"
        assert [row["queue"] for row in client.get("/api/queues").json()["queues"]] == [QUEUE]
        listed = client.get(f"{of_queue}/jobs", params={"name": NAME}).json()["jobs"]
        assert sorted(job["id"] for job in listed) == sorted((*IDS, "a/b"))
        page = client.get(f"/queues/{quote(QUEUE, safe='')}/jobs")
        assert page.status_code == 200
        for id in IDS:
            of_job = f"/queues/{quote(QUEUE, safe='')}/jobs/{quote(id, safe='')}"
            # The page links to what this address is.
            assert of_job in page.text and client.get(of_job).status_code == 200
            assert client.get(f"/api{of_job}").json()["id"] == id
        # A browser's, after it has seen the page.
        client.cookies.clear()
        assert client.post(f"{of_queue}/jobs/{quote(IDS[0], safe='')}/cancel", json={}).status_code == 200
        assert client.put(f"{of_queue}/limits/{quote(NAME, safe='')}", json={"concurrency": 2}).json()["name"] == NAME
        with Queue(QUEUE, models.named(model), url=ironclaim_url) as queue:
            Worker(queue, some_handlers(lambda job: job.id, NAME)).run(burst=True)
            counts = queue.counts()
        assert (counts.waiting, counts.dead) == (0, 0)
        # Mosquito keeps a finished job for a second.
        if not model.startswith("mosquito"):
            found = client.get(f"{of_queue}/jobs/{quote(IDS[1], safe='')}").json()
            assert (found["id"], found["state"]) == (IDS[1], "finished")
        assert r'queue="video trans\"coding\" é?#%",name="re \"encode\" é"' in client.get(f"{of_queue}/metrics").text
        # What this application serves is no queue of Lanes, so its document does not say that rule.
        paths = client.get("/openapi.json").json()["paths"]
        pattern = re.compile(paths["/api/queues/{queue}"]["get"]["parameters"][0]["schema"]["pattern"])
        assert [id for id in (*IDS, *NOT_IN_PATHS) if pattern.fullmatch(id)] == [*IDS, NOT_IN_PATHS[-1]]


def test_lanes_refuses_such_a_queue_and_ids_that_are_dots(ironclaim_url: str) -> None:
    with asking(ironclaim_url, allow_changes=True) as client:
        answer = client.get(f"/api/queues/{quote(QUEUE, safe='')}")
        assert (answer.status_code, answer.json()["field"]) == (422, "queue")
        for path, body, field in (
            ("queues/q", {"id": ".."}, "id"),
            ("queues/q", {"on_success": {"name": "a", "id": "."}}, "on_success.id"),
            ("v1", {"id": "a/b"}, "id"),
        ):
            answer = client.post(f"/api/{path}/jobs", json={"name": "a", **body})
            assert (answer.status_code, answer.json()["field"]) == (422, field)
            assert answer.json()["bound"].startswith("a text for a path")
