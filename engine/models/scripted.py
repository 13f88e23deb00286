"""What all models do alike: calls of scripts whose slots are bound by name, and the keys that are the same in every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.call import Call
from engine.errors import ScriptFault
from engine.models.lanes_keys import LanesKeys
from engine.operations import Lease, Operation, Reply
from engine.scripts import Script


class Scripted:
    """Calls of one queue's scripts. `constants`: arguments that are the same in every call that has them."""

    #: Who waits for the end of a job looks again after this time.
    hear_ms = 5_000

    def __init__(self, keys: LanesKeys, scripts: Mapping[str, Script], constants: Mapping[str, object]) -> None:
        self.keys = keys
        self.scripts = scripts
        self.now_ms: int | None = None
        self._constants = constants
        self._named = {
            "sweep": keys.sweep,
            "seq": keys.seq,
            "classes": keys.classes,
            "cron": keys.cron,
            "due": keys.due,
            "active": keys.active,
            "dead": keys.dead,
            "done": keys.done,
            "blocked": keys.blocked,
            "feeding": keys.feeding,
            "handing": keys.handing,
            "keeping": keys.keeping,
            "stats": keys.stats,
            "parked": keys.parked,
            "rest": keys.rest,
            "blocking": keys.blocking,
            "limits": keys.limits,
            "paused": keys.paused,
            "workers": keys.workers,
            "leader": keys.leader,
            "took": keys.took,
            "witness": keys.witness,
            "settings": keys.settings,
            "worker_settings": keys.settings,
            "retention": keys.retention,
            "events": keys.events,
        }
        self._known_slots: dict[str, tuple[Script, Mapping[str, str], Mapping[str, object]]] = {}

    def parse(self, operation: Operation, raw: Any) -> Reply:
        """The reply of an operation's script as a value."""
        raise NotImplementedError

    def bound(
        self,
        name: str,
        operation: Operation,
        values: Mapping[str, object],
        named: Mapping[str, str] | None = None,
        key_groups: Sequence[Sequence[str]] = (),
        argument_groups: Sequence[Sequence[object]] = (),
    ) -> Call[Reply]:
        """The call of a script, its slots bound by name."""
        script, known_keys, known_arguments = self._known(name)
        keys = script.bind_keys({**known_keys, **(named or {})}, *key_groups)
        clock: dict[str, object] = {"now_ms": "" if self.now_ms is None else self.now_ms} if "now_ms" in script.arguments else {}
        arguments = script.bind_arguments({**clock, **known_arguments, **values}, *argument_groups)
        return Call(script, keys, arguments, lambda raw: self.parse(operation, raw), operation)

    def _known(self, name: str) -> tuple[Script, Mapping[str, str], Mapping[str, object]]:
        """A script, and those of its slots that are the same in every call."""
        known = self._known_slots.get(name)
        if known is None:
            script = self.scripts.get(name)
            if script is None:
                raise ScriptFault(f"the folder of scripts has no {name}.lua")
            keys = {slot: key for slot, key in self._named.items() if slot in script.keys}
            arguments = {slot: value for slot, value in self._constants.items() if slot in script.arguments}
            known = self._known_slots[name] = (script, keys, arguments)
        return known


def token(lease: Lease) -> tuple[object, ...]:
    """What a script is told of a lease: id, fence, nonce."""
    return (lease.job, lease.fence, lease.nonce)
