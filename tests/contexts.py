"""Settings of a database for tests, and what lends it."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from anyio import to_process

from app.config.settings import Settings, ShopSettings
from app.context.context import AppContext
from app.database.database import Database
from app.receiving.inbox import Inbox
from app.wiring.work import _in_process


def settings_of(database: str | Path, **values: Any) -> Settings:
    """Return settings for a database's URL or SQLite file, with these beside it."""
    url = database if isinstance(database, str) else f"sqlite+aiosqlite:///{database}"
    return Settings(**{"database_url": url, "environment": "sandbox", **values})


ACCEPTED = ("--accept-gap", "--reason", "a test")
"""Words with which a restore goes on without what came after its backup."""

NOTIFIED = ShopSettings(url="https://shop.example/notified")
"""A shop that is to be notified of every revision."""


RETAINED: Mapping[str, str] = {
    f"TALLYHOOK_RETENTION_{name}_DAYS": "0" for name in ("ACCOUNTS", "DISPUTES", "UNALLOCATED")
}
"""Settings that live requires: days for which an erasure keeps data that it may not empty yet."""


class HasDatabase(Protocol):
    """An inbox or a context."""

    @property
    def database(self) -> Database:
        """The open database."""


def on_inbox(context: AppContext, inbox: Inbox) -> AppContext:
    """Return the context on another open database."""
    return replace(context, inbox=inbox, database=inbox.database, signals=inbox.signals)


def with_settings(context: AppContext, **changes: Any) -> AppContext:
    """Return the context with other settings."""
    values = {name: getattr(context.settings, name) for name in type(context.settings).model_fields}
    return replace(context, settings=Settings(**{**values, **changes}))


def with_given(context: AppContext, **given: Any) -> AppContext:
    """Return the context with these in place of what it would build from its settings."""
    kind = type("Given", (type(context),), given)
    found: AppContext = kind(**{each.name: getattr(context, each.name) for each in fields(context)})
    return found


def with_sources(context: AppContext, sources: Mapping[str, Any]) -> AppContext:
    """Return the context with these sources, whatever is configured."""
    return with_given(context, sources=sources)


class Here:
    """An `Elsewhere` whose use cases run in this process, on one context."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def __call__(self, **limits: Any) -> Any:
        """Return what runs them."""

        async def work(use: Any, *args: Any, **words: Any) -> Any:
            return await use(self._context, *args, **words)

        return work


def instead(work: Any, replaced: Any, function: Any) -> Any:
    """Return a `Work` that calls another function in place of one use case."""

    async def run(use: Any, *args: Any, **words: Any) -> Any:
        if use is replaced:
            return await function(*args, **words)
        return await work(use, *args, **words)

    return run


def stand_in(monkeypatch: pytest.MonkeyPatch, replaced: Any, function: Any) -> None:
    """Have a function called in place of a use case that a service runs elsewhere."""
    run = to_process.run_sync

    async def run_sync(called: Any, *asked: Any, **limits: Any) -> Any:
        if asked[:1] != (replaced,):
            return await run(called, *asked, **limits)
        *_, args, words = asked
        return None, await function(*args, **words)

    monkeypatch.setattr(to_process, "run_sync", run_sync)


def run_here(monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
    """Have this `Work` run all use cases that a service runs elsewhere."""
    run = to_process.run_sync

    async def run_sync(called: Any, *asked: Any, **limits: Any) -> Any:
        if called is not _in_process:
            return await run(called, *asked, **limits)
        use, _, _, args, words = asked
        return None, await work(use, *args, **words)

    monkeypatch.setattr(to_process, "run_sync", run_sync)
