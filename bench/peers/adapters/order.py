"""The order that an adapter carries out: JSON in the variable PEERS_ORDER, so that processes which a worker starts have it, too.

`role` (produce or work), `host`, `port`, `url`, `queue`, `payload`, `settings`. For a measurement (see `measured`): `jobs`,
`records`, `handler_s`; for a producer `way` (one, in_flight, bulk or paced), `in_flight`, `rate` and `warm_up`. For a drill (see
`drilled`): `history` and `rate`.
"""

from __future__ import annotations

import json
import os
from typing import Any

ORDER: dict[str, Any] = json.loads(os.environ["PEERS_ORDER"])
PAYLOAD: dict[str, Any] = ORDER["payload"]
SETTINGS: dict[str, Any] = ORDER["settings"]
