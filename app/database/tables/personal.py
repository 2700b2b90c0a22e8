"""The tables that know of persons: phone numbers and erasures, as keyed digests only."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary
from sqlmodel import Field

from app.database.tables.base import CLUSTERED, Table, big_column, text_column


class PhoneRow(Table, table=True):
    """A customer's phone number, as its keyed digest, and the order or delivery it is of."""

    __tablename__ = "phones"
    __table_args__ = (Index("ix_phones_thing", "thing"), CLUSTERED)
    digest: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    kind: str = text_column(primary=True)
    thing: str = text_column(primary=True)
    noted_at: int = big_column()


class ErasureRow(Table, table=True):
    """One line of the journal of erasures that was carried out here. Append-only."""

    __tablename__ = "erasures"
    __table_args__ = CLUSTERED
    journal: str = text_column(primary=True)
    number: int = big_column(primary=True)
    line: str = text_column()
