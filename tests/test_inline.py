"""SQLite without threads: what statements answer, where others run, and that threads can be had."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import aiosqlite
import pytest

from tests.inline import THREADED

needs_no_thread = pytest.mark.skipif(THREADED, reason="in the long form all have their threads")


async def test_a_statement_answers_or_fails() -> None:
    """As with a thread."""
    async with aiosqlite.connect(":memory:") as database:
        cursor = await database.execute("SELECT 1")
        assert [*await cursor.fetchall()] == [(1,)]
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await database.execute("SELECT * FROM missing")


@needs_no_thread
async def test_others_run_meanwhile() -> None:
    """Whoever waits for a statement waits for a turn of the loop."""
    turns = list[str]()
    async with aiosqlite.connect(":memory:") as database:

        async def asking(name: str) -> None:
            for _ in range(2):
                turns.append(name)
                await database.execute("SELECT 1")

        await asyncio.gather(asking("a"), asking("b"))
    assert turns == ["a", "b", "a", "b"]


@needs_no_thread
async def test_no_thread_is_started() -> None:
    """Which is what it is for."""
    before = threading.active_count()
    async with aiosqlite.connect(":memory:"):
        assert threading.active_count() == before


@pytest.mark.usefixtures("database_in_threads")
async def test_threads_can_be_asked_for() -> None:
    """For a test of what they are for."""
    before = threading.active_count()
    async with aiosqlite.connect(":memory:"):
        assert threading.active_count() == before + 1
