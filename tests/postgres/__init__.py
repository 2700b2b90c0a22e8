"""PostgreSQL in tests: a real server of our own, and what only a shared database must do."""

import pytest

pytest.register_assert_rewrite("tests.postgres.loading")
