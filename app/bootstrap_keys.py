"""Wiring: where the keys and the journal of erasures of this installation lie."""

from __future__ import annotations

from pathlib import Path

from app.config.checks import sqlite_file
from app.config.settings import Settings
from app.core.phone_key import PhoneKey, make_phone_key, read_phone_key


def phone_key_path(settings: Settings) -> Path:
    """The file of the phone key: as set, else beside the database, else in `var`."""
    if settings.phones.key_file is not None:
        return settings.phones.key_file
    database = sqlite_file(settings.database_url)
    if database is None:
        return Path("var/tallyhook.phone.key")
    return database.with_name(f"{database.stem}.phone.key")


def phone_key(settings: Settings) -> PhoneKey:
    """The phone key, which is made where there is none. Raises ConfigurationError."""
    return make_phone_key(phone_key_path(settings))


def known_phone_key(settings: Settings) -> PhoneKey | None:
    """The phone key; None where none was made yet. Raises ConfigurationError."""
    return read_phone_key(phone_key_path(settings))


def erasure_journal_path(settings: Settings) -> Path | None:
    """The journal of erasures: as set, else beside the database; None on PostgreSQL without one."""
    if settings.erasure_journal is not None:
        return settings.erasure_journal
    database = sqlite_file(settings.database_url)
    return None if database is None else database.with_name(f"{database.stem}.erasures")
