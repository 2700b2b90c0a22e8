"""Gathers all that is known of one order into a dossier, as of an instant. Changes nothing.

A dossier is a value, without store, clock or key: equal ones give equal bundles, byte for byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import tzinfo
from typing import Any, Final, TypeVar

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import Masking
from app.core.reading import Unreadable
from app.database.engine import Connection
from app.evidence import attachment_store, prove_sealed, verify
from app.evidence.attachments import bytes_of as attached_bytes
from app.evidence.store import StoredDelivery, arrived, bytes_of, details_of_records, revisions_of
from app.evidence.witnesses import Witnesses
from app.orders import published_store
from app.orders.customers import phones_of
from app.orders.holds import as_judged
from app.orders.read_orders import nothing_known
from app.providers.doctor import Account
from app.providers.fetched import is_answer
from app.providers.fingerprints import covered, signer_of
from app.providers.request import Incoming
from app.providers.schemes import NAMED, TOKENS, UNSIGNED
from app.providers.source import Source
from app.receiving.header_codec import read_request, restored
from app.sealing import log_store
from reconcile.canonical import canonical_json
from reconcile.instants import Instant, format_known
from reconcile.ledger.events import Delivery, Event
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from reconcile.matching.books import BookLine, StatementLine
from reconcile.money import Money, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What is known again of a delivery's signature.

    scheme       the profile's word for it, such as `hmac-sha256`
    signed       the profile's template of what is signed; None where code says it
    where        where the signature stands in the request
    key          fingerprint of the key that makes it genuine; None where none does now
    public       that key in PEM, where it is a public one
    content      the signed bytes, where they can be shown without a secret
    signed_at    when the request says that it was signed
    sentence     all of this for a person
    """

    sentence: str
    scheme: str | None = None
    signed: str | None = None
    where: str | None = None
    key: str | None = None
    public: bytes | None = None
    content: bytes | None = field(default=None, repr=False)
    signed_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryEvidence:
    """One delivery: what was kept of it, and what can be proved with that.

    body     the event's own bytes, which an earlier arrival may hold; None where they were deleted
    method   and `url`: how the request came
    headers  as lines of `name: value`
    """

    arrived: StoredDelivery
    body: bytes | None = field(repr=False)
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    proven: Proven


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A source and the profile that reads it now. `text` is the profile's file, without secrets;
    `orders`: whether its orders are `shared` with other sources or its `own`."""

    source: str
    profile: str
    orders: str
    text: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile:
    """An attachment with its bytes; `facts`: what the audit entry says that seals it."""

    record: attachment_store.AttachmentRecord
    facts: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """One order as of an instant.

    history  what was known then; in a redacted bundle with numbers of customers masked in its texts
    details  by record id: the text that is kept beside a record, such as the service's answer
    lines    lines of order books and statements that are of this order, as JSON values
    phones   its customers' numbers, as far as bodies that are kept name them
    full     whether bodies and headers go in as they came
    attached files of the order and its breaks that were there by then; None: nobody asked for them
    zone     the merchant's, in which the page for people gives times; None: UTC
    """

    history: History
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
    attached: tuple[AttachedFile, ...] | None = None
    zone: tzinfo | None = None


def book_document(line: BookLine) -> dict[str, Any]:
    """One line of an order book."""
    return {
        "from": "order book",
        "line": line.line_id,
        "reference": line.reference,
        "kind": line.kind,
        "money": to_json(line.money),
        "placed_at": format_known(line.placed_at),
        "status": line.status,
        **_refund_document(line),
        "group": line.group,
    }


def _refund_document(line: BookLine) -> dict[str, Any]:
    """What the book says went back, where it says so."""
    if line.refunded is None:
        return {}
    refunded = Money(minor=line.refunded, currency=line.money.currency)
    return {"refunded": to_json(refunded), "refunded_at": format_known(line.refunded_at)}


def statement_document(line: StatementLine) -> dict[str, Any]:
    """One line of a settlement file."""
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
    """The history with its customers' numbers masked wherever a reference or a word holds one."""
    return History(
        order=masking.text(history.order),
        deliveries=frozenset(_masked_delivery(each, masking) for each in history.deliveries),
        records=frozenset(_masked(each, masking) for each in history.records),
    )


def _masked_delivery(delivery: Delivery, masking: Masking) -> Delivery:
    return replace(delivery, event=_masked(delivery.event, masking))


_OURS: Final = frozenset(("source", "digest", "claim", "standing", "record_id", "kind"))


def _masked(value: Text, masking: Masking) -> Text:
    changes: dict[str, Any] = {}
    for name in (each.name for each in fields(value)):
        given = getattr(value, name)
        if type(given) is str and name not in _OURS and masking.touches(given):
            changes[name] = masking.text(given)
    return replace(value, **changes) if changes else value


def evidence_of(
    rows: Iterable[StoredDelivery], accounts: Mapping[str, Account]
) -> list[DeliveryEvidence]:
    """Each of an order's deliveries. A repeated one has its body from the first that brought it."""
    rows = list(rows)
    bodies = {(row.source, row.digest): row.body for row in rows if row.body is not None}
    return [
        _evidence_of_one(row, bodies.get((row.source, row.digest)), accounts.get(row.source))
        for row in rows
    ]


def _evidence_of_one(
    row: StoredDelivery, body: bytes | None, account: Account | None
) -> DeliveryEvidence:
    kept = read_request(row.headers)
    shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in kept.headers)
    return DeliveryEvidence(
        arrived=row,
        body=body,
        method=kept.method,
        url=("" if account is None else account.address) + (kept.url or f"/webhooks/{row.source}"),
        headers=shown,
        proven=_proven(row, body, account),
    )


def _proven(row: StoredDelivery, body: bytes | None, account: Account | None) -> Proven:
    whole = body if row.envelope is None else row.whole
    if is_answer(row.headers):
        return Proven(sentence="Fetched by us from the provider itself, over TLS: not signed.")
    if account is None:
        return Proven(sentence="Its source is no longer configured: nothing can be checked again.")
    if account.profile.signature.mac == UNSIGNED:
        return Proven(sentence="This provider signs nothing: its own answer, fetched, counts.")
    if whole is None or row.pruned_at is not None:
        return Proven(
            sentence="Its body was deleted: its signature was right when it arrived, and cannot be "
            "checked again."
        )
    kept = read_request(row.headers, whole)
    secrets = account.secrets
    texts = secrets.values() if isinstance(secrets, Mapping) else secrets
    token = account.profile.signature.mac in TOKENS
    tokens = [each.encode("utf-8") for each in texts] if token else []
    request = kept._replace(
        headers=restored(kept.headers, tokens), url=kept.url or f"/webhooks/{row.source}"
    )
    rule = account.profile.signature
    signer = signer_of(account, request, now=row.received_at)
    over = covered(account, request)
    proven = Proven(
        sentence="No secret that is configured now makes it: the one it was signed with was taken "
        "out since. It was right when it arrived.",
        scheme=rule.mac,
        signed=rule.signed,
        where=rule.where,
        content=over.content,
        signed_at=over.signed_at,
    )
    if signer is None:
        return proven
    return replace(
        proven,
        key=signer.fingerprint,
        public=signer.public,
        sentence=_sentence(rule.mac, signer.fingerprint, public=signer.public is not None),
    )


def _sentence(mac: str, key: str, *, public: bool) -> str:
    if mac in TOKENS:
        return f"The request brought the secret {key} itself: that tells who sent it, not what."
    if public:
        return f"Signed with the key {key}; anyone can check it with key-{key}.pem."
    how = "as the provider's own scheme says" if mac.startswith(NAMED) else "over what stands here"
    return f"Signed with the shared secret {key}, {how}; the provider, who has it, can check it."


def phones_stated(
    deliveries: Iterable[DeliveryEvidence], sources: Mapping[str, Source]
) -> set[str]:
    """Every customer's number that a body names."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """What is configured of the sources, by name: their secrets, how they are read, and the text
    of each one's profile; and what reads the lines of books and statements that name an order or
    one of its payments.

    witnesses  who cosigns checkpoints; None: nobody
    """

    accounts: Mapping[str, Account] = field(repr=False)
    sources: Mapping[str, Source]
    texts: Mapping[str, str]
    lines: Callable[
        [Connection, str, Collection[str], Instant],
        Awaitable[tuple[Sequence[BookLine], Sequence[StatementLine]]],
    ]
    witnesses: Witnesses | None = None


async def gather_dossier(
    context: AppContext,
    order: str,
    *,
    as_of: Instant | None,
    full: bool,
    providers: Providers,
    attachments: bool = False,
) -> Dossier:
    """Raises NotFoundError for an order of which nothing was known by then."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        history = (await as_judged(connection, [order], policy=context.policy))[order]
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
        attached = await _attached(connection, order, instant) if attachments else None
        subjects = _subjects(revisions, attached or ())
        sealed = await _sealed(
            connection, known, subjects, as_of=instant, witnesses=providers.witnesses
        )
    deliveries = evidence_of(rows, providers.accounts)
    phones = frozenset({*asked, *phones_stated(deliveries, providers.sources)})
    masking = Masking(() if full else phones)
    masked = masked_history(known, masking)
    leaves = prove_sealed.masked_leaves(sealed, masking)
    return Dossier(
        history=masked,
        policy=context.policy,
        as_of=instant,
        deliveries=tuple(deliveries),
        details=details,
        revisions=tuple(revisions),
        profiles=_profiles(rows, providers),
        lines=lines,
        sealed=prove_sealed.masked_readings(leaves, known=known, masked=masked),
        masking=masking,
        phones=phones,
        full=full,
        attached=attached,
        zone=context.zone,
    )


def _subjects(
    revisions: Iterable[published_store.Published], attached: Iterable[AttachedFile]
) -> list[str]:
    """Of which leaves stand beside those of deliveries and records."""
    subjects = [f"revision:{each.seq}" for each in revisions]
    return subjects + [f"deed:{each.record.audit_number}" for each in attached]


async def _attached(connection: Connection, order: str, as_of: Instant) -> tuple[AttachedFile, ...]:
    records = [
        each
        for each in await attachment_store.attachments_of_order(connection, order)
        if each.at <= as_of and each.gone_at is None
    ]
    _refuse_more(sum(each.size for each in records), verify.MAX_BYTES // 3, "bytes of attachments")
    facts = await attachment_store.facts_of_audit_entries(
        connection, [each.audit_number for each in records]
    )
    return tuple(
        [
            AttachedFile(
                record=each,
                facts=facts[each.audit_number],
                content=await attached_bytes(connection, each),
            )
            for each in records
        ]
    )


async def _arrived(connection: Connection, history: History) -> list[StoredDelivery]:
    ids = [each.delivery_id for each in history.deliveries]
    _refuse_more(
        await bytes_of(connection, ids), verify.MAX_BYTES // 3, "bytes of bodies and headers"
    )
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


async def _sealed(
    connection: Connection,
    history: History,
    others: Sequence[str],
    *,
    as_of: Instant,
    witnesses: Witnesses | None,
) -> prove_sealed.SealedParts:
    """Proofs against the first checkpoint that covers all that is sealed of it and that enough
    witnesses have cosigned, and until one is, against the first that covers it: always the same."""
    subjects = {each.delivery_id for each in history.deliveries}
    subjects |= {each.record_id for each in history.records} | set(others)
    _refuse_more(len(subjects), prove_sealed.AT_ONCE, "deliveries, records and revisions")
    found = await prove_sealed.leaves_for_bundle(connection, history, subjects, as_of=as_of)
    unsealed = tuple(sorted(subjects - found.leaves.keys()))
    if not found.leaves:
        return prove_sealed.SealedParts(unsealed=unsealed)
    _refuse_more(len(found.leaves), prove_sealed.AT_ONCE, "leaves of the log")
    proofs = await prove_sealed.proofs_of(
        connection, found.leaves.keys(), earliest=True, witnesses=witnesses
    )
    known = await log_store.identity(connection)
    return prove_sealed.SealedParts(
        checkpoint=await prove_sealed.with_cosignatures(connection, proofs.note),
        leaves=tuple(_leaf(each) for each in proofs.proofs),
        unsealed=unsealed,
        keys=() if known is None else known.keys,
        endorsements=() if known is None else known.endorsements,
        origins=()
        if known is None or not known.earlier
        else tuple((origin, known.size_as(origin)) for origin in known.origins),
        order=found.order,
        readings=found.readings,
        tree=found.tree,
    )


def _leaf(proof: prove_sealed.InclusionProof) -> prove_sealed.ProvenLeaf:
    return prove_sealed.ProvenLeaf(
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


def _profiles(rows: Iterable[StoredDelivery], providers: Providers) -> tuple[Profiled, ...]:
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
