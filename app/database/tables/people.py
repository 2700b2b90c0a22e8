"""The tables of who may do what, and of who did: tokens, operators, statements, the audit trail."""

from __future__ import annotations

from sqlalchemy import Column, Index, UniqueConstraint, text
from sqlmodel import Field

from app.database.tables.base import CLUSTERED, STRICT, TEXT, Table, big_column, text_column


class TokenRow(Table, table=True):
    """A program that may use the API. Only the token's SHA-256 is kept. `scopes` are words between
    blanks; from `until` on it opens nothing."""

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("hash"), STRICT)
    name: str = text_column(primary=True)
    hash: str = text_column()
    created_at: int = big_column()
    revoked_at: int | None = big_column(null=True)
    scopes: str = Field(sa_column=Column(TEXT, nullable=False, server_default=text("''")))
    until: int | None = big_column(null=True)


class SignoffRow(Table, table=True):
    """What a person, or a check, said of one item of the go-live checklist. Append-only."""

    __tablename__ = "signoffs"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    item: str = text_column()
    state: str = text_column()
    at: int = big_column()
    signer: str = text_column()
    note: str = text_column()


class OperatorRow(Table, table=True):
    """A person who may change or unmask something, and in which role."""

    __tablename__ = "operators"
    __table_args__ = CLUSTERED
    name: str = text_column(primary=True)
    role: str = text_column()
    created_at: int = big_column()
    disabled_at: int | None = big_column(null=True)


class AuditRow(Table, table=True):
    """What a person did, to what, and why. Append-only; numbers have no gaps."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_subject_number", "subject", "number"), STRICT)
    number: int = big_column(primary=True)
    at: int = big_column()
    who: str = text_column()
    role: str = text_column()
    action: str = text_column()
    subject: str = text_column()
    reason: str = text_column()
    facts: str = text_column()
