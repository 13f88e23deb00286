"""The queue of a service as its module makes it, at a server of the harness."""

from __future__ import annotations

import os
import sys

from bench.references import found
from chaos.errors import HarnessError
from chaos.processes import inherited
from chaos.service.file import ServiceFile
from engine import Queue
from engine.errors import redacted_url
from engine.queue.settings import synchronous
from engine.redis.endpoint import Endpoint
from record.environment import led


def open_queue(service: ServiceFile, name: str, url: str, under: str = "") -> Queue:
    """The service's own queue, as its module makes it, at this url, with keys that begin with `under`. Raises HarnessError for
    one that cannot be made."""
    told, folder = led(url, name, None, under), str(service.folder)
    without = os.environ.keys() - inherited().keys()
    before = {variable: os.environ.get(variable) for variable in told.keys() | without}
    for variable in without:
        del os.environ[variable]
    os.environ.update(told)
    if folder not in sys.path:
        # Behind all others: no module of the service takes the place of one of the harness's.
        sys.path.append(folder)
    try:
        made = Queue.like(synchronous(found(service.queue)))
    except Exception as error:
        # Without the cause, whose text may have a secret of the service.
        said = service.secrets.hide(f"{type(error).__name__}: {error}")
        raise HarnessError(f"queue {service.queue}: {' '.join(said.split())}") from None
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
    if not made.endpoint.reaches(Endpoint(url)) or not made.prefix.startswith(under):
        # Nothing is ever done to the service's own server.
        raise HarnessError(f"queue {service.queue} is at {redacted_url(made.url)}, and not at the server of the drill")
    return made
