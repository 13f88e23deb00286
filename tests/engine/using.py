# ruff: noqa: F403
"""What most tests of the engine start from, in one place: the desk, queues, workers, relays, waits and operations."""

from tests.engine.desk import *
from tests.engine.helpers.at_work import *
from tests.engine.helpers.both import *
from tests.engine.helpers.processes import *
from tests.engine.helpers.producing import *
from tests.engine.helpers.relay import *
from tests.engine.helpers.waiting import *
from tests.engine.ops import *
