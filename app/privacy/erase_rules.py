"""Decide which data of an order an erasure can delete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from app.config.settings import Settings
from app.database.engine import Connection
from app.database.marks import GROUNDS
from app.finance.book_line_store import book_rows_of
from app.receiving.restrictions import REASONS, Kind
from app.receiving.unread import WINDOW
from reconcile.instants import DAY, EARLIEST, Duration, Instant, format_instant
from reconcile.ledger.fold import FINAL, is_disputed, is_window_open, last_heard
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import match_key
from reconcile.matching.causes import BreakCause

if TYPE_CHECKING:
    from app.finance.break_acts import SeenBreak

Why = Literal[
    "accounts",
    "disputable",
    "unallocated",
    "not_over",
    "revocable",
    "disputed",
    "to_settle",
    "shared",
    "minimum",
    "refused",
    "unread",
    "beside_unread",
    "in_the_reference",
    "set_aside",
    "changed",
]

SENTENCES: Final[Mapping[Why, str]] = {
    "accounts": "books must be kept by law: TALLYHOOK_RETENTION_ACCOUNTS_DAYS keeps this until {}",
    "disputable": "its payment can be disputed: TALLYHOOK_RETENTION_DISPUTES_DAYS keeps this "
    "until {}",
    "unallocated": (
        "its payment has no order: assign or dismiss the payment (`tallyhook unallocated "
        "list`); TALLYHOOK_RETENTION_UNALLOCATED_DAYS keeps this until {}"
    ),
    "not_over": "its payment is not over ({})",
    "revocable": "the customer can revoke its payment until {}",
    "disputed": "its payment is disputed; wait for the provider's decision",
    "to_settle": "a person must settle it first ({}): {}",
    "shared": "it shares events with another order: a person must say to which order the events "
    "belong",
    "minimum": "TALLYHOOK_RETENTION_MINIMUM_DAYS keeps it until {}",
    "refused": "it was refused but may be about a payment: correct the secret or the profile, run "
    "`tallyhook deliveries reverify` and try again; otherwise it can be deleted {}",
    "unread": "it could not be read but may be about a payment: correct the profile, run "
    "`tallyhook reindex` and try again; otherwise it can be deleted {}",
    "beside_unread": "the request that delivered it holds an event that could not be read yet "
    "({}): correct the profile, run `tallyhook reindex` and try again",
    "in_the_reference": "its reference contains the number or address: ledgers are kept",
    "set_aside": "it was accepted but could not be read: see the log, run `tallyhook deliveries "
    "poisoned --retry`, and try again",
    "changed": "new data about it arrived in the meantime: try again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptData:
    """Data that is kept, with the reason."""

    what: str
    why: Why
    detail: str = ""
    """Fact about the reason, or empty."""
    do: str = ""
    """Act by which a person can remove the reason, or empty."""
    until: Instant | None = None
    kind: Kind | None = "order"

    @property
    def sentence(self) -> str:
        shown = self.detail if self.until is None else format_instant(self.until)
        return SENTENCES[self.why].format(shown, self.do)

    @property
    def restricted_words(self) -> str:
        """Return a phrase that states the end of the restriction and its legal ground."""
        ground = GROUNDS[REASONS[self.why].ground]
        if self.why == "in_the_reference":
            return f"hidden from searches permanently ({ground})"
        until = "that ends" if self.until is None else format_instant(self.until)
        return f"hidden from searches until {until}, then erased automatically ({ground})"


NO_TIME: Final = Duration(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """Periods for which an erasure keeps data."""

    minimum: Duration = NO_TIME
    """Time that all data are kept, since the last change."""
    accounts: Duration = NO_TIME
    """Time that bookkeeping data are kept, since the last evidence or booking."""
    disputes: Duration = NO_TIME
    """Time that disputable data are kept, since the order's last capture."""
    unallocated: Duration = NO_TIME
    """Time that an unallocated payment's payer is kept, since the arrival."""


def periods_of(settings: Settings) -> Periods:
    return Periods(
        minimum=Duration(settings.retention_minimum_days * DAY),
        accounts=Duration(settings.retention_accounts_days * DAY),
        disputes=Duration(settings.retention_disputes_days * DAY),
        unallocated=Duration(settings.retention_unallocated_days * DAY),
    )


def disputable_until(ledger: Ledger, disputes: Duration) -> Instant | None:
    """Return the end of an order's dispute period, if any."""
    captures = [entry.at for entry in ledger.entries if entry.kind == "captured"]
    until = max(captures, default=EARLIEST) + disputes
    return Instant(until) if captures and ledger.as_of < until else None


def kept_order(
    history: History, ledger: Ledger, periods: Periods, *, to_do: Sequence[str] = ()
) -> KeptData | None:
    """Return the reason to keep an order, or None."""
    order = history.order
    if is_disputed(ledger):
        return KeptData(what=order, why="disputed")
    if to_do:
        detail = ", ".join(errors_of(ledger)) or ledger.outcome
        do = f"{'; '.join(to_do)}. Then try again"
        return KeptData(what=order, why="to_settle", detail=detail, do=do)
    over = ledger.outcome == "unresolved" or ledger.outcome in FINAL
    if not over or ledger.next_decision_at is not None or ledger.window.expected_by is not None:
        return KeptData(what=order, why="not_over", detail=ledger.outcome)
    if is_window_open(ledger):
        return KeptData(what=order, why="revocable", until=ledger.window.revocable_until)
    if ledger.case.foreign or ledger.case.moved or ledger.case.foreign_records:
        return KeptData(what=order, why="shared")
    until = disputable_until(ledger, periods.disputes)
    if until is not None:
        return KeptData(what=order, why="disputable", until=until)
    return kept_since(order, last_heard(history), periods.minimum, as_of=ledger.as_of)


LOOK_AGAIN: Final[Duration] = DAY
"""Time until an open-ended restriction is judged again."""

LOOK_AT_BOOKS: Final[Duration] = Duration(30 * DAY)
"""Time until an order kept only for accounting is judged again."""


def next_look(now: Instant, why: str, until: Instant | None) -> Instant:
    """Return when a restriction must be judged again."""
    if why in ("accounts", "in_the_reference"):
        later = Instant(now + LOOK_AT_BOOKS)
        return later if until is None else min(until, later)
    return Instant(now + LOOK_AGAIN) if until is None else until


ToSettle = FindingCode | Literal["unresolved"]

_AMOUNT: Final = frozenset[BreakCause](
    {"unresolved", "payment_in_doubt", "amount_differs", "off_by_minor_unit", "currency_differs"}
)

SETTLED_BY: Final[Mapping[ToSettle, frozenset[BreakCause]]] = {
    "unresolved": _AMOUNT,
    "same_id_different_body": _AMOUNT,
    "conflicting_amounts": _AMOUNT,
    "amount_mismatch": _AMOUNT,
    "amount_off_by_minor_unit": _AMOUNT,
    "currency_mismatch": _AMOUNT,
    "refund_exceeds_capture": _AMOUNT,
    "paid_twice": frozenset({"paid_twice"}),
    "overpaid": frozenset({"overpaid"}),
    "other_currency_received": frozenset({"overpaid", "currency_differs"}),
    "paid_after_cancel": frozenset({"late_money", "paid_twice", "overpaid"}),
    "fulfilled_but_not_paid": frozenset({"book_paid_not_received"}),
}

OTHERWISE: Final[Mapping[ToSettle, str]] = {
    "held_back": "find out why it is held, then `tallyhook orders release {}`",
    "unread_money_event": "name the event's kind in the source's profile, then `tallyhook reindex`",
}


def errors_of(ledger: Ledger) -> list[FindingCode]:
    """Return an order's errors that a person must settle."""
    return sorted({each.code for each in ledger.findings if each.severity == "error"})


def to_settle(ledger: Ledger) -> list[ToSettle]:
    """Return the errors and outcome that a person must settle."""
    errors: list[ToSettle] = [*errors_of(ledger)]
    return [*errors, "unresolved"] if ledger.outcome == "unresolved" else errors


async def left_to_settle(connection: Connection, history: History, ledger: Ledger) -> list[str]:
    """Return the steps before an order's erasure, with commands."""
    codes, order = to_settle(ledger), history.order
    if not codes:
        return []
    # A worker, which only looks for pending erasures, would load all of matching.
    from app.finance.break_acts import breaks_since

    seen = await breaks_since(connection, order, since=last_heard(history))
    booked = await book_rows_of(connection, [match_key(order)], as_of=ledger.as_of)
    steps = [do for code in codes for do in steps_for(code, seen, order, booked=bool(booked))]
    return list(dict.fromkeys(steps))


def steps_for(
    code: ToSettle, seen: "Sequence[SeenBreak] | None", order: str, *, booked: bool
) -> list[str]:
    """Return the steps that settle a finding, with the commands."""
    if code in OTHERWISE:
        return [OTHERWISE[code].format(order)]
    if seen is None:
        return [
            "`tallyhook reconcile run`, then `tallyhook breaks accept ID --reason WHY` for each "
            "break of it in `tallyhook breaks list`"]  # fmt: skip
    about = [
        each for each in seen if each.seen.cause in SETTLED_BY[code] and each.life.state != "closed"
    ]
    waiting = sorted(each.identity for each in about if each.life.state != "accepted")
    if waiting:
        return [f"settle its break, then run `tallyhook breaks accept {each} --reason WHY`"
                for each in waiting]  # fmt: skip
    if not about and (code == "fulfilled_but_not_paid" or not booked):
        return [
            "import an order book that states its result (`tallyhook records import`), then "
            "`tallyhook reconcile run`, and accept its break if there is one"]  # fmt: skip
    return []


def kept_since(what: str, last: Instant, minimum: Duration, *, as_of: Instant) -> KeptData | None:
    """Return why data must stay for some time after their last change, or None."""
    if as_of < last + minimum:
        return KeptData(what=what, why="minimum", until=last + minimum)
    return None


def kept_unknown(
    what: str,
    received: Instant,
    minimum: Duration,
    *,
    why: Literal["refused", "unread"],
    beside: str | None,
    as_of: Instant,
) -> KeptData | None:
    """Return the reason to keep a delivery without a ledger."""
    if beside is not None:
        return KeptData(what=what, why=why, detail=f"with {beside}")
    if as_of < received + WINDOW:
        until = received + max(WINDOW, minimum)
        return KeptData(what=what, why=why, detail=f"after {format_instant(until)}")
    return kept_since(what, received, minimum, as_of=as_of)
