"""The plots that stories follow: what can happen to an order, each with its truth.

A plot states what happens and says in the end which outcome, which money and which breaks there
truly are. `CYCLE` is a row of orders; every break cause is in it a known number of times.
"""

from collections.abc import Callable

from tests.finance.story import FACTORS, Telling

HALF_HOUR = 1_800


def pays(t: Telling, *, book: str | None = "paid") -> None:
    # Tell what most orders do: placed, pending, paid, in the books and on the statement.
    t.waits()
    t.sells(book=book)


# --- nothing is wrong ----------------------------------------------------------------------------


def paid_with_redeliveries(t: Telling) -> None:
    # Every webhook comes three times, the last of them a day later.
    t.waits(again=(9, 40))
    t.sells(again=(30, 86_400))


def paid_out_of_order(t: Telling) -> None:
    # The success comes before the pending event.
    t.waits(lag=300)
    t.sells()


def paid_slowly(t: Telling) -> None:
    # The success takes ten minutes to reach us, in time.
    t.waits()
    t.sells(lag=600)


def declined_then_paid(t: Telling) -> None:
    # A further attempt succeeds.
    t.waits()
    t.hears("declined", 30)
    t.sells(after=90, place=1)


def paid_in_parts(t: Telling) -> None:
    # Two payments for one order.
    half = t.price // 2
    t.sells(paid=half)
    t.hears("succeeded", 90, place=1, paid=t.price - half)
    t.settles(minor=t.price - half, place=1)
    t.ends("succeeded", captured=t.price)


def paid_for_three_invoices(t: Telling) -> None:
    # One payment for three invoices of one group.
    t.sells(book=None)
    third = t.price // 3
    for place, minor in enumerate((third, third, t.price - 2 * third), 1):
        reference = f"INV-{t.order}-{place}"
        t.books("paid", minor, reference=reference, kind="invoice", group=t.order)


def declined(t: Telling) -> None:
    # No money, and the books know.
    t.hears("declined", 40)
    t.books("unpaid")
    t.ends("failed")


def timed_out(t: Telling) -> None:
    # Pending, then nothing ever; the books know.
    t.waits()
    t.books("unpaid")
    t.ends("timed_out")


def canceled(t: Telling) -> None:
    # The customer cancels; the books know.
    t.hears("canceled", 50)
    t.books("canceled")
    t.ends("canceled")


def never_tried(t: Telling) -> None:
    # Placed, and nobody tried to pay.
    t.books("unpaid")
    t.ends("not_attempted")


def refunded(t: Telling) -> None:
    # All the money went back in two refunds, and everybody knows.
    t.sells(book="refunded")
    for after, part in ((4_000, t.price // 4), (9_000, t.price - t.price // 4)):
        t.hears("refunded", after, back=part)
        t.settles("refund", part)
    t.ends("refunded", captured=t.price, returned=t.price)


def dispute_won(t: Telling) -> None:
    # Disputed, and won: the money stayed.
    t.sells()
    t.hears("disputed", 5_000)
    t.hears("dispute_won", 9_000)


# --- something is wrong --------------------------------------------------------------------------


def not_in_book(t: Telling) -> None:
    # Paid and settled, and the merchant has no row.
    pays(t, book=None)
    t.leaves("paid_not_in_book", t.price)


def book_says_paid(t: Telling) -> None:
    # The book says paid; the one attempt was declined.
    t.hears("declined", 40)
    t.books("paid")
    t.ends("failed")
    t.leaves("book_paid_not_received", t.price)


def book_says_unpaid(t: Telling) -> None:
    # Paid, and the book says unpaid.
    pays(t, book="unpaid")
    t.leaves("book_unpaid_but_received", t.price)


def other_amount_in_book(t: Telling) -> None:
    # The book has another amount than the shop asked for and the customer paid.
    t.sells(booked=t.price + 37)
    t.leaves("amount_differs", 37)


def other_unit_in_book(t: Telling) -> None:
    # The book has minor units where major ones belong.
    wrong = t.price * FACTORS[t.currency]
    t.sells(booked=wrong)
    t.leaves("off_by_minor_unit", wrong - t.price)


def other_currency_in_book(t: Telling) -> None:
    # The book has the same number in another currency.
    t.sells(book=None)
    t.books("paid", currency="USD")
    t.leaves("currency_differs", t.price)


def paid_twice(t: Telling) -> None:
    # Two payments of the whole price: one is owed back.
    t.sells()
    t.hears("succeeded", 90, place=1)
    t.settles(place=1)
    t.ends("succeeded", captured=2 * t.price)
    t.leaves("paid_twice", t.price)


def refund_the_book_lacks(t: Telling) -> None:
    # All the money went back; the book still says paid.
    t.sells()
    t.hears("refunded", 4_000, back=t.price)
    t.settles("refund")
    t.ends("refunded", captured=t.price, returned=t.price)
    t.leaves("refund_not_in_book", t.price)


def refund_that_never_came(t: Telling) -> None:
    # The book says refunded; the money never went back.
    pays(t, book="refunded")
    t.leaves("refund_not_received", t.price)


def unsettled(t: Telling) -> None:
    # Paid, and not on the statement.
    t.sells(settled=False)
    t.leaves("not_settled", t.price)


def never_notified(t: Telling) -> None:
    # On the statement and in the book, and no webhook or shop told us.
    t.story.said.clear()
    t.books("paid")
    t.settles()
    t.ends(None)
    t.leaves("settled_never_notified", t.price)


def other_fee(t: Telling) -> None:
    # The provider kept more than was agreed.
    t.sells(settled=False)
    t.settles(more_fee=11)
    t.leaves("fee_unexpected", 11)


def paid_after_cancel(t: Telling) -> None:
    # The shop had canceled when the money came.
    t.waits()
    t.cancels(600)
    t.sells(after=900, book="canceled")
    t.leaves("late_money", t.price)


def paid_after_deadline(t: Telling) -> None:
    # The money came long after the customer's time was over, and the shop had given up.
    t.waits()
    t.sells(after=3 * HALF_HOUR, book="unpaid")
    t.leaves("late_money", t.price)


def other_amount_paid(t: Telling) -> None:
    # The customer paid less than the price, which the book has.
    paid = t.price - 100
    t.sells(paid=paid)
    t.ends("unresolved", captured=paid)
    t.leaves("amount_differs", 100)


def price_unclear(t: Telling) -> None:
    # The book agrees with the money, and the shop had asked for more.
    paid = t.price - 100
    t.sells(paid=paid, booked=paid)
    t.ends("unresolved", captured=paid)
    t.leaves("unresolved", paid)


def two_bodies(t: Telling) -> None:
    # One event came twice with different amounts: neither is entered, the greater is at stake.
    event = t.sells()
    t.hears("succeeded", 60, paid=t.price - 100, lag=9, event_id=event)
    t.ends("unresolved")
    t.leaves("unresolved", t.price)


def two_rows_fit(t: Telling) -> None:
    # The book has the order twice, as an order and as an invoice, each paid by itself.
    t.sells()
    t.books("paid", reference=t.order.lower().replace("-", " "), kind="invoice")
    t.leaves("ambiguous", t.price)


def overpaid(t: Telling) -> None:
    # One payment of more than the price: the rest is owed back.
    t.sells(paid=t.price + 50)
    t.leaves("overpaid", 50)


def second_payment_unclear(t: Telling) -> None:
    # Paid; of a second payment two events state different amounts, and the statement has one.
    t.sells()
    t.hears("succeeded", 90, place=1, paid=70)
    t.hears("succeeded", 91, place=1, paid=80)
    t.settles(minor=100, place=1)
    t.leaves("payment_in_doubt", 80)


def charged_back_in_part(t: Telling) -> None:
    # A third was lost in a dispute; the book still says paid.
    third = t.price // 3
    t.sells()
    t.hears("disputed", 5_000, paid=third)
    t.hears("dispute_lost", 9_000, paid=third)
    t.settles("dispute", third)
    t.ends("charged_back", captured=t.price, lost=third)
    t.leaves("refund_not_in_book", third)


def refund_never_taken(t: Telling) -> None:
    # Part of it was refunded, and the statement never takes that.
    part = t.price // 2
    t.sells(booked=t.price - part)
    t.hears("refunded", 4_000, back=part)
    t.ends("partially_refunded", captured=t.price, returned=part)
    t.leaves("refund_not_settled", part)


def refund_of_another_amount(t: Telling) -> None:
    # 300 were refunded, and the statement takes 400.
    t.sells(booked=t.price - 300)
    t.hears("refunded", 4_000, back=300)
    t.settles("refund", 400)
    t.ends("partially_refunded", captured=t.price, returned=300)
    t.leaves("refund_amount_differs", 100)


def won_and_not_given_back(t: Telling) -> None:
    # A dispute was won, and the provider keeps what it took for it.
    dispute_won(t)
    t.settles("dispute")
    t.leaves("dispute_won_not_returned", t.price)


def refund_failed_and_not_given_back(t: Telling) -> None:
    # A refund failed, and the provider keeps what it took for it.
    t.sells()
    refund = t.hears("refunded", 4_000, back=t.price)
    t.hears("refund_failed", 9_000, back=t.price, of=refund)
    t.settles("refund", t.price)
    t.leaves("failed_refund_not_returned", t.price)


# --- nothing is wrong: money that went back in other ways ----------------------------------------


def surplus_given_back(t: Telling) -> None:
    # Too much was paid, and what was too much went back.
    t.sells(paid=t.price + 50)
    t.hears("refunded", 4_000, back=50, paid=t.price + 50)
    t.settles("refund", 50)
    t.ends("succeeded", captured=t.price + 50, returned=50)


def charged_back(t: Telling) -> None:
    # All of it was lost in a dispute, and the book knows.
    t.sells(book="refunded")
    t.hears("disputed", 5_000)
    t.hears("dispute_lost", 9_000)
    t.settles("dispute")
    t.ends("charged_back", captured=t.price, lost=t.price)


def disputed_and_some_came_again(t: Telling) -> None:
    # A dispute was lost and then won for less than it had taken; the book has the difference.
    t.sells(booked=t.price - 180)
    t.hears("disputed", 5_000, paid=300)
    t.hears("dispute_lost", 9_000, paid=300)
    t.hears("dispute_won", 15_000, paid=120)
    t.settles("dispute", 300)
    t.settles("dispute", -120, in_days=3)
    t.ends("charged_back", captured=t.price, lost=180)


Plot = Callable[[Telling], None]

ORDINARY: tuple[Plot, ...] = (
    paid_with_redeliveries,
    paid_out_of_order,
    paid_slowly,
    declined_then_paid,
    paid_in_parts,
    paid_for_three_invoices,
    declined,
    timed_out,
    canceled,
    never_tried,
    refunded,
    dispute_won,
)

BROKEN: tuple[Plot, ...] = (
    not_in_book,
    book_says_paid,
    book_says_unpaid,
    other_amount_in_book,
    other_unit_in_book,
    other_currency_in_book,
    paid_twice,
    refund_the_book_lacks,
    refund_that_never_came,
    unsettled,
    never_notified,
    other_fee,
    paid_after_cancel,
    paid_after_deadline,
    other_amount_paid,
    price_unclear,
    two_bodies,
    two_rows_fit,
    overpaid,
    second_payment_unclear,
    charged_back_in_part,
    refund_never_taken,
    refund_of_another_amount,
    won_and_not_given_back,
    refund_failed_and_not_given_back,
)

WENT_BACK: tuple[Plot, ...] = (surplus_given_back, charged_back, disputed_and_some_came_again)
"""Plots of money that went back, without anything wrong."""

UNDECIDED: tuple[Plot, ...] = (price_unclear, two_bodies, two_rows_fit, second_payment_unclear)
"""Plots that must be decided before a month is closed."""

CYCLE: tuple[Plot, ...] = (*ORDINARY, *BROKEN, *WENT_BACK)
"""A number that three does not divide, so that each plot comes in each of three currencies."""
