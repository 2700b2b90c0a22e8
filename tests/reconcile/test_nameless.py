"""A reversal that may be of a payment without a name holds the order, whatever else was tried."""

from reconcile.instants import EARLIEST
from reconcile.ledger.fold import fold
from tests.reconcile.scenario_table import read
from tests.rows import for_each

PAID = (
    "== a\n0s record order_placed r1 due=1500.00/KES\n1s succeeded e1 {success}money=1500.00/KES\n"
)


@for_each("tried", ["", "0s declined e0 pay=pay_2\n", "0s expired e0 pay=pay_2\n"])
@for_each(("success", "ships"), [("", False), ("pay=pay_3 ", True)])
def test_a_reversal_of_a_payment_that_nobody_captured(
    tried: str, success: str, ships: bool
) -> None:
    text = PAID.format(success=success) + tried + "5s reversed e2 pay=pay_1\n"
    (scenario,) = read("table", text)
    ledger = fold(
        scenario.history(),
        policy=scenario.policy,
        as_of=max(getattr(m, "received_at", EARLIEST) for m in scenario.members),
    )
    assert ledger.fulfillable == ships
