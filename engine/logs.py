"""The worker's log records carry fields: `worker`, `job_id`, `job_name`, `fence`, `attempt`, where they are known. As text people
read them; `JsonFormatter` writes each record as one line of JSON, for those who collect them.

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.getLogger("ironclaim").addHandler(handler)
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from engine.wire.operations import Lease, LeasedJob

#: What a record may carry beside its message.
FIELDS = ("worker", "job_id", "job_name", "fence", "attempt")


def about(subject: LeasedJob | Lease | None, worker: str = "") -> dict[str, Any]:
    """The fields of a record about this job or lease, for `extra=`."""
    fields: dict[str, Any] = {"worker": worker} if worker else {}
    if isinstance(subject, LeasedJob):
        fields |= {"job_name": subject.name, "attempt": subject.failures + 1}
        subject = subject.lease
    if subject is not None:
        fields |= {"job_id": subject.job, "fence": subject.fence}
    return fields


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record: `time` (UTC), `level`, `logger`, `message`, the fields above, and `traceback` where there
    is one. It also formats records of other libraries."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for field in FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                line[field] = value
        trace = getattr(record, "traceback", None) or (self.formatException(record.exc_info) if record.exc_info else "")
        if trace:
            line["traceback"] = trace
        return json.dumps(line, ensure_ascii=False, default=str)
