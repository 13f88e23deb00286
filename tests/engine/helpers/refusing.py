"""What a call is refused with."""

from functools import partial

from engine import Malformed
from tests.engine.helpers.producing import refused

#: The refusal of a call; fails when it is not refused.
malformed = partial(refused, Malformed, None)
