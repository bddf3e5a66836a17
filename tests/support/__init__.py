"""tests.support, and short names of pytest's own fixtures."""

import pytest

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
