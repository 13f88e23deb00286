"""Outgoing webhooks, to real receivers: bodies, retries, waits, signatures, dead letters, and what is never reached."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import Queue
from engine.http.channels.observing import NoTelemetry
from engine.http.channels.settings import ChannelPolicy, ChannelSettings, Target
from engine.http.channels.webhooks import delivery
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings, signed
from tests.engine.http.channels.desk import Desk, desk
from tests.engine.http.channels.receiver import Answer, Receiver
from tests.engine.using import malformed, seen, soon

pytestmark = pytest.mark.feature("DS30", model="dsps")

CERTIFICATES = Path(__file__).parents[2] / "certificates"
LOOPBACK = ("127.0.0.0/8",)
SOON = WebhookRetry(count=3, interval_ms=10, interval_jitter_ms=0)
ONCE = WebhookRetry(count=0)
#: Not before a test lets it run.
LATE = WebhookRetry(interval_ms=3_600_000, interval_jitter_ms=0)
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


def hook(url: str, **settings: Any) -> WebhookSettings:
    return WebhookSettings(**{"url": url, "allow_networks": LOOPBACK, "retry": SOON, "timeout_ms": 20_000, **settings})


def policy(*hooks: WebhookSettings) -> ChannelPolicy:
    """That of the channels `room-N`."""
    return ChannelPolicy(pattern=r"room-(?P<id>\d+)", webhooks=hooks)


def serving(url: str, *hooks: WebhookSettings, **settings: Any) -> contextlib.AbstractContextManager[Desk]:
    """An application whose channels `room-N` have these webhooks."""
    return desk(url, ChannelSettings(channels=(policy(*hooks), ChannelPolicy(pattern="quiet")), **settings))


@contextlib.contextmanager
def delivering(url: str, *hooks: WebhookSettings, **settings: Any) -> Generator[Desk]:
    """The same, to which message m1 has been published."""
    with serving(url, *hooks, **settings) as client:
        assert client.publish("room-7", "m1", "1").status_code == 200
        yield client


def error_of_dead(url: str) -> str:
    """The last error of the one dead letter, which comes."""
    ((_, error),) = soon(lambda: dead(url), "the dead letter")
    return error


def dead(url: str) -> list[tuple[dict[str, Any], str]]:
    """Body and last error of each dead letter."""
    with Queue("webhooks", url=url) as queue:
        return [(json.loads(job.payload_bytes), job.last_error) for job in queue.dead.list()]


def waiting(url: str) -> int:
    with Queue("webhooks", url=url) as queue:
        counts = queue.counts()
        return counts.waiting + counts.delayed + counts.active


def delayed(url: str) -> list[str]:
    """The deliveries that wait for their next attempt."""
    with Queue("webhooks", url=url) as queue:
        return [job.id for job in queue.jobs.list("delayed")]


def run_delayed(url: str) -> None:
    """Let those make it now."""
    with Queue("webhooks", url=url) as queue:
        for job in delayed(url):
            assert queue.jobs.run_now(job).done


def test_each_message_is_sent_as_dsps_sends_it(ironclaim_url: str, receiver: Receiver) -> None:
    headers = {"User-Agent": "my server", "X-Room": "{{.channel.id}}"}
    with serving(ironclaim_url, hook(f"{receiver.url}/rooms/{{{{.channel.id}}}}?x=1", headers=headers)) as client:
        assert client.publish("room-7", "m1", '{"n": 1.0}').status_code == 200
        assert client.publish("quiet", "m1", "1").status_code == 200
        soon(lambda: receiver.received, "the webhook arrives")
        # What was published again is not sent again.
        assert client.publish("room-7", "m1", '{"n": 1.0}').status_code == 200
        assert client.publish("room-7", "m2", "null").status_code == 200
        soon(lambda: len(receiver.received) == 2, "the second one arrives")
        soon(lambda: waiting(ironclaim_url) == 0, "nothing waits")
    first, second = receiver.received
    assert first.body == b'{"type":"dsps.channel.outgoing-webhook","channelID":"room-7","messageID":"m1","content":{"n":1.0}}'
    assert (json.loads(second.body)["messageID"], first.method, first.path) == ("m2", "PUT", "/rooms/7?x=1")
    assert first.headers["content-type"] == "application/json" and first.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (first.headers["user-agent"], first.headers["x-room"]) == ("my server", "7")


def test_every_webhook_of_every_matching_rule_gets_it(ironclaim_url: str, receiver: Receiver) -> None:
    with delivering(ironclaim_url, hook(f"{receiver.url}/a", method="POST"), hook(f"{receiver.url}/b")):
        soon(lambda: len(receiver.received) == 2, "both arrive")
    assert {(one.method, one.path) for one in receiver.received} == {("POST", "/a"), ("PUT", "/b")}


def test_what_may_pass_is_tried_again(ironclaim_url: str, receiver: Receiver) -> None:
    with serving(ironclaim_url, hook(receiver.url)) as client:
        for status in (400, 404, 408, 409, 429, 500, 502, 503, 302):
            receiver.received.clear()
            receiver.answers.extend([Answer(status, {"Location": "/elsewhere"} if status == 302 else {})] * 2)
            client.publish("room-7", f"m{status}", "1")
            soon(lambda: len(receiver.received) == 3, f"the third attempt after {status}")
            soon(lambda: waiting(ironclaim_url) == 0, "it is done")
            assert {(one.path, one.method) for one in receiver.received} == {("/", "PUT")} and dead(ironclaim_url) == []


def test_what_will_not_pass_is_a_dead_letter_at_once(ironclaim_url: str, receiver: Receiver) -> None:
    reported: list[tuple[str, Mapping[str, str]]] = []
    told: dict[str, Any] = {"report": lambda error, about: reported.append((str(error), about))}
    with serving(ironclaim_url, hook(receiver.url), **told) as client, Queue("webhooks", url=ironclaim_url) as queue:
        for status in (401, 403, 405, 410, 418, 426, 431, 451, 501):
            receiver.received.clear()
            reported.clear()
            receiver.answers.append(Answer(status))
            message = f"m{status}"
            client.publish("room-7", message, "1")
            ((body, why),) = soon(lambda: dead(ironclaim_url), "the dead letter")
            assert len(receiver.received) == 1 and body["messageID"] == message and str(status) in why
            ((error, about),) = reported
            assert str(status) in error and (about["channel"], about["message"]) == ("room-7", message)
            # A person sends it again.
            queue.dead.requeue(queue.dead.list()[0].id)
            soon(lambda: len(receiver.received) == 2, "it is sent again")
            assert receiver.received[0].body == receiver.received[1].body


def test_no_secret_of_a_webhook_is_ever_shown(ironclaim_url: str, receiver: Receiver, raw: Any, caplog: Any) -> None:
    hidden = "hunter2"
    headers = {"X-Key": hidden, "Authorization": f"Bearer {hidden}"}
    receiver.answers.extend([Answer(410)] * 2)
    reported: list[object] = []
    caplog.set_level(logging.DEBUG)
    hooks = [hook(f"{receiver.url}/{at}?sig={hidden}#{hidden}", headers=headers) for at in "ab"]
    settings: dict[str, Any] = {"report": lambda error, about: reported.extend((str(error), repr(error), about))}
    rule = ChannelPolicy(pattern="room-1", webhooks=hooks)
    with desk(ironclaim_url, ChannelSettings(channels=(rule,), **settings), show_payloads=True) as client:
        assert client.publish("room-1", "m1", b"{}").is_success
        soon(lambda: len(dead(ironclaim_url)) == 2, "both dead letters")
        assert {one.path for one in receiver.received} == {f"/a?sig={hidden}", f"/b?sig={hidden}"}
        assert {one.headers["x-key"] for one in receiver.received} == {hidden}
        with Queue("webhooks", url=ironclaim_url) as queue:
            jobs = queue.dead.list()
        at = "/queues/webhooks"
        paths = [f"/api{at}/metrics", f"/api{at}/jobs?state=dead", f"{at}/dead", at]
        paths += [f"{begin}{at}/jobs/{job.id}" for job in jobs for begin in ("", "/api")]
        told = [client.get(path) for path in paths]
        assert {answer.status_code for answer in told} == {200}
        stored = [raw.dump(key) for key in raw.scan_iter()]
    texts = [*(answer.text for answer in told), *map(repr, (jobs, reported, stored, rule)), caplog.text]
    assert not [text[:300] for text in texts if hidden in text]
    assert any("answered 410" in text and "/a?***" in text for text in texts)
    urls = (f"http://u:{hidden}@a.example/", f"http://a.example:{hidden}/", f"ftp://a.example/?{hidden}", f"//{hidden}@[")
    wrong: list[dict[str, Any]] = [{"url": url} for url in urls]
    wrong += [{"url": f"http://a.example/{{{{.channel.no}}}}?{hidden}"}, {"headers": {"X-Key": f"{hidden}{{{{.channel.no}}}}"}}]
    for given in wrong:
        told_so = malformed(lambda given=given: ChannelPolicy(webhooks=[hook(**{"url": "http://a.example/", **given})]))
        assert hidden not in "".join(traceback.format_exception(told_so)).partition("engine.errors.Malformed")[2]
        assert hidden not in repr(told_so.value) and "webhook" in told_so.field


def test_after_the_last_attempt_it_is_a_dead_letter(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.answers.extend([Answer(503)] * 9)
    with delivering(ironclaim_url, hook(receiver.url, retry=WebhookRetry(count=2, interval_ms=1, interval_jitter_ms=0))):
        ((body, error),) = soon(lambda: dead(ironclaim_url), "the dead letter")
    assert len(receiver.received) == 3 and body["content"] == 1 and "503" in error


def test_with_force_every_failure_is_tried_again(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.answers.append(Answer(403))
    with delivering(ironclaim_url, hook(receiver.url, retry=WebhookRetry(interval_ms=1, interval_jitter_ms=0, force=True))):
        soon(lambda: len(receiver.received) == 2, "the second attempt")
    assert dead(ironclaim_url) == []


def test_a_wait_passes_between_attempts(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.answers.append(Answer(503))
    with delivering(ironclaim_url, hook(receiver.url, retry=WebhookRetry(interval_ms=300, interval_jitter_ms=0))):
        soon(lambda: len(receiver.received) == 2, "the second attempt")
    assert receiver.received[1].at_s - receiver.received[0].at_s >= 0.3


def test_a_receiver_that_does_not_answer_is_tried_again(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.hold.clear()
    # More attempts than a slow machine makes before it lets the receiver answer.
    retry = WebhookRetry(count=999, interval_ms=10, interval_multiplier=1, interval_jitter_ms=0)
    with delivering(ironclaim_url, hook(receiver.url, timeout_ms=200, retry=retry)):
        soon(lambda: len(receiver.received) >= 2, "the second attempt")
        with Queue("webhooks", url=ironclaim_url) as queue:
            left = lambda: [job.last_error for state in ("delayed", "active") for job in queue.jobs.list(state)]  # noqa: E731
            soon(lambda: f"{receiver.url} has not answered within 200 ms" in str(left()), "why")
        receiver.hold.set()
        soon(lambda: waiting(ironclaim_url) == 0, "it is done")
    assert dead(ironclaim_url) == []


def has_answer(port: int) -> bool:
    """Whether an answer lies unread in the socket of a client that this process has at a port."""
    for one in psutil.Process().net_connections("tcp4"):
        if one.raddr and one.raddr.port == port:
            with socket.socket(fileno=os.dup(one.fd)) as beside, contextlib.suppress(BlockingIOError):
                return bool(beside.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


def test_an_answer_that_came_while_the_loop_stood_still_is_no_failure(receiver: Receiver) -> None:
    """A handler blocks the loop for longer than an answer may take, as a debugger does, or SIGSTOP."""

    async def stood_still(timeout_ms: int) -> bool:
        """False where the machine is so slow that the time is over before the request is there."""
        url, over_s = f"{receiver.url}/{timeout_ms}", time.monotonic() + timeout_ms / 1_000
        target = Target(hook(url, timeout_ms=timeout_ms), url, {})
        receiver.hold.clear()
        made = asyncio.create_task(delivery.Delivery(NoTelemetry()).attempt(target, "m1", b"{}"))
        sent = lambda: any(one.path == f"/{timeout_ms}" for one in receiver.received)  # noqa: E731
        await seen(lambda: sent() or made.done())
        await asyncio.sleep(0.001)
        began_s = time.monotonic()
        in_time = sent() and began_s < over_s
        receiver.hold.set()
        if in_time:
            soon(lambda: time.monotonic() > began_s + timeout_ms / 1_000 and has_answer(receiver.port), "the answer has come")
        with contextlib.nullcontext() if in_time else contextlib.suppress(delivery.DeliveryFailed):
            await made
        return in_time

    assert any(asyncio.run(stood_still(200 * 4**more)) for more in range(5))


def test_deliveries_are_signed_and_keep_their_id(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.answers.append(Answer(503))
    with delivering(ironclaim_url, hook(receiver.url, secret=SECRET)):
        soon(lambda: len(receiver.received) == 2, "the second attempt")
    for one in receiver.received:
        told = f"{one.headers['webhook-id']}.{one.headers['webhook-timestamp']}.".encode() + one.body
        expected = base64.b64encode(hmac.digest(bytes(range(32)), told, hashlib.sha256)).decode()
        assert one.headers["webhook-signature"] == f"v1,{expected}"
        assert abs(int(one.headers["webhook-timestamp"]) - time.time()) < 300
    assert receiver.received[0].headers["webhook-id"] == receiver.received[1].headers["webhook-id"]


def test_a_delivery_is_not_made_again_as_long_as_its_message_lives(ironclaim_url: str, receiver: Receiver, raw: Any) -> None:
    with delivering(ironclaim_url, hook(receiver.url, secret=SECRET)):
        soon(lambda: receiver.received and waiting(ironclaim_url) == 0, "it is made")
    id = receiver.received[0].headers["webhook-id"]
    with Queue("webhooks", url=ironclaim_url) as queue:
        # Under another id, for a job's own is forgotten soon after its end.
        assert queue.enqueue("webhook", b"{}", id="other", dedup=id, dedup_ms=1_000).result == "duplicate"
        assert any(1_800 < raw.ttl(key) <= 1_815 for key in raw.scan_iter() if id.encode() in key)


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the Standard Webhooks specification."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_redirects_that_keep_the_body_are_followed(ironclaim_url: str, receiver: Receiver) -> None:
    with Receiver() as other:
        receiver.answers.extend([Answer(307, {"Location": "/next"}), Answer(308, {"Location": f"{other.url}/there"})])
        with delivering(ironclaim_url, hook(receiver.url, headers={"X-Key": "secret"}, secret=SECRET)):
            soon(lambda: other.received, "it arrives")
        assert [one.path for one in receiver.received] == ["/", "/next"]
        assert {one.headers["x-key"] for one in receiver.received} == {"secret"}
        there = other.received[0]
        assert (there.method, there.body) == ("PUT", receiver.received[0].body)
        assert there.headers["host"].endswith(str(other.port))
        # Headers of the service are for the host that it has configured.
        assert "x-key" not in there.headers and there.headers["webhook-signature"].startswith("v1,")


def test_redirects_end(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.answers.extend([Answer(307, {"Location": "/again"})] * 50)
    with delivering(ironclaim_url, hook(receiver.url, redirects_max=3, retry=ONCE)):
        assert "more than 3 redirects" in error_of_dead(ironclaim_url)
    assert len(receiver.received) == 4


def test_a_message_that_was_published_while_nobody_delivered_is_delivered_later(ironclaim_url: str, receiver: Receiver) -> None:
    """Deliveries are durable: those of an application that has ended are made by the next one."""
    receiver.answers.append(Answer(503))
    with delivering(ironclaim_url, hook(receiver.url, retry=LATE)):
        soon(lambda: delayed(ironclaim_url), "the first attempt")
    assert len(receiver.received) == 1 and "ironclaim-webhooks" not in {thread.name for thread in threading.enumerate()}
    with serving(ironclaim_url, hook(receiver.url, retry=LATE)):
        run_delayed(ironclaim_url)
        soon(lambda: len(receiver.received) == 2, "the second attempt")


@pytest.mark.slow
def test_a_webhook_that_is_no_longer_configured_gets_nothing(ironclaim_url: str, receiver: Receiver) -> None:
    receiver.answers.append(Answer(503))
    with delivering(ironclaim_url, hook(f"{receiver.url}/old", retry=LATE)):
        soon(lambda: delayed(ironclaim_url), "the first attempt")
    with serving(ironclaim_url, hook(f"{receiver.url}/new", retry=LATE)):
        run_delayed(ironclaim_url)
        assert "/old" in error_of_dead(ironclaim_url)
    assert len(receiver.received) == 1


# --- Addresses that are not of the internet ---


def test_private_addresses_are_not_reached_by_any_spelling(ironclaim_url: str, receiver: Receiver) -> None:
    hosts = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0")
    hooks = [hook(f"http://{host}:{receiver.port}/", allow_networks=(), retry=ONCE) for host in hosts]
    with delivering(ironclaim_url, *hooks):
        soon(lambda: len(dead(ironclaim_url)) == len(hosts), "the dead letters")
    assert receiver.received == [] and all("not of the internet" in error for _, error in dead(ironclaim_url))


def test_an_allowed_network_opens_that_one_alone(ironclaim_url: str, receiver: Receiver) -> None:
    urls = (receiver.url, f"http://127.0.0.2:{receiver.port}/")
    with delivering(ironclaim_url, *(hook(url, allow_networks=("127.0.0.1/32",)) for url in urls)):
        assert "127.0.0.2" in error_of_dead(ironclaim_url)
        soon(lambda: receiver.received, "the allowed one arrives")
    assert len(receiver.received) == 1


def test_a_redirect_leads_to_no_private_address(ironclaim_url: str, receiver: Receiver) -> None:
    with Receiver() as inside:
        receiver.answers.append(Answer(307, {"Location": f"http://127.0.0.2:{inside.port}/admin"}))
        with delivering(ironclaim_url, hook(receiver.url, allow_networks=("127.0.0.1/32",))):
            assert "127.0.0.2" in error_of_dead(ironclaim_url) and inside.received == []


def test_a_redirect_leads_to_no_other_scheme_and_no_user(ironclaim_url: str, receiver: Receiver) -> None:
    locations = ("file:///etc/passwd", "gopher://127.0.0.1/", "http://user:pass@127.0.0.1/")
    with serving(ironclaim_url, hook(receiver.url)) as client:
        for count, location in enumerate(locations, 1):
            receiver.answers.append(Answer(307, {"Location": location}))
            client.publish("room-7", f"m{count}", "1")
            soon(lambda: dead(ironclaim_url)[count - 1 :], "the dead letter")  # noqa: B023
            assert len(receiver.received) == count, location


def test_a_redirect_leads_from_tls_to_tls_alone(ironclaim_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_of = ssl.create_default_context(cafile=CERTIFICATES / "certificate.pem")
    server.load_cert_chain(CERTIFICATES / "certificate.pem", CERTIFICATES / "key.pem")
    client_of.check_hostname = False
    monkeypatch.setattr(delivery, "_tls", lambda: client_of)
    with Receiver(server) as safe, serving(ironclaim_url, hook(safe.url)) as client:
        safe.answers.extend([Answer(307, {"Location": "/next"}), Answer(307, {"Location": receiver.url})])
        client.publish("room-7", "m1", "1")
        assert "leads from https to http" in error_of_dead(ironclaim_url)
        assert [one.path for one in safe.received] == ["/", "/next"] and receiver.received == []


def test_a_name_is_resolved_once_for_each_attempt_and_its_address_is_checked(ironclaim_url: str, receiver: Receiver) -> None:
    """DNS rebinding: the name leads to an allowed address when it is asked for the first time, and elsewhere ever after."""
    asked: list[str] = []

    def rebinding(name: str) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    with Receiver() as inside, resolving(rebinding):
        one = hook(f"http://rebinding.test:{receiver.port}/", allow_networks=("127.0.0.1/32",), retry=ONCE)
        with delivering(ironclaim_url, one) as client:
            soon(lambda: receiver.received, "it arrives at the checked address")
            soon(lambda: waiting(ironclaim_url) == 0, "it is done")
            assert asked == ["rebinding.test"] and receiver.received[0].headers["host"] == f"rebinding.test:{receiver.port}"
            client.publish("room-7", "m2", "1")
            assert "127.0.0.2" in error_of_dead(ironclaim_url)
        assert (inside.received, len(receiver.received)) == ([], 1)


def test_a_name_with_one_private_address_among_others_is_not_reached(ironclaim_url: str, receiver: Receiver) -> None:
    both = hook(f"http://both.test:{receiver.port}/", retry=ONCE)
    with resolving(lambda name: ["127.0.0.1", "10.0.0.1"]), delivering(ironclaim_url, both):
        assert "10.0.0.1" in error_of_dead(ironclaim_url) and receiver.received == []


@contextlib.contextmanager
def resolving(addresses: Callable[[str], list[str]]) -> Generator[None]:
    """Names that end with `.test` have these addresses in the resolver of the system."""
    own = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **settings: Any) -> Any:
        if not str(host).endswith(".test"):
            return own(host, port, *args, **settings)
        return [entry for address in addresses(str(host)) for entry in own(address, port, *args, **settings)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", getaddrinfo)
        yield


def test_proxies_of_the_environment_are_not_used(ironclaim_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve the name itself."""
    with Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        with delivering(ironclaim_url, hook(receiver.url)):
            soon(lambda: receiver.received, "it arrives")
        assert proxy.received == []


def test_settings_that_cannot_be_are_named() -> None:
    """Numbers beyond their bounds are among BOUNDS of tests/engine/http/test_bounds.py."""
    settings: Any
    for settings, field in (
        *(({"url": url}, "url") for url in ("ftp://example.com/", "/path", "http://user:secret@example.com/")),
        *(({"url": f"http://example.com/{part}"}, "url") for part in ("{{.channel.name}}", "{{ .other }}")),
        *(({"headers": {name: "x"}}, "headers") for name in ("Host", "webhook-Signature", "X Y")), ({"method": "GET"}, "method"),
        ({"headers": {"X-Y": "a\r\nHost: x"}}, "headers.X-Y"), ({"allow_networks": ("127.0.0.1/33",)}, "allow_networks[0]"),
        *(({"secret": secret}, "secret") for secret in ("secret", "whsec_" + base64.b64encode(b"x" * 23).decode())),
    ):  # fmt: skip
        told = malformed(lambda given=settings: policy(WebhookSettings(**{"url": "https://example.com/", **given})))
        assert told.field == f"webhook.{field}", settings
    assert malformed(WebhookRetry, interval_multiplier=0.9).field == "webhook.retry.interval_multiplier"
