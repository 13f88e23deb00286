"""The linked scripts of a model as the wheel brings them: a process that starts need not link them again, which takes 40 ms.

They are in `linked.json` beside the scripts, with a digest of the files that they were linked from: where a file was changed
since, nothing there counts. `.ci/linked_scripts.py` writes it when a wheel is built; the source tree has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FILE = "linked.json"


def sources_digest(files: Iterable[Path], piece_words: int) -> str:
    """The digest of what scripts are linked from: the files, by name and text, and the size of a piece."""
    digest = hashlib.sha256(b"%d" % piece_words)
    for file in files:
        text = file.read_bytes()
        digest.update(b"\n%s/%s %d\n" % (file.parent.name.encode(), file.name.encode(), len(text)))
        digest.update(text)
    return digest.hexdigest()


def read_linked(folder: Path, digest: str) -> Iterable[Mapping[str, Any]] | None:
    """The fields of each script, or None where the folder has none that were linked from sources with this digest."""
    try:
        found = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    return found["scripts"] if found["sources"] == digest else None


def linked_text(scripts: Iterable[Mapping[str, Any]], digest: str) -> str:
    """The contents of `linked.json`."""
    return json.dumps({"sources": digest, "scripts": [*scripts]})
