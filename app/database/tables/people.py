"""Tables of the sealed log, notifications, people and their acts, and alarms."""

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
    """Entry of the sealed log, called a leaf. Numbers begin at 0 and have no gaps. Rows are never
    changed or deleted."""

    __tablename__ = "log_leaves"
    __table_args__ = (UniqueConstraint("subject"), STRICT)
    number: int = big_column(primary=True)
    kind: str = text_column(marks.CODES)
    subject: str = text_column(marks.CODES)
    document: str = text_column(marks.SEALED)
    hash: bytes = blob_column(marks.CODES, null=False)


class LogNodeRow(Table, table=True):
    """Hash of a complete subtree of 2**level leaves of the sealed log. Append-only.

    `level` is a multiple of 8.
    """

    __tablename__ = "log_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    hash: bytes = blob_column(marks.HASHES, null=False)


class LogCheckpointRow(Table, table=True):
    """Checkpoint: head of the sealed log at one size, with its signed note. Rows are never changed
    or deleted."""

    __tablename__ = "log_checkpoints"
    __table_args__ = STRICT
    size: int = big_column(primary=True)
    head: bytes = blob_column(marks.SIGNED_HASHES, null=False)
    at: int = big_column()
    note: str = text_column(marks.SIGNED_HASHES)


class LogKeyRow(Table, table=True):
    """Public key that has signed the log's checkpoints since `since`, in hex. Append-only."""

    __tablename__ = "log_keys"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    public: str = text_column(marks.PUBLIC_KEYS)
    since: int = big_column()
    endorsement: str | None = text_column(marks.PUBLIC_KEYS, null=True)
    """The previous key's signature over it. NULL if that key was lost."""


class LogDepartureRow(Table, table=True):
    """Publication of a checkpoint. Append-only."""

    __tablename__ = "log_departures"
    __table_args__ = CLUSTERED
    size: int = big_column(primary=True)
    way: str = text_column(marks.COSIGNATURES, primary=True)
    """The channel, or the verifier key of a witness."""
    head: bytes = blob_column(marks.COSIGNATURES, null=False)
    at: int = big_column()
    line: str | None = text_column(marks.COSIGNATURES, null=True)
    """The witness's cosignature. NULL for a channel."""


class LogWitnessRow(Table, table=True):
    """Witness of the log, identified by its verifier key."""

    __tablename__ = "log_witnesses"
    __table_args__ = CLUSTERED
    witness: str = text_column(marks.WITNESSES, primary=True)
    size: int = big_column()
    """Size of the largest checkpoint that the witness cosigned."""
    cosigned_at: int | None = big_column(null=True)
    next_at: int = big_column()
    """Time of the next request to the witness."""
    failures: int = big_column()
    since: int | None = big_column(null=True)
    """Time since which the witness has not cosigned, or NULL."""
    problem: str | None = text_column(marks.WITNESSES, null=True)
    """Reason for missing cosignatures, or NULL."""


class UnsealedRow(Table, table=True):
    """Ids of rows that are not sealed in the log yet. All these rows are of one kind and one
    transaction."""

    __tablename__ = "unsealed"
    __table_args__ = NUMBERED
    row: int | None = numbered_column()
    kind: str = text_column(marks.CODES)
    ids: str = text_column(marks.CODES)
    count: int = big_column()


class OrderKeyRow(Table, table=True):
    """Pseudonym of an order in the sealed log. An erasure sets `order_key` and `key` to NULL."""

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
    """HMAC-SHA256 of `order_key` under `key`."""
    leaves: int = big_column()
    """Number of the order's entries in the log."""
    last: int = big_column()
    """Number of the order's newest entry."""


class OrderTreeRow(Table, table=True):
    """Tree of all orders in the first `size` entries of the log, which holds its root.
    Append-only."""

    __tablename__ = "order_trees"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    at: int = big_column()
    size: int = big_column()
    orders: int = big_column()
    root: bytes = blob_column(marks.HASHES, null=False)


class OrderStateRow(Table, table=True):
    """Number of an order's entries among the log's first `size` entries, and the newest.
    Append-only.

    Stored only if the order has new entries since the previous tree of orders.
    """

    __tablename__ = "order_states"
    __table_args__ = CLUSTERED
    commitment: bytes = blob_column(marks.COMMITMENT, primary=True)
    size: int = big_column(primary=True)
    leaves: int = big_column()
    last: int = big_column()


class OrderNodeRow(Table, table=True):
    """Node of the tree of all orders in the log's first `size` entries. Append-only.

    The node hashes the orders whose commitments begin with the first `level` bits of `place`. It is
    stored only if it has changed.
    """

    __tablename__ = "order_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    size: int = big_column(primary=True)
    hash: bytes = blob_column(marks.HASHES, null=False)


class UnansweredRow(Table, table=True):
    """Request for a payment session that got no answer. `request` has the bytes that are sent again
    with the idempotency key `key`."""

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
    """Notification of the shop about one change of an order's ledger."""

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
    """Time of the next try. NULL at the end."""
    tries: int = big_column()
    delivered_at: int | None = big_column(null=True)
    """NULL unless it was delivered."""
    problem: str | None = text_column(marks.not_personal("words of ours"), null=True)


class DestinationAwayRow(Table, table=True):
    """Address to which the last notification could not be delivered."""

    __tablename__ = "destinations_away"
    __table_args__ = CLUSTERED
    destination: str = text_column(marks.DESTINATION, primary=True)
    """Digest of the address, which can contain a credential."""
    since: int = big_column()
    failures: int = big_column()
    probe_at: int = big_column()
    problem: str = text_column(marks.DESTINATION)
    only_seq: int | None = big_column(null=True)
    """Number of the only notification that failed, if one. Others are still sent."""


class PhoneRow(Table, table=True):
    """Keyed digest that links a customer's phone number, address, name or card to an order or
    delivery."""

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
    """Line of the erasure journal that was carried out on this database. Rows are never changed or
    deleted."""

    __tablename__ = "erasures"
    __table_args__ = CLUSTERED
    journal: str = text_column(marks.KEYED_DIGESTS, primary=True)
    number: int = big_column(primary=True)
    line: str = text_column(marks.KEYED_DIGESTS)


class PendingErasureRow(Table, table=True):
    """Line of the erasure journal that is not carried out yet."""

    __tablename__ = "pending_erasures"
    __table_args__ = CLUSTERED
    number: int = big_column(primary=True)
    """Number of the line in the journal."""
    since: int = big_column()
    """Time since which it waits."""
    why: str = text_column(marks.CODES)
    """Code of the reason. May be empty."""


class RestrictionRow(Table, table=True):
    """Order, delivery, file or bank line whose data an erasure may not delete yet."""

    __tablename__ = "restrictions"
    __table_args__ = CLUSTERED
    kind: str = text_column(marks.CODES, primary=True)
    thing: str = text_column(marks.REFERENCE, primary=True)
    since: int = big_column()
    until: int | None = big_column(null=True)
    """End of the restriction. NULL if unknown."""
    why: str = text_column(marks.CODES)
    """Code of the reason."""
    look_at: int = big_column()
    """Time at which the reason is checked again."""
    erasure: int = big_column()
    """Number of the last erasure that set the restriction."""


class TokenRow(Table, table=True):
    """Token for commands and the API, stored as its SHA-256."""

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("hash"), STRICT)
    name: str = text_column(marks.STAFF, primary=True)
    hash: str = text_column(marks.CODES)
    created_at: int = big_column()
    revoked_at: int | None = big_column(null=True)
    scopes: str = text_column(marks.CODES, default="''")
    """Permissions, separated by blanks."""
    until: int | None = big_column(null=True)
    """Expiry."""
    operator: str | None = text_column(marks.STAFF, null=True)
    """Owner of a personal token. NULL for a program's."""


class SignoffRow(Table, table=True):
    """Sign-off of one item of the go-live checklist, by a person or an automatic check. Rows are
    never changed or deleted."""

    __tablename__ = "signoffs"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    item: str = text_column(marks.CODES)
    state: str = text_column(marks.CODES)
    at: int = big_column()
    signer: str = text_column(marks.STAFF)
    note: str = text_column(marks.TRAIL_WORDS)


class GapRow(Table, table=True):
    """Time span in which evidence may be missing, accepted by a person. Append-only."""

    __tablename__ = "gaps"
    __table_args__ = STRICT
    id: str = text_column(marks.CODES, primary=True)
    kind: str = text_column(marks.CODES)
    since: int = big_column()
    until: int = big_column()
    deliveries: int | None = big_column(null=True)
    """Maximum number of lost deliveries. NULL if unknown."""
    detail: str = text_column(marks.PROBLEM)
    accepted_at: int = big_column()
    accepted_by: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)


class OperatorRow(Table, table=True):
    """Operator: a person with a role."""

    __tablename__ = "operators"
    __table_args__ = (UniqueConstraint("company"), CLUSTERED)
    name: str = text_column(marks.STAFF, primary=True)
    role: str = text_column(marks.STAFF)
    created_at: int = big_column()
    disabled_at: int | None = big_column(null=True)
    company: str | None = text_column(marks.STAFF, null=True)
    """Issuer and subject of the person's company account, or NULL."""


class CredentialRow(Table, table=True):
    """An operator's password as an Argon2id hash, and secret for one-time codes in Base32."""

    __tablename__ = "credentials"
    __table_args__ = CLUSTERED
    name: str = text_column(marks.STAFF, primary=True)
    password: str = text_column(marks.CREDENTIALS)
    totp: str | None = text_column(marks.CREDENTIALS, null=True)
    totp_step: int | None = big_column(null=True)
    """The last used time step."""
    set_at: int = big_column()


class PasskeyRow(Table, table=True):
    """An operator's passkey."""

    __tablename__ = "passkeys"
    __table_args__ = (Index("ix_passkeys_name", "name"), CLUSTERED)
    id: str = text_column(marks.CREDENTIALS, primary=True)
    """Id of the credential, in base64url."""
    name: str = text_column(marks.STAFF)
    label: str = text_column(marks.STAFF)
    """The operator's name for it."""
    public_key: bytes = blob_column(marks.CREDENTIALS, null=False)
    """Public key in the COSE format."""
    sign_count: int = big_column()
    """Counter at the last signature."""
    made_at: int = big_column()
    used_at: int | None = big_column(null=True)


class InvitationRow(Table, table=True):
    """Link that works once, stored as its SHA-256."""

    __tablename__ = "invitations"
    __table_args__ = (Index("ix_invitations_name", "name"), CLUSTERED)
    hash: str = text_column(marks.CODES, primary=True)
    kind: str = text_column(marks.CODES)
    """`invite` to set a password; `enter` to begin a session."""
    name: str = text_column(marks.STAFF)
    made_at: int = big_column()
    until: int = big_column()
    used_at: int | None = big_column(null=True)
    totp: str | None = text_column(marks.CODES, null=True)
    """Secret for one-time codes that is shown to the person."""


class SessionRow(Table, table=True):
    """Session in the console, stored under the SHA-256 of its cookie."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_name", "name"), CLUSTERED)
    hash: str = text_column(marks.CODES, primary=True)
    name: str = text_column(marks.STAFF)
    created_at: int = big_column()
    used_at: int = big_column()
    until: int = big_column()
    revoked_at: int | None = big_column(null=True)
    way: str = text_column(marks.CODES)
    """Way in which it began."""
    proved_at: int = big_column()
    """Time of the last proof of identity."""


class UsedFormRow(Table, table=True):
    """Form of the console that was submitted. A second submission does nothing."""

    __tablename__ = "used_forms"
    __table_args__ = (Index("ix_used_forms_at", "at"), CLUSTERED)
    id: str = text_column(marks.CODES, primary=True)
    at: int = big_column()


class ProposalRow(Table, table=True):
    """Act that an operator proposed and a second person must approve. Append-only."""

    __tablename__ = "proposals"
    __table_args__ = (Index("ix_proposals_until", "until"), CLUSTERED)
    id: str = text_column(marks.CODES, primary=True)
    kind: str = text_column(marks.CODES)
    subject: str = text_column(marks.REFERENCE)
    sentence: str = text_column(marks.REFERENCE)
    given: str = text_column(marks.REFERENCE)
    """Parameters of the act, as JSON."""
    state: str = text_column(marks.CODES)
    """Description of the subject at the time of the proposal."""
    who: str = text_column(marks.STAFF)
    role: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)
    at: int = big_column()
    until: int = big_column()
    """Time at which the proposal expires."""


class ProposalDecisionRow(Table, table=True):
    """Decision about a proposal: approved, rejected or withdrawn. Rows are never changed or
    deleted."""

    __tablename__ = "proposal_decisions"
    __table_args__ = CLUSTERED
    proposal: str = text_column(marks.REFERENCE, primary=True)
    decision: str = text_column(marks.CODES)
    who: str = text_column(marks.STAFF)
    role: str = text_column(marks.STAFF)
    reason: str = text_column(marks.TRAIL_WORDS)
    at: int = big_column()


class BookmarkRow(Table, table=True):
    """An operator's private bookmark: an order, or a list with its filters."""

    __tablename__ = "bookmarks"
    __table_args__ = CLUSTERED
    operator: str = text_column(marks.STAFF, primary=True)
    kind: str = text_column(marks.CODES, primary=True)
    """`order`, or the name of the list's page."""
    label: str = text_column(marks.OWN_NOTES, primary=True)
    """The order's reference, or the list's name."""
    query: str = text_column(marks.OWN_NOTES)
    """The list's filters as a query string."""
    at: int = big_column()


class AlarmOwnerRow(Table, table=True):
    """Operator who works on an alarm, and the state of the work. The row is deleted with the
    alarm."""

    __tablename__ = "alarm_owners"
    __table_args__ = CLUSTERED
    alarm: str = text_column(marks.CODES, primary=True)
    reason: str = text_column(marks.ALARM_WORDS)
    owner: str = text_column(marks.STAFF)
    state: str = text_column(marks.CODES)
    at: int = big_column()


class AlarmMessageRow(Table, table=True):
    """Message about an alarm on one channel. The row is deleted after the channel has reported the
    end of the alarm."""

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
    """An operator's choice of notices."""

    __tablename__ = "notice_choices"
    __table_args__ = CLUSTERED
    operator: str = text_column(marks.STAFF, primary=True)
    pace: str = text_column(marks.CODES)
    way: str = text_column(marks.CODES)
    address: str | None = text_column(marks.STAFF_ADDRESS, null=True)
    position: int = big_column()
    """Number of the last audit entry that was sent."""
    due_at: int = big_column()
    """Time of the next look for new entries."""
    tries: int = big_column()


class AuditRow(Table, table=True):
    """Act of a person, with its subject and reason. Append-only, numbered without gaps."""

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
    """File attached to an order or a break. Only `details` and `gone_at` are ever changed."""

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
    """The order; "" for a break without an order."""
    kind: str = text_column(marks.CODES)
    media: str = text_column(marks.CODES)
    sha256: str = text_column(marks.CODES)
    size: int = big_column()
    who: str = text_column(marks.STAFF)
    at: int = big_column()
    deed: int = big_column()
    """Number of the audit entry that seals the file."""
    details: str | None = text_column(
        marks.personal("a file's name and description", erased="emptied"), null=True
    )
    """Personal data as JSON, until erased."""
    gone_at: int | None = big_column(null=True)
    """Time at which the file was detached or erased."""


class AttachmentFileRow(Table, table=True):
    """Bytes of an attached file, stored under their digest. The row is deleted with the last
    attachment that uses it."""

    __tablename__ = "attachment_files"
    __table_args__ = STRICT
    sha256: str = text_column(marks.CODES_DELETED, primary=True)
    body: bytes = blob_column(
        marks.personal("files that people attached to the order", erased="deleted"), null=False
    )
