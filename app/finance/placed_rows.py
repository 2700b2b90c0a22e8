"""Return the rows in one bucket of a run."""

from collections import deque
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.jobs import silent
from app.finance.break_acts import finished_run
from app.finance.match_rules import rules_known
from app.finance.matching_store import in_step
from app.finance.reconcile_rows import known_in, last_decisions, snapshot_of
from reconcile.instants import Instant, format_known
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, Payout
from reconcile.matching.control import Bucket, Side
from reconcile.matching.funds import Capture, captures_of
from reconcile.matching.period import Period
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.matching.tally import KeepingTally
from reconcile.money import Money, to_json

MOST: Final = 10_000


async def placed_rows(
    context: AppContext, number: int, *, side: Side, bucket: Bucket, currency: str
) -> list[dict[str, Any]]:
    """Return up to MOST rows that a run put into a bucket. Raise UsageError for a run by a file of
    rules."""
    run = await finished_run(context, number)
    if run.rules is None:
        raise UsageError("this run used rules from a file that was not kept: start a new run")
    period = None
    if run.since is not None or run.until is not None:
        period = Period(since=run.since, until=run.until)
    async with snapshot_of(context, run.as_of, silent) as snapshot:
        rules = (await rules_known(snapshot.connection, as_of=run.as_of)).match
        known = await known_in(context, snapshot, as_of=run.as_of, rules=rules, period=period)
        leg = await snapshot.bank(known)
        if side in ("payouts", "bank"):
            return _of_bank(leg, period, side=side, bucket=bucket, currency=currency)
        keeping = KeepingTally(
            rules.currency, side=side, bucket=bucket, currency=currency, most=MOST
        )
        matching = known.matching(keeping=keeping)

        def work() -> None:
            deque(snapshot.merged(matching, known, progress=silent), maxlen=0)
            deque(last_decisions(matching, leg, period), maxlen=0)

        await in_step(snapshot.connection, work)
    return [_document(row, currency) for row in keeping.rows]


def _of_bank(
    leg: BankLeg | None, period: Period | None, *, side: Side, bucket: Bucket, currency: str
) -> list[dict[str, Any]]:
    placed = [] if leg is None else leg.placed(period)
    kind = Payout if side == "payouts" else BankLine
    return [
        _document(one, currency)
        for place, one in placed
        if place == bucket and isinstance(one, kind) and one.currency == currency
    ][:MOST]


def _document(
    row: TakingRow | BookRow | Capture | StatementRow | Payout | BankLine, currency: str
) -> dict[str, Any]:
    if isinstance(row, TakingRow):
        minor = sum([each.minor for each in captures_of(row) if each.currency == currency])
        return _row(row.order, order=row.order, minor=minor, currency=currency, at=row.at)
    if isinstance(row, BookRow):
        what = ", ".join([each for each in (row.status, row.method) if each])
        return _row(
            row.reference, order=row.reference, what=what, minor=row.minor, currency=currency,
            at=row.placed_at,
        )  # fmt: skip
    if isinstance(row, Capture):
        return _row(
            row.payment, order=row.order, payment=row.payment, what=row.source, minor=row.minor,
            currency=currency, at=row.at,
        )  # fmt: skip
    if isinstance(row, StatementRow):
        shown = _row(
            row.line_id, order=row.order, payment=row.payment, what=row.kind, minor=row.gross,
            currency=currency, at=row.settled_at,
        )  # fmt: skip
        return shown | {
            "fee": to_json(Money(minor=row.fee, currency=currency)),
            "net": to_json(Money(minor=row.net, currency=currency)),
        }
    if isinstance(row, Payout):
        return _row(
            row.payout_id, what=f"{row.source} {row.reference}".strip(), minor=row.minor,
            currency=currency, at=row.paid_at,
        )  # fmt: skip
    return _row(row.line_id, what=row.account, minor=row.minor, currency=currency, at=row.booked_at)


def _row(
    name: str,
    *,
    minor: int,
    currency: str,
    at: Instant | None,
    order: str | None = None,
    payment: str | None = None,
    what: str = "",
) -> dict[str, Any]:
    return {
        "name": name,
        "order": order,
        "payment": payment,
        "what": what,
        "amount": to_json(Money(minor=minor, currency=currency)) if currency else None,
        "fee": None,
        "net": None,
        "at": format_known(at),
    }
