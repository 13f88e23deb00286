# ruff: noqa: F403
"""What most tests of the engine start from, in one place: desk and keys, queues, workers, machines, relays, waits, operations."""

from tests.engine.desk import *
from tests.engine.helpers.at_work import *
from tests.engine.helpers.both import *
from tests.engine.helpers.by_hand import *
from tests.engine.helpers.lanes_state import *
from tests.engine.helpers.machine import *
from tests.engine.helpers.processes import *
from tests.engine.helpers.producing import *
from tests.engine.helpers.refusing import *
from tests.engine.helpers.relay import *
from tests.engine.helpers.waiting import *
from tests.engine.ops import *
