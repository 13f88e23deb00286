"""Run a module with a defect planted in the engine that it uses: for mutants that are not scripts.

    python -m chaos.channels.planted checksum-not-verified bench.channels subscribe ...

The engine itself has no switch for this.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any


def checksum_not_verified() -> None:
    """Receipts of a storage are read without a look at their checksum."""
    receipts: Any = importlib.import_module("engine.channel.replies")

    def read_inner(channel: str, subscriber: str, text: Any) -> int:
        del channel, subscriber
        return int(json.loads(text)["clk"])

    receipts.read_inner = read_inner


def receipt_plain_less() -> None:
    """The receipt of a batch is that of the largest of its clocks, as `<` has them."""
    replies: Any = importlib.import_module("engine.channel.replies")
    clean = replies.page

    def page(*arguments: Any) -> Any:
        found = clean(*arguments)
        return found._replace(upto=max(message.clock for message in found.messages)) if found and found.messages else found

    replies.page = page


def message_kept_back() -> None:
    """The caller of a fetch is not handed the last message of a batch."""
    replies: Any = importlib.import_module("engine.channel.replies")
    clean = replies.page

    def page(*arguments: Any) -> Any:
        found = clean(*arguments)
        return found._replace(messages=found.messages[:-1]) if found and len(found.messages) > 1 else found

    replies.page = page


#: Mutant -> what plants it.
DEFECTS: dict[str, Callable[[], None]] = {
    "checksum-not-verified": checksum_not_verified,
    "message-kept-back": message_kept_back,
    "receipt-plain-less": receipt_plain_less,
}


def main(arguments: Sequence[str]) -> None:
    """Plant the defect, then be the module."""
    name, module, *rest = arguments
    # Locust makes sockets cooperative when it is imported, which must come before anything that has sockets.
    importlib.import_module(module)
    DEFECTS[name]()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
