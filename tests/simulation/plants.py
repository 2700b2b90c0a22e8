"""Defects to plant in the product, each of which the simulation must find.

Without them a simulation that checks nothing would pass as well.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from app.database import engine
from app.database.statements import PlainConnection
from app.orders import ledger_store, record_store, refold
from app.orders.refold import gathered
from app.providers.source import Source
from app.receiving import append_store, due_store, inbox_queue
from app.receiving.due_store import settle_marks
from reconcile.instants import Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.revise import Revision

Plant = Callable[[], Any]


def ack_before_commit() -> Any:
    """Answer as soon as a delivery is in the queue."""
    submit, sent = inbox_queue.InboxQueue.submit, set[Any]()

    def ended(task: asyncio.Task[Any]) -> None:
        sent.discard(task)
        if not task.cancelled():
            task.exception()

    async def early(self: inbox_queue.InboxQueue, item: Any) -> None:
        task = asyncio.get_running_loop().create_task(submit(self, item))
        sent.add(task)
        task.add_done_callback(ended)
        await asyncio.sleep(0)

    return patch.object(inbox_queue.InboxQueue, "submit", early)


def log_not_synced() -> Any:
    """Let commits return before the log is on the disk."""
    plain = engine._prepare

    def lax(each: Any, pragmas: tuple[str, ...], *, begin: str, check: Any = None) -> None:
        plain(each, tuple(p.replace("=FULL", "=NORMAL") for p in pragmas), begin=begin)

    return patch.object(engine, "_prepare", lax)


def dedupe_off() -> Any:
    """Take every delivery for a new event."""
    return patch.object(append_store.KnownEvents, "judge", lambda self, event, linking: "stored")


def first_body_wins() -> Any:
    """Take a second body under one event id for a redelivery."""
    judge = append_store.KnownEvents.judge

    def lax(self: Any, event: Any, linking: Any) -> str:
        verdict = judge(self, event, linking)
        return "duplicate" if verdict == "duplicate_with_different_body" else verdict

    return patch.object(append_store.KnownEvents, "judge", lax)


def last_word_wins() -> Any:
    """Fold only the delivery that arrived last."""

    def forgetful(history: History, **named: Any) -> Any:
        known = history.known_at(named["as_of"]).deliveries
        last = max(known, key=lambda d: (d.received_at, d.delivery_id), default=None)
        return fold(
            replace(history, deliveries=frozenset(() if last is None else (last,))), **named
        )

    return patch.object(refold, "fold", forgetful)


class _Changed:
    """A connection that changes words of its statements."""

    def __init__(self, connection: PlainConnection, words: str, instead: str) -> None:
        self._connection, self._words, self._instead = connection, words, instead
        self.dialect = connection.dialect
        self.spread = connection.spread

    def ask(self, sql: str, values: Any = ()) -> Any:
        return self._connection.ask(sql.replace(self._words, self._instead), values)


def due_mark_lost() -> Any:
    """Let new evidence not set its order due again."""

    mark = append_store.mark_due

    def once(connection: PlainConnection, due: dict[str, Instant]) -> None:
        mark(_Changed(connection, "DO UPDATE SET generation", "DO NOTHING --"), due)

    return _all(
        *[patch.object(module, "mark_due", once) for module in (append_store, record_store)]
    )


def stored_not_asked() -> Any:
    """Judge a batch as if nothing were stored."""
    return patch.object(append_store.KnownEvents, "load", lambda self, connection, events: None)


def evidence_overtaken() -> Any:
    """Settle a fold's mark although evidence arrived meanwhile; folds take seconds, so that some
    does."""

    def blind(connection: PlainConnection, marks: Any) -> None:
        settle_marks(
            _Changed(connection, "WHERE order_due.generation=excluded.generation", ""), marks
        )

    def all_of(_: PlainConnection, marks: Any) -> list[Any]:
        return list(marks)

    async def slowly(*given: Any) -> Any:
        found = await gathered(*given)
        await asyncio.sleep(5)
        return found

    return _all(
        patch.object(ledger_store, "settle_marks", blind),
        patch.object(due_store, "unchanged", all_of),
        patch.object(refold, "gathered", slowly),
    )


@contextmanager
def _all(*plants: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for each in plants:
            stack.enter_context(each)
        yield


def deadline_ignored() -> Any:
    """Look at no order again when its deadline has passed."""

    def never(connection: PlainConnection, marks: Any) -> None:
        settle_marks(connection, [(order, None, generation) for order, _, generation in marks])

    return patch.object(ledger_store, "settle_marks", never)


def revised_for_nothing() -> Any:
    """Publish a revision with every fold, whether or not it says something new."""

    def always(before: Any, ledger: Any, *, after: Any) -> Revision:
        return Revision(order=ledger.order, at=ledger.as_of, before=before, after=after, because=())

    return patch.object(refold, "revise", always)


def environment_not_checked() -> Any:
    """Accept events of the other environment."""

    def blind(look: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: replace(look(*given, **named), environment=None)

    return _all(
        patch.object(Source, "belonging", blind(Source.belonging)),
        patch.object(Source, "read", blind(Source.read)),
    )


def signature_not_checked() -> Any:
    """Accept every signature."""
    return patch.object(Source, "verify", lambda *_, **__: None)


def key_made_afresh() -> Any:
    """Begin an interrupted checkout again with a new key."""
    from app.checkout import open_checkout

    async def nothing(self: Any) -> None:
        return None

    def unseen(known: Any) -> None:
        return None

    commit = open_checkout._Opening._write_intent

    async def write(self: Any) -> None:
        with patch.object(open_checkout, "payment_of", unseen):
            await commit(self)

    find = open_checkout._Opening._find

    async def find_own(self: Any) -> Any:
        if not getattr(self, "_looked", False):
            self._looked = True
            return None
        return await find(self)

    opening = open_checkout._Opening
    return _all(
        patch.object(opening, "_write_intent", write), patch.object(opening, "_find", find_own)
    )


PLANTS: tuple[Plant, ...] = (
    ack_before_commit,
    log_not_synced,
    dedupe_off,
    stored_not_asked,
    first_body_wins,
    last_word_wins,
    due_mark_lost,
    evidence_overtaken,
    deadline_ignored,
    revised_for_nothing,
    environment_not_checked,
    signature_not_checked,
    key_made_afresh,
)
