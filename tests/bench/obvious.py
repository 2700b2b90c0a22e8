"""The obvious receiver: what a competent developer of a shop writes in an afternoon.

`python -m tests.bench.obvious DATABASE SECRET PORT`: Starlette, SQLModel and aiosqlite; one engine,
a session a request; write-ahead log, `synchronous=FULL`. It verifies the signature, inserts the
event by its id, commits and answers. With `lean` before PORT: `sqlite3` in one thread instead.
"""

import asyncio
import base64
import hmac
import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import uvicorn
from sqlalchemy import event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOLERANCE_S = 300
BUSY_S = 30
"""Seconds that one connection waits for another's commit."""

Store = Callable[[str, bytes], Awaitable[object]]
Opens = Callable[[str], AbstractAsyncContextManager[Store]]


class Webhook(SQLModel, table=True):
    """A webhook as it came."""

    id: str = Field(primary_key=True)
    received_at: float
    body: bytes


def configure(connection: Any, _: object = None) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


@asynccontextmanager
async def with_sessions(path: str) -> AsyncIterator[Store]:
    """Yield a store that opens a session for each webhook."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": BUSY_S})
    event.listen(engine.sync_engine, "connect", configure)
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)

    async def store(name: str, body: bytes) -> None:
        row = insert(Webhook).values(id=name, received_at=time.time(), body=body)
        async with AsyncSession(engine) as session:
            await session.exec(row.on_conflict_do_nothing())
            await session.commit()

    yield store
    await engine.dispose()


@asynccontextmanager
async def with_a_thread(path: str) -> AsyncIterator[Store]:
    """Yield a store that inserts in one thread, where each statement commits by itself."""
    thread, loop = ThreadPoolExecutor(1), asyncio.get_running_loop()

    def connected() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        configure(connection)
        connection.execute(
            "CREATE TABLE webhook (id TEXT PRIMARY KEY, received_at REAL, body BLOB)"
        )
        return connection

    connection = await loop.run_in_executor(thread, connected)
    sql = "INSERT INTO webhook VALUES (?, ?, ?) ON CONFLICT DO NOTHING"

    def store(name: str, body: bytes) -> Awaitable[object]:
        row = (name, time.time(), body)
        return loop.run_in_executor(thread, connection.execute, sql, row)

    yield store
    await loop.run_in_executor(thread, connection.close)


def application(path: str, secret: str, opened: Opens) -> Starlette:
    """Return the receiver, which keeps genuine webhooks in a database."""
    key = base64.b64decode(secret.removeprefix("whsec_"))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with opened(path) as app.state.store:
            yield

    async def receive(request: Request) -> Response:
        body, headers = await request.body(), request.headers
        at = headers["webhook-timestamp"]
        signed = f"{headers['webhook-id']}.{at}.".encode() + body
        wanted = "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        if (
            not any(hmac.compare_digest(wanted, v) for v in headers["webhook-signature"].split())
            or abs(time.time() - int(at)) > TOLERANCE_S
        ):
            return JSONResponse({"verdict": "rejected"}, status_code=401)
        await request.app.state.store(json.loads(body)["id"], body)
        return JSONResponse({"verdict": "accepted"})

    routes = [Route("/webhooks/{source}", receive, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    path, secret, *lean, port = sys.argv[1:]
    uvicorn.run(
        application(path, secret, with_a_thread if lean else with_sessions),
        port=int(port), loop="uvloop", http="httptools", access_log=False,
    )  # fmt: skip
