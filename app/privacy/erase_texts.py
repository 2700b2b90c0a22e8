"""Empty the texts about a customer in rows that an erasure keeps for accounting."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.core.masking import DOT, Masking, is_code
from app.database.engine import Connection
from app.evidence import attachment_store
from app.finance import bank_store
from app.finance.line_version_store import ERASED_NUMBER
from app.privacy import erase_store
from reconcile.instants import EARLIEST, Instant

EMPTIED, AS_IT_IS = "x", "-"


class BankText(NamedTuple):
    """Texts of one version of a bank line."""

    key: bank_store.BankKey
    texts: bank_store.BankTexts
    which: str = EMPTIED * 4
    """One character for each text: EMPTIED or AS_IT_IS."""
    booked_at: Instant = EARLIEST


def without(texts: bank_store.BankTexts, which: str) -> bank_store.BankTexts:
    """Return a bank line's texts without the erased ones."""
    entry, reference, counterparty, words = (
        ERASED_NUMBER if text and each == EMPTIED else text
        for text, each in zip(texts, which, strict=True)
    )
    return entry, reference, counterparty, words


async def bare_reasons(
    connection: Connection, deliveries: Iterable[str], phones: Sequence[str]
) -> list[tuple[int, str]]:
    """Return the events whose reasons an erasure must delete."""
    masking, found = Masking(phones), dict[int, str]()
    for delivery, row, reason in await erase_store.reasons_of(connection, deliveries):
        if reason != DOT and (not is_code(reason) or masking.touches(reason)):
            found.setdefault(row, delivery)
    return sorted(found.items())


async def quoting_revisions(
    connection: Connection,
    brought: Mapping[str, Sequence[str]],
    reasons: Iterable[tuple[int, str]],
) -> set[erase_store.Key]:
    """Return the sealed revisions that quote an erased reason."""
    going = {delivery for _, delivery in reasons}
    words = {text for _, _, text in await erase_store.reasons_of(connection, going)} - {DOT}
    orders = [order for order, deliveries in brought.items() if going.intersection(deliveries)]
    return {
        (number,)
        for number, because in await erase_store.published_reasons(connection, orders)
        if any(each in because for each in words)
    }


async def bank_lines_with(
    connection: Connection, written: Sequence[re.Pattern[str]]
) -> list[BankText]:
    """Return the bank lines that contain one of these numbers."""
    found: list[BankText] = []
    if not written:
        return found
    async for lines in bank_store.bank_texts(connection):
        for key, texts, booked_at in lines:
            holding = [any(each.search(text) for each in written) for text in texts]
            if any(holding):
                ids = "".join(EMPTIED if held else AS_IT_IS for held in holding[:2])
                found.append(BankText(key, texts, f"{ids}{EMPTIED}{EMPTIED}", booked_at))
    return found


async def attachments_with(
    connection: Connection,
    orders: Iterable[str],
    found: Mapping[str, set[erase_store.Key]],
) -> list[attachment_store.AttachmentRecord]:
    """Return the attachments of these orders, or with the number."""
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
    return [*attached.values()]
