"""The envelope of a job and the fields of its run (rule 15): Python and Lua read and write the same, and bytes that are none harm
nobody else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine import Queue, ScriptFault, validate
from engine.models import envelope
from engine.models.envelope import read_run_fields
from engine.redis.scripts import layers_of, linked_functions, scripts_folder
from tests.engine.helpers.lives import now_ms
from tests.engine.using import Enqueue, Lease, LeasedJob, Options, claim, refused, run_fields, write_run
from tests.walks import examples

LEASE = Lease("j", 7, "n")
#: How a job, a job with flags and a tombstone begin.
HEADS = st.sampled_from([b"\xa5", b"\xb5", b"\xa0"])
WORDS = st.text("abcXYZ_.:-019", min_size=1, max_size=128)
U32 = st.integers(0, 2**32 - 1)
U48 = st.integers(0, 2**48 - 1)
TOKENS = [st.from_regex(token, fullmatch=True) for token in ("[0-9a-f]{16}:[0-9]{1,16}", "[0-9A-Fa-f]{15,17}:[0-9e]{0,4}")]
NONCES = st.just(b"") | st.binary(min_size=8, max_size=8)
#: Half of them begin as an envelope does.
BYTES = st.one_of(st.binary(max_size=200), st.tuples(HEADS, st.binary(max_size=200)).map(b"".join))
#: Half of them in an envelope that is not wide.
SEQUENCES, TIMES = st.integers(0, 2**30 - 1) | U48, st.integers(0, 2**42 - 1) | U48
OPTIONS = st.builds(
    Options, priority=st.integers(1, 10), lifo=st.booleans(), attempts=st.integers(1, validate.ATTEMPTS_MAX), backoff_ms=U32,
    timeout_ms=U32, backoff=st.sampled_from(("fixed", "exponential")),
    delay_ms=st.just(0) | st.integers(1, validate.DURATION_MS_MAX),
    crashes_max=st.integers(validate.CRASHES_LEAST, validate.CRASHES_MAX),
    key=st.just("") | WORDS.filter(lambda key: len(key) <= validate.KEY_CHARS_MAX), unique=st.just("") | WORDS,
    headers=st.dictionaries(st.text(max_size=20), st.text(max_size=60), max_size=5).map(lambda found: tuple(found.items())),
)  # fmt: skip
ENQUEUES = st.builds(
    Enqueue, job=WORDS, name=WORDS, payload=st.binary(max_size=300), options=OPTIONS, nonce=NONCES, not_after_ms=st.just(0) | U48,
)  # fmt: skip
FUNCTIONS = ["envelope_open", "envelope_seal", "seal_of", "seal_unique", "envelope_kind", "envelope_cost", "envelope_start"]
#: What Lua finds in an envelope, as text, since its numbers are doubles.
READ_IN_LUA = """#!lua flags=no-writes
%s
local job = envelope_open(ARGV[1])
if not job then return {'none'} end
if job.kind == 'T' then return {job.kind, tostring(job.outcome), job.enqueue_nonce, job.fence, job.nonce} end
if job.kind ~= 'J' then return {job.kind} end
local function number(value) return string.format('%%.0f', value) end
local seal = envelope_seal(ARGV[1])
if seal ~= seal_of(job.not_after_ms, job.enqueue_nonce, job.unique) or seal_unique(seal) ~= job.unique then return {'seal'} end
if envelope_kind(ARGV[1]) ~= 'J' or envelope_cost(ARGV[1]) ~= 1 then return {'head'} end
local size = string.byte(ARGV[1]) < 176 and 1 or 2
local head = string.sub(ARGV[1], 1, size)
if job.flags >= 128 then head = string.char(string.byte(head), job.flags - 128) end
local start = envelope_start(head, job.sequence, job.enqueued_ms, job.due_ms, job.not_after_ms)
local is_start = string.sub(ARGV[1], 1, #start) == start
return { is_start and 'start' or 'other start', job.kind, number(job.priority), number(job.flags), number(job.sequence),
  number(job.enqueued_ms), number(job.due_ms),
  job.enqueue_nonce, number(job.not_after_ms), number(job.attempts), number(job.crashes_max), job.class, job.lane,
  tostring(job.unique) }
"""

SHARED_SERVER = settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


def sealed(operation: Enqueue, sequence: int = 1, enqueued_ms: int = 2, due_ms: int = 3) -> bytes:
    """The whole envelope, with the fields that the script writes."""
    head, tail = envelope.encode(operation)
    numbers = (sequence << 42 | enqueued_ms).to_bytes(9, "big") if is_narrow(operation, sequence, enqueued_ms) else b""
    if not numbers:
        head = bytes((head[0] | 176, head[1] | 128 if len(head) > 1 else 128))
        numbers = b"".join(number.to_bytes(6, "big") for number in (sequence, enqueued_ms, operation.not_after_ms))
    return head + numbers + (due_ms.to_bytes(6, "big") if operation.options.delay_ms else b"") + tail


def is_narrow(operation: Enqueue, sequence: int, enqueued_ms: int) -> bool:
    return sequence < 2**30 and enqueued_ms < 2**42 and operation.not_after_ms <= enqueued_ms + 10_000


def sample(**changes: Any) -> Enqueue:
    values: dict[str, Any] = {"job": "j", "name": "work", "payload": b'{"a":1}', "nonce": b"nonce---", "not_after_ms": 10}
    values |= {"options": Options(headers=(("trace", "t"),))}
    return Enqueue(**(values | changes))


def opened(raw: bytes) -> LeasedJob:
    return envelope.decode(raw, LEASE, 99, (1, 2, 3))


@pytest.fixture
def lua(raw: redis.Redis) -> Any:
    """Runs `envelope_open` of the scripts on bytes."""
    script = READ_IN_LUA % linked_functions(FUNCTIONS, layers_of(scripts_folder(), "lanes"))
    return lambda data: raw.eval(script, 0, data)


@settings(max_examples=examples(40))
@given(ENQUEUES, SEQUENCES, TIMES, U48)
def test_round_trip(operation: Enqueue, sequence: int, enqueued_ms: int, due_ms: int) -> None:
    options, due_ms = replace(operation.options, delay_ms=0), due_ms if operation.options.delay_ms else 0
    said = (operation.name, operation.class_name, operation.lane, operation.payload)
    # The last three are the claims, failures and crashes.
    wanted = LeasedJob(LEASE, 99, *said, options, enqueued_ms, due_ms, 1, 2, 3)
    assert opened(sealed(operation, sequence, enqueued_ms, due_ms)) == wanted


def borders(*values: Any) -> Callable[[Any], Any]:
    """Examples of a property that are tried each time: drawn numbers hardly ever meet a border."""

    def added(test: Any) -> Any:
        for value in values:
            test = example(*value)(test)
        return test

    return added


@pytest.mark.walk
@SHARED_SERVER
@borders(*[(sample(), sequence, 2**42 - 1, 3) for sequence in (0, 255, 256, 65_535, 65_536, 2**30 - 1, 2**30, 2**48 - 1)])
@borders(*[(sample(not_after_ms=0), sequence, 2**42, 3) for sequence in (2**30 - 1, 2**30)])
# Wide, and nothing else.
@borders((sample(nonce=b"", options=Options()), 2**30, 2**42 - 1, 0))
@given(ENQUEUES, SEQUENCES, TIMES, U48)
def test_lua_reads_what_python_wrote(lua: Any, operation: Enqueue, sequence: int, enqueued_ms: int, due_ms: int) -> None:
    options, narrow = operation.options, is_narrow(operation, sequence, enqueued_ms)
    settings = (options.attempts, options.backoff, options.crashes_max, options.backoff_ms, options.timeout_ms)
    flags = options.lifo + 2 * (options.delay_ms > 0) + 8 * bool(options.headers) + 64 * bool(operation.nonce)
    flags += 128 * (not narrow)
    flags += 4 * (settings != (3, "fixed", 3, 1000, 0) or bool(options.key) or bool(options.unique))
    numbers = (options.priority, flags, sequence, enqueued_ms, due_ms if options.delay_ms else 0)
    found = lua(sealed(operation, sequence, enqueued_ms, due_ms))
    until_ms = enqueued_ms + 10_000 if narrow else operation.not_after_ms
    tail = (options.crashes_max, operation.class_name, operation.lane, options.unique or "nil")
    # `start`: what Lua makes of these fields are the same bytes again.
    wanted = ["start", "J", *numbers, operation.nonce.decode("latin"), until_ms, options.attempts, *tail]
    assert [one.decode("latin") for one in found] == [str(one) for one in wanted]


@pytest.mark.walk
@SHARED_SERVER
@borders(*[(f"0123456789abcdef:{count}", b"", 7) for count in (1, 255, 256, 65_535, 65_536, 2**48 - 1, 2**48)])
@given(st.one_of(*TOKENS, WORDS), NONCES, st.integers(0, 2**53))
def test_a_tombstone_keeps_its_token_whatever_that_is(raw: Any, token: str, nonce: bytes, fence: int) -> None:
    script = linked_functions(["envelope_open", "tombstone_of", "pack_token"], layers_of(scripts_folder(), "lanes"))
    text = f"""#!lua flags=no-writes
{script}
local raw = tombstone_of(7, ARGV[1], tonumber(ARGV[2]), pack_token(ARGV[3]))
local read = envelope_open(raw)
return {{ read.kind, read.outcome, read.enqueue_nonce, read.fence, read.nonce, #raw }}"""
    *found, size = raw.eval(text, 0, nonce, fence, token)
    assert found == [b"T", b"cancelled", nonce, str(fence).encode(), token.encode()] and size <= 9 + len(nonce) + len(token)


@given(BYTES)
def test_python_refuses_other_bytes_with_one_error(raw: bytes) -> None:
    try:
        opened(raw)
    except ScriptFault as fault:
        assert str(fault).startswith("envelope of job j: ") and "\n" not in str(fault)


@pytest.mark.walk
@SHARED_SERVER
@given(BYTES)
def test_lua_never_stumbles_over_other_bytes(lua: Any, raw: bytes) -> None:
    """A script that raised would hold up every job beside the bad one."""
    assert lua(raw)[0] in (b"none", b"J", b"T", b"corrupt")


def test_every_truncation_is_noticed() -> None:
    raw = sealed(sample())
    for length in range(len(raw) - len(sample().payload)):
        refused(ScriptFault, "^envelope of job j: ", opened, raw[:length])


BAD = [(0, 0), (0, 1), (0, 160), (0, 176), (0, 187), (21, 255), (21, 4), (35, 0xFF), (39, 0xFF), (43, 0xFF), (49, ord("["))]


@pytest.mark.parametrize(("at", "byte"), BAD)
def test_a_wrong_byte_is_noticed(at: int, byte: int) -> None:
    """The first byte, back-off, class, key, unique key (UTF-8), and the options (JSON object)."""
    raw = bytearray(sealed(sample(options=Options(key="acme", unique="once", headers=(("trace", "t"),)))))
    raw[at] = byte
    refused(ScriptFault, "^envelope of job j: ", opened, bytes(raw))


def test_rule_15_what_a_plain_job_does_not_use_takes_no_room() -> None:
    assert len(sealed(sample(nonce=b"", options=Options()))) == 11 + len("work") + len(sample().payload)


def with_extra(extra: bytes) -> bytes:
    """A job with these bytes in place of the JSON of its options."""
    raw = sealed(sample(options=Options()))
    before = raw[:1] + bytes((raw[1] | 8,)) + raw[2 : -len(sample().payload)]
    return before + len(extra).to_bytes(2, "big") + extra + sample().payload


#: Bytes that are no options, by what is said of them.
NO_OPTIONS = {
    "options that are no object": [b"[]", b"7"], "headers that are no object": [b'{"headers":[]}', b'{"headers":7}'],
    "a header that is no text": [b'{"headers":{"a":1}}'],
    "an option that is no list of texts": [b'{"needs":"a"}', b'{"needs":["a",1]}'],
    "an option that is no whole number": [b'{"cost":-1}', b'{"cost":true}'],
    "an option that is no list of numbers": [b'{"backoff_delays_ms":1}'], "an option that is no text": [b'{"route":1}'],
    "an option that is no number from 0 to 1": [b'{"jitter":1}', b'{"jitter":1.5}'], "Expecting value": [b"nul"],
}  # fmt: skip


@pytest.mark.parametrize("said", NO_OPTIONS)
def test_options_that_are_none_are_noticed(said: str) -> None:
    for extra in NO_OPTIONS[said]:
        refused(ScriptFault, f"^envelope of job j: {said}", opened, with_extra(extra))


def test_options_at_their_bounds_and_those_of_a_later_engine_are_read() -> None:
    options = opened(with_extra(b'{"jitter":1.0,"cost":0,"of a later engine":{}}')).options
    assert options == replace(Options(), jitter=1.0, cost=0) and opened(with_extra(b'{"jitter":0.0}')).options.jitter == 0
    assert opened(sealed(sample(options=Options(unique="u" * 240)))).options.unique == "u" * 240
    beyond = sealed(sample(options=Options(unique="u" * 241)))
    refused(ScriptFault, "^envelope of job j: a unique key of 241 bytes", opened, beyond)


def test_extreme_values_travel_through_a_real_queue(ironclaim_url: str, client: Any) -> None:
    queue = Queue("q" * 128, url=ironclaim_url)
    headers = {"h": "x" * (validate.HEADERS_BYTES_MAX - len('{"h": ""}'))}
    payload = "x" * (validate.PAYLOAD_BYTES_MAX - 2)
    greatest: dict[str, Any] = {"priority": 10, "attempts": validate.ATTEMPTS_MAX, "backoff_ms": validate.BACKOFF_MS_MAX}
    greatest |= {"timeout_ms": validate.BACKOFF_MS_MAX, "headers": headers, "lifo": True}
    greatest |= {"key": "k" * validate.KEY_CHARS_MAX, "unique": "u" * 128}
    queue.enqueue("l", None, id="l", priority=1, attempts=1, backoff_ms=0, timeout_ms=0, headers={})
    before_ms = now_ms(client)
    queue.enqueue("n" * 128, payload, id="g" * 128, **greatest)
    after_ms = now_ms(client)
    high, low = claim(queue, classes=("l", "n" * 128)).jobs
    assert (high.lease.job, high.name, len(high.payload)) == ("g" * 128, "n" * 128, validate.PAYLOAD_BYTES_MAX)
    most = (10, True, 0, validate.ATTEMPTS_MAX, 2**32 - 1, 2**32 - 1, tuple(headers.items()))
    assert high.options == Options(*most, key="k" * 100, unique="u" * 128)
    assert (low.lease.job, low.name, low.payload, low.options) == ("l", "l", b"null", Options(1, False, 0, 1, 0, 0))
    assert before_ms <= high.enqueued_ms <= after_ms and high.due_ms == 0
    queue.close()


def test_the_greatest_delay_travels(queue: Queue, client: Any) -> None:
    before_ms = now_ms(client)
    queue.enqueue("work", {}, id="j", delay_ms=validate.DURATION_MS_MAX)
    ((job, due_ms),) = queue.snapshot().states["delayed"]
    assert job == "j" and before_ms <= due_ms - validate.DURATION_MS_MAX <= now_ms(client)


LIST = (b'{"headers":{"a":"b"}}', b'["headers",{"a":"b"}]')
DAMAGED = {
    "short": b"x", "no head": b"\xa5", "tombstone without a fence": b"\xa0\x31" + b"\xff" * 8,
    "version": b"\xc5" + sealed(sample())[1:], "options": sealed(sample()).replace(b"trace", b'tr"ce'),
    "name": sealed(sample()).replace(b"work", b"w\xffrk"),
    "unique key": sealed(sample(options=Options(unique="u"))).replace(b"\x01\x04work", b"\xf1\x04work") + bytes(250),
    "list": sealed(sample(options=Options(headers=(("a", "b"),)))).replace(*LIST),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_one_bad_job_does_not_hold_up_the_others(queue: Queue, damage: str, client: Any) -> None:
    for job in ("bad", "good", "also"):
        queue.enqueue("work", {}, id=job)
    client.set(queue.model.keys.job("bad"), DAMAGED[damage])
    queue.enqueue("work", {}, id="more")
    claimed = claim(queue)
    assert [job.lease.job for job in claimed.jobs] == ["good", "also", "more"]
    if claimed.unreadable:
        # What Lua could read and Python could not is leased: the worker buries it.
        assert [failure.lease.job for failure in claimed.unreadable] == ["bad"]
    else:
        assert queue.counts().waiting == 0 and queue.counts().active == 3


# -- the fields of `run:<id>`

RUN_SCRIPT = """#!lua
%s
local words = {}
for at = 2, #ARGV do words[at - 1] = ARGV[at] end
if ARGV[1] == 'write' then run_write(KEYS[1], unpack(words)) return {} end
return run_read(KEYS[1], unpack(words))
"""
RUN_NAMES = ("fence", "nonce", "seal", "owner", "claims", "failures", "limits", "e0", "e9", "error", "requeued_ms")
RUN_VALUES = {
    "fence": st.integers(1, 2**53).map(str), "nonce": st.from_regex("[0-9a-f]{16}:[1-9][0-9]{0,5}", fullmatch=True) | st.just(""),
    "claims": st.integers(1, 999).map(str),
}  # fmt: skip
#: Bytes that could be taken for the end of a field.
RUN_TEXTS = st.text(max_size=30) | st.sampled_from(["1:", " 3:abc", "e0 2:", "\0", ": "])
RUN_FIELDS = st.fixed_dictionaries(
    {"fence": RUN_VALUES["fence"]}, optional={name: RUN_VALUES.get(name, RUN_TEXTS) for name in RUN_NAMES if name != "fence"}
)


def in_lua(raw: Any, what: str, *words: str) -> list[bytes | None]:
    script = RUN_SCRIPT % linked_functions(["run_read", "run_write"], layers_of(scripts_folder(), "lanes"))
    return raw.eval(script, 1, "run", what, *words)


@pytest.mark.walk
@SHARED_SERVER
@given(st.lists(RUN_FIELDS, min_size=1, max_size=3))
def test_rule_15_lua_and_python_read_what_the_other_wrote(raw: redis.Redis, changes: list[dict[str, str]]) -> None:
    raw.delete("run")
    wanted: dict[str, str] = {}
    for fields in changes:
        in_lua(raw, "write", *(word for pair in fields.items() for word in pair))
        wanted = {name: text for name, text in ({"claims": "1"} | wanted | fields).items() if text}
        assert {name: value.decode() for name, value in run_fields(raw, "run").items()} == wanted
    write_run(raw, "run", **wanted)
    values = in_lua(raw, "read", *RUN_NAMES)
    assert [value.decode() if value else "" for value in values] == [wanted.get(name, "") for name in RUN_NAMES]


OTHER_RUNS = [b"", b"x", b"12", b"12 n", b"12 n ", b"12 n \x05\x00ab", b"12 n \x00\x00claims", b"x n \x00\x00"]


@pytest.mark.parametrize("other", OTHER_RUNS)
def test_other_bytes_are_named(raw: redis.Redis, other: bytes) -> None:
    refused(ValueError, "not enough values|no fields of a run|invalid literal", read_run_fields, other)
    raw.set("run", other)
    refused(redis.ResponseError, "IRONCLAIM the key run is no run of a job", in_lua, raw, "read", "fence")
