"""What pytest gives to tests, by names that leave their heads one line."""

import pytest

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]
