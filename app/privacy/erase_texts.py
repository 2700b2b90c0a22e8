"""A customer's number in texts that stay: those that an erasure writes without it, and the rest."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.core.masking import Masking, written_pattern
from app.database.engine import Connection
from app.evidence import attachment_store
from app.finance import bank_store
from app.finance.line_version_store import ERASED_NUMBER
from app.orders import pending_session_store, retention_store
from app.privacy import erase_store
from app.receiving import phone_store
from reconcile.instants import Instant
from reconcile.matching.books import match_key

BankText = tuple[bank_store.BankKey, bank_store.BankTexts]
"""A line of a bank, and its texts."""


async def bare_reasons(
    connection: Connection, deliveries: Iterable[str], phones: Sequence[str]
) -> list[tuple[int, str]]:
    """Return the reasons of events in which one of the customer's numbers stands, also as a part of
    a word, as they are without it, by the event's row."""
    masking = Masking(phones)
    found = await erase_store.reasons_of(connection, deliveries)
    bare = [(row, masking.text(reason)) for row, reason in found]
    return [each for each in bare if each not in found]


async def bank_lines_with(
    connection: Connection, written: Sequence[re.Pattern[str]], *, until: Instant | None
) -> list[BankText]:
    """Return the lines of banks in whose texts one of these numbers stands, with the texts as they
    are without it: the money stays, and what else the bank says of it."""
    found: list[BankText] = []
    if not written:
        return found
    async for lines in bank_store.bank_texts(connection, until=until):
        for key, texts in lines:
            bare = list(texts)
            for each in written:
                bare = [each.sub(ERASED_NUMBER, text) for text in bare]
            if bare != list(texts):
                found.append((key, (bare[0], bare[1], bare[2], bare[3])))
    return found


async def attachments_with(
    connection: Connection,
    orders: Iterable[str],
    written: Sequence[re.Pattern[str]],
    *,
    until: Instant | None,
) -> list[attachment_store.AttachmentRecord]:
    """Return what is attached to these orders and their breaks, and what else has one of these
    numbers in its name or in what is said of it. The files themselves are not read."""
    found = {
        each.attachment_id: each
        for each in await attachment_store.living_attachments(connection, orders)
    }
    after = ""
    while written and (rows := await attachment_store.attachments_after(connection, after)):
        after = rows[-1].attachment_id
        for each in rows:
            if any(pattern.search(each.details or "") for pattern in written):
                found[each.attachment_id] = each
    return [each for each in found.values() if until is None or each.at <= until]


async def texts_that_stay(
    connection: Connection, brought: Mapping[str, Sequence[str]], phones: Sequence[str]
) -> Counter[str]:
    """Count the texts that hold one of the numbers and are kept for good, by place: references,
    what is sealed, published or closed, and what people wrote.

    brought  the orders, each with its deliveries: those that go, and those that stay for now
    """
    found, written = Counter[str](), [written_pattern(each) for each in phones]
    if not written:
        return found
    whom: Mapping[erase_store.Of, Sequence[str]] = {
        "orders": list(brought),
        "keys": [match_key(each) for each in brought],
        "deliveries": [each for ids in brought.values() for each in ids],
    }
    async for place, texts in erase_store.kept_texts(connection, whom):
        found[place] += sum(any(each.search(text) for each in written) for text in texts)
    return +found


async def texts_that_wait(
    connection: Connection, staying: Mapping[str, Sequence[str]], phones: Sequence[str]
) -> Counter[str]:
    """Count the rows of orders that stay for now which an erasure will take when they may go, by
    place.

    staying  these orders, each with its deliveries
    """
    found = Counter[str]()
    for order, deliveries in staying.items():
        found["deliveries.body"] += len(await retention_store.sizes_of(connection, deliveries))
        wholes = await erase_store.wholes_of(connection, deliveries)
        found["envelopes.body"] += len({*wholes.values()})
        found["events.reason"] += len(await bare_reasons(connection, deliveries, phones))
        found["phones.digest"] += len(await phone_store.notes_of(connection, {order, *deliveries}))
        found["unanswered.request"] += len(
            await pending_session_store.pending_sessions_of(connection, [order])
        )
    attached = await attachment_store.living_attachments(connection, staying)
    found["attachments.details"] = len(attached)
    found["attachment_files.body"] = len({each.sha256 for each in attached})
    return +found
