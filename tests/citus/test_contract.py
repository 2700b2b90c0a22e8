"""The contract on a Citus cluster."""

import pytest

from tests.database.contracts import Contract

pytestmark = [pytest.mark.postgres, pytest.mark.soak]


class TestCitus(Contract):
    """Every property of the contract, on a cluster."""

    statements_between = 25
    arrival_orders = 3
