"""Reads the door's diary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.errors import NotFoundError
from app.masking import masked_phone
from app.operations.customers import phones_in
from app.operations.desk import Desk
from app.providers.source import Source
from app.store.deliveries import DiaryEntry, find_in_diary, list_diary, raw_delivery

VERDICTS: Final = (
    "stored",
    "duplicate",
    "duplicate_with_different_body",
    "unreadable",
    "signature_missing",
    "signature_mismatch",
    "timestamp_missing",
    "timestamp_too_old",
    "timestamp_too_new",
    "source_unknown",
    "body_too_large",
    "wrong_environment",
)
"""Every verdict; the first four are acknowledged, the others are rejections."""


async def list_deliveries(desk: Desk, *, verdict: str | None, limit: int) -> list[DiaryEntry]:
    """The latest arrivals, newest first."""
    async with desk.store.reading() as connection:
        return await list_diary(connection, verdict=verdict, limit=limit)


async def show_delivery(desk: Desk, delivery_id: str) -> DiaryEntry:
    """One arrival. Raises NotFoundError; a rejection may have left the ring."""
    async with desk.store.reading() as connection:
        entry = await find_in_diary(connection, delivery_id)
    if entry is None:
        raise NotFoundError(f"there is no delivery {delivery_id!r}; old rejections are let go")
    return entry


async def masked_phones(
    desk: Desk, delivery_id: str, *, sources: Mapping[str, Source]
) -> list[str]:
    """The customers' phone numbers that a delivery's stored body names, masked.

    None are known of a rejection, of a pruned body, and where no profile says where they stand.
    """
    async with desk.store.reading() as connection:
        delivery = await raw_delivery(connection, delivery_id)
    return [] if delivery is None else [masked_phone(p) for p in phones_in(delivery, sources)]
