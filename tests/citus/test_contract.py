"""The contract on a Citus cluster."""

import pytest

from tests.database.contracts import Contract
from tests.postgres.test_closing import (
    test_three_months_are_closed_and_each_late_event_is_an_adjustment_once,
)

__all__ = ("test_three_months_are_closed_and_each_late_event_is_an_adjustment_once",)

pytestmark = [pytest.mark.postgres, pytest.mark.soak]


class TestCitus(Contract):
    """Every property of the contract, on a cluster."""

    statements_between = 25
    arrival_orders = 3
