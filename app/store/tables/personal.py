"""The tables that know of persons: phone numbers, as keyed digests only."""

from __future__ import annotations

from sqlalchemy import Column, LargeBinary
from sqlmodel import Field

from app.store.tables.base import CLUSTERED, Table, big_column, text_column


class PhoneRow(Table, table=True):
    """A customer's phone number, as its keyed digest, and the order or delivery it is of."""

    __tablename__ = "phones"
    __table_args__ = CLUSTERED
    digest: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    kind: str = text_column(primary=True)
    thing: str = text_column(primary=True)
    noted_at: int = big_column()
