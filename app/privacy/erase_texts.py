"""A customer's words in rows that stay: texts that an erasure empties, and the money keeps."""

import re
from collections.abc import Iterable, Mapping, Sequence

from app.core.masking import DOT, Masking, is_code
from app.database.engine import Connection
from app.evidence import attachment_store
from app.finance import bank_store
from app.finance.line_version_store import ERASED_NUMBER
from app.privacy import erase_store
from reconcile.instants import Instant

BankText = tuple[bank_store.BankKey, bank_store.BankTexts]
"""A line of a bank, and its texts."""


async def bare_reasons(
    connection: Connection, deliveries: Iterable[str], phones: Sequence[str]
) -> list[tuple[int, str]]:
    """Return the reasons of events that an erasure empties, by the event's row: words, in which a
    name may stand, and codes with one of the customer's numbers in them. Other codes stay."""
    masking = Masking(phones)
    return [
        (row, DOT)
        for row, reason in await erase_store.reasons_of(connection, deliveries)
        if reason != DOT and (not is_code(reason) or masking.touches(reason))
    ]


async def bank_lines_with(
    connection: Connection, written: Sequence[re.Pattern[str]], *, until: Instant | None
) -> list[BankText]:
    """Return the lines of banks in whose texts one of these numbers stands, with the texts as they
    are afterwards. Who paid and what they wrote go whole, since a name stands beside the number; of
    the bank's own ids, which payouts are matched by, those with the number."""
    found: list[BankText] = []
    if not written:
        return found
    async for lines in bank_store.bank_texts(connection, until=until):
        for key, texts in lines:
            holding = [any(each.search(text) for each in written) for text in texts]
            if any(holding):
                entry, reference = (
                    ERASED_NUMBER if held else text
                    for held, text in zip(holding[:2], texts[:2], strict=True)
                )
                counterparty, words = (ERASED_NUMBER if text else "" for text in texts[2:])
                found.append((key, (entry, reference, counterparty, words)))
    return found


async def attachments_with(
    connection: Connection,
    orders: Iterable[str],
    found: Mapping[str, set[erase_store.Key]],
    *,
    until: Instant | None,
) -> list[attachment_store.AttachmentRecord]:
    """Return what is attached to these orders and their breaks, and what else has one of the
    numbers in it, in its name or in what is said of it.

    found  from `erase_store.rows_that_hold`
    """
    named = found.get("attachments.details", set())
    files = found.get("attachment_files.body", set())
    attached = {
        each.attachment_id: each
        for each in await attachment_store.living_attachments(connection, orders)
    }
    after = ""
    while (named or files) and (
        rows := await attachment_store.attachments_after(connection, after)
    ):
        after = rows[-1].attachment_id
        for each in rows:
            if (each.attachment_id,) in named or (each.sha256,) in files:
                attached[each.attachment_id] = each
    return [each for each in attached.values() if until is None or each.at <= until]
