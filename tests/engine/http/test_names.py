"""Names and ids of old keyspaces in addresses: a space, a question mark or a letter with an accent is a part of its segment."""

from urllib.parse import quote

import pytest

from engine import Queue, Worker, models
from tests.engine.helpers.producing import some_handlers
from tests.engine.http.serving import asking

QUEUE, NAME = 'video trans"coding" é?#%', 're "encode" é'
IDS = ("a b c", "é {x}*?[y]#%2F", "batch", "<b>'\"&;=+", "x" * 300, "\U0001f600", " . ")
#: In no address: a proxy might take them for another path. Lists show them.
NOT_IN_PATHS = ("a/b", "back\\slash", "line\nend", "nul\0")


@pytest.mark.parametrize(
    "model", ["bull", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bridge", "bananas:live", "mosquito:live"))]
)
def test_jobs_of_every_id_are_found_changed_and_shown(model: str, ironclaim_url: str) -> None:
    of_queue = f"/api/queues/{quote(QUEUE, safe='')}"
    with asking(ironclaim_url, model=model, allow_changes=True, show_payloads=True) as client:
        for id in (*IDS, *NOT_IN_PATHS):
            answer = client.post(f"{of_queue}/jobs", json={"name": NAME, "payload": {"n": "1"}, "id": id})
            assert (answer.status_code, answer.json()["id"]) == (201, id), answer.text
            assert answer.headers["location"] == f"{of_queue}/jobs/{quote(id, safe='')}"
        assert [row["queue"] for row in client.get("/api/queues").json()["queues"]] == [QUEUE]
        listed = client.get(f"{of_queue}/jobs", params={"name": NAME}).json()["jobs"]
        assert sorted(job["id"] for job in listed) == sorted((*IDS, *NOT_IN_PATHS))
        page = client.get(f"/queues/{quote(QUEUE, safe='')}/jobs")
        assert page.status_code == 200
        for id in IDS:
            of_job = f"/queues/{quote(QUEUE, safe='')}/jobs/{quote(id, safe='')}"
            # The page links to what this address is.
            assert of_job in page.text and client.get(of_job).status_code == 200
            assert client.get(f"/api{of_job}").json()["id"] == id
        for id in NOT_IN_PATHS:
            assert client.get(f"{of_queue}/jobs/{quote(id, safe='')}").status_code == 400
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
        assert paths["/api/queues/{queue}"]["get"]["parameters"][0]["schema"]["pattern"] == r"^[^/\\]+$"


def test_lanes_refuses_such_a_queue(ironclaim_url: str) -> None:
    with asking(ironclaim_url) as client:
        answer = client.get(f"/api/queues/{quote(QUEUE, safe='')}")
        assert (answer.status_code, answer.json()["field"]) == (422, "queue")
