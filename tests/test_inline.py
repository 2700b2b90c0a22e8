"""Test SQLite without threads: its answers, where other tasks run, how to get threads."""

import asyncio
import sqlite3
import threading

import aiosqlite
import pytest

from tests.inline import THREADED

needs_no_thread = pytest.mark.skipif(THREADED, reason="in the long form all have their threads")


async def test_a_statement_answers_or_fails() -> None:
    """Test that a statement returns rows or raises as it does with a thread."""
    async with aiosqlite.connect(":memory:") as database:
        cursor = await database.execute("SELECT 1")
        assert [*await cursor.fetchall()] == [(1,)]
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await database.execute("SELECT * FROM missing")


@needs_no_thread
async def test_others_run_meanwhile() -> None:
    """Test that awaiting a statement gives other tasks a turn of the loop."""
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
    """Test that connecting starts no thread."""
    before = threading.active_count()
    async with aiosqlite.connect(":memory:"):
        assert threading.active_count() == before


@pytest.mark.usefixtures("database_in_threads")
async def test_threads_can_be_asked_for() -> None:
    """Test that the fixture gives a connection its thread."""
    before = threading.active_count()
    async with aiosqlite.connect(":memory:"):
        assert threading.active_count() == before + 1
