"""What people keep for themselves in the console, who has taken an alarm, messages about alarms to
whoever is called, and what the console's pages ask:
arrivals by minute, orders under their outcome and findings by their last revision, orders by when
something was published of them, deliveries of a source and of an unusual verdict, numbers in order
books, and who did what; and files that people attach to orders and breaks."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

COUNT_TAKEN: Final = sa.text(
    "INSERT INTO arrivals (minute, source, taken, refused) "
    "SELECT received_at / 60000000, source, count(*), 0 FROM deliveries "
    "WHERE received_at >= (SELECT max(received_at) FROM deliveries) - 7776000000000 "
    "GROUP BY received_at / 60000000, source"
)
"""Those of the last ninety days: what is older would be deleted at once."""

COUNT_REFUSED: Final = sa.text(
    "INSERT INTO arrivals (minute, source, taken, refused) "
    "SELECT minute, source, 0, count(*) FROM (SELECT received_at / 60000000 AS minute, "
    "CASE WHEN verdict = 'source_unknown' THEN '' ELSE source END AS source FROM rejections) "
    "AS kept WHERE 1 = 1 GROUP BY minute, source "
    "ON CONFLICT (minute, source) DO UPDATE SET refused = excluded.refused"
)
ORDERS: Final = sa.text(
    "SELECT order_key, outcome, findings, "
    "(SELECT max(seq) FROM revisions WHERE revisions.order_key = ledgers.order_key) AS seq "
    "FROM ledgers WHERE order_key > :after ORDER BY order_key LIMIT :at_once"
)
"""Some at a time: of a large table neither all rows nor one statement of them is in memory."""
WITH_PHONE: Final = sa.text("phone IS NOT NULL")
UNUSUAL: Final = sa.text("verdict <> 'stored'")
AT_ONCE: Final = 500
"""Orders in memory, and rows in a statement, which has at most 32,766 parameters."""


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False)


def _big(name: str, *, nullable: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=nullable)


def _table(
    name: str,
    keys: tuple[str, ...],
    *columns: sa.Column,  # type: ignore[type-arg]
    clustered: bool = True,
) -> sa.Table:
    return op.create_table(
        name,
        *columns,
        sa.PrimaryKeyConstraint(*keys, name=op.f(f"pk_{name}")),
        sqlite_strict=True,
        sqlite_with_rowid=not clustered,
    )


def _attachments() -> None:
    _table(
        "attachments",
        ("id",),
        *map(_text, ("id", "about", "subject", "order_key", "kind", "media", "sha256")),
        _big("size"),
        _text("who"),
        _big("at"),
        _big("deed"),
        sa.Column("details", TEXT, nullable=True),
        sa.Column("gone_at", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    )
    op.create_index("ix_attachments_order_key", "attachments", ["order_key", "id"])
    op.create_index("ix_attachments_subject", "attachments", ["subject", "id"])
    op.create_index("ix_attachments_sha256", "attachments", ["sha256"])
    body = sa.Column("body", sa.LargeBinary(), nullable=False)
    _table("attachment_files", ("sha256",), _text("sha256"), body, clustered=False)


def upgrade() -> None:
    _table(
        "bookmarks",
        ("operator", "kind", "label"),
        _text("operator"),
        _text("kind"),
        _text("label"),
        _text("query"),
        _big("at"),
    )
    _table(
        "alarm_owners",
        ("alarm",),
        _text("alarm"),
        _text("reason"),
        _text("owner"),
        _text("state"),
        _big("at"),
    )
    _table(
        "alarm_messages",
        ("alarm", "way"),
        _text("alarm"),
        _text("way"),
        _text("reason"),
        _text("sentence"),
        _big("raised_at"),
        _big("seen_at"),
        _big("over_at", nullable=True),
        _big("told_at", nullable=True),
        _big("tries"),
        _big("due_at"),
    )
    _table(
        "arrivals",
        ("minute", "source"),
        _big("minute"),
        _text("source"),
        _big("taken"),
        _big("refused"),
    )
    op.create_index("ix_arrivals_source", "arrivals", ["source", "minute"])
    listings = _table(
        "order_listings", ("word", "seq"), _text("word"), _big("seq"), _text("order_key")
    )
    op.create_index("ix_deliveries_source", "deliveries", ["source", "id"])
    op.create_index(
        "ix_deliveries_verdict",
        "deliveries",
        ["verdict", "id"],
        sqlite_where=UNUSUAL,
        postgresql_where=UNUSUAL,
    )
    op.create_index(
        "ix_book_lines_phone",
        "book_lines",
        ["phone"],
        sqlite_where=WITH_PHONE,
        postgresql_where=WITH_PHONE,
    )
    _attachments()
    op.create_index("ix_audit_action_number", "audit", ["action", "number"])
    op.create_index("ix_audit_who_number", "audit", ["who", "number"])
    op.drop_index("ix_revisions_outcome", table_name="revisions")
    op.create_index("ix_revisions_at", "revisions", ["at", "order_key"])
    connection = op.get_bind()
    connection.execute(COUNT_TAKEN)
    connection.execute(COUNT_REFUSED)
    after = ""
    while rows := connection.execute(ORDERS, {"after": after, "at_once": AT_ONCE}).all():
        listed = [each for row in rows if row.seq is not None for each in _listed(*row)]
        for start in range(0, len(listed), AT_ONCE):
            connection.execute(sa.insert(listings).values(listed[start : start + AT_ONCE]))
        after = rows[-1].order_key


def _listed(order: str, outcome: str, findings: str, seq: int) -> list[dict[str, object]]:
    words = [f"outcome {outcome}", *(f"finding {code}" for code in findings.split("|") if code)]
    return [{"word": word, "seq": seq, "order_key": order} for word in words]
