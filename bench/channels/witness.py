"""The second witness of a channel's deliveries: what the callers of `fetch` were handed, in their own words.

The engine's recorder writes what the server answered. A client that hands its caller something else (less, more, in another
order, other content) leaves the same rows there, so each subscriber writes down what it got, in a file of its own.
"""

from __future__ import annotations

import zlib

import engine
from engine.channel import contents
from record.history import HistoryFile, text


class Witness:
    """Writes `handed` rows for the subscribers of a process."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def handed(self, channel: str, subscriber: str, got: engine.Fetched, *, begun_ns: int, done_ns: int) -> None:
        """Write down what a call of `fetch` returned, before anything is done with it. The instants (monotonic) are those just
        before and just after the call. A call that brought nothing gets no row."""
        if not got.messages and got.receipt is None:
            return
        items = ",".join(_item(message) for message in got.messages)
        self._file.append(
            [
                f'"kind":"handed","channel":{text(channel)},"subscriber":{text(subscriber)},"first_send_ns":{begun_ns},'
                f'"done_ns":{done_ns},"lost":{got.lost},"items":[{items}]'
            ]
        )

    def close(self) -> None:
        """Write the closing row."""
        self._file.close()


def _item(message: engine.Message) -> str:
    """A message as its caller sees it: its content is spelled anew from the values that the caller was handed."""
    crc = zlib.crc32(contents.written(message.content))
    return f'{{"message":{text(message.id)},"clock":{message.clock},"crc":{crc}}}'
