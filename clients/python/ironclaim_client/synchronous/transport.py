# Generated from clients/python/ironclaim_client/asynchronous/transport.py by "make generate"; do not edit.
"""Sends calls, again where `retrying` says so."""

from __future__ import annotations

import time

import httpx

from ironclaim_client import checks
from ironclaim_client.replies import Reply, judged, of_error
from ironclaim_client.retrying import Attempts, Call, Retries


class Transport:
    """One server. `http` is a client of the caller's own, with its own settings of TLS and proxies, which
    stays open."""

    def __init__(self, url: str, token: str | None, retries: Retries, http: httpx.Client | None) -> None:
        self.address = checks.address(url)
        self.retries = retries
        self._headers = {} if token is None else {"Authorization": f"Bearer {checks.header('token', token)}"}
        self._given = http
        self._http = httpx.Client() if http is None else http

    def send(self, call: Call) -> Reply:
        """The server's answer. Raises Refused, UnexpectedReply, ServerUnavailable, OutcomeUnknown."""
        attempts = Attempts(call, self.retries)
        headers = {
            **self._headers,
            **call.headers,
            **({} if call.body is None else {"Content-Type": "application/json"}),
        }
        timeout_s = self.retries.attempt_ms / 1_000
        timeout = httpx.Timeout(timeout_s, read=timeout_s + call.wait_ms / 1_000)
        while True:
            try:
                response = self._http.request(
                    call.method,
                    self.address + call.path,
                    params=call.params or None,
                    content=call.body,
                    headers=headers,
                    timeout=timeout,
                    follow_redirects=False,
                )
                answer = judged(call, response)
            except httpx.RequestError as error:
                answer = of_error(error)
            if isinstance(answer, Reply):
                return answer
            time.sleep(attempts.after(answer) / 1_000)

    def close(self) -> None:
        """Close the connections, unless they are of the caller's own client."""
        if self._given is None:
            self._http.close()
