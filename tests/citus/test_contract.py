"""The contract on a Citus cluster."""

from typing import Final

import pytest

from tests.database.contracts import Contract
from tests.postgres.test_closing import (
    test_three_months_are_closed_and_each_late_event_is_an_adjustment_once,
)

__all__ = ("test_three_months_are_closed_and_each_late_event_is_an_adjustment_once",)

pytestmark = [pytest.mark.postgres, pytest.mark.soak]

_TRIGGERS: Final = "Citus refuses triggers on distributed tables, and the test plants one"
NOT_HERE: Final = {
    "test_every_strange_or_missing_object_is_named": _TRIGGERS,
    "test_repeated_failures_to_append_are_reported": _TRIGGERS,
    "test_the_first_changed_evidence_is_named_by_kind_and_day": "Citus has no triggers to disable",
    "test_stored_deliveries_and_their_space_are_known_without_a_scan": "`doctor --capacity` does "
    "not ask a cluster, where other nodes store the deliveries",
}
"""Tests that a cluster cannot pass, with the reason."""


class TestCitus(Contract):
    """Every property of the contract, on a cluster."""

    statements_between = 25
    arrival_orders = 3

    @pytest.fixture(autouse=True)
    def left_out(self, request: pytest.FixtureRequest) -> None:
        """Skip a test of NOT_HERE before anything is opened."""
        if why := NOT_HERE.get(request.function.__name__):
            pytest.skip(why)
