"""Settings of a database for tests, and what lends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from app.config.settings import Settings, ShopSettings
from app.context.context import AppContext
from app.database.database import Database
from app.receiving.inbox import Inbox


def settings_of(database: str | Path, **values: Any) -> Settings:
    """Return settings for a database's URL or SQLite file, with these beside it."""
    url = database if isinstance(database, str) else f"sqlite+aiosqlite:///{database}"
    return Settings(**{"database_url": url, "environment": "sandbox", **values})


NOTIFIED = ShopSettings(url="https://shop.example/notified")
"""A shop that is to be notified of every revision."""


class HasDatabase(Protocol):
    """An inbox or a context."""

    @property
    def database(self) -> Database:
        """The open database."""


def on_inbox(context: AppContext, inbox: Inbox) -> AppContext:
    """Return the context on another open database."""
    return replace(context, inbox=inbox, database=inbox.database, signals=inbox.signals)
