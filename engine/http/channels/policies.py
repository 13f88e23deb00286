"""What the settings say about one channel, by its name: who may use it and where its messages go, all matching rules together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.http.channels import tokens
from engine.http.channels.settings import ChannelPolicy
from engine.http.channels.tokens import TokenCheck
from engine.http.channels.webhooks.settings import WebhookSettings


class Target(NamedTuple):
    """A webhook of one channel: url and headers are those of this channel."""

    webhook: WebhookSettings
    url: str
    headers: Mapping[str, str]


class ChannelAccess(NamedTuple):
    """What counts for one channel."""

    name: str
    checks: Sequence[tuple[TokenCheck, Mapping[str, str]]]
    targets: Sequence[Target]

    def claims_of(self, token: str) -> dict[str, Any]:
        """The claims of a token that all matching rules take. Raises TokenRefused."""
        claims: dict[str, Any] = {}
        for check, groups in self.checks:
            claims = check.claims_of(token, groups)
        return claims


class Policies:
    """The rules of all channels."""

    def __init__(self, channels: Sequence[ChannelPolicy]) -> None:
        self._rules = [
            (re.compile(policy.pattern), None if policy.jwt is None else TokenCheck(policy.jwt), policy.webhooks)
            for policy in channels
        ]

    def of(self, channel: str) -> ChannelAccess | None:
        """What counts for the channel; None for one that no rule allows."""
        matches = [(pattern.fullmatch(channel), check, webhooks) for pattern, check, webhooks in self._rules]
        found = [(_groups(match), check, webhooks) for match, check, webhooks in matches if match is not None]
        if not found:
            return None
        checks = [(check, groups) for groups, check, _ in found if check is not None]
        return ChannelAccess(channel, checks, [_target(one, groups) for groups, _, webhooks in found for one in webhooks])


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: text or "" for name, text in match.groupdict().items()}


def _target(webhook: WebhookSettings, groups: Mapping[str, str]) -> Target:
    headers = {name: tokens.filled(value, groups) for name, value in webhook.headers.items()}
    return Target(webhook, tokens.filled(webhook.url, groups), headers)
