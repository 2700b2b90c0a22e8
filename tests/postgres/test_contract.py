"""The contract on PostgreSQL, of one process and of several."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

import pytest

from app.context.context import AppContext
from app.orders import refold
from app.receiving.append_store import Ready
from app.receiving.inbox import Inbox, inbox_of
from tests.contexts import on_inbox
from tests.database.contracts import Contract

pytestmark = pytest.mark.postgres

PROCESSES: Final = 4


class TestPostgresql(Contract):
    """Every property of the contract, on a server."""

    statements_between = 60  # a server takes long to make tables


@pytest.mark.soak
class TestSeveral(Contract):
    """The contract with several processes: appends take turns on four readers, folds on four
    workers."""

    statements_between = 60

    @pytest.fixture(autouse=True)
    def by_several(self) -> Iterator[None]:
        """Open three more of each inbox that reads or folds, until that is closed."""
        append, fold, close = Inbox.append, refold.refold_due, Inbox.close
        opened, turns = dict[Inbox, list[Inbox]](), count(1)

        async def several(inbox: Inbox) -> list[Inbox]:
            if inbox not in opened:
                opened[inbox] = [inbox]
                for _ in range(1, PROCESSES):
                    another = Inbox(inbox.settings, purpose="working")
                    await another.open("working")
                    opened[inbox].append(another)
            return opened[inbox]

        async def append_next(inbox: Inbox, ready: Sequence[Ready]) -> Any:
            return await append((await several(inbox))[next(turns) % PROCESSES], ready)

        async def fold_in_turn(context: AppContext, **words: Any) -> int:
            stores = await several(inbox_of(context))
            return sum([await fold(on_inbox(context, each), **words) for each in stores])

        async def close_all(inbox: Inbox) -> None:
            for each in opened.pop(inbox, [inbox])[::-1]:
                await close(each)

        with pytest.MonkeyPatch.context() as patch:  # tests undo their own
            patch.setattr(Inbox, "append", append_next)
            patch.setattr(refold, "refold_due", fold_in_turn)
            patch.setattr(Inbox, "close", close_all)
            yield
        assert not opened
