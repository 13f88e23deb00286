# Generated from engine/channel/asynchronous/redis_storage.py by "make generate"; do not edit.
"""A channel on a Redis or Valkey server: see `RedisStorage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.channel.steps import Answers, Ask
from engine.channel.storage import Opening
from engine.channel.synchronous.storage import Listener
from engine.models.dsps import DspsModel
from engine.redis.call import Call
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import Sent
from engine.redis.listener import Notifier


class OpenRedis:
    """One channel on a server."""

    def __init__(self, endpoint: Endpoint, opening: Opening) -> None:
        self.url = endpoint.url
        self._model = DspsModel(opening.channel, lua=opening.lua)
        endpoint = endpoint.for_keys_like(self._model.keys.prefix)
        self._driver = SyncDriver(endpoint, self._model.scripts.values(), observer=opening.observer)
        self._notifier = Notifier(endpoint, self._model.keys.wake_topic)

    @property
    def live(self) -> bool:
        """Whether listeners are called for every message that is published from now on."""
        return self._notifier.live

    def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Run an operation."""
        if not callable(ask):
            return self._driver.send(self._model.call(ask), intended_ns)
        self._driver.server_now_ms()
        sent = self._driver.send(self._model.call(ask(self._driver.not_after_ms())), intended_ns)
        if sent.came_late:
            sent = self._driver.send(self._model.call(ask(self._driver.not_after_ms())), intended_ns)
        return sent

    def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> Answers:
        """Run several, in one piece."""
        self._driver.server_now_ms()
        outcomes = self._driver.send_many(self._calls(asks), intended_ns)
        late = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, Sent) and outcome.came_late]
        if late:
            again = self._driver.send_many(self._calls([asks[at] for at in late]), intended_ns)
            for at, outcome in zip(late, again, strict=True):
                outcomes[at] = outcome
        return outcomes

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each publication from now on."""
        self._notifier.listen(listener)

    def unlisten(self, listener: Listener) -> None:
        """Do not call `listener` any more."""
        self._notifier.unlisten(listener)

    def close(self) -> None:
        """Close the idle connections."""
        self._notifier.close()
        self._driver.close()

    def _calls(self, asks: Sequence[Ask]) -> list[Call[Any]]:
        """The calls of these operations, as of now."""
        not_after_ms = self._driver.not_after_ms()
        return [self._model.call(ask(not_after_ms) if callable(ask) else ask) for ask in asks]
