"""The tables of who may do what, and of who did: tokens, operators, statements, the audit trail."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, UniqueConstraint, text
from sqlmodel import Field

from app.database import marks
from app.database.tables.core import (
    CLUSTERED,
    STRICT,
    Table,
    big_column,
    blob_column,
    text_column,
)


class LogLeafRow(Table, table=True):
    """One entry of the log. Append-only; numbers begin at 0 and have no gaps."""

    __tablename__ = "log_leaves"
    __table_args__ = (UniqueConstraint("subject"), STRICT)
    number: int = big_column(primary=True)
    kind: str = text_column(marks.CODES)
    subject: str = text_column(marks.REFERENCE)
    document: str = text_column(
        marks.possibly_personal(
            "holds references, and reasons of records",
            because="the sealed log would no longer verify",
        )
    )
    hash: bytes = blob_column(marks.CODES, null=False)


class LogNodeRow(Table, table=True):
    """The hash of a complete subtree of 2**level leaves; level is a multiple of 8. Append-only."""

    __tablename__ = "log_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    hash: bytes = blob_column(marks.HASHES, null=False)


class LogCheckpointRow(Table, table=True):
    """The head of the log when it had this size, and the note that was signed. Append-only."""

    __tablename__ = "log_checkpoints"
    __table_args__ = STRICT
    size: int = big_column(primary=True)
    head: bytes = blob_column(marks.SIGNED_HASHES, null=False)
    at: int = big_column()
    note: str = text_column(marks.SIGNED_HASHES)


class LogKeyRow(Table, table=True):
    """A public key, in hex, with which checkpoints were signed since then; `endorsement`: what the
    key before it signed of that, in hex; NULL where nobody had that one. Append-only."""

    __tablename__ = "log_keys"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    public: str = text_column(marks.PUBLIC_KEYS)
    since: int = big_column()
    endorsement: str | None = text_column(marks.PUBLIC_KEYS, null=True)


class LogDepartureRow(Table, table=True):
    """A checkpoint that left the house. `way`: how, or the verifier key of the witness that has
    cosigned it; `line`: then the line with its cosignature. Append-only."""

    __tablename__ = "log_departures"
    __table_args__ = CLUSTERED
    size: int = big_column(primary=True)
    way: str = text_column(marks.COSIGNATURES, primary=True)
    head: bytes = blob_column(marks.COSIGNATURES, null=False)
    at: int = big_column()
    line: str | None = text_column(marks.COSIGNATURES, null=True)


class LogWitnessRow(Table, table=True):
    """A witness by its verifier key: the largest checkpoint that it has cosigned, and when it is
    asked again. `since`, `problem`: since when it cosigns nothing, and why; NULL: it does."""

    __tablename__ = "log_witnesses"
    __table_args__ = CLUSTERED
    witness: str = text_column(marks.WITNESSES, primary=True)
    size: int = big_column()
    cosigned_at: int | None = big_column(null=True)
    next_at: int = big_column()
    failures: int = big_column()
    since: int | None = big_column(null=True)
    problem: str | None = text_column(marks.WITNESSES, null=True)


class UnsealedRow(Table, table=True):
    """Rows of one kind that one transaction wrote and that have no leaf yet, by their ids."""

    __tablename__ = "unsealed"
    # A number that came again could be taken for the mark that a slow sealer has read.
    __table_args__ = {**STRICT, "sqlite_autoincrement": True}  # noqa: RUF012
    row: int | None = Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
    )
    kind: str = text_column(marks.CODES)
    ids: str = text_column(marks.REFERENCE)
    count: int = big_column()


class OrderKeyRow(Table, table=True):
    """How leaves of the log name an order: `commitment` is HMAC-SHA256 of `order_key` under `key`.
    `leaves`: how many there are, and `last`: the number of the newest. After an erasure neither
    order nor key is here."""

    __tablename__ = "order_keys"
    __table_args__ = (UniqueConstraint("order_key"), STRICT)
    number: int = big_column(primary=True)
    order_key: str | None = text_column(marks.REFERENCE_EMPTIED, null=True)
    key: bytes | None = blob_column(
        marks.possibly_personal(
            "says which order leaves of the log name, whose reference may be made of a number",
            erased="emptied",
        )
    )
    commitment: bytes = blob_column(marks.COMMITMENT, null=False)
    leaves: int = big_column()
    last: int = big_column()


class OrderTreeRow(Table, table=True):
    """The tree of all orders that the first `size` leaves of the log name: its root is sealed, and
    each row is one leaf. Append-only."""

    __tablename__ = "order_trees"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    size: int = big_column()
    orders: int = big_column()
    root: bytes = blob_column(marks.HASHES, null=False)


class OrderStateRow(Table, table=True):
    """How many leaves an order had in the log of `size` leaves, and the number of the newest, where
    that changed since the tree before. Append-only."""

    __tablename__ = "order_states"
    __table_args__ = CLUSTERED
    commitment: bytes = blob_column(marks.COMMITMENT, primary=True)
    size: int = big_column(primary=True)
    leaves: int = big_column()
    last: int = big_column()


class OrderNodeRow(Table, table=True):
    """The hash of all orders whose commitments begin with the `level` bits of `place`, in the log
    of `size` leaves, where that changed since the tree before. Append-only."""

    __tablename__ = "order_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    size: int = big_column(primary=True)
    hash: bytes = blob_column(marks.HASHES, null=False)


class UnansweredRow(Table, table=True):
    """A session request without an answer: its bytes, with which its key must be sent again."""

    __tablename__ = "unanswered"
    __table_args__ = (Index("ix_unanswered_due_at", "due_at"), CLUSTERED)
    key: str = text_column(marks.CODES_DELETED, primary=True)
    order_key: str = text_column(marks.REFERENCE_DELETED)
    request: str = text_column(
        marks.personal("what is asked of the payment service", erased="deleted")
    )
    due_at: int = big_column()
    held_until: int = big_column()
    tries: int = big_column()
    in_vain: int = big_column()


_WAITING = text("due_at IS NOT NULL")
_DEAD = text("due_at IS NULL AND delivered_at IS NULL")


class NotificationRow(Table, table=True):
    """The notification to the shop of one revision. `due_at` is NULL once that is over: it was
    delivered at `delivered_at`, or, where that is NULL too, given up."""

    __tablename__ = "notifications"
    __table_args__ = (
        Index(
            "ix_notifications_due_at",
            "due_at",
            "seq",
            sqlite_where=_WAITING,
            postgresql_where=_WAITING,
        ),
        Index(
            "ix_notifications_waiting",
            "order_key",
            "seq",
            sqlite_where=_WAITING,
            postgresql_where=_WAITING,
        ),
        Index("ix_notifications_dead", "seq", sqlite_where=_DEAD, postgresql_where=_DEAD),
        STRICT,
    )
    seq: int = big_column(primary=True)
    order_key: str = text_column(marks.REFERENCE)
    since: int = big_column()
    due_at: int | None = big_column(null=True)
    tries: int = big_column()
    delivered_at: int | None = big_column(null=True)
    problem: str | None = text_column(marks.not_personal("words of ours"), null=True)


class DestinationAwayRow(Table, table=True):
    """A destination of notifications while it takes none; it has no row otherwise. `destination` is
    a digest of its address, which may hold a credential."""

    __tablename__ = "destinations_away"
    __table_args__ = CLUSTERED
    destination: str = text_column(marks.DESTINATION, primary=True)
    since: int = big_column()
    failures: int = big_column()
    probe_at: int = big_column()
    problem: str = text_column(marks.DESTINATION)


class PhoneRow(Table, table=True):
    """A customer's phone number, as its keyed digest, and the order or delivery it is of."""

    __tablename__ = "phones"
    __table_args__ = (Index("ix_phones_thing", "thing"), CLUSTERED)
    digest: bytes = blob_column(
        marks.personal("the keyed digest of a number", erased="deleted"), primary=True
    )
    kind: str = text_column(marks.WHOSE_NUMBER, primary=True)
    thing: str = text_column(marks.WHOSE_NUMBER, primary=True)
    noted_at: int = big_column()


class ErasureRow(Table, table=True):
    """One line of the journal of erasures that was carried out here. Append-only."""

    __tablename__ = "erasures"
    __table_args__ = CLUSTERED
    journal: str = text_column(marks.KEYED_DIGESTS, primary=True)
    number: int = big_column(primary=True)
    line: str = text_column(marks.KEYED_DIGESTS)


class TokenRow(Table, table=True):
    """A program that may use the API, or a person's own token, by which commands and the API know
    them: `operator` is their name. Only the token's SHA-256 is kept. `scopes` are words between
    blanks; from `until` on it opens nothing."""

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("hash"), STRICT)
    name: str = text_column(marks.STAFF, primary=True)
    hash: str = text_column(marks.CODES)
    created_at: int = big_column()
    revoked_at: int | None = big_column(null=True)
    scopes: str = text_column(marks.CODES, default="''")
    until: int | None = big_column(null=True)
    operator: str | None = text_column(marks.STAFF, null=True)


class SignoffRow(Table, table=True):
    """What a person, or a check, said of one item of the go-live checklist. Append-only."""

    __tablename__ = "signoffs"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    item: str = text_column(marks.CODES)
    state: str = text_column(marks.CODES)
    at: int = big_column()
    signer: str = text_column(marks.STAFF)
    note: str = text_column(marks.TRAIL_WORDS)


class OperatorRow(Table, table=True):
    """A person who may change or unmask something, and in which role."""

    __tablename__ = "operators"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.STAFF, primary=True)
    role: str = text_column(marks.STAFF)
    created_at: int = big_column()
    disabled_at: int | None = big_column(null=True)


class CredentialRow(Table, table=True):
    """By what an operator proves who they are: a password's Argon2id text, and the shared secret
    of their one-time codes in Base32. `totp_step` is the last step of time whose code was used."""

    __tablename__ = "credentials"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.STAFF, primary=True)
    password: str = text_column(marks.CREDENTIALS)
    totp: str | None = text_column(marks.CREDENTIALS, null=True)
    totp_step: int | None = big_column(null=True)
    set_at: int = big_column()


class InvitationRow(Table, table=True):
    """A link that is used once, under its SHA-256: `invite` lets a person set their password,
    `enter` opens a session of the demo. `totp` is the secret that the person is shown."""

    __tablename__ = "invitations"
    __table_args__ = (Index("ix_invitations_name", "name"), CLUSTERED)
    hash: str = text_column(marks.CODES, primary=True)
    kind: str = text_column(marks.CODES)
    name: str = text_column(marks.STAFF)
    made_at: int = big_column()
    until: int = big_column()
    used_at: int | None = big_column(null=True)
    totp: str | None = text_column(marks.CODES, null=True)


class SessionRow(Table, table=True):
    """A person who has signed in to the console, under the SHA-256 of their cookie's value."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_name", "name"), CLUSTERED)
    hash: str = text_column(marks.CODES, primary=True)
    name: str = text_column(marks.STAFF)
    created_at: int = big_column()
    used_at: int = big_column()
    until: int = big_column()
    revoked_at: int | None = big_column(null=True)


class UsedFormRow(Table, table=True):
    """A form of the console that was sent: sent once more, it does nothing."""

    __tablename__ = "used_forms"
    __table_args__ = (Index("ix_used_forms_at", "at"), CLUSTERED)
    id: str = text_column(marks.CODES, primary=True)
    at: int = big_column()


class ProposalRow(Table, table=True):
    """An act that needs a second person, as one operator proposed it. `given` is a JSON object of
    what the act needs, `state` what its subject was like. From `until` on nobody can approve it.
    Append-only."""

    __tablename__ = "proposals"
    __table_args__ = (Index("ix_proposals_until", "until"), CLUSTERED)
    id: str = text_column(marks.CODES, primary=True)
    kind: str = text_column(marks.CODES)
    subject: str = text_column(marks.REFERENCE)
    sentence: str = text_column(marks.REFERENCE)
    given: str = text_column(marks.REFERENCE)
    state: str = text_column(marks.CODES)
    who: str = text_column(marks.STAFF)
    role: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)
    at: int = big_column()
    until: int = big_column()


class ProposalDecisionRow(Table, table=True):
    """What became of a proposal: approved, rejected or withdrawn, once. Append-only."""

    __tablename__ = "proposal_decisions"
    __table_args__ = CLUSTERED
    proposal: str = text_column(marks.REFERENCE, primary=True)
    decision: str = text_column(marks.CODES)
    who: str = text_column(marks.STAFF)
    role: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)
    at: int = big_column()


class BookmarkRow(Table, table=True):
    """What an operator keeps for themselves: an order (`kind` is `order`, `label` its reference),
    or a list with its filters (`kind` is the page's name, `query` what follows its address)."""

    __tablename__ = "bookmarks"
    __table_args__ = CLUSTERED
    operator: str = text_column(marks.STAFF, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    label: str = text_column(marks.OWN_NOTES, primary=True)
    query: str = text_column(marks.OWN_NOTES)
    at: int = big_column()


class AlarmOwnerRow(Table, table=True):
    """Who is at an alarm that lasts, and how far. It goes with the alarm."""

    __tablename__ = "alarm_owners"
    __table_args__ = CLUSTERED
    alarm: str = text_column(marks.CODES, primary=True)
    reason: str = text_column(marks.ALARM_WORDS)
    owner: str = text_column(marks.STAFF)
    state: str = text_column(marks.CODES)
    at: int = big_column()


class AlarmMessageRow(Table, table=True):
    """The message about an alarm in one way, until its recovery has been notified."""

    __tablename__ = "alarm_messages"
    __table_args__ = CLUSTERED
    alarm: str = text_column(marks.CODES, primary=True)
    way: str = text_column(marks.CODES, primary=True)
    reason: str = text_column(marks.ALARM_WORDS)
    sentence: str = text_column(marks.ALARM_WORDS)
    raised_at: int = big_column()
    seen_at: int = big_column()
    over_at: int | None = big_column(null=True)
    told_at: int | None = big_column(null=True)
    tries: int = big_column()
    due_at: int = big_column()


class AuditRow(Table, table=True):
    """What a person did, to what, and why. Append-only; numbers have no gaps."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_subject_number", "subject", "number"),
        Index("ix_audit_action_number", "action", "number"),
        Index("ix_audit_who_number", "who", "number"),
        STRICT,
    )
    number: int = big_column(primary=True)
    at: int = big_column()
    who: str = text_column(marks.STAFF)
    role: str = text_column(marks.STAFF)
    action: str = text_column(marks.COUNTS)
    subject: str = text_column(marks.REFERENCE)
    reason: str = text_column(marks.TRAIL_WORDS)
    facts: str = text_column(marks.COUNTS)


class AttachmentRow(Table, table=True):
    """A file that somebody attached to an order or a break. `order_key` is the order that it is of,
    "" for a break of none; `deed` the audit entry that seals it; `details` what is personal of it,
    as JSON, until it goes; `gone_at` when it was detached or erased. Append-only but for those."""

    __tablename__ = "attachments"
    __table_args__ = (
        Index("ix_attachments_order_key", "order_key", "id"),
        Index("ix_attachments_subject", "subject", "id"),
        Index("ix_attachments_sha256", "sha256"),
        CLUSTERED,
    )
    id: str = text_column(marks.CODES, primary=True)
    about: str = text_column(marks.CODES)
    subject: str = text_column(marks.REFERENCE)
    order_key: str = text_column(marks.REFERENCE)
    kind: str = text_column(marks.CODES)
    media: str = text_column(marks.CODES)
    sha256: str = text_column(marks.CODES)
    size: int = big_column()
    who: str = text_column(marks.STAFF)
    at: int = big_column()
    deed: int = big_column()
    details: str | None = text_column(
        marks.personal("a file's name, and what was said of it", erased="emptied"), null=True
    )
    gone_at: int | None = big_column(null=True)


class AttachmentFileRow(Table, table=True):
    """The bytes of attachments, once each, by their digest. It goes with the last that has it."""

    __tablename__ = "attachment_files"
    __table_args__ = STRICT
    sha256: str = text_column(marks.CODES_DELETED, primary=True)
    body: bytes = blob_column(
        marks.personal("what people attached to the order", erased="deleted"), null=False
    )
