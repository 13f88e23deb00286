"""The models that the suite runs for, each with its layouts, and where the programs of a format keep what."""

import json
from typing import Any

import pytest

from engine import models
from engine.models import Spec

#: Those of foreign formats, by the name of their test. Mosquito keeps the hash of a finished job for one second of real time
#: unless told otherwise, and so would lose it between two looks of a test on a busy machine.
FOREIGN: dict[str, Spec] = {
    **{"bridge": models.Bridge(), "bananas-document": models.Bananas(), "bananas-live": models.Bananas(layout="live")},
    "bull": models.Bull(),
    "mosquito-document": models.Mosquito(success_ttl_s=600),
    "mosquito-live": models.Mosquito(layout="live", success_ttl_s=600),
}
ALL: dict[str, Spec] = {"lanes": models.Lanes(), **FOREIGN}
#: Formats whose jobs wait in lists, in which an id can stand twice; a sorted set has no second entry.
WITH_LISTS = {name: spec for name, spec in FOREIGN.items() if not name.startswith("mosquito")}


def each(specs: dict[str, Spec], *, later: str = "/") -> list[Any]:
    """Parameters of a fixture; those whose names end with `later` are of the second tier."""
    return [pytest.param(spec, id=name, marks=[pytest.mark.slow] * name.endswith(later)) for name, spec in specs.items()]


def only(specs: dict[str, Spec]) -> pytest.MarkDecorator:
    """Marks tests, or a module of them, that run for these models alone."""
    return pytest.mark.parametrize("spec", each(specs), scope="function")


def kind_of(spec: Spec) -> str:
    return type(spec).__name__


def key_of(spec: Spec, queue: str, id: str) -> bytes:
    """The key under which the programs of the format keep a job."""
    roots = {"Bridge": "bridge:jobs:data:", "Bananas": "bananas:job:", "Bull": f"bull:{queue}:", "Mosquito": "mosquito:job_run:"}
    return f"{roots[kind_of(spec)]}{id}".encode()


def waiting_of(spec: Spec, queue: str) -> str:
    """The key in which jobs wait."""
    live = getattr(spec, "layout", "") == "live"
    of_bananas = f"bananas:{'' if live else 'route:default:'}queue:normal"
    keys = {"Bridge": "bridge:jobs:waiting", "Bananas": of_bananas, "Bull": f"bull:{queue}:wait"}
    return keys.get(kind_of(spec), f"mosquito:waiting:{queue}")


def put_raw(spec: Spec, client: Any, queue: str, id: str | bytes, name: str) -> None:
    """A job as the programs of the format write it."""
    key = key_of(spec, queue, "") + (id if isinstance(id, bytes) else id.encode())
    match kind_of(spec):
        case "Bridge":
            client.set(key, json.dumps({"jobId": str(id), "type": name, "payload": {"label": "raw"}}, ensure_ascii=False))
        case "Bananas":
            job = {"id": str(id), "name": name, "payload": {"label": "raw"}, "status": "pending", "priority": "normal"}
            client.set(key, json.dumps(job, ensure_ascii=False))
        case "Bull":
            client.hset(key, mapping={"data": '{"label":"raw"}', "opts": json.dumps({"name": name}), "attempts": "1"})
        case _:
            client.hset(key, mapping={"label": "raw", "enqueue_time": "1795233562980", "type": name, "retry_count": "0"})
    where = waiting_of(spec, queue)
    if getattr(spec, "layout", "") == "document" and kind_of(spec) == "Mosquito":
        client.zadd(where, {id: 1795233562980})
    elif kind_of(spec) == "Bridge":
        client.rpush(where, id)
    else:
        client.lpush(where, id)


def read_back(spec: Spec, client: Any, queue: str) -> list[bytes]:
    """The ids that wait, as the programs of the format find them."""
    where = waiting_of(spec, queue)
    return client.zrange(where, 0, -1) if client.type(where) == b"zset" else client.lrange(where, 0, -1)


def take_over(spec: Spec, client: Any, queue: str, job: str) -> None:
    """What a client of the format that takes a job away from us leaves on the wire."""
    match kind_of(spec):
        case "Bridge":
            client.set(f"bridge:jobs:lock:{job}", "theirs")
        case "Bananas":
            client.lrem("bananas:queue:processing", 0, job)
        case "Bull":
            client.set(f"bull:{queue}:{job}:lock", "theirs")
        case _:
            client.hset(f"mosquito:job_run:{job}", "overseer_id", "theirs")
