"""Tests of the store: one contract for every database, and what is SQLite's alone."""

import pytest

pytest.register_assert_rewrite(
    "tests.store.builders",
    *(
        f"tests.store.contract_{part}"
        for part in ("each_version", "histories", "keeping", "ledgers", "upgrading", "verdicts")
    ),
)
