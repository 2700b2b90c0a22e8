"""The tables of the sealed log, notifications, people and their acts, and alarms."""

from sqlalchemy import Index, UniqueConstraint

from app.database import marks
from app.database.tables.core import (
    CLUSTERED,
    NUMBERED,
    STRICT,
    Table,
    big_column,
    blob_column,
    numbered_column,
    partial_index,
    text_column,
)


class LogLeafRow(Table, table=True):
    """Entry of the log. Append-only; numbers begin at 0 and have no gaps."""

    __tablename__ = "log_leaves"
    __table_args__ = (UniqueConstraint("subject"), STRICT)
    number: int = big_column(primary=True)
    kind: str = text_column(marks.CODES)
    subject: str = text_column(marks.CODES)
    document: str = text_column(marks.SEALED)
    hash: bytes = blob_column(marks.CODES, null=False)


class LogNodeRow(Table, table=True):
    """Hash of a complete subtree of 2**level leaves. `level` is a multiple of 8. Append-only."""

    __tablename__ = "log_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    hash: bytes = blob_column(marks.HASHES, null=False)


class LogCheckpointRow(Table, table=True):
    """Head of the log at one size, with its signed note. Append-only."""

    __tablename__ = "log_checkpoints"
    __table_args__ = STRICT
    size: int = big_column(primary=True)
    head: bytes = blob_column(marks.SIGNED_HASHES, null=False)
    at: int = big_column()
    note: str = text_column(marks.SIGNED_HASHES)


class LogKeyRow(Table, table=True):
    """Public key that has signed checkpoints since `since`, in hex. `endorsement` is the previous
    key's signature over it, in hex; NULL if that key was lost. Append-only."""

    __tablename__ = "log_keys"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    public: str = text_column(marks.PUBLIC_KEYS)
    since: int = big_column()
    endorsement: str | None = text_column(marks.PUBLIC_KEYS, null=True)


class LogDepartureRow(Table, table=True):
    """Publication of a checkpoint. `way` is a channel, or the verifier key of a witness. In the
    second case, `line` is the cosignature of the witness. Append-only."""

    __tablename__ = "log_departures"
    __table_args__ = CLUSTERED
    size: int = big_column(primary=True)
    way: str = text_column(marks.COSIGNATURES, primary=True)
    head: bytes = blob_column(marks.COSIGNATURES, null=False)
    at: int = big_column()
    line: str | None = text_column(marks.COSIGNATURES, null=True)


class LogWitnessRow(Table, table=True):
    """Witness, identified by its verifier key, with the largest checkpoint that it cosigned and the
    time of the next request. `since` and `problem` say when and why it stopped cosigning; NULL
    while it cosigns."""

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
    """Ids of rows that have no leaf yet. All are of one kind and one transaction."""

    __tablename__ = "unsealed"
    __table_args__ = NUMBERED
    row: int | None = numbered_column()
    kind: str = text_column(marks.CODES)
    ids: str = text_column(marks.CODES)
    count: int = big_column()


class OrderKeyRow(Table, table=True):
    """Pseudonym of an order in the log's leaves: `commitment` is HMAC-SHA256 of `order_key` under
    `key`. `leaves` counts its leaves, and `last` is the newest. An erasure sets order and key to
    NULL."""

    __tablename__ = "order_keys"
    __table_args__ = (UniqueConstraint("order_key"), STRICT)
    number: int = big_column(primary=True)
    order_key: str | None = text_column(marks.REFERENCE_EMPTIED, null=True)
    key: bytes | None = blob_column(
        marks.possibly_personal(
            "the key that links the log's leaves to an order, whose reference may contain a number",
            erased="emptied",
        )
    )
    commitment: bytes = blob_column(marks.COMMITMENT, null=False)
    leaves: int = big_column()
    last: int = big_column()


class OrderTreeRow(Table, table=True):
    """Tree of all orders in the first `size` leaves of the log. The log itself holds the tree's
    root. Append-only."""

    __tablename__ = "order_trees"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    size: int = big_column()
    orders: int = big_column()
    root: bytes = blob_column(marks.HASHES, null=False)


class OrderStateRow(Table, table=True):
    """Number of an order's leaves among the log's first `size` leaves, and the newest of these
    leaves. The row is stored only if this changed since the previous tree. Append-only."""

    __tablename__ = "order_states"
    __table_args__ = CLUSTERED
    commitment: bytes = blob_column(marks.COMMITMENT, primary=True)
    size: int = big_column(primary=True)
    leaves: int = big_column()
    last: int = big_column()


class OrderNodeRow(Table, table=True):
    """Node of the tree of all orders in the first `size` leaves: a hash of the orders whose
    commitments begin with the first `level` bits of `place`. Stored only if changed since the
    previous tree. Append-only."""

    __tablename__ = "order_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    size: int = big_column(primary=True)
    hash: bytes = blob_column(marks.HASHES, null=False)


class UnansweredRow(Table, table=True):
    """Session request without an answer. `request` has the bytes to send again with its idempotency
    key."""

    __tablename__ = "unanswered"
    __table_args__ = (Index("ix_unanswered_due_at", "due_at"), CLUSTERED)
    key: str = text_column(marks.CODES_DELETED, primary=True)
    order_key: str = text_column(marks.REFERENCE_DELETED)
    request: str = text_column(
        marks.personal("the request to the payment service", erased="deleted")
    )
    due_at: int = big_column()
    held_until: int = big_column()
    tries: int = big_column()
    in_vain: int = big_column()


class NotificationRow(Table, table=True):
    """Notification of one revision to the shop. `due_at` is NULL after it was delivered or given
    up. `delivered_at` is NULL unless it was delivered."""

    __tablename__ = "notifications"
    __table_args__ = (
        partial_index("ix_notifications_due_at", "due_at", "seq", where="due_at IS NOT NULL"),
        partial_index("ix_notifications_waiting", "order_key", "seq", where="due_at IS NOT NULL"),
        partial_index(
            "ix_notifications_dead", "seq", where="due_at IS NULL AND delivered_at IS NULL"
        ),
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
    """Address that accepts no notifications at present. `destination` is the address's digest,
    because the address may contain a credential. If only the notification `only_seq` failed, others
    are still sent."""

    __tablename__ = "destinations_away"
    __table_args__ = CLUSTERED
    destination: str = text_column(marks.DESTINATION, primary=True)
    since: int = big_column()
    failures: int = big_column()
    probe_at: int = big_column()
    problem: str = text_column(marks.DESTINATION)
    only_seq: int | None = big_column(null=True)


class PhoneRow(Table, table=True):
    """Keyed digest of a customer's phone number, email address, name or card, or of a payment's
    other id, linked to one order or delivery."""

    __tablename__ = "phones"
    __table_args__ = (Index("ix_phones_thing", "thing"), CLUSTERED)
    digest: bytes = blob_column(
        marks.personal("the keyed digest of a customer's identifier", erased="deleted"),
        primary=True,
    )
    kind: str = text_column(marks.WHOSE_NUMBER, primary=True)
    thing: str = text_column(marks.WHOSE_NUMBER, primary=True)
    noted_at: int = big_column()


class ErasureRow(Table, table=True):
    """Line of the erasure journal that was carried out on this database. Append-only."""

    __tablename__ = "erasures"
    __table_args__ = CLUSTERED
    journal: str = text_column(marks.KEYED_DIGESTS, primary=True)
    number: int = big_column(primary=True)
    line: str = text_column(marks.KEYED_DIGESTS)


class PendingErasureRow(Table, table=True):
    """Line of the erasure journal, by its number, that is not carried out yet. `since` is the
    beginning of the wait, and `why` the reason's code; empty while the erasure runs."""

    __tablename__ = "pending_erasures"
    __table_args__ = CLUSTERED
    number: int = big_column(primary=True)
    since: int = big_column()
    why: str = text_column(marks.CODES)


class RestrictionRow(Table, table=True):
    """Order, delivery, file or bank line whose data an erasure may not delete yet. `why` is the
    reason's code. `until` is the end; NULL if unknown. At `look_at` the reason is checked again.
    `erasure` is the last erasure that set the restriction."""

    __tablename__ = "restrictions"
    __table_args__ = CLUSTERED
    kind: str = text_column(marks.CODES, primary=True)
    thing: str = text_column(marks.REFERENCE, primary=True)
    since: int = big_column()
    until: int | None = big_column(null=True)
    why: str = text_column(marks.CODES)
    look_at: int = big_column()
    erasure: int = big_column()


class TokenRow(Table, table=True):
    """Token for commands and the API, stored by its SHA-256. It belongs to a program, or to an
    `operator`. `scopes` are separated by blanks. The token expires at `until`."""

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
    """Sign-off of an item of the checklist, by a person or a check. Append-only."""

    __tablename__ = "signoffs"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    item: str = text_column(marks.CODES)
    state: str = text_column(marks.CODES)
    at: int = big_column()
    signer: str = text_column(marks.STAFF)
    note: str = text_column(marks.TRAIL_WORDS)


class GapRow(Table, table=True):
    """Time span in which evidence may be missing. A person accepted that it is lost. `deliveries`
    is NULL if the number is unknown. Append-only."""

    __tablename__ = "gaps"
    __table_args__ = STRICT
    id: str = text_column(marks.CODES, primary=True)
    kind: str = text_column(marks.CODES)
    since: int = big_column()
    until: int = big_column()
    deliveries: int | None = big_column(null=True)
    detail: str = text_column(marks.PROBLEM)
    accepted_at: int = big_column()
    accepted_by: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)


class OperatorRow(Table, table=True):
    """Person with a role, which decides what they may change or unmask. `company` is the issuer and
    subject of their company account, or NULL."""

    __tablename__ = "operators"
    __table_args__ = (UniqueConstraint("company"), CLUSTERED)
    name: str = text_column(marks.STAFF, primary=True)
    role: str = text_column(marks.STAFF)
    created_at: int = big_column()
    disabled_at: int | None = big_column(null=True)
    company: str | None = text_column(marks.STAFF, null=True)


class CredentialRow(Table, table=True):
    """An operator's credentials: the Argon2id hash of a password, and the secret of one-time codes
    in Base32. `totp_step` is the last used time step."""

    __tablename__ = "credentials"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.STAFF, primary=True)
    password: str = text_column(marks.CREDENTIALS)
    totp: str | None = text_column(marks.CREDENTIALS, null=True)
    totp_step: int | None = big_column(null=True)
    set_at: int = big_column()


class PasskeyRow(Table, table=True):
    """An operator's passkey, by its credential id in base64url, with the public key as COSE, the
    counter of the last signature, and the operator's name for it."""

    __tablename__ = "passkeys"
    __table_args__ = (Index("ix_passkeys_name", "name"), CLUSTERED)
    id: str = text_column(marks.CREDENTIALS, primary=True)
    name: str = text_column(marks.STAFF)
    label: str = text_column(marks.STAFF)
    public_key: bytes = blob_column(marks.CREDENTIALS, null=False)
    sign_count: int = big_column()
    made_at: int = big_column()
    used_at: int | None = big_column(null=True)


class InvitationRow(Table, table=True):
    """Single-use link, stored by its SHA-256. With `invite` a person sets their password; with
    `enter` they begin a session. `totp` is the secret shown to them."""

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
    """Console session, stored by the SHA-256 of its cookie. `way` is how it began. `proved_at` is
    when the person last proved their identity."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_name", "name"), CLUSTERED)
    hash: str = text_column(marks.CODES, primary=True)
    name: str = text_column(marks.STAFF)
    created_at: int = big_column()
    used_at: int = big_column()
    until: int = big_column()
    revoked_at: int | None = big_column(null=True)
    way: str = text_column(marks.CODES)
    proved_at: int = big_column()


class UsedFormRow(Table, table=True):
    """Console form that was submitted. Submitting it again does nothing."""

    __tablename__ = "used_forms"
    __table_args__ = (Index("ix_used_forms_at", "at"), CLUSTERED)
    id: str = text_column(marks.CODES, primary=True)
    at: int = big_column()


class ProposalRow(Table, table=True):
    """Act that an operator proposed and that needs a second person. `given` has its parameters as
    JSON. `state` describes its subject at that time. It expires at `until`. Append-only."""

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
    """End of a proposal: approved, rejected or withdrawn. Append-only."""

    __tablename__ = "proposal_decisions"
    __table_args__ = CLUSTERED
    proposal: str = text_column(marks.REFERENCE, primary=True)
    decision: str = text_column(marks.CODES)
    who: str = text_column(marks.STAFF)
    role: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)
    at: int = big_column()


class BookmarkRow(Table, table=True):
    """An operator's private bookmark: an order (`kind` is `order`, `label` its reference), or a
    list with its filters (`kind` is the page's name, `query` its query string)."""

    __tablename__ = "bookmarks"
    __table_args__ = CLUSTERED
    operator: str = text_column(marks.STAFF, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    label: str = text_column(marks.OWN_NOTES, primary=True)
    query: str = text_column(marks.OWN_NOTES)
    at: int = big_column()


class AlarmOwnerRow(Table, table=True):
    """Operator who works on an alarm, and the state of that work. Deleted with the alarm."""

    __tablename__ = "alarm_owners"
    __table_args__ = CLUSTERED
    alarm: str = text_column(marks.CODES, primary=True)
    reason: str = text_column(marks.ALARM_WORDS)
    owner: str = text_column(marks.STAFF)
    state: str = text_column(marks.CODES)
    at: int = big_column()


class AlarmMessageRow(Table, table=True):
    """Message about an alarm on one channel. Deleted after the end of the alarm was reported on the
    channel."""

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


class NoticeChoiceRow(Table, table=True):
    """An operator's choice of notices. `position` is the last audit entry sent to them. `due_at` is
    when to look for new entries."""

    __tablename__ = "notice_choices"
    __table_args__ = CLUSTERED
    operator: str = text_column(marks.STAFF, primary=True)
    pace: str = text_column(marks.CODES)
    way: str = text_column(marks.CODES)
    address: str | None = text_column(marks.STAFF_ADDRESS, null=True)
    position: int = big_column()
    due_at: int = big_column()
    tries: int = big_column()


class AuditRow(Table, table=True):
    """Act of a person, with its subject and reason. Append-only; numbers have no gaps."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_subject_number", "subject", "number"),
        Index("ix_audit_action_number", "action", "number"),
        Index("ix_audit_who_number", "who", "number"),
        partial_index("ix_audit_order_key", "order_key", where="order_key IS NOT NULL"),
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
    order_key: str | None = text_column(marks.REFERENCE, null=True)


class AttachmentRow(Table, table=True):
    """File attached to an order or a break. `order_key` is "" for a break without an order. `deed`
    is the audit entry that seals the file. `details` holds personal data as JSON until erased.
    `gone_at` is when the file was detached or erased. Only `details` and `gone_at` change."""

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
        marks.personal("a file's name and description", erased="emptied"), null=True
    )
    gone_at: int | None = big_column(null=True)


class AttachmentFileRow(Table, table=True):
    """Bytes of attached files, by digest. Deleted with the last attachment that uses them."""

    __tablename__ = "attachment_files"
    __table_args__ = STRICT
    sha256: str = text_column(marks.CODES_DELETED, primary=True)
    body: bytes = blob_column(
        marks.personal("files that people attached to the order", erased="deleted"), null=False
    )
