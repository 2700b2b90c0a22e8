"""Every place where text from outside is stored: whether it is personal, and what an erasure does.

Leaves out: how it is done (`erase_finding`). The tables of the database are the whole of it but for
the files beside them; a column that is not listed here fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Mark = Literal["personal", "possibly_personal", "not"]
"""Whether a customer's number, name or address stands there: always or by design, where somebody
wrote it there, or never."""

Effect = Literal["deleted", "emptied", "kept"]
"""What an erasure does there: the row goes; the row stays without what is personal; nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One column of a table, or one file.

    where   `table.column`, or the file's name
    why     why it is marked so
    effect  what an erasure does; `because`: why what is kept is kept, empty where it is not
    """

    where: str
    mark: Mark
    why: str
    effect: Effect
    because: str = ""

    @property
    def effect_words(self) -> str:
        """What an erasure does there, in words."""
        return f"kept because {self.because}" if self.because else self.effect


_REFERENCE: Final = "a reference, which somebody may have made of a number"


def _of(
    table: str, columns: str, mark: Mark, why: str, effect: Effect, because: str = ""
) -> tuple[Place, ...]:
    return tuple(
        Place(where=f"{table}.{column}", mark=mark, why=why, effect=effect, because=because)
        for column in columns.split()
    )


def _plain(table: str, columns: str, why: str) -> tuple[Place, ...]:
    """Columns of which no text of a customer's can be a part."""
    return _of(table, columns, "not", why, "kept", "nothing personal is in it")


def _staff(table: str, columns: str) -> tuple[Place, ...]:
    return _of(
        table, columns, "not", "names people who work here, and programs", "kept",
        "it says who did what",
    )  # fmt: skip


def _reference(table: str, columns: str) -> tuple[Place, ...]:
    return _of(
        table, columns, "possibly_personal", _REFERENCE, "kept",
        "ledgers, books and proofs are found by it",
    )  # fmt: skip


def _words(table: str, columns: str, because: str) -> tuple[Place, ...]:
    return _of(
        table, columns, "possibly_personal", "words of a person who works here",
        "kept", because,
    )  # fmt: skip


_CODES: Final = "ids, codes and digests"
_SENTENCE: Final = "a sentence of ours without text of the body"
_TRAIL: Final = "the trail says for ever who did what, and why"
_PROVED: Final = "a closed month is proved by it"

PLACES: Final[tuple[Place, ...]] = (
    *_plain("alarm_messages", "alarm way", _CODES),
    *_plain("alarm_messages", "reason sentence", "words of ours; it goes with the alarm"),
    *_plain("alarm_owners", "alarm state", _CODES),
    *_staff("alarm_owners", "owner"),
    *_plain("alarm_owners", "reason", "words of ours; it goes with the alarm"),
    *_of("attachment_files", "sha256", "not", _CODES, "deleted"),
    *_of("attachment_files", "body", "personal", "what people attached to the order", "deleted"),
    *_plain("attachments", "id about kind media sha256", _CODES),
    *_reference("attachments", "subject order_key"),
    *_staff("attachments", "who"),
    *_of(
        "attachments", "details", "personal", "a file's name, and what was said of it", "emptied",
    ),
    *_plain("arrivals", "source", "names of the settings"),
    *_staff("audit", "who role"),
    *_plain("audit", "action facts", "codes and counts"),
    *_reference("audit", "subject"),
    *_words("audit", "reason", _TRAIL),
    *_plain("bank_lines", "subject line currency", _CODES),
    *_plain("bank_lines", "account", "the merchant's own account"),
    *_of(
        "bank_lines", "entry reference counterparty told", "possibly_personal",
        "what the bank states of who paid", "emptied",
    ),
    *_plain("book_lines", "line kind currency status", _CODES),
    *_reference("book_lines", "match_key reference group_key"),
    *_of(
        "book_lines", "group_name", "possibly_personal", "a reference of the shop's own", "kept",
        "payments are matched by it, and " + _PROVED,
    ),
    *_of("book_lines", "phone", "personal", "the customer's number", "emptied"),
    *_staff("bookmarks", "operator"),
    *_plain("bookmarks", "kind", _CODES),
    *_of(
        "bookmarks", "label query", "possibly_personal", "what an operator keeps for themselves",
        "kept", "it is theirs, who can take it away",
    ),
    *_plain("break_deeds", "break_id deed currency", _CODES),
    *_staff("break_deeds", "who second"),
    *_reference("break_deeds", "value"),
    *_words("break_deeds", "reason", _TRAIL),
    *_plain("break_seen", "break_id", _CODES),
    *_plain("break_turns", "break_id turn", _CODES),
    *_reference("break_turns", "cites"),
    *_plain("break_versions", "break_id digest currency", _CODES),
    *_reference("break_versions", "seen"),
    *_plain("breaks", "id cause", _CODES),
    *_reference("breaks", "order_ref payment subject"),
    *_plain("closing_prints", "period format", _CODES),
    *_of(
        "closing_prints", "content", "possibly_personal", "holds references", "kept",
        "it is the closed month's report as it was printed",
    ),
    *_plain("closings", "period digest", _CODES),
    *_staff("closings", "who"),
    *_of(
        "closings", "document", "possibly_personal", "holds references", "kept", _PROVED,
    ),
    *_plain("confirmations", "source digest", _CODES),
    *_reference("confirmations", "event_id"),
    *_reference("contested", "order_key other"),
    *_plain("counters", "name", "names of ours"),
    *_staff("credentials", "name"),
    *_plain("credentials", "password totp", "of operators, and no customers"),
    *_plain("deliveries", "id source verdict digest envelope", _CODES),
    *_reference("deliveries", "event_id"),
    *_of(
        "deliveries", "headers body", "personal", "what arrived, as it came", "emptied",
    ),
    *_plain("deliveries", "problem", _SENTENCE),
    *_plain("destinations_away", "destination problem", "a digest, and words of ours"),
    *_plain("envelopes", "digest", _CODES),
    *_of("envelopes", "body", "personal", "what arrived, as it came", "emptied"),
    *_plain("erasures", "journal line", "keyed digests: nobody is learned without the key"),
    *_plain(
        "events", "source digest delivery_id claim currency order_currency standing "
        "refunded_currency", _CODES,
    ),
    *_reference("events", "order_key event_id kind order_ref session payment movement capture"),
    *_of(
        "events", "reason", "possibly_personal",
        "the provider's words for a failure; of what may be a phone number the last digits alone",
        "emptied",
    ),
    *_plain("imports", "kind sha256", _CODES),
    *_of(
        "imports", "file", "possibly_personal", "the name of the merchant's file", "kept",
        "it says where lines came from",
    ),
    *_staff("imports", "who"),
    *_words("imports", "reason", _PROVED),
    *_of("inbox", "records", "personal", "what arrived, until it is read", "deleted"),
    *_plain("invitations", "hash kind totp", _CODES),
    *_staff("invitations", "name"),
    *_plain("ledgers", "outcome findings rules", _CODES),
    *_reference("ledgers", "order_key substance"),
    *_reference("links", "reference order_key"),
    *_plain("links", "kind source", _CODES),
    *_plain("log_checkpoints", "head note", "hashes and signatures"),
    *_plain("log_departures", "way head line", "hashes, signatures, and names of witnesses"),
    *_plain("log_keys", "public endorsement", "the merchant's public keys"),
    *_plain("log_leaves", "kind hash", _CODES),
    *_reference("log_leaves", "subject"),
    *_of(
        "log_leaves", "document", "possibly_personal", "holds references, and reasons of records",
        "kept", "the sealed log would no longer verify",
    ),
    *_plain("log_nodes", "hash", "hashes"),
    *_plain("log_witnesses", "witness problem", "names of witnesses, and codes"),
    *_staff("match_rules", "who"),
    *_plain("match_rules", "digest toml", "the merchant's own rules"),
    *_plain("meta", "name value", "facts of the database"),
    *_reference("notifications", "order_key"),
    *_plain("notifications", "problem", "words of ours"),
    *_staff("operators", "name role"),
    *_reference("order_due", "order_key"),
    *_plain("order_nodes", "hash", "hashes"),
    *_plain("order_states", "commitment", "says nothing without the key"),
    *_plain("order_trees", "root", "hashes"),
    *_plain("order_keys", "commitment", "says nothing without the key"),
    *_of("order_keys", "order_key", "possibly_personal", _REFERENCE, "emptied"),
    *_of(
        "order_keys", "key", "possibly_personal",
        "says which order leaves of the log name, whose reference may be made of a number",
        "emptied",
    ),
    *_plain("order_listings", "word", _CODES),
    *_reference("order_listings", "order_key"),
    *_of("phones", "digest", "personal", "the keyed digest of a number", "deleted"),
    *_of("phones", "kind thing", "personal", "whose number it is", "deleted"),
    *_reference("proposal_decisions", "proposal"),
    *_plain("proposal_decisions", "decision", _CODES),
    *_staff("proposal_decisions", "who role"),
    *_words("proposal_decisions", "reason", _TRAIL),
    *_plain("proposals", "id kind state", _CODES),
    *_reference("proposals", "subject sentence given"),
    *_staff("proposals", "who role"),
    *_words("proposals", "reason", _TRAIL),
    *_plain("records", "id kind currency source key", _CODES),
    *_reference("records", "order_key session payment"),
    *_of(
        "records", "reason", "possibly_personal",
        "the shop's words, or the payment service's without the customer's number", "kept",
        "it is sealed",
    ),
    *_of(
        "records", "details", "possibly_personal",
        "what was asked for and answered, without the customer's number", "kept", "it is sealed",
    ),
    *_staff("records", "author"),
    *_of("rejections", "id source verdict digest", "not", _CODES, "deleted"),
    *_of("rejections", "headers body", "personal", "what was refused, as it came", "deleted"),
    *_of("rejections", "problem", "not", _SENTENCE, "deleted"),
    *_plain("revisions", "outcome before_outcome", _CODES),
    *_reference("revisions", "order_key substance"),
    *_of(
        "revisions", "because", "possibly_personal",
        "cites references, and reasons of events and records", "kept", "it is sealed and published",
    ),
    *_of(
        "runs", "result", "possibly_personal", "cites references", "kept",
        "it says what was found then",
    ),
    *_plain("scheduled_runs", "name cron state", _CODES),
    *_plain("scheduled_runs", "problem delivered", "words of ours, and addresses of the settings"),
    *_plain("sessions", "hash", _CODES),
    *_staff("sessions", "name"),
    *_plain("signoffs", "item state", _CODES),
    *_staff("signoffs", "signer"),
    *_words("signoffs", "note", _TRAIL),
    *_plain("statement_lines", "kind source line currency", _CODES),
    *_reference("statement_lines", "subject match_key payment order_ref payout"),
    *_of(
        "suspects", "orders record", "personal", "what arrived and could not be read", "kept",
        "it may be about a payment: `deliveries poisoned --retry` has it read, and it goes then",
    ),
    *_reference("takings", "key order_key payment cite told"),
    *_plain("takings", "currency source", _CODES),
    *_staff("tokens", "name operator"),
    *_plain("tokens", "hash scopes", _CODES),
    *_of("unanswered", "key", "not", _CODES, "deleted"),
    *_of("unanswered", "order_key", "possibly_personal", _REFERENCE, "deleted"),
    *_of("unanswered", "request", "personal", "what is asked of the payment service", "deleted"),
    *_plain("unsealed", "kind", _CODES),
    *_reference("unsealed", "ids"),
    *_plain("used_forms", "id", _CODES),
)  # fmt: skip
"""Every column of every table that holds a text or bytes, by table."""

FILES: Final[tuple[Place, ...]] = (
    Place(
        where="<database>.inbox",
        mark="personal",
        why="the tables inbox and suspects, where SQLite is the database",
        effect="deleted",
    ),
    Place(
        where="the logs of both (-wal)",
        mark="personal",
        why="rows as they were written",
        effect="emptied",
    ),
    Place(
        where="<database>.erasures",
        mark="not",
        why="keyed digests",
        effect="kept",
        because="a backup does not know who was erased after it",
    ),
    Place(
        where="*.erasures.key, *.phone.key, *.evidence.key",
        mark="not",
        why="random",
        effect="kept",
        because="nothing personal is in it",
    ),
    Place(
        where="log lines and metrics",
        mark="possibly_personal",
        why="ids, references, sources and verdicts; no number, no name and no body",
        effect="kept",
        because="an erasure does not reach them: how long they are kept is the machine's business",
    ),
    Place(
        where="backups",
        mark="personal",
        why="a whole database of an earlier day",
        effect="kept",
        because="an erasure does not reach them: a restore erases again, by the journal",
    ),
    Place(
        where="evidence bundles, letters and reports that were taken",
        mark="possibly_personal",
        why="redacted ones have references, those in full have bodies",
        effect="kept",
        because="an erasure does not reach them: who took one stands in the trail",
    ),
)
"""What lies beside the database, or was taken out of it."""

EVERY: Final = (*PLACES, *FILES)

_MARKS: Final[tuple[Mark, ...]] = ("personal", "possibly_personal", "not")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPlace:
    """What one erasure did in one place.

    went   rows or texts that went, or would go; `stays`: that hold the number still
    why    why those stay; empty where none does
    """

    where: str
    went: int
    stays: int
    why: str

    def document(self) -> dict[str, str | int]:
        """For JSON."""
        return {"place": self.where, "went": self.went, "stays": self.stays, "why": self.why}


WAITS: Final = "what it is of is listed as kept, with its own reason"
"""Of what stays for now, in a place that an erasure empties."""


def reported_places(
    went: Mapping[str, int], *, stays: Mapping[str, int], waits: Mapping[str, int]
) -> list[ReportedPlace]:
    """One erasure by place, in the order of the list, without the places that it did not touch.

    stays  texts that are kept for good; `waits`: that are kept for now
    """
    rows = []
    for each in PLACES:
        kept = stays.get(each.where, 0), waits.get(each.where, 0)
        if went.get(each.where) or any(kept):
            why = WAITS if kept[1] else each.because if kept[0] else ""
            rows.append(
                ReportedPlace(
                    where=each.where, went=went.get(each.where, 0), stays=sum(kept), why=why
                )
            )
    return rows


def places_table() -> str:
    """The page's table, in Markdown: one row for what reads alike, what is personal first."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for each in sorted(EVERY, key=lambda each: _MARKS.index(each.mark)):
        rows.setdefault((each.mark, each.why, each.effect_words), []).append(each.where)
    lines = ["| personal | what | where | an erasure |", "|---|---|---|---|"]
    for (mark, why, effect), where in rows.items():
        shown = ", ".join(f"`{each}`" for each in where)
        lines.append(f"| {mark} | {why} | {shown} | {effect} |")
    return "\n".join(lines) + "\n"
