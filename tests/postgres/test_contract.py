"""The contract on PostgreSQL."""

import pytest

from tests.database.contracts import Contract

pytestmark = pytest.mark.postgres


class TestPostgresql(Contract):
    """Every property of the contract, on a server."""

    statements_between = 60  # a server takes long to make tables
