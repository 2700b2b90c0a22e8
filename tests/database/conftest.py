"""The store that the contract's tests share: each test has a database of its own."""

from collections.abc import AsyncIterator

import pytest

from app.receiving.inbox import Inbox
from tests.database.builders import opened


@pytest.fixture
async def inbox(url: str) -> AsyncIterator[Inbox]:
    """Open a serving inbox on the subclass's database."""
    async with opened(url) as inbox:
        yield inbox
