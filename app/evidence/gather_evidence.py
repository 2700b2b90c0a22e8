"""Gathers all that is known of one order into a dossier, as of an instant. Changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import UsageError
from app.core.masking import Masking
from app.database.engine import Connection
from app.evidence.dossier import Dossier, Leaf, Profiled, Sealed
from app.evidence.dossier_store import Arrived, arrived, bytes_of, details_of_records, revisions_of
from app.evidence.lines import book_document, statement_document
from app.evidence.prove_sealed import AT_ONCE, Proof, proofs_of
from app.evidence.redaction import masked_history, masked_leaves
from app.evidence.retell_deliveries import phones_told, retold
from app.evidence.verify import MAX_BYTES
from app.orders.customers import phones_of
from app.orders.holds import as_judged
from app.orders.read_orders import nothing_known
from app.providers.doctor import Account
from app.providers.source import Source
from app.receiving.context import Desk
from app.sealing.log_store import identity, leaves_of
from reconcile.canonical import canonical_json
from reconcile.instants import Instant
from reconcile.ledger.history import History
from reconcile.matching.books import BookLine, StatementLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """What is configured of the sources, by name: their secrets, how they are read, and the text
    of each one's profile; and what reads the lines of books and statements that name an order or
    one of its payments."""

    accounts: Mapping[str, Account] = field(repr=False)
    sources: Mapping[str, Source]
    texts: Mapping[str, str]
    lines: Callable[
        [Connection, str, Collection[str], Instant],
        Awaitable[tuple[Sequence[BookLine], Sequence[StatementLine]]],
    ]


async def gather_dossier(
    desk: Desk,
    order: str,
    *,
    as_of: Instant | None,
    full: bool,
    providers: Providers,
) -> Dossier:
    """Raises NotFoundError for an order of which nothing was known by then."""
    now = desk.clock.now()
    async with desk.store.reading() as connection:
        history = (await as_judged(connection, [order], policy=desk.policy))[order]
        instant = history.instant_at(now) if as_of is None else as_of
        known = history.known_at(instant)
        if not known.records and not known.deliveries:
            raise nothing_known(history, as_of)
        if as_of is not None and as_of > history.instant_at(now):
            raise UsageError("--as-of is still to come: what will be known then, nobody can prove")
        rows = await _arrived(connection, known)
        details = await details_of_records(connection, [r.record_id for r in known.records])
        revisions = await revisions_of(connection, order, until=instant)
        lines = await _lines(connection, known, instant, providers)
        asked = await phones_of(connection, order, sources=providers.sources, most=0)
        sealed = await _sealed(connection, known, [f"revision:{each.seq}" for each in revisions])
    told = retold(rows, providers.accounts)
    phones = frozenset({*asked, *phones_told(told, providers.sources)})
    masking = Masking(() if full else phones)
    return Dossier(
        history=masked_history(known, masking),
        policy=desk.policy,
        as_of=instant,
        told=tuple(told),
        details=details,
        revisions=tuple(revisions),
        profiles=_profiles(rows, providers),
        lines=lines,
        sealed=masked_leaves(sealed, masking),
        masking=masking,
        phones=phones,
        full=full,
    )


async def _arrived(connection: Connection, history: History) -> list[Arrived]:
    ids = [each.delivery_id for each in history.deliveries]
    _refuse_more(await bytes_of(connection, ids), MAX_BYTES // 3, "bytes of bodies and headers")
    return await arrived(connection, ids)


async def _lines(
    connection: Connection, history: History, as_of: Instant, providers: Providers
) -> tuple[Mapping[str, Any], ...]:
    """Lines that name the order, or one of its payments."""
    payments = {each.event.payment for each in history.deliveries if each.event.payment}
    books, statements = await providers.lines(connection, history.order, payments, as_of)
    return (
        *(book_document(line) for line in books),
        *(statement_document(line) for line in statements),
    )


async def _sealed(connection: Connection, history: History, revisions: Sequence[str]) -> Sealed:
    """Proofs against the first checkpoint that covers all that is sealed of it: always the same."""
    subjects = {each.delivery_id for each in history.deliveries}
    subjects |= {each.record_id for each in history.records} | set(revisions)
    _refuse_more(len(subjects), AT_ONCE, "deliveries, records and revisions")
    sealed = (await leaves_of(connection, subjects)).keys()
    if not sealed:
        return Sealed(unsealed=tuple(sorted(subjects)))
    found = await proofs_of(connection, sealed, earliest=True)
    known = await identity(connection)
    return Sealed(
        checkpoint=found.note,
        leaves=tuple(_leaf(each) for each in found.proofs),
        unsealed=tuple(sorted(subjects - sealed)),
        keys=() if known is None else tuple(known.keys),
    )


def _leaf(proof: Proof) -> Leaf:
    return Leaf(
        index=proof.number,
        subject=proof.subject,
        text=canonical_json(proof.leaf).decode(),
        hash=proof.leaf_hash,
        proof=tuple(proof.path),
    )


def _refuse_more(count: int, most: int, what: str) -> None:
    if count > most:
        raise UsageError(
            f"this bundle would have {count:,} {what}, and it may have {most:,}: name an "
            "earlier --as-of"
        )


def _profiles(rows: Iterable[Arrived], providers: Providers) -> tuple[Profiled, ...]:
    names = sorted({row.source for row in rows} & providers.accounts.keys())
    return tuple(
        Profiled(
            source=name,
            profile=providers.accounts[name].profile.name,
            orders="own" if providers.sources[name].own_orders else "shared",
            text=providers.texts[name].encode(),
        )
        for name in names
    )
