"""Mosquito's hash of a job run, without a server: parameters as Crystal prints them, options beside them, and back."""

import json

import pytest

from engine import Job, Malformed, ScriptFault, UnsupportedFeature
from engine.models.foreign import mosquito
from engine.models.foreign.mosquito import DEFAULTS, MosquitoModel, decode, left_over, parameters, unique_text
from engine.options import checked
from engine.parameters import Parameters
from engine.serializers import Serializers
from tests.engine.using import Lease, LeasedJob, Options, refused

LEASE = Lease("1795233562980:120", 1, "1:1")


def texts(payload: object) -> dict[str, str]:
    return {name: text.decode() for name, text in parameters(json.dumps(payload).encode(), Options())}


def read(fields: dict[str, str | bytes], lease: Lease = LEASE) -> LeasedJob:
    """A hash as the claim script tells it."""
    whole: dict[str, str | bytes] = {"enqueue_time": "1795233562980", "type": "ok_job", "retry_count": "0", **fields}
    flat = [word if isinstance(word, bytes) else word.encode() for pair in whole.items() for word in pair]
    return decode(flat, lease, 5, (1, 0, 0))


@pytest.mark.feature("MQ03", model="mosquito")
def test_parameters_are_texts_as_crystal_prints_them() -> None:
    given = {"b": 9007199254740993, "a": 1e21, "yes": True, "no": False, "text": "7", "half": 0.5, "none": "", "ü": "ß"}
    wanted = {"b": "9007199254740993", "a": "1.0e+21", "yes": "true", "no": "false", "text": "7"}
    assert texts(given) == {**wanted, "half": "0.5", "none": "", "ü": "ß"}
    assert [*texts(given)] == [*given], "in the order of the payload"
    assert texts(None) == {}


def test_numbers_with_a_point_change_to_powers_where_crystal_does() -> None:
    for value, text in (
        *((1.0, "1.0"), (-2.5, "-2.5"), (0.0, "0.0"), (-0.0, "-0.0"), (100.0, "100.0"), (123456.789, "123456.789")),
        *((1e14, "100000000000000.0"), (1e15, "1.0e+15"), (123456789012345678.0, "1.2345678901234568e+17")),
        *((1e-3, "0.001"), (1e-4, "0.0001"), (1e-5, "1.0e-5"), (1.5e300, "1.5e+300"), (5e-324, "5.0e-324")),
    ):
        assert mosquito.crystal_float(value) == text and float(text) == value


def test_a_payload_that_no_hash_holds_is_refused_and_named() -> None:
    for payload in ([], [1], "x", 7, True, {"a": None}, {"a": [1]}, {"a": {}}, {"": 1}, {"a": "\ud800"}):
        with pytest.raises(Malformed, match="^payload") as caught:
            texts(payload)
        assert caught.value.field in ("payload", "payload.a", "payload.")


def test_parameters_with_names_of_the_metadata_are_refused() -> None:
    for name in mosquito.REFUSED:
        refused(Malformed, f"^payload.{name}: ", texts, {"fine": 1, name: "x"})
    assert {"type", "enqueue_time", "retry_count", "id"} <= {*mosquito.REFUSED}
    refused(Malformed, "^payload: '1001 parameters'", texts, {f"p{number}": 1 for number in range(1001)})


def test_a_job_that_says_nothing_about_retries_has_those_of_the_original() -> None:
    job = read({"user_id": "7"})
    assert (job.name, job.enqueued_ms, json.loads(job.payload)) == ("ok_job", 1795233562980, {"user_id": "7"})
    assert (job.options.attempts, job.options.backoff, job.options.backoff_ms) == (5, "geometric", 2000)
    assert left_over(checked({}, DEFAULTS)) == left_over(checked({"delay_ms": 5}, DEFAULTS)) == "", "its hash has no more"


def test_options_of_ours_travel_beside_the_parameters() -> None:
    given = Options(
        attempts=2, timeout_ms=5, headers=(("trace", "x"),), backoff="custom", backoff_delays_ms=(1, 2), key="k", cost=3
    )
    job = read({"ironclaim": left_over(given), "user_id": "7"})
    said = ("attempts", "timeout_ms", "headers", "backoff", "backoff_delays_ms", "key", "cost")
    assert all(getattr(job.options, name) == getattr(given, name) for name in said)
    assert (json.loads(job.payload), job.lane) == ({"user_id": "7"}, "ok_job/k")
    waits = read({"ironclaim": left_over(checked({"backoff_ms": 5}, DEFAULTS))}).options
    assert (waits.attempts, waits.backoff, waits.backoff_ms) == (5, "geometric", 5)
    engines = read({"ironclaim": left_over(checked({"attempts": 3, "backoff": "fixed", "backoff_ms": 1000}, DEFAULTS))}).options
    assert (engines.attempts, engines.backoff, engines.backoff_ms) == (3, "fixed", 1000), "the engine's defaults may be asked for"
    assert read({"ironclaim": '{"attempts": 4, "of a later engine": []}'}).options.attempts == 4


def test_options_that_are_none_make_the_job_unreadable() -> None:
    for own in ("", "[]", "null", '{"attempts": 0}', '{"headers": 5}', "{"):
        refused(ScriptFault, "1795233562980:120", read, {"ironclaim": own})


def test_what_the_original_keeps_in_the_hash_is_no_parameter() -> None:
    assert json.loads(read({"a": "1", "started_at": "1", "finished_at": "2", "overseer_id": "3"}).payload) == {"a": "1"}
    assert json.loads(read({"id": LEASE.job}).payload) == {}, "the document's"
    assert json.loads(read({"id": "7"}).payload) == {"id": "7"}, "a parameter of a class"
    for bad in (b"\xff", "x\udc80".encode(errors="surrogatepass")):
        refused(ScriptFault, None, read, {"a": bad})


@pytest.mark.feature("MQ03", model="mosquito")
def test_a_task_reads_texts_as_what_its_parameters_are() -> None:
    def send(job: Job, user: int, share: float, last: bool, subject: str, limit: int | None = None) -> None: ...

    payload = Serializers().read(read({}).options.serializer, b'{"user":"7","share":"1.0e+21","last":"true","subject":"5"}')
    assert Parameters(send, Job).read(payload) == ((7, 1e21, True, "5", None), {})
    for bad in ({"user": "seven"}, {"last": "maybe"}, {"user": "true"}):
        with pytest.raises(Malformed, match=f"^payload.{next(iter(bad))}: "):
            Parameters(send, Job).read(type(payload)({**payload, **bad}))
    refused(Malformed, "^payload.user: ", Parameters(send, Job).read, {**payload, "user": "7"})


@pytest.mark.feature("MQ29", model="mosquito")
def test_unique_texts_are_those_of_the_original_or_of_the_callers_own() -> None:
    given = parameters(b'{"user_id":7,"kind":"a","extra":true}', Options())
    assert unique_text("ok_job", given, "params") == "ok_job:extra=true:kind=a:user_id=7"
    assert unique_text("ok_job", given, "params:user_id:kind") == "ok_job:kind=a:user_id=7"
    assert unique_text("ok_job", given, "mine") == "ok_job:mine" and unique_text("ok_job", given, "") == ""
    refused(Malformed, "^dedup: ", unique_text, "ok_job", given, "params:nobody")


def test_what_the_model_cannot_hold_is_refused_before_any_io() -> None:
    model = MosquitoModel("q", "mosquito")
    for options in (Options(priority=1), Options(lifo=True), Options(needs=("a",)), Options(unique="u"), Options(route="gpu")):
        refused(UnsupportedFeature, "mosquito", model.check, "", "ok_job", b"{}", options)
    model.check("", "held_out::spaced_job", b"{}", Options(delay_ms=5, dedup="params", dedup_ms=5))
