"""Codes and wording of all findings and reasons.

sentence  for people who work with the evidence; no full stop
plain     for customers, to be read aloud; no ids and no codes
staff     what the shop's people must do; empty for nothing
summary   meaning of the code for many orders, in a report
"""

from typing import Final, Literal, NamedTuple, get_args

Severity = Literal["info", "warning", "error"]

FindingCode = Literal[
    "redelivered",
    "semantic_duplicate",
    "out_of_order",
    "delivered_late",
    "recovered_on_later_attempt",
    "dispute_won",
    "success_after_deadline",
    "contradictory_claims",
    "unrecognized_event",
    "dated_in_future",
    "order_unknown",
    "session_unknown",
    "assignment_contradicted",
    "refund_without_payment",
    "refund_standalone",
    "paid_but_not_fulfilled",
    "price_changed",
    "dispute_open",
    "dispute_lost",
    "refund_pending",
    "refund_overdue",
    "refund_failed",
    "reversal_amount_mismatch",
    "amount_not_price",
    "maybe_other_shop",
    "same_id_different_body",
    "conflicting_amounts",
    "paid_twice",
    "amount_mismatch",
    "amount_off_by_minor_unit",
    "currency_mismatch",
    "refund_exceeds_capture",
    "fulfilled_but_not_paid",
    "paid_after_cancel",
    "overpaid",
    "other_currency_received",
    "unread_money_event",
    "held_back",
]
"""Codes of findings, in the order in which a ledger lists its findings."""

FINDING_CODES: Final[tuple[FindingCode, ...]] = get_args(FindingCode)


class FindingWords(NamedTuple):
    """Severity of a finding, and its wording for each audience."""

    severity: Severity
    sentence: str
    plain: str
    summary: str
    staff: str = ""


FINDINGS: Final[dict[FindingCode, FindingWords]] = {
    "redelivered": FindingWords(
        "info",
        sentence="The same event was delivered {deliveries} times; it counts once",
        plain="The payment service sent us the same message {deliveries} times. It counts once.",
        summary="An event was delivered more than once; it counts once",
    ),
    "semantic_duplicate": FindingWords(
        "info",
        sentence="The same movement of {attempt} was reported by {events} events; it counts once",
        plain="The same {movement} was reported by {events} messages. It counts once.",
        summary="The same movement was reported by several events; it counts once",
    ),
    "out_of_order": FindingWords(
        "info",
        sentence="Events of {attempt} did not arrive in the sequence in which they occurred",
        plain="Messages about the payment did not reach us in the sequence in which things "
        "happened.",
        summary="Events did not arrive in the sequence in which they occurred",
    ),
    "delivered_late": FindingWords(
        "info",
        sentence="The event took {delay_us} to reach us",
        plain="A message about the payment took {delay_us} to reach us.",
        summary="An event took long to reach us",
    ),
    "recovered_on_later_attempt": FindingWords(
        "info",
        sentence="Paid by {attempt} after an earlier try had failed",
        plain="The payment failed at first, and then went through.",
        summary="Paid by a later attempt, after one that failed",
    ),
    "dispute_won": FindingWords(
        "info",
        sentence="The dispute over {attempt} was won{still_lost}",
        plain="The dispute{disputed} was decided for the shop on {decided_at}{still_lost}.",
        summary="A dispute was won",
    ),
    "success_after_deadline": FindingWords(
        "warning",
        sentence="The success of {attempt}, dated {occurred_at}, became known at {received_at}, "
        "after the attempt had been given up",
        plain="The payment was made on {occurred_at}, after we had stopped waiting for it.",
        staff="Check that the shop has not given the order up meanwhile, or sold its goods again.",
        summary="A success became known after the attempt had been given up",
    ),
    "contradictory_claims": FindingWords(
        "warning",
        sentence="{attempt} is said to be {claims}, but only one of these can be true",
        plain="We were told both that {claims}. Only one of them can be true.",
        staff="Ask the payment service which of the two is true.",
        summary="Events make claims that contradict each other",
    ),
    "unrecognized_event": FindingWords(
        "warning",
        sentence="The profile does not know the kind {kind}; the event is kept",
        plain="The payment service sent a message that we cannot read yet. It is kept.",
        staff="Name the kind {kind} in the profile of its source, then run `tallyhook reindex`.",
        summary="The profile does not know the kind of an event",
    ),
    "dated_in_future": FindingWords(
        "warning",
        sentence="The event is dated {occurred_at}, after its arrival at {received_at}",
        plain="A message is dated {occurred_at}, later than it reached us: somebody's clock is "
        "wrong.",
        staff="Compare the clocks of this machine and of the payment service.",
        summary="An event is dated after its arrival",
    ),
    "order_unknown": FindingWords(
        "warning",
        sentence="The shop has told us nothing of this order",
        plain="The shop has not told us of this order.",
        staff="State the order and its price: `PUT /api/v1/orders/…`.",
        summary="The shop has told us nothing of the order",
    ),
    "session_unknown": FindingWords(
        "warning",
        sentence="We asked the provider for a session and got no answer, so we do not know "
        "whether the session exists",
        plain="We asked the payment service to begin a payment, and got no answer. It may have "
        "begun.",
        staff="Check at the payment service whether the payment began before you start another.",
        summary="A session was requested, but the provider did not answer",
    ),
    "assignment_contradicted": FindingWords(
        "warning",
        sentence="{attempt} was assigned to this order, but later evidence names order {named} "
        "for it",
        plain="A payment of this order may belong to another order. We are looking into it.",
        staff="Find out whether the payment belongs to order {named}, and assign it again if so.",
        summary="A payment was assigned to an order, but later evidence names another order for it",
    ),
    "refund_without_payment": FindingWords(
        "warning",
        sentence="Money went back on a payment that is not known to have been captured",
        plain="Money was given back, but we do not know the payment.",
        staff="Ask the payment service which payment the money belongs to.",
        summary="Money was given back, but no payment is known",
    ),
    "refund_standalone": FindingWords(
        "warning",
        sentence="Money was given back for the order by a refund that belongs to no payment",
        plain="Money was given back, separately from the payment.",
        staff="Check that the refund, which belongs to no payment, is meant for this order.",
        summary="Money was given back, but the refund belongs to no payment",
    ),
    "paid_but_not_fulfilled": FindingWords(
        "warning",
        sentence="Fulfillable since {fulfillable_at}, and the shop has not said that it was "
        "fulfilled",
        plain="Paid, and ready to ship since {fulfillable_at}. The shop has not said that it was "
        "shipped.",
        staff="It has been ready since {fulfillable_at}: ship it, or state that it was shipped.",
        summary="Paid, but the shop has not said that it was fulfilled",
    ),
    "price_changed": FindingWords(
        "warning",
        sentence="The shop changed what is due from {before} to {after}{author}",
        plain="The shop changed what is due from {before} to {after}.",
        summary="The shop changed what is due",
    ),
    "dispute_open": FindingWords(
        "warning",
        sentence="A dispute over {attempt} is open: do not count on {disputed}",
        plain="A dispute{disputed} was opened on {opened_at}, and it is not decided yet.",
        staff="Answer the dispute{disputed} at the payment service in time. Do not refund the "
        "payment while it is open.",
        summary="A dispute is open",
    ),
    "dispute_lost": FindingWords(
        "warning",
        sentence="A dispute over {attempt} was lost: {lost} went back to the customer{not_lost}",
        plain="The dispute{lost} was decided against the shop on {decided_at}: that money has gone "
        "back{not_lost}.",
        summary="A dispute was lost",
    ),
    "refund_pending": FindingWords(
        "warning",
        sentence="A refund of {attempt} has been under way since {begun_at}: {pending}",
        plain="A refund{pending} was begun on {begun_at} and is on its way.",
        staff="Do not refund again: a refund{pending} has been under way since {begun_at}.",
        summary="A refund is under way",
    ),
    "refund_overdue": FindingWords(
        "warning",
        sentence="The refund of {attempt} has been under way since {begun_at} and was due by "
        "{due_at}: {pending}",
        plain="The refund{pending} is taking longer than it should: it was begun on {begun_at}.",
        staff="The refund{pending} is overdue at the payment service: ask there before you refund "
        "again.",
        summary="A refund is taking longer than it should",
    ),
    "refund_failed": FindingWords(
        "warning",
        sentence="A refund of {attempt} failed at {failed_at}: {failed} did not go back",
        plain="A refund{failed} failed on {failed_at}: it gave no money back.",
        staff="Find out at the payment service why the refund{failed} failed, then send it again "
        "or give the money back another way.",
        summary="A refund failed, and the money did not go back",
    ),
    "reversal_amount_mismatch": FindingWords(
        "warning",
        sentence="A reversal of {attempt} states {stated}, but what was left of the payment is "
        "{taken}; the ledger counts {taken} as gone",
        plain="We were told that {stated} was taken back, but {taken} of the payment was left. We "
        "cannot say which of the two amounts has gone back.",
        staff="Ask the payment service how much it took back: {stated}, or {taken}.",
        summary="A reversal states an amount that differs from what was left of the payment",
    ),
    "amount_not_price": FindingWords(
        "warning",
        sentence="{attempt} is not counted: only the order number links it to this order, and "
        "{captured} is neither the order's price at that time nor a later price",
        plain="{captured} came with the number of this order, but is not its price. It "
        "may have been meant for something else.",
        staff="Find out whether the payment of {captured} is for this order. If so, name the "
        "payment in the order's `references`, or assign it to this order. If not, assign it "
        "to its own order.",
        summary="A payment that only the order number links differs from the order's price",
    ),
    "maybe_other_shop": FindingWords(
        "warning",
        sentence="Held since {held_at}: a payment above the price is linked to this order by the "
        "order number alone, and the provider account also receives payments for orders "
        "that nobody placed",
        plain="The order waits until somebody has checked that its payment is meant for it.",
        staff="Do not ship yet: another shop may use this provider account, and the payment may "
        "be for its order of the same number. Compare the payment with the provider's "
        "dashboard. Then release the order on its page or with `tallyhook orders release`, "
        "or assign the payment elsewhere.",
        summary="A payment may be another shop's on the same provider account",
    ),
    "same_id_different_body": FindingWords(
        "error",
        sentence="One event id came with {bodies} different bodies; all are kept",
        plain="The payment service sent one message in {bodies} versions. All are kept.",
        staff="Ask the payment service which version is true.",
        summary="One event id came with different bodies",
    ),
    "conflicting_amounts": FindingWords(
        "error",
        sentence="Events state different amounts for one movement of {attempt}",
        plain="We were told different amounts for the same {movement}: {amounts}.",
        staff="Ask the payment service which amount is right.",
        summary="Events state different amounts for one movement",
    ),
    "paid_twice": FindingWords(
        "error",
        sentence="Paid {times} times; {owed} is owed back to the customer{under_way}",
        plain="Paid {times} times, so {owed} too much was paid.",
        summary="Paid several times; money is owed back",
    ),
    "amount_mismatch": FindingWords(
        "error",
        sentence="The captured money ({captured}) is not what the order costs ({expected})",
        plain="Paid {captured}, but the price is {expected}.",
        staff="Check at the payment service how much was paid: {expected} is due.",
        summary="The captured money is not what the order costs",
    ),
    "amount_off_by_minor_unit": FindingWords(
        "error",
        sentence="{captured} was captured, but {expected} is due: an amount in major units was "
        "taken for minor units, or the other way round",
        plain="{captured} was paid for a price of {expected}. Probably an amount was sent in the "
        "wrong unit, such as cents for shillings.",
        staff="Find out where an amount was sent in the wrong unit.",
        summary="Major units were taken for minor units, or the other way round",
    ),
    "currency_mismatch": FindingWords(
        "error",
        sentence="The captured money ({captured}) is not in the order's currency ({expected})",
        plain="Paid {captured}, which is not in the currency of the price ({expected}).",
        staff="Check at the payment service in which currency the customer paid.",
        summary="The captured money is not in the order's currency",
    ),
    "refund_exceeds_capture": FindingWords(
        "error",
        sentence="{refunded} was given back, but only {captured} had been captured",
        plain="{refunded} has been given back, but only {captured} had been paid.",
        staff="Ask the payment service why more money went back than had been paid. If a partly "
        "refunded payment was then lost in a dispute, the payment service often corrects the "
        "amount in its statement.",
        summary="More was given back than had been captured",
    ),
    "fulfilled_but_not_paid": FindingWords(
        "error",
        sentence="The shop fulfilled the order at {fulfilled_at}, but the order is {outcome}",
        plain="The order was shipped on {fulfilled_at}, but it is not known to be paid.",
        staff="The order was shipped on {fulfilled_at} and is not known to be paid: find that out, "
        "then ask the customer for the money, or for the goods.",
        summary="Fulfilled, but not paid",
    ),
    "paid_after_cancel": FindingWords(
        "error",
        sentence="Money moved at {occurred_at}, after the shop had canceled at {canceled_at}",
        plain="Paid on {occurred_at}, after the order had been canceled on {canceled_at}.",
        summary="Money moved after the shop had canceled",
    ),
    "overpaid": FindingWords(
        "error",
        sentence="{surplus} is held beyond the {expected} due; it is owed back to the "
        "customer{under_way}",
        plain="Paid {surplus} too much.",
        summary="More is held than the order costs; it is owed back",
    ),
    "other_currency_received": FindingWords(
        "error",
        sentence="{received} was received, which is not in the order's currency; it is owed back "
        "to the customer{under_way}",
        plain="{received} was paid, which is not in the currency of the price. It is to be given "
        "back{under_way}.",
        staff="{received} is not in the currency of the price and must be given back{under_way}.",
        summary="Money came that is not in the order's currency; it is owed back",
    ),
    "unread_money_event": FindingWords(
        "error",
        sentence="The name of the kind {kind} suggests that money went back, but the profile does "
        "not know this kind: money that went back is not counted until the profile "
        "states what the kind means",
        plain="The payment service sent a message that may be about money going back, "
        "but we cannot read it yet.",
        staff="Name the kind {kind} in the profile of its source, then run `tallyhook reindex`. "
        "Do not count on the money before that.",
        summary="The name of an event's kind suggests that money went back, but the profile does "
        "not know the kind",
    ),
    "held_back": FindingWords(
        "error",
        sentence="Held back since {held_at} ({hold}): not to be fulfilled until it is released",
        plain="The order is on hold since {held_at}.",
        staff="Do not ship: the order is on hold since {held_at}. Find out why, then "
        "release it on its page, or with `tallyhook orders release`.",
        summary="Held back until a person releases it",
    ),
}


class ManyWords(NamedTuple):
    """Wording for many findings of one code in one sentence. `{alike}` stands for the number of
    findings."""

    sentence: str
    plain: str


MANY: Final[dict[FindingCode, ManyWords]] = {
    "redelivered": ManyWords(
        sentence="{alike} events were delivered several times each, at most {deliveries} times; "
        "each event counts once",
        plain="The payment service sent us {alike} messages several times each, at most "
        "{deliveries} times. Each message counts once.",
    ),
    "semantic_duplicate": ManyWords(
        sentence="{alike} movements are stated by several events each, at most {events}; each "
        "movement counts once",
        plain="For each of {alike} movements of money there are several messages. Each movement "
        "counts once.",
    ),
    "out_of_order": ManyWords(
        sentence="Events of {alike} attempts did not arrive in the sequence in which they occurred",
        plain=FINDINGS["out_of_order"].plain,
    ),
    "delivered_late": ManyWords(
        sentence="{alike} events took up to {delay_us} to reach us",
        plain="{alike} messages about the payment took up to {delay_us} to reach us.",
    ),
    "success_after_deadline": ManyWords(
        sentence="{alike} successes, dated {occurred_at} to {last_occurred_at}, became known after "
        "their attempts had been given up",
        plain="We learned of {alike} payments after we had stopped waiting for them.",
    ),
    "unrecognized_event": ManyWords(
        sentence="{alike} events are of the kind {kind}, which the profile does not know; they "
        "are kept",
        plain="The payment service sent {alike} messages that we cannot read yet. They are kept.",
    ),
    "dated_in_future": ManyWords(
        sentence="{alike} events are dated after their arrival, from {occurred_at} to "
        "{last_occurred_at}",
        plain="{alike} messages are dated later than they reached us: somebody's clock is wrong.",
    ),
}
"""Wording for several findings of one code."""


class ReasonWords(NamedTuple):
    """Wording of a reason for each audience."""

    sentence: str
    plain: str
    summary: str
    staff: str = ""


REASONS: Final[dict[str, ReasonWords]] = {
    # orders where money moved
    "paid_in_full": ReasonWords(
        sentence="Paid in full: {captured} captured{on_top} of {expected} due{discount}",
        plain="Paid in full: {expected}.",
        summary="Paid in full",
    ),
    "paid_amount_unconfirmed": ReasonWords(
        sentence="Paid: {captured} captured; nobody has said what the order costs, so it is "
        "unknown whether this is all that is due",
        plain="Paid {captured}. The shop has not told us the price, so we cannot say whether that "
        "is all of it.",
        summary="Paid, but nobody has said what the order costs",
    ),
    "paid_several_times": ReasonWords(
        sentence="Paid more than once: {captured} captured{on_top} of {expected} "
        "due{discount}{under_way}",
        plain="Paid more than once: {captured}{on_top} for a price of {expected}.",
        summary="Paid more than once; a refund is owed",
    ),
    "overpayment_returned": ReasonWords(
        sentence="Paid in full: {captured} captured{on_top}; {expected} was due, and the surplus "
        "has been given back",
        plain="Paid in full: {expected}. The surplus has been given back.",
        summary="Paid, and the surplus was given back",
    ),
    "overpayment_returned_in_part": ReasonWords(
        sentence="Paid more than once: {captured} captured{on_top} of {expected} due{discount}; "
        "{returned} has been given back so far{under_way}",
        plain="Paid more than once: {captured}{on_top} for a price of {expected}. {returned} has "
        "been given back.",
        summary="Paid more than once, and a part of the surplus was given back",
    ),
    "paid_with_surplus": ReasonWords(
        sentence="Paid, and more than is due: {captured} captured{on_top} of {expected} "
        "due{discount}; {surplus} is owed back{under_way}",
        plain="Paid {surplus} too much: {captured}{on_top} for a price of {expected}.",
        summary="Paid, and more than is due; a refund is owed",
    ),
    "paid_with_surplus_returned_in_part": ReasonWords(
        sentence="Paid, and more than is due: {captured} captured{on_top} of {expected} "
        "due{discount}; some of it has been given back, and {surplus} is still owed "
        "back{under_way}",
        plain="Paid too much: {captured}{on_top} for a price of {expected}. Some of it has been "
        "given back.",
        summary="Paid, and a part of the surplus was given back",
    ),
    "refunded_in_full": ReasonWords(
        sentence="Refunded: all of the {captured} captured{not_given_back} has been given back",
        plain="Paid {captured}, and all of it{not_given_back} has been given back.",
        summary="All of the captured money was given back",
    ),
    "refunded_in_part": ReasonWords(
        sentence="Refunded in part: {refunded} of the {captured} captured has been given back",
        plain="Paid {captured}, and {refunded} of it has been given back.",
        summary="A part of the captured money was given back",
    ),
    "reversal_amount_unclear": ReasonWords(
        sentence="Refunded: {attempt} was reversed; the reversal states {stated}, and all of the "
        "{captured} captured is counted as gone",
        plain="Paid {captured}. The payment was taken back, and the message about it names "
        "{stated}: we cannot say whether all of it has gone back.",
        summary="A payment was reversed, and the reversal states a different amount",
    ),
    "charged_back": ReasonWords(
        sentence="Charged back: all of the {captured} captured has gone back, {lost} of it in "
        "disputes that were lost",
        plain="Paid {captured}, and all of it has gone back, {lost} of it because of a dispute.",
        summary="All of the captured money has gone back, some of it in lost disputes",
    ),
    "charged_back_in_part": ReasonWords(
        sentence="Charged back: {lost} of the {captured} captured was lost in a dispute",
        plain="Paid {captured}. {lost} has gone back because of a dispute.",
        summary="Some of the captured money was lost in a dispute",
    ),
    "dispute_open": ReasonWords(
        sentence="Disputed: the customer disputes the payment, and the dispute is open; captured: "
        "{captured}",
        plain="Paid {captured}. The payment is disputed.",
        summary="The customer disputes the payment, and the dispute is open",
    ),
    "dispute_without_payment": ReasonWords(
        sentence="Unresolved: a dispute was opened and has ended, but no payment is known",
        plain="There was a dispute about a payment that we know nothing of.",
        summary="A dispute was opened and has ended, but no payment is known",
    ),
    "amount_off_by_factor": ReasonWords(
        sentence="Unresolved: {captured} captured on {attempt} for {expected} due: an amount in "
        "minor units was taken for major units",
        plain="{captured} is said to have been paid, which is {times} times the price of "
        "{expected}. Probably the amount was sent in the wrong unit, such as cents for shillings.",
        summary="An amount in minor units was taken for major units",
    ),
    "amount_not_price": ReasonWords(
        sentence="Unresolved: only the order number links {attempt} to this order, and its "
        "amount, {captured}, is not a price of the order",
        plain="{captured} came with the number of this order, but is not its price. It "
        "may have been meant for something else.",
        summary="A payment that only the order number links differs from the order's price",
    ),
    "returned_in_other_currency": ReasonWords(
        sentence="Unresolved: {returned} of {attempt} went back, but the payment was captured in "
        "another currency",
        plain="{returned} has gone back, but the payment was made in another currency.",
        summary="Money went back in a currency that differs from the payment's",
    ),
    "disputed_in_other_currency": ReasonWords(
        sentence="Unresolved: {disputed} of {attempt} is disputed, but the payment was captured "
        "in another currency",
        plain="{disputed} of the payment is disputed, but the payment was made in another "
        "currency.",
        summary="A payment is disputed in a currency that differs from the payment's",
    ),
    "canceled_after_capture": ReasonWords(
        sentence="Unresolved: {attempt} was captured, and then said to be canceled",
        plain="The payment went through, and was then said to be canceled. We cannot say whether "
        "the shop has the money.",
        summary="A payment was captured, and then said to be canceled",
    ),
    "returned_more_than_captured": ReasonWords(
        sentence="Unresolved: more money went back for a payment than was captured; otherwise, "
        "{expected} would count as paid",
        plain="More money has gone back for one payment than had been paid.",
        summary="More money went back for one payment than was captured",
    ),
    "amount_differs": ReasonWords(
        sentence="Unresolved: {captured} captured{on_top}, but {expected} is due{refused_discount}",
        plain="Paid {captured}, but the price is {expected}.",
        summary="The captured sum is not what the order costs",
    ),
    "currency_differs": ReasonWords(
        sentence="Unresolved: the money that moved ({moved}) is not all in the currency of the "
        "order",
        plain="Paid {moved}, but payment and price differ in currency.",
        summary="The money that moved is not all in the currency of the order",
    ),
    "amounts_conflict": ReasonWords(
        sentence="Unresolved: events state different amounts for one movement of {attempt}",
        plain="We were told different amounts for one {movement}, and cannot say which is right.",
        summary="Events state different amounts for one movement",
    ),
    "amount_not_stated": ReasonWords(
        sentence="Unresolved: money moved on {attempt}, and no event says how much",
        plain="We were told of a {movement}, but nobody has told us how much it was.",
        summary="Money moved, but no event says how much",
    ),
    "amount_unclear": ReasonWords(
        sentence="Unresolved: an amount that is stated for {attempt} is not exact in its currency",
        plain="The payment service stated an amount that cannot be read exactly, so we cannot say "
        "how much it was.",
        summary="An amount cannot be read exactly",
    ),
    "bodies_disagree": ReasonWords(
        sentence="Unresolved: one event id came with {bodies} bodies that disagree in kind, money "
        "or reference",
        plain="The payment service sent one message in {bodies} versions that contradict each "
        "other.",
        summary="One event id came with bodies that disagree",
    ),
    "reference_shared": ReasonWords(
        sentence="Unresolved: {reference} is claimed for this order and for another",
        plain="One payment is claimed for this order, and for another one too.",
        summary="A reference is claimed for this order and for another",
    ),
    "order_amounts_conflict": ReasonWords(
        sentence="Unresolved: events disagree on what the order costs",
        plain="Something was paid, but we were told different prices for it.",
        summary="Events disagree on what the order costs",
    ),
    "refund_before_payment": ReasonWords(
        sentence="Unresolved: money went back ({returned}) on a payment that is not known to have "
        "been captured",
        plain="Money was given back ({returned}), but we do not know the payment.",
        summary="Money was given back, but no payment is known",
    ),
    # paid orders that are not to be fulfilled
    "canceled_by_shop": ReasonWords(
        sentence="the shop canceled the order",
        plain="The shop has canceled the order.",
        staff="The shop has canceled the order: do not ship it.",
        summary="The shop canceled the order",
    ),
    "price_unknown": ReasonWords(
        sentence="what the order costs is not known",
        plain="The order waits until its price is known.",
        staff="Do not ship: state the price of the order first.",
        summary="What the order costs is not known",
    ),
    "price_of_nothing": ReasonWords(
        sentence="nothing is due, but it is not confirmed that the order is free; the shop must "
        "state this, and a verified event must say that the session ended with an amount "
        "of zero",
        plain="The order waits until it is confirmed that it costs nothing.",
        staff="Do not ship: it is not confirmed that the order costs nothing. State it as free, "
        "and check at the payment service whether its session has ended.",
        summary="Nothing is due, but it is not confirmed that the order is free",
    ),
    "price_not_of_shop": ReasonWords(
        sentence="the shop itself has not said what the order costs; state the order and its "
        "price, or start its payments through us",
        plain="The order waits until the shop itself has stated its price.",
        staff="Do not ship: state the order with its price first.",
        summary="The shop itself has not said what the order costs",
    ),
    "held_back": ReasonWords(
        sentence="held back since {held_at} ({hold}); a person must release it",
        plain="The order is on hold since {held_at}.",
        staff="Do not ship: the order is on hold since {held_at}. Find out why, then "
        "release it on its page, or with `tallyhook orders release`.",
        summary="Held back until a person releases it",
    ),
    "money_may_go_back": ReasonWords(
        sentence="money may be on its way back, and what is left would not pay for the order",
        plain="The order waits: some of the money may be on its way back.",
        staff="Do not ship: some of the money may be on its way back to the customer.",
        summary="Money may be on its way back",
    ),
    # orders where no money moved
    "money_reserved": ReasonWords(
        sentence="Authorized: the money is reserved and not yet taken",
        plain="The money is reserved on the customer's account, and has not been taken yet.",
        summary="The money is reserved and not yet taken",
    ),
    "still_open": ReasonWords(
        sentence="Pending: no final event yet; one is awaited until {deadline_at}",
        plain="The payment is not finished yet. We wait for it until {deadline_at}.",
        summary="No final event yet, and the deadline is ahead",
    ),
    "overdue_at_provider": ReasonWords(
        sentence="Pending: the provider should have said by {deadline_at} how the payment ended; "
        "ask there",
        plain="The payment takes days, and the payment service should have said by {deadline_at} "
        "how it ended. It has not yet, so the payment may still come through.",
        staff="Ask the payment service how the payment ended.",
        summary="A slow payment is overdue at the provider",
    ),
    "confirmation_awaited": ReasonWords(
        sentence="Pending: an event came that counts only if its provider confirms it; the "
        "provider has not confirmed it yet",
        plain="A message about the payment came, but the payment service has not confirmed it yet.",
        staff="The payment service is being asked: wait for its answer.",
        summary="The provider has not confirmed an event",
    ),
    "last_word_event_says_declined": ReasonWords(
        sentence="Failed: the last attempt, {attempt}, was declined{reason}",
        plain="The payment was declined{reason}.",
        summary="The last attempt was declined",
    ),
    "last_word_event_says_canceled": ReasonWords(
        sentence="Canceled: the last attempt, {attempt}, was canceled{reason}",
        plain="The payment was canceled{reason}.",
        summary="The last attempt was canceled",
    ),
    "last_word_event_says_released": ReasonWords(
        sentence="Released: the money of the last attempt, {attempt}, was reserved and then "
        "released{reason}",
        plain="The money was reserved, and has been released: it was never taken.",
        summary="The money of the last attempt was reserved and then released",
    ),
    "last_word_event_says_expired": ReasonWords(
        sentence="Expired: the last attempt, {attempt}, expired{reason}",
        plain="The payment was not made in time.",
        summary="The last attempt expired",
    ),
    "last_word_event_says_timed_out": ReasonWords(
        sentence="Timed out: the provider gave up on {attempt}{reason}",
        plain="The payment service stopped waiting for the payment.",
        summary="The provider gave up on the last attempt",
    ),
    "last_word_no_final_event_by_deadline": ReasonWords(
        sentence="Timed out: no final event for {attempt} had come by {deadline_at}",
        plain="The payment was begun, but by {deadline_at} nobody had told us how it ended.",
        summary="No final event had come by the deadline",
    ),
    "last_word_session_refused": ReasonWords(
        sentence="Failed: the provider refused to open a session{reason}",
        plain="The payment service did not let the payment begin.",
        summary="The provider refused to open a session",
    ),
    "canceled_by_merchant": ReasonWords(
        sentence="Canceled by the shop at {canceled_at}; no payment is known",
        plain="The shop canceled the order on {canceled_at}. No payment of it is known.",
        summary="Canceled by the shop, and no payment is known",
    ),
    "nothing_attempted": ReasonWords(
        sentence="Not attempted: the order is known, but no payment is known",
        plain="We have had no word of a payment for this order.",
        summary="No payment is known",
    ),
    "nothing_known": ReasonWords(
        sentence="Not attempted: nobody has told us anything of this order",
        plain="We have had no word of this order.",
        summary="Nobody has told us anything of the order",
    ),
}

ATTEMPT_REASONS: Final[dict[str, str]] = {
    "event_says_succeeded": "The provider says it succeeded",
    "event_says_authorized": "The provider says the money is reserved and not yet taken",
    "event_says_declined": "The provider says it was declined{reason}",
    "event_says_canceled": "The provider says it was canceled{reason}",
    "event_says_released": "The provider says the money was reserved and then released{reason}",
    "event_says_expired": "The provider says it expired{reason}",
    "event_says_timed_out": "The provider says it timed out{reason}",
    "session_refused": "The provider refused to open the session{reason}",
    "waiting_for_final_event": "No final event yet; one is awaited until {deadline_at}",
    "awaiting_confirmation": "An event came that does not count by itself; its provider has not "
    "confirmed it",
    "no_final_event_by_deadline": "No final event had come by {deadline_at}",
}
