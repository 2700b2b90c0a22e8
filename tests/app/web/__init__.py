"""Tests of the service through HTTP, in this process."""

import pytest

pytest.register_assert_rewrite("tests.app.web.driving")
