"""What foreign clients may have written that is no job: for each format, into the place that is claimed from next."""

from collections.abc import Callable
from typing import Any

import redis

from engine.models import Spec

#: JSON that is nested deeper than the server's decoder goes.
DEEP = "[" * 1_100 + "]" * 1_100
Write = Callable[[redis.Redis], Any]


def garbage(spec: Spec, queue: str) -> dict[str, Write]:
    """What to write, by what it is; nothing for Lanes, which has no foreign clients."""
    kind = type(spec).__name__
    if kind == "Bridge":
        return _bridge("bridge:jobs:")
    if kind == "Bull":
        return _bull(f"bull:{queue}:")
    if kind == "Bananas":
        live = getattr(spec, "layout", "") == "live"
        return _of_json(f"bananas:{'' if live else 'route:default:'}queue:normal", "bananas:job:", _BANANAS)
    if kind == "Mosquito":
        return _mosquito(queue, live=getattr(spec, "layout", "") == "live")
    return {}


def _bridge(root: str) -> dict[str, Write]:
    def job(id: str, data: str | bytes | None = None) -> Write:
        def write(client: redis.Redis) -> None:
            if data is not None:
                client.set(f"{root}data:{id}", data)
            client.lpush(f"{root}waiting", id)

        return write

    def main(id: str, members: str) -> Write:
        """One whose type is that of the tests."""
        return job(id, f'{{"type":"main",{members}}}')

    def of_another_type(client: redis.Redis) -> None:
        client.hset(f"{root}data:h", "a", "b")
        client.hset(f"{root}lock:l", "a", "b")
        client.set(f"{root}data:l", '{"type":"main"}')
        client.lpush(f"{root}waiting", "h")

    def without_data(client: redis.Redis) -> None:
        for key, id in (("cron", "x"), ("delayed", "y")):
            client.zadd(root + key, {id: 1})

    odd = '"dependsOn":{"a":1},"priority":{},"attempts":[]'
    retry, limit = '{"attempts":{},"backoff":[1]}', '{"maxConcurrent":"x"}'
    return {
        "id without data": job("gone"),
        "data of another type": of_another_type,
        "no JSON": job("a", "{oops"),
        "JSON null": job("b", "null"),
        "a list": job("c", "[1]"),
        "no type": job("d", '{"payload":{"label":"d"}}'),
        "null everywhere": main("e", '"payload":null,"target":null,"retry":null,"rateLimit":null,"dependsOn":null'),
        "numbers as texts": main("f", '"payload":{"label":"f"},"priority":"9","attempts":"many","createdAt":"-1e400"'),
        "NaN": main("g", '"payload":{"label":NaN},"createdAt":NaN,"priority":Infinity'),
        "stack as text": job("i", '{"type":"main","payload":{"label":"i"},"target":{"stack":""}}'),
        "id with colons": job("a:b:c", '{"type":"main","payload":{"label":"colons"}}'),
        "an id that nobody can say": job("a b\n\u20ac", '{"type":"main","payload":{"label":"x"}}'),
        "nothing": job("", '{"type":"main","payload":{"label":"x"}}'),
        "unknown members": job("k", '{"type":"main","payload":{"label":"k"},"newer":{"a":[1]},"jobId":7}'),
        "no UTF-8": job("m", b'{"type":"main","payload":{"label":"\xff"}}'),
        "a payload too deep": job("o", '{"type":"main","payload":' + DEEP + "}"),
        "a target too deep": job("p", '{"type":"main","target":{"stack":' + DEEP + "}}"),
        "another type of JSON everywhere": main("q", f'"payload":7,"target":[1],"retry":"x","rateLimit":[],{odd}'),
        "members of another type": main("r", f'"target":{{"server":7,"stack":7,"mode":[]}},"retry":{retry},"rateLimit":{limit}'),
        "a type that is a number": job("s", '{"type":7,"payload":{"label":"s"}}'),
        "numbers beyond range": job("t", '{"type":"main","priority":1e400,"attempts":-1e400,"createdAt":' + "9" * 400 + "}"),
        "an id twice": lambda client: client.lpush(f"{root}waiting", "gone", "gone"),
        "entries of cron and delayed without data": without_data,
    }


#: What stands where the JSON of a job is meant.
_BANANAS: dict[str, str | bytes] = {
    "null": "null",
    "a list": "[1]",
    "cut off": '{"id":"g","name":"main"',
    "no name": '{"id":"g","payload":{"label":"g"}}',
    "payload null": '{"id":"g","name":"main","payload":null,"status":"pending","priority":"normal"}',
    "numbers as texts": '{"id":"g","name":"main","payload":{"label":"g"},"attempts":"1","max_retries":"many","created_at":7}',
    "another priority": '{"id":"g","name":"main","payload":{"label":"g"},"priority":"urgent","routing_key":null}',
    "deep": '{"id":"g","name":"main","payload":' + DEEP + "}",
    "no UTF-8": b'{"id":"g","name":"main","payload":{"label":"\xff"},"status":"pending","priority":"normal"}',
    "another type of JSON everywhere": (
        '{"id":7,"name":"main","payload":7,"status":[],"priority":{},"attempts":{},"max_retries":[],"scheduled_for":7,"error":[]}'
    ),
    "times that are none": '{"id":"g","name":"main","payload":{"label":"g"},"created_at":[],"scheduled_for":"soon"}',
    "numbers beyond range": '{"id":"g","name":"main","payload":{"label":"g"},"attempts":1e400,"max_retries":-%s}' % ("9" * 400),
}


def _of_json(waiting: str, root: str, texts: dict[str, str | bytes]) -> dict[str, Write]:
    """For formats of which a job is one text of JSON; ids are taken from either end."""

    def writes(id: str, text: str | bytes | None) -> Write:
        def write(client: redis.Redis) -> None:
            if text is not None:
                client.set(root + id, text)
            client.rpush(waiting, id)

        return write

    def hash(client: redis.Redis) -> None:
        client.hset(f"{root}h", "a", "b")
        client.rpush(waiting, "h")

    return {
        **{"id without a job": writes("ghost", None), "nothing": writes("", None), "key of another type": hash},
        **{what: writes("g", text) for what, text in texts.items()},
    }


def _bull(root: str) -> dict[str, Write]:
    def job(id: str, *fields: str | bytes) -> Write:
        def write(client: redis.Redis) -> None:
            if fields:
                client.hset(root + id, items=list(fields))
            client.lpush(f"{root}wait", id)

        return write

    def string(client: redis.Redis) -> None:
        client.set(f"{root}900", "no hash")
        client.lpush(f"{root}wait", "900")

    odd = '{"attempts":"x","delay":{},"priority":[],"backoff":[1],"timeout":"y","removeOnComplete":{}}'
    beyond = '{"attempts":1e400,"priority":-1e400}'
    return {
        "id without a hash": job("901"),
        "hash of another type": string,
        "opts that are no JSON": job("902", "data", "{}", "opts", "{oops"),
        "opts that are null": job("903", "data", '{"label":"null"}', "opts", "null"),
        "data that is no JSON": job("904", "data", "{oops", "opts", "{}"),
        "numbers that are none": job("905", "data", '{"label":"n"}', "opts", "{}", "attempts", "many", "timestamp", "-1e400"),
        "id with colons": job("a:b:c", "data", '{"label":"colons"}', "opts", "{}"),
        "id of a key of the queue": job("wait"),
        "nothing": job(""),
        "no UTF-8": job("907", "data", b'{"label":"\xff"}', "opts", "{}"),
        "a name that is no UTF-8": job("908", "name", b"\xff", "data", "{}", "opts", "{}"),
        "data too deep": job("909", "data", DEEP, "opts", "{}"),
        "opts too deep": job("910", "data", '{"label":"deep"}', "opts", '{"backoff":' + DEEP + "}"),
        "opts of a list": job("911", "data", '{"label":"list"}', "opts", "[1]"),
        "another type of JSON everywhere": job("912", "data", "7", "opts", odd),
        "numbers beyond range": job("913", "data", '{"label":"r"}', "opts", beyond, "attemptsMade", "9" * 400),
        "unknown fields": job("906", "data", '{"label":"more"}', "opts", '{"x":1}', "newer", "1"),
        "an id twice": lambda client: client.lpush(f"{root}wait", "901", "901"),
    }


def _mosquito(queue: str, *, live: bool) -> dict[str, Write]:
    waiting, hashes = f"mosquito:waiting:{queue}", "mosquito:job_run:"
    fine = {"enqueue_time": "1795233562980", "type": "main", "retry_count": "0"}

    def entry(client: redis.Redis, id: str) -> None:
        if live:
            client.rpush(waiting, id)
        else:
            client.zadd(waiting, {id: 1})

    def job(id: str, without: str = "", **fields: str | bytes) -> Write:
        def write(client: redis.Redis) -> None:
            told = {name: value for name, value in {**fields, **fine, **fields}.items() if name != without}
            client.hset(hashes + id, items=[word for pair in told.items() for word in pair])
            entry(client, id)

        return write

    def string(client: redis.Redis) -> None:
        client.set(f"{hashes}1:900", "no hash")
        entry(client, "1:900")

    odd = '{"attempts":[],"result_ttl_ms":"x","priority":{},"backoff":7}'
    return {
        "id without a hash": lambda client: entry(client, "1:901"),
        "hash of another type": string,
        "no type": job("1:902", without="type"),
        "no time": job("1:903", without="enqueue_time"),
        "a time that is none": job("1:904", enqueue_time="today"),
        "a count that is none": job("1:905", retry_count="many"),
        "a count beyond 2^53": job("1:906", retry_count="9" * 40, label="beyond"),
        "options of ours that are no JSON": job("1:907", ironclaim="{oops"),
        "options of ours that are null": job("1:908", ironclaim="null"),
        "options of ours out of bounds": job("1:909", ironclaim='{"attempts":-1}'),
        "a parameter that is no UTF-8": job("1:911", label=b"\xff"),
        "options of ours too deep": job("1:912", ironclaim='{"x":' + DEEP + "}"),
        "options of ours of another type": job("1:913", ironclaim=odd),
        "options of ours that are a list": job("1:914", ironclaim="[1]"),
        "numbers beyond range": job("1:915", enqueue_time="9" * 400, retry_count="1e400"),
        "id with a space": job("with space"),
        "nothing": lambda client: entry(client, ""),
        "an id twice": lambda client: [entry(client, "1:901"), entry(client, "1:901")],
    }
