"""What must be equal in a report, each with both its sides.

Leaves out: ties of what was matched, which come with its totals (`matching.control`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconcile.reporting.report import BANK_FLOWS, ControlRow, FlowRow, MoneyRow, Tie


def ties(
    *,
    flow: Sequence[FlowRow],
    control: Sequence[ControlRow],
    money: Sequence[MoneyRow],
) -> tuple[Tie, ...]:
    """Every equation of the period, by name, then by currency."""
    return (
        *_orders(flow),
        *_buckets(flow, control),
        *_placed(control, money),
        *_net(money),
        *_to_bank(money),
    )


def _orders(flow: Sequence[FlowRow]) -> Iterator[Tie]:
    """Opening + new - closed = closing, in orders and in what they cost."""
    for currency in dict.fromkeys(row.currency for row in flow):
        own = {row.step: row for row in flow if row.currency == currency}
        begun, closed = (own["opening"], own["new"]), own["closed"]
        yield Tie(
            name=f"orders in {currency}" if currency else "orders of unknown price",
            currency=None,
            left="opening + new − closed",
            left_value=sum(row.count for row in begun) - closed.count,
            right="closing",
            right_value=own["closing"].count,
        )
        if currency is not None:
            yield Tie(
                name="price of orders",
                currency=currency,
                left="opening + new − closed",
                left_value=sum(row.sum for row in begun) - closed.sum,
                right="closing",
                right_value=own["closing"].sum,
            )


def _buckets(flow: Sequence[FlowRow], control: Sequence[ControlRow]) -> Iterator[Tie]:
    """Every order of the period stands in one bucket."""
    entered = [row for row in flow if row.step in ("opening", "new", "other")]
    yield Tie(
        name="orders of the period",
        currency=None,
        left="all outcomes",
        left_value=sum(row.count for row in control),
        right="opening + new + other",
        right_value=sum(row.count for row in entered),
    )


def _placed(control: Sequence[ControlRow], money: Sequence[MoneyRow]) -> Iterator[Tie]:
    """Money by outcome is all the money there is."""
    for row in money:
        if row.flow in ("captured", "refunded", "lost_in_disputes"):
            name = "lost" if row.flow == "lost_in_disputes" else row.flow
            own = [each for each in control if each.currency == row.currency]
            yield Tie(
                name=row.flow.replace("_", " "),
                currency=row.currency,
                left="all outcomes",
                left_value=sum(getattr(each, name) for each in own),
                right="all movements",
                right_value=row.sum,
            )


def _net(money: Sequence[MoneyRow]) -> Iterator[Tie]:
    """Captured - refunded - lost - fees = net, and net is what the statement leads to."""
    for currency in dict.fromkeys(row.currency for row in money):
        own = {row.flow: row.sum for row in money if row.currency == currency}
        yield Tie(
            name="net",
            currency=currency,
            left="captured − refunded − lost in disputes − fees",
            left_value=own["captured"] - own["refunded"] - own["lost_in_disputes"] - own["fees"],
            right="settled + not settled + differs "
            + ("+ other currency " if "other_currency" in own else "")
            + "− not notified − no movement",
            right_value=own["settled"]
            + own["not_settled"]
            + own["differs"]
            + own.get("other_currency", 0)
            - own["not_notified"]
            - own["no_movement"],
        )


def _to_bank(money: Sequence[MoneyRow]) -> Iterator[Tie]:
    """What was settled is in the bank, or it is known why not."""
    for currency in dict.fromkeys(row.currency for row in money):
        own = {row.flow: row.sum for row in money if row.currency == currency}
        if "in_bank" in own:
            yield Tie(
                name="settled and the bank",
                currency=currency,
                left="settled",
                left_value=own["settled"],
                right="in bank + exchanged + bank differs + not in bank + no payout",
                right_value=sum(own[flow] for flow in BANK_FLOWS),
            )
