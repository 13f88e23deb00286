"""What tests of the engine start from."""

from tests.engine.conftest import client as client
from tests.engine.conftest import patient_calls as patient_calls
from tests.engine.conftest import relay as relay
