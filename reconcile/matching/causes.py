"""Causes of breaks, with their words and consequences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from reconcile.ledger.vocabulary import FindingCode

BreakCause = Literal[
    "paid_not_in_book",
    "book_paid_not_received",
    "book_unpaid_but_received",
    "amount_differs",
    "off_by_minor_unit",
    "currency_differs",
    "paid_twice",
    "overpaid",
    "refund_not_in_book",
    "refund_not_received",
    "not_settled",
    "refund_not_settled",
    "refund_amount_differs",
    "dispute_won_not_returned",
    "failed_refund_not_returned",
    "settled_never_notified",
    "fee_unexpected",
    "late_money",
    "unresolved",
    "payment_in_doubt",
    "ambiguous",
    "payout_not_in_bank",
    "bank_line_unknown",
    "payout_amount_differs",
    "wallet_balance_differs",
    "transfer_one_sided",
    "release_without_hold",
    "payout_late",
    "payment_unallocated",
    "assignment_contradicted",
    "closed_month_changed",
]

About = Literal["order", "bank", "wallet", "placing", "books"]
"""Subject of a cause.

`placing` stands for assigning a payment, and `books` for the journal.
"""

Risk = Literal["all", "held", "owed", "mistake", "left", "sums"] | tuple[str, str]
"""Rule that decides whether all of a break's money is at risk, or none.

all      all
held     none, because the money is held until confirmed
owed     none, because the money belongs to the customer
mistake  none, because only the minor unit is wrong
left     all if money is still to come
sums     all if less money came than was due
a pair   all if the first of the two named amounts is larger
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Words and consequences of a break's cause."""

    name: str
    """Cause in a few words, for table cells."""
    meaning: str
    """Cause in one sentence, for pages."""
    sentence: str
    """Template of the sentence on what differs, without a full stop."""
    rated: str = ""
    """Template instead of `sentence` if two currencies are compared."""
    step: str
    """Template of the instruction for a person, without a full stop."""
    step_by_how: Mapping[str, str] = field(default_factory=dict)
    """Templates instead of `step`, by the way in which all of the money went back."""
    about: About = "order"
    risk: Risk = "all"
    partners: tuple[BreakCause, ...] = ()
    """Causes of the breaks that can be about the missing other line. Matching the lines closes
    both."""
    not_by_hand: str = ""
    """Step that closes the break instead of a match by hand, if any."""
    two_people: str = ""
    """Reason why two people must always accept the break, if there is one."""
    accepts: tuple[FindingCode, ...] = ()
    """Findings on the break's order that are accepted together with the break."""
    late: Literal["accept", "refund"] | None = None
    """Decision to propose to a person, if the break is about late money."""
    blocks: bool = False
    """True if the break must be decided before its month can be closed."""
    apart: bool = False
    """True if the break is about other money than the order's price."""
    of_movement: bool = False
    """True if the break's subject is a source or an event instead of a line."""


CAUSES: Final[Mapping[BreakCause, Cause]] = {
    "paid_not_in_book": Cause(
        name="Paid, not in the order book",
        meaning="The money arrived, but the order book does not have the order.",
        sentence="{captured} was received, but the order book does not have the order",
        step=(
            "Add the order to the order book, match the payment with one of the candidates, or "
            "refund it"
        ),
        risk="held",
        partners=("book_paid_not_received",),
    ),
    "book_paid_not_received": Cause(
        name="Paid in the book, not received",
        meaning="The order book says paid, but no payment is known.",
        sentence="The order book says {status} for {booked}, but no payment is known",
        step=(
            "Ask the provider for the payment; if there is none, correct the order book, or "
            "match the order with one of the candidates"
        ),
        partners=("paid_not_in_book", "settled_never_notified", "bank_line_unknown"),
        accepts=("fulfilled_but_not_paid",),
    ),
    "book_unpaid_but_received": Cause(
        name="Received, unpaid in the book",
        meaning="The money arrived, but the order book says unpaid.",
        sentence="{captured} was received, but the order book says {status}",
        step="Mark the order as paid in the book, or refund the payment",
        risk="held",
    ),
    "amount_differs": Cause(
        name="Amounts differ",
        meaning="The captured amount differs from the amount in the order book or the statement.",
        sentence="{captured} was captured, but the {against} says {stated}: {difference} apart",
        rated=(
            "{captured} was captured, but the statement settles {settled} for it, at a rate of "
            "{rate}; at the rate in the rules it would be {expected}, {difference} apart"
        ),
        step="Find out which amount is right, then correct the book or ask the provider",
        risk="sums",
    ),
    "off_by_minor_unit": Cause(
        name="Wrong unit of amount",
        meaning=(
            "The amounts differ by a factor of 100, because major and minor units were confused."
        ),
        sentence="{captured} was captured, but the {against} says {stated}, which "
        "differs by the factor {factor}: major units were taken for minor "
        "units, or the other way round",
        step="Check in which unit the amount is written, in the import's mapping and in the "
        "provider's profile, and correct it there",
        risk="mistake",
    ),
    "currency_differs": Cause(
        name="Currencies differ",
        meaning="The captured currency differs from the currency in the order book or the "
        "statement.",
        sentence="{captured} was captured, but the {against} says {stated}, in another currency",
        step="Find out which currency was agreed, then correct the book or ask the provider",
    ),
    "paid_twice": Cause(
        name="Paid more than once",
        meaning="The order was paid more than once.",
        sentence="Paid more than once: {captured} was captured, and the customer is owed {owed}",
        step="Refund the surplus to the customer",
        risk="owed",
        accepts=("paid_twice", "paid_after_cancel"),
        late="refund",
        apart=True,
    ),
    "overpaid": Cause(
        name="Overpaid",
        meaning="More money arrived than the order costs.",
        sentence="More was captured than the order costs, and the customer is owed {owed}",
        step="Refund the surplus to the customer",
        risk="owed",
        accepts=("overpaid", "paid_after_cancel"),
        late="refund",
        apart=True,
    ),
    "refund_not_in_book": Cause(
        name="Refund or lost dispute not in the order book",
        meaning="Money went back, by a refund or a lost dispute, but the order book does "
        "not have it.",
        sentence="{refunded} {how}, but the order book has {booked_refund} of it",
        step="Enter the returned money in the order book, as a refund or as a lost dispute",
        step_by_how={
            "refunded": "Enter the refund in the book",
            "reversed": "Enter in the book that the payment was taken back",
            "dispute_lost": "Book the chargeback: enter in the order book what it took, as given "
            "back or as an entry of its own, by hand where your shop's export has no column for it",
        },
    ),
    "refund_not_received": Cause(
        name="Refund in the book, not made",
        meaning="The order book states a refund, but no event that was read confirms it.",
        sentence="The order book states a refund, but no refund of the full amount has come",
        step="Start the refund at the provider, or correct the book",
        risk="owed",
        late="refund",
    ),
    "not_settled": Cause(
        name="Not settled in time",
        meaning="The provider has not paid this out yet, although the time for it is over.",
        sentence="{captured} was captured, but no statement that reaches beyond {due_at} "
        "contains it",
        step="Ask the provider when it pays this out, by the payment's reference",
        partners=("settled_never_notified",),
        of_movement=True,
    ),
    "refund_not_settled": Cause(
        name="Refund not settled",
        meaning="Money went back to the customer, but no statement deducts it yet.",
        sentence="{returned} {how}, but no statement that reaches beyond {due_at} deducts it",
        step="Ask the provider whether this went through; if a refund failed, tell the customer, "
        "and start it again",
        step_by_how={
            "reversed": "Ask the provider whether the payment was reversed, and when it takes the "
            "money",
            "dispute_lost": "Ask the provider whether the dispute was lost, and when it takes the "
            "money",
        },
        risk="owed",
        not_by_hand=(
            "returned money is matched by the payment that the statement line names: "
            "withdraw the import of the line, and import the file with that payment in a column "
            "original_payment"
        ),
        of_movement=True,
    ),
    "refund_amount_differs": Cause(
        name="Refund amounts differ",
        meaning="The amount that the statement deducts for a refund differs from the refunded "
        "amount.",
        sentence="{returned} {how}, but the statement deducts {settled} for it: {difference} apart",
        rated=(
            "{returned} {how}, but the statement deducts {settled} for it, at a rate of {rate}; "
            "at the rate in the rules it would be {expected}, {difference} apart"
        ),
        step="Ask the provider which amount is right, and claim the difference",
        risk=("settled", "returned"),
    ),
    "dispute_won_not_returned": Cause(
        name="Dispute won, money not returned",
        meaning="A dispute was won, but its money has not come back.",
        sentence="A dispute was won, but according to the statement the provider still "
        "keeps {difference} of its money",
        step="Ask the provider to give back what it took for the dispute",
    ),
    "failed_refund_not_returned": Cause(
        name="Refund failed, money not returned",
        meaning="A refund failed, but its money has not come back.",
        sentence="The statement took {settled} for a refund that failed at {failed_at}, "
        "but no line gives it back",
        step=(
            "Ask the provider to give back what it took for the refund, and pay the customer in "
            "another way"
        ),
    ),
    "settled_never_notified": Cause(
        name="Settled, no webhook read",
        meaning="The statement contains money, but no event that was read reports it.",
        sentence="The statement has a {kind} of {settled}, but no webhook that was read reports it",
        step="Ask the provider to send the event again, and check that its webhooks reach us",
        risk="left",
        partners=("not_settled", "book_paid_not_received"),
    ),
    "fee_unexpected": Cause(
        name="Fee differs from the agreement",
        meaning="The provider took a fee that differs from the agreed fee.",
        sentence="The provider took a fee of {fee}; {expected_fee} was expected",
        step="Compare the fee with your contract and claim the difference, or correct the expected "
        "fee",
        risk=("fee", "expected_fee"),
    ),
    "late_money": Cause(
        name="Money came, or became known, too late",
        meaning="Money came, or became known, after the order was canceled or given up.",
        sentence="{captured} came, or became known, after the order had been {why}",
        step="Decide whether to accept the payment, then mark the order as paid, or refund it",
        risk="owed",
        accepts=("paid_after_cancel",),
        late="accept",
    ),
    "unresolved": Cause(
        name="Order to be resolved",
        meaning="The events that arrived do not fit the order.",
        sentence="The ledger of the order is unresolved; captured so far: {captured}",
        step="Read the order's ledger and clarify it with the provider; do not ship before",
        blocks=True,
    ),
    "payment_in_doubt": Cause(
        name="Payment in doubt",
        meaning="The order is paid, and a further payment may have brought more money.",
        sentence="The order is paid, and a further payment of up to {at_stake} is in doubt",
        step=(
            "Read the order's ledger and ask the provider for the result of that payment; refund "
            "it if it succeeded"
        ),
        blocks=True,
        apart=True,
    ),
    "ambiguous": Cause(
        name="Several possible matches",
        meaning="Several lines fit equally well, and no field decides between them.",
        sentence="{captured} was captured, and several lines or orders fit it equally well",
        step="Compare the lines, and match by hand the two that belong together",
        risk="held",
        blocks=True,
        of_movement=True,
    ),
    "payout_not_in_bank": Cause(
        name="Payout not in the bank",
        meaning="The provider says that it paid this out, but the bank does not have it.",
        sentence="No bank statement that reaches beyond {due_at} has the provider's "
        "payout {payout} of {paid_out}",
        step="Ask the provider when and to which account it paid this out; if the bank has it, "
        "import that account's statement",
        about="bank",
        risk="left",
        partners=("bank_line_unknown",),
    ),
    "bank_line_unknown": Cause(
        name="Bank credit without a payout",
        meaning="Money came to the bank, but no payout of a statement explains it.",
        sentence="The bank booked {in_bank} at {booked_at}, but no payout of any "
        "provider's statement is known for it",
        step=(
            "Import the provider's statement that contains it, or match it with a payout or an "
            "order. To leave out other business, name it in the rules (bank_payers, "
            "other_business)"
        ),
        about="bank",
        risk="left",
        partners=("payout_not_in_bank", "book_paid_not_received"),
    ),
    "payout_amount_differs": Cause(
        name="Payout amounts differ",
        meaning="The amount that the bank booked differs from the amount that the provider paid "
        "out.",
        sentence="The provider's payout {payout} is {paid_out}, but the bank booked "
        "{in_bank} for it: {difference} apart",
        rated=(
            "The provider's payout {payout} is {paid_out}, but the bank booked {in_bank} for "
            "it, at a rate of {rate}; at the rate in the rules it would be {expected}, "
            "{difference} apart"
        ),
        step="Ask the bank which charges it took, and the provider what it sent; claim the "
        "difference, or accept it",
        about="bank",
        risk="left",
    ),
    "wallet_balance_differs": Cause(
        name="Balance at the provider differs",
        meaning="A balance at the provider does not follow from the lines before it.",
        sentence="After {moved_at} the balance of {wallet} is {stated} according to its "
        "statement, but {due} according to the lines before: {difference} apart",
        step=(
            "Import the complete statement of those days again, without a filter. If it is "
            "complete, ask the provider what changed the balance"
        ),
        step_by_how={
            "between files": (
                "Import the statement of the days between the two files; if no day "
                "is missing, import both again, complete and without a filter"
            ),
        },
        about="wallet",
        risk=("due", "stated"),
        not_by_hand=(
            "a balance has no other line: import its complete statement, or accept the difference"
        ),
        two_people="only two people together may accept a balance that differs from its statement",
    ),
    "transfer_one_sided": Cause(
        name="Transfer without its other side",
        meaning="Money left one of your balances at the provider, but reached no other.",
        sentence=(
            "{moved} moved between your own balances at {moved_at}, according to the statement of "
            "{wallet}, but no statement of another balance shows it"
        ),
        step="Import the statement of the other balance; if it is imported, ask the provider where "
        "the money is",
        about="wallet",
        not_by_hand=(
            "the other side is in another statement: import that statement, or accept the "
            "difference"
        ),
    ),
    "release_without_hold": Cause(
        name="Release without a hold",
        meaning="The provider released money that no statement says it held.",
        sentence=(
            "{released} of {wallet} was released at {moved_at}, but no imported statement "
            "shows that this much had been held"
        ),
        step="Import the statement of the days before; if it is imported, ask the provider what it "
        "released",
        about="wallet",
        risk="held",
        not_by_hand=(
            "the hold is in another statement: import that statement, or accept the difference"
        ),
    ),
    "payout_late": Cause(
        name="Payout is late",
        meaning=(
            "The provider usually pays out regularly, but the current pause is the longest so far."
        ),
        sentence=(
            "Nothing has been paid out from {wallet} since {last_at}, which is longer than "
            "any earlier pause between payouts; {waiting} waits there, and was due by {due_at}"
        ),
        step="Ask the provider why it does not pay out, or withdraw the money",
        about="wallet",
        risk="held",
        not_by_hand="a late payout is matched as soon as a statement contains it",
    ),
    "payment_unallocated": Cause(
        name="Payment without an order",
        meaning="A payment arrived that belongs to no order.",
        sentence="{captured} of the payment {payment} belongs to no order",
        step=(
            "Assign it to its order (`tallyhook unallocated assign`), or dismiss it as "
            "refundable or as other business"
        ),
        about="placing",
        risk="held",
        not_by_hand="a payment without an order is assigned with `tallyhook unallocated assign`",
        two_people=(
            "only two people together may leave a payment without an order: assign the "
            "payment, or dismiss it"
        ),
    ),
    "assignment_contradicted": Cause(
        name="Assigned, but belongs to another order",
        meaning="A payment was assigned to the order, but later evidence names another order.",
        sentence=(
            "{captured} was captured and assigned to this order, but later evidence names another "
            "order for the payment"
        ),
        step="Find out whose payment it is; if it is the other order's, withdraw the assignment "
        "and assign it there",
        about="placing",
        risk="held",
        apart=True,
    ),
    "closed_month_changed": Cause(
        name="Closed month to be adjusted",
        meaning="Later evidence changes a closed month by more than the limit in the rules.",
        sentence=(
            "After {period} was closed, later evidence moved {adjusted} between the month's "
            "accounts. The limit in the rules is {limit}"
        ),
        step="Look at the adjusting entries in the journal of the first open month; accept them, "
        "or reopen the month (`tallyhook period reopen`)",
        about="books",
        risk="held",
        not_by_hand="adjusting entries of a closed month are accepted, or posted when the open "
        "month is closed",
    ),
}

BREAK_CAUSES: Final = tuple(CAUSES)
