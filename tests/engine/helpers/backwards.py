"""A serialiser of a test's own, and handlers that read what it wrote, for child processes."""

import json
from pathlib import Path
from typing import Any

from engine import Handlers, Job

handlers = Handlers()


class Backwards:
    """JSON from its end."""

    name = "backwards"

    def dumps(self, value: Any) -> bytes:
        return json.dumps(value)[::-1].encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data.decode()[::-1])


@handlers("tell")
def tell(job: Job) -> None:
    """Write what came."""
    Path(job.payload["folder"], job.id).write_text(repr(job.payload["value"]))
