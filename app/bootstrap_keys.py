"""Wiring: where the keys of this installation lie."""

from __future__ import annotations

from pathlib import Path

from app.config import Settings
from app.config_places import sqlite_file
from app.phone_key import PhoneKey, make_phone_key, read_phone_key


def phone_key_path(settings: Settings) -> Path:
    """The file of the phone key: the one that is set, else beside the database."""
    if settings.phone_key_file is not None:
        return settings.phone_key_file
    database = sqlite_file(settings.database_url)
    return Path("var/phone-key") if database is None else Path(f"{database}.phone-key")


def phone_key(settings: Settings) -> PhoneKey:
    """The phone key, which is made where there is none. Raises ConfigurationError."""
    return make_phone_key(phone_key_path(settings))


def known_phone_key(settings: Settings) -> PhoneKey | None:
    """The phone key; None where none was made yet. Raises ConfigurationError."""
    return read_phone_key(phone_key_path(settings))
