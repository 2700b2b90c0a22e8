"""Gather everything known about one order into a dossier."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, TypeVar

from app.context.configured import accounts
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import Masking, is_code
from app.core.reading import Unreadable
from app.database.engine import Connection
from app.database.gaps import gaps_until
from app.database.statements import run
from app.evidence import attachment_store, prove_sealed, store, verify
from app.evidence.attachments import attachment_bytes
from app.evidence.witnesses import witnesses_of
from app.orders import published_store
from app.orders.customers import phones_of
from app.orders.history_store import with_redatings
from app.orders.holds import as_judged
from app.orders.read_orders import nothing_known, of_another_shop, spoken_of
from app.orders.unheard import unheard_of
from app.providers.doctor import Account
from app.providers.fetched import is_answer
from app.providers.fingerprints import AccountKeys, covered
from app.providers.profile import profile_text
from app.providers.request import Incoming
from app.providers.schemes import SCHEMES, TOKENS, UNSIGNED
from app.providers.source import Source
from app.receiving.header_codec import read_request, restored
from reconcile.instants import Instant, format_known
from reconcile.ledger.events import Event
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from reconcile.ledger.unheard import NOTHING, Unheard
from reconcile.matching.books import BookLine, StatementLine
from reconcile.money import Money, to_json
from reconcile.transparency.commitments import RECORD_TEXTS, TEXTS
from reconcile.transparency.evidence import by_event


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenSignature:
    """Facts about a delivery's signature that can be verified again."""

    sentence: str
    scheme: str | None = None
    signed: str | None = None
    """The profile's template of the signed content. None if code builds the content."""
    where: str | None = None
    key: str | None = None
    """Fingerprint of the verifying key. None if no current key fits."""
    public: bytes | None = None
    content: bytes | None = field(default=None, repr=False)
    """The signed bytes. None if the bytes contain a secret."""
    signed_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryEvidence:
    """Stored delivery, and the facts that it proves."""

    arrived: store.StoredDelivery
    body: bytes | None = field(repr=False)
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    proven: ProvenSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """Source of deliveries, with its present profile."""

    source: str
    profile: str
    orders: str
    """`shared` if other sources have equal order references, otherwise `own`."""
    link_by: str
    captures: tuple[str, ...]
    vouchers: tuple[str, ...]
    """Redacted authorization headers that only the provider sends."""
    text: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile:
    """Attachment of an order, with its leaves in the sealed log.

    Details and content are None if deleted or not requested.
    """

    attachment_id: str
    media: str
    attached: str
    removed: str | None
    details: bytes | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """Everything known about one order at an instant."""

    history: History
    """Facts known at the instant. Masked in a redacted bundle."""
    policy: Policy
    as_of: Instant
    deliveries: tuple[DeliveryEvidence, ...]
    details: Mapping[str, str]
    revisions: tuple[published_store.Published, ...]
    profiles: tuple[Profiled, ...]
    lines: tuple[Mapping[str, Any], ...]
    sealed: prove_sealed.SealedParts
    masking: Masking
    phones: frozenset[str] = field(default=frozenset(), repr=False)
    full: bool
    """True if bodies and headers are included unredacted."""
    attached: tuple[AttachedFile, ...] = ()
    zone: tzinfo | None = None
    unheard: Unheard = NOTHING
    """Unread messages and payments without an order that may concern this order."""


def book_document(line: BookLine) -> dict[str, Any]:
    """Return a line of an order book as JSON values."""
    back: dict[str, Any] = {}
    if line.refunded is not None:
        refunded = replace(line.money, minor=line.refunded)
        back = {"refunded": to_json(refunded), "refunded_at": format_known(line.refunded_at)}
    return {
        "from": "order book",
        "line": line.line_id,
        "reference": line.reference,
        "kind": line.kind,
        "money": to_json(line.money),
        "placed_at": format_known(line.placed_at),
        "status": line.status,
        "method": line.method,
        **back,
        "group": line.group,
    }


def statement_document(line: StatementLine) -> dict[str, Any]:
    """Return a line of a provider's settlement file as JSON values."""
    amounts = {"gross": line.gross, "fee": line.fee, "net": line.net}
    return {
        "from": "statement",
        "line": line.line_id,
        "kind": line.kind,
        "payment": line.payment,
        "order": line.order,
        **{
            name: to_json(Money(minor=minor, currency=line.currency))
            for name, minor in amounts.items()
        },
        "settled_at": format_known(line.settled_at),
        "payout": line.payout,
    }


Text = TypeVar("Text", Event, Record)


def masked_history(history: History, masking: Masking) -> History:
    """Return the history with the customers' phone numbers masked."""
    return History(
        order=masking.text(history.order),
        deliveries=frozenset(
            replace(each, event=_masked(each.event, masking)) for each in history.deliveries
        ),
        records=frozenset(_masked(each, masking) for each in history.records),
    )


def _reasons_in_words(history: History) -> set[str]:
    reasons = {each.event.reason for each in history.deliveries}
    reasons |= {each.reason for each in history.records}
    return {each for each in reasons if each and not is_code(each)}


def _masked(value: Text, masking: Masking) -> Text:
    changes: dict[str, Any] = {}
    for name in TEXTS if isinstance(value, Event) else RECORD_TEXTS:
        given = getattr(value, name)
        if given is not None and masking.touches(given):
            changes[name] = masking.text(given)
    return replace(value, **changes) if changes else value


def evidence_of(
    rows: Sequence[store.StoredDelivery],
    accounts: Mapping[str, Account],
    others: Iterable[store.StoredDelivery] = (),
) -> list[DeliveryEvidence]:
    """Return the evidence of these deliveries."""
    brought, keys = [*rows, *others], {name: AccountKeys(each) for name, each in accounts.items()}
    bodies = {(row.source, row.digest): row.body for row in brought if row.body is not None}
    found = []
    for row in rows:
        account, body = accounts.get(row.source), bodies.get((row.source, row.digest))
        kept = read_request(row.headers)
        address = "" if account is None else account.address
        found.append(
            DeliveryEvidence(
                arrived=row,
                body=body,
                method=kept.method,
                url=address + (kept.url or f"/webhooks/{row.source}"),
                headers=tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in kept.headers),
                proven=_proven(row, body, keys.get(row.source)),
            )
        )
    return found


def _proven(
    row: store.StoredDelivery, body: bytes | None, keys: AccountKeys | None
) -> ProvenSignature:
    whole = body if row.envelope is None else row.whole
    if is_answer(row.headers):
        return ProvenSignature(
            sentence="Tallyhook fetched this from the provider over TLS. It is not signed."
        )
    if keys is None:
        return ProvenSignature(
            sentence=(
                "The source is no longer configured, so the signature cannot be checked again."
            )
        )
    account = keys.account
    if account.profile.signature.mac == UNSIGNED:
        return ProvenSignature(
            sentence=(
                "This provider does not sign messages: only an answer that Tallyhook fetched "
                "from it counts."
            )
        )
    if whole is None or row.pruned_at is not None:
        return ProvenSignature(
            sentence="The signature was verified when the delivery arrived. It cannot be checked "
            "again, because the body was deleted."
        )
    kept = read_request(row.headers, whole)
    secrets, rule = account.secrets, account.profile.signature
    texts = secrets.values() if isinstance(secrets, Mapping) else secrets
    tokens = [each.encode("utf-8") for each in texts] if rule.mac in TOKENS else []
    request = kept._replace(
        headers=restored(kept.headers, tokens), url=kept.url or f"/webhooks/{row.source}"
    )
    signer = keys.signer_of(request, now=row.received_at)
    over = covered(account, request)
    proven = ProvenSignature(
        sentence="The secret of this signature was removed from the configuration. The signature "
        "was verified when the delivery arrived.",
        scheme=rule.mac,
        signed=rule.signed,
        where=rule.where,
        content=over.content,
        signed_at=over.signed_at,
    )
    if signer is None:
        return proven
    key = signer.fingerprint
    how = (
        "over the content in this document"
        if rule.mac in SCHEMES
        else ("according to the provider's own scheme")
    )
    said = (
        f"Signed with the shared secret {key}, {how}; the provider has this secret and can check "
        "the signature."
    )
    if signer.public is not None:
        said = f"Signed with the key {key}; anyone can check the signature with key-{key}.pem."
    if rule.mac in TOKENS:
        said = (
            f"The request contained the secret {key} itself: this shows who sent the request, "
            "but does not protect its content."
        )
    return replace(proven, key=key, public=signer.public, sentence=said)


def phones_stated(
    deliveries: Iterable[DeliveryEvidence], sources: Mapping[str, Source]
) -> set[str]:
    """Return all customers' phone numbers that stored bodies state."""
    found: set[str] = set()
    for each in deliveries:
        source = sources.get(each.arrived.source)
        body = each.body if each.arrived.envelope is None else each.arrived.whole
        if source is None or body is None:
            continue
        headers = read_request(each.arrived.headers).headers
        try:
            found |= set(source.phones(Incoming(headers, body, each.method, each.url)))
        except Unreadable:
            continue
    return found


ReadsLines = Callable[
    [Connection, str, Collection[str], Instant],
    Awaitable[tuple[Sequence[BookLine], Sequence[StatementLine]]],
]


async def gather_dossier(
    context: AppContext,
    order: str,
    *,
    as_of: Instant | None,
    full: bool,
    lines: ReadsLines,
    attachments: bool = False,
) -> Dossier:
    """Gather the dossier of an order.

    Raise NotFoundError for an unknown order, and UsageError for a future instant.
    """
    now = context.clock.now()
    async with context.database.reading() as connection:
        history = (await as_judged(connection, [order], policy=context.policy))[order]
        history = await with_redatings(connection, history)
        instant = history.instant_at(now) if as_of is None else as_of
        known = history.known_at(instant)
        if not spoken_of(known):
            aside = await run(connection, of_another_shop, known, until=instant)
            gaps = await run(connection, gaps_until, instant)
            raise nothing_known(history, as_of, gaps=gaps, aside=aside)
        if as_of is not None and as_of > history.instant_at(now):
            raise UsageError("--as-of is in the future: give a time that has passed")
        rows, others = await _arrived(connection, known)
        details = await store.details_of_records(connection, [r.record_id for r in known.records])
        revisions = await store.revisions_of(connection, order, until=instant)
        payments = {each.event.payment for each in known.deliveries if each.event.payment}
        books, statements = await lines(connection, order, payments, instant)
        asked = await phones_of(connection, order, sources=context.sources, most=0)
        attached = await _attached(connection, order, as_of=instant, with_files=attachments)
        subjects = [f"revision:{each.seq}" for each in revisions]
        subjects += [name for each in attached for name in (each.attached, each.removed) if name]
        sealed = await prove_sealed.sealed_parts(
            connection, known, subjects, as_of=instant, witnesses=witnesses_of(context.settings)
        )
        ledger = fold(known, policy=context.policy, as_of=instant)
        unheard = await run(connection, unheard_of, known, ledger, sources=context.sources)
    deliveries = evidence_of(rows, accounts(context.settings), others)
    phones = frozenset({*asked, *phones_stated(deliveries, context.sources)})
    masking = Masking() if full else Masking(phones, words=_reasons_in_words(known))
    masked = masked_history(known, masking)
    return Dossier(
        history=masked,
        policy=context.policy,
        as_of=instant,
        deliveries=tuple(deliveries),
        details=details,
        revisions=tuple(revisions),
        profiles=_profiles(rows, context),
        lines=(*map(book_document, books), *map(statement_document, statements)),
        sealed=prove_sealed.masked_parts(sealed, masking, known=known, masked=masked, full=full),
        masking=masking,
        phones=phones,
        full=full,
        attached=attached,
        zone=context.zone,
        unheard=unheard,
    )


async def _arrived(
    connection: Connection, known: History
) -> tuple[list[store.StoredDelivery], list[store.StoredDelivery]]:
    events = by_event(known.as_stored().deliveries)
    ids = [each[0].delivery_id for each in events]
    size = await store.size_of_arrived(connection, ids)
    prove_sealed.refuse_more(size, verify.MAX_BYTES // 3, "bytes of bodies and headers")
    rows = await store.arrived(connection, ids)
    without = {row.delivery_id for row in rows if row.body is None and row.pruned_at is None}
    others = [each.delivery_id for first, *later in events if first.delivery_id in without
              for each in later]  # fmt: skip
    return rows, [row for row in await store.arrived(connection, others) if row.body is not None]


async def _attached(
    connection: Connection, order: str, *, as_of: Instant, with_files: bool
) -> tuple[AttachedFile, ...]:
    entries = await attachment_store.counted_entries(connection, order, until=as_of)
    removed = {each.attachment_id: each.number for each in entries if each.removed}
    records = {
        each.attachment_id: each
        for each in await attachment_store.attachments_of_order(connection, order)
        if with_files and each.gone_at is None
    }
    there = [each for each in entries if not each.removed]
    prove_sealed.refuse_more(
        sum(records[each.attachment_id].size for each in there if each.attachment_id in records),
        verify.MAX_BYTES // 3,
        "bytes of attachments",
    )
    found = []
    for each in there:
        gone, record = removed.get(each.attachment_id), records.get(each.attachment_id)
        found.append(
            AttachedFile(
                attachment_id=each.attachment_id,
                media=each.media,
                attached=f"deed:{each.number}",
                removed=None if gone is None else f"deed:{gone}",
                details=None if record is None else (record.details or "").encode(),
                content=None if record is None else await attachment_bytes(connection, record),
            )
        )
    return tuple(found)


def _profiles(rows: Iterable[store.StoredDelivery], context: AppContext) -> tuple[Profiled, ...]:
    names = sorted({row.source for row in rows} & context.sources.keys())
    return tuple(
        Profiled(
            source=name,
            profile=context.sources[name].profile.name,
            orders="own" if context.sources[name].own_orders else "shared",
            link_by="order" if context.sources[name].links else "references",
            captures=tuple(sorted(context.sources[name].captures)),
            vouchers=tuple(context.sources[name].vouchers),
            text=profile_text(context.settings.sources[name].profile).encode(),
        )
        for name in names
    )
