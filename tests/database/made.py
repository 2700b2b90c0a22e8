"""A new database, made once by the product itself and copied for each test that begins with one."""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from app.config.settings import Settings
from app.database.database import Database


def put_new(path: Path) -> None:
    """Put an empty database of the newest version there, unless there is one."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(_made())


@cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as elsewhere:
        # Whoever asks may have a loop of his own.
        elsewhere.submit(asyncio.run, _make(f"{folder}/t.db")).result()
        return Path(folder, "t.db").read_bytes()


async def _make(path: str) -> None:
    inbox = Database(Settings(database_url=f"sqlite+aiosqlite:///{path}"))
    try:
        await inbox.upgrade()
    finally:
        await inbox.close()
