"""What every database needs that has lost something: one that was restored, or has an accepted gap.

What was published since is unknown, so that numbers go on beyond all that may have been given; and
what the shop stated since is lost.
"""

from typing import NamedTuple

from app.database.engine import Connection
from app.orders import published_store, shop_facts_store
from reconcile.instants import Instant


class Numbers(NamedTuple):
    """The last revision that the database has, and the number of the next one."""

    head: int
    first: int


async def follow_loss(connection: Connection, *, at: Instant, given: int = 0) -> Numbers:
    """Let published numbers rise, and note that statements of the shop are lost, in the caller's
    transaction.

    given  the last number that was given, where that is known
    """
    head = await published_store.head_of(connection)
    first = published_store.first_after_restore(head, at, given=given)
    await published_store.go_on_from(connection, first)
    await shop_facts_store.note_loss(connection, at=at)
    return Numbers(head, first)
