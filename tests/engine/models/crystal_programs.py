"""What Mosquito's programs do to one job, command by command. Each program stops after every command that it sends, so that a
test may act in between, or end it there. `ran` gets an entry when the handler of the program runs. `v2` is 2.0.0, `head` a later
version with overseers."""

from collections.abc import Callable, Iterator

from tests.engine.models.crystal import Crystal

#: The overseer whose heartbeats these programs stand for.
OVERSEER = "theirs"
KIND = "ok_job"
BACK_OFF_MS = 2_000

Program = Callable[[Crystal, str, list[str]], Iterator[None]]


def each(*commands: Callable[[], object]) -> Iterator[None]:
    """Send these, and stop after each."""
    for command in commands:
        command()
        yield


def announce(their: Crystal) -> None:
    """Say that the queue has jobs."""
    their.redis.zadd(their.keys.queues, {their.keys.queue: their.now_ms() // 1000})


def enqueue(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """A producer. Its two pushes are a pipeline, and no transaction."""
    yield from each(lambda: their.store(KIND, id=id, n="1"), lambda: their.push(their.keys.waiting, id), lambda: announce(their))


def schedule(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """A producer of a job for later."""
    due = {id: their.now_ms() + 500}
    yield from each(lambda: their.store(KIND, id=id, n="1"), lambda: their.redis.zadd(their.keys.scheduled, due))


def promote(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """A coordinator: the replies to its first two commands do not stop it."""
    due = their.redis.zrangebyscore(their.keys.scheduled, 0, their.now_ms())
    yield
    if id not in due:  # type: ignore[operator]
        return
    their.redis.zrem(their.keys.scheduled, id)
    yield
    fields = their.fields(id)
    yield
    if "type" in fields and "enqueue_time" in fields:
        yield from each(lambda: their.push(their.keys.waiting, id), lambda: announce(their))


def _run(their: Crystal, id: str, ran: list[str], head: bool, *commands: Callable[[], object]) -> Iterator[None]:
    """Every run: take, read, in later versions claim, and what follows when the handler has run."""
    if their.take() != id:
        return
    yield
    fields = their.fields(id)
    yield
    if "type" not in fields:
        return
    if head:
        their.redis.hset(their.keys.run(id), "overseer_id", OVERSEER)
        yield
    ran.append(id)
    yield from each(*commands)


def _store(their: Crystal, id: str, *, retry_count: str, head: bool, overseer: str = OVERSEER) -> None:
    """The hash as the program has it in its memory, whether the key still exists or not."""
    fields = ["n", "1", "enqueue_time", str(their.now_ms()), "type", KIND, "retry_count", retry_count]
    with their.redis.pipeline(transaction=True) as pipe:
        pipe.hset(their.keys.run(id), items=fields + (["overseer_id", overseer] if head and overseer else []))
        if not overseer:
            pipe.hdel(their.keys.run(id), "overseer_id")
        pipe.execute()


def _rescheduling(their: Crystal, id: str, head: bool) -> list[Callable[[], object]]:
    return [
        lambda: their.drop(their.keys.pending, id),
        lambda: their.redis.zadd(their.keys.scheduled, {id: their.now_ms() + BACK_OFF_MS}), *[lambda: announce(their)] * head,
    ]  # fmt: skip


def succeed_v2(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    ends = (lambda: their.drop(their.keys.pending, id), lambda: their.redis.expire(their.keys.run(id), 1))
    return _run(their, id, ran, False, *ends)


def succeed_head(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    return _run(
        their, id, ran, True, lambda: _store(their, id, retry_count="0", head=True), lambda: their.drop(their.keys.pending, id),
        lambda: their.redis.expire(their.keys.run(id), 60),
    )  # fmt: skip


def _fail(their: Crystal, id: str, ran: list[str], *, head: bool) -> Iterator[None]:
    return _run(their, id, ran, head, lambda: _store(their, id, retry_count="1", head=head), *_rescheduling(their, id, head))


def fail_v2(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    return _fail(their, id, ran, head=False)


def fail_head(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """Its reschedule leaves the overseer in the hash."""
    return _fail(their, id, ran, head=True)


def banish_v2(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    return _run(
        their, id, ran, False, lambda: _store(their, id, retry_count="5", head=False), lambda: their.drop(their.keys.pending, id),
        lambda: their.push(their.keys.dead, id), lambda: their.redis.expire(their.keys.run(id), 86_400),
    )  # fmt: skip


def preempt_head(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """A run that a resource gate has ended goes back to the waiting ones."""
    return _run(
        their, id, ran, True, lambda: _store(their, id, retry_count="0", head=True), lambda: their.drop(their.keys.pending, id),
        lambda: their.push(their.keys.waiting, id), lambda: announce(their),
    )  # fmt: skip


def clean_up(their: Crystal, id: str, ran: list[str]) -> Iterator[None]:
    """An overseer that looks for jobs of dead ones: it reads the living ones first, `pending` next, and then each hash."""
    living = their.redis.zrangebyscore(their.keys.overseers, their.now_ms() // 1000 - 100, "+inf")
    yield
    pending = their.ids(their.keys.pending)
    yield
    if id not in pending:  # type: ignore[operator]
        return
    fields = their.fields(id)
    yield
    if "type" not in fields:
        yield from each(lambda: their.drop(their.keys.pending, id))
    elif "overseer_id" not in fields:
        yield from each(lambda: their.redis.hset(their.keys.run(id), "overseer_id", OVERSEER))
    elif fields["overseer_id"] not in living:  # type: ignore[operator]
        yield from each(lambda: _store(their, id, retry_count="1", head=True, overseer=""), *_rescheduling(their, id, True))
