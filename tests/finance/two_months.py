"""Two months of a shop in Nairobi, generated: what its providers sent, and the files
that its finance people have, shaped as the exports really are.

    shop = TwoMonths(folder, orders=140)
    shop.write()                      Shopify, Stripe, PayPal, M-PESA and both banks, by month
    await shop.heard(inbox, month)    what came in time; `shop.late` comes after the first closing

`expected` is what is open at a month's end, and `left` what each account of money under way then
holds, both with the late webhook in November. Nothing of it is computed by the code that it judges.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from app.core.ids import new_id
from app.orders.record_store import add_records
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.append_store import Arrival, Ready
from app.receiving.inbox import Inbox
from reconcile.instants import SECOND, Instant, parse_instant
from reconcile.ledger.events import Event
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.finance import exports
from tests.finance.exports import EUROS, SHILLINGS, SHORT_CODE, Bank, PayPal, Till, plain

ZONE: Final = ZoneInfo("Africa/Nairobi")
MONTHS: Final = ("2024-10", "2024-11")
SECRET: Final = "whsec_two_months_of_a_shop_in_nairobi"
OURS: Final = {"json:data.object.metadata.shop": ["main"]}
"""Member that tells the shop's payments from those of the outlet on the same account."""

STRIPE: Final = Source(name="stripe", profile=load_profile("stripe"), secrets=[SECRET], only=OURS)


class Open(NamedTuple):
    """An open item at the end of a month: a break, or money left on an account.

    settled  whether the next month settles it; else it stays
    """

    month: str
    settled: bool
    what: tuple[str, str]
    minor: int = 0


@dataclass(slots=True)
class Files:
    """The rows of one month's files."""

    book: list[dict[str, str]] = field(default_factory=list)
    stripe: list[dict[str, str]] = field(default_factory=list)
    till: list[Till] = field(default_factory=list)
    paypal: list[PayPal] = field(default_factory=list)
    euros: list[Bank] = field(default_factory=list)
    shillings: list[Bank] = field(default_factory=list)


def at(day: datetime) -> Instant:
    return parse_instant(day.astimezone(ZoneInfo("UTC")).strftime("%Y-%m-%dT%H:%M:%SZ"))


def half_up(gross: int, per_mille: int) -> int:
    return (gross * per_mille + 500) // 1000


class TwoMonths:
    """The shop: tells its orders one after the other, and keeps what each side wrote of them.

    orders    of both months together, without those that are odd
    odd       names of the orders that are odd, by what is odd of them
    """

    def __init__(self, folder: Path, *, orders: int = 120) -> None:
        self.folder, self._orders = folder, orders
        self.files = {name: Files() for name in MONTHS}
        self.arrivals: list[Arrival] = []
        self.late: list[Arrival] = []
        self.records: list[Record] = []
        self.odd: dict[str, str] = {}
        self._breaks: list[Open] = []
        self._held: list[Open] = []
        self._month, self._number = MONTHS[0], 1000
        self._tell()

    # --- what happens -----------------------------------------------------------------------------

    def _tell(self) -> None:
        for place, name in enumerate(MONTHS):
            self._month = name
            first = datetime.fromisoformat(f"{name}-01").replace(tzinfo=ZONE)
            for number in range(self._orders // 2):
                day = first + timedelta(days=number * 24 // (self._orders // 2), hours=9)
                day += timedelta(minutes=7 * (number % 60))
                if number % 4 == 1:
                    self._till(day)
                else:
                    self._card(day, country="US" if number % 4 == 3 else "DE")
            self._odd_ones(first, place)
        self._pay_out()

    def _order(self, day: datetime, minor: int, currency: str, method: str, **how: str) -> str:
        """Let the shop place an order, which its book has as paid; return its name."""
        self._number += 1
        name = f"#{self._number}"
        self.records.append(
            Record(
                record_id=new_id("rec_", at(day)),
                recorded_at=at(day),
                kind="order_placed",
                order=name,
                at=at(day),
                money=Money(minor=minor, currency=currency),
            )
        )
        places = 0 if currency == "JPY" else 2
        self.files[f"{day:%Y-%m}"].book.append(
            {
                "Name": name,
                "Email": "",
                "Financial Status": "paid",
                "Paid at": f"{day:%Y-%m-%d %H:%M:%S %z}",
                "Fulfillment Status": "fulfilled",
                "Currency": currency,
                "Total": plain(minor, places),
                "Created at": f"{day:%Y-%m-%d %H:%M:%S %z}",
                "Lineitem quantity": "1",
                "Lineitem name": "Kikapu basket",
                "Payment Method": method,
                "Refunded Amount": plain(0, places),
                **how,
            }
        )
        return name

    def _card(self, day: datetime, *, late: bool = False, country: str = "DE") -> tuple[str, str]:
        minor = 1_500 + self._number % 7 * 350
        order = self._order(day, minor, "EUR", "Shopify Payments")
        return order, self._paid_by_card(order, day, minor, late=late, country=country)

    def _paid_by_card(
        self,
        order: str,
        day: datetime,
        minor: int,
        *,
        currency: str = "EUR",
        settled: int | None = None,
        country: str = "DE",
        late: bool = False,
        shop: str = "main",
    ) -> str:
        """Let Stripe take a payment: the event, and the row of its balance.

        settled  what it is in euros, if in another currency
        country  of the card: the fee is 1.5 % and 0.25 for a German one, 3.25 % and 0.25 for others
        """
        payment, paid = f"pi_{order[1:]}", day + timedelta(minutes=2)
        gross = minor if settled is None else settled
        fee = half_up(gross, 15) + 25 if country == "DE" else (gross * 325 + 5_000) // 10_000 + 25
        body = {
            "id": payment,
            "object": "payment_intent",
            "amount": minor,
            "amount_received": minor,
            "currency": currency.lower(),
            "status": "succeeded",
            "latest_charge": payment.replace("pi_", "ch_"),
            "metadata": {"order_id": order, "shop": shop},
        }
        self._says("payment_intent.succeeded", body, paid, late=late)
        self._balance("charge", payment, order, paid, gross, fee, country=country)
        return payment

    def _says(self, kind: str, body: dict[str, Any], day: datetime, *, late: bool = False) -> None:
        number = len(self.arrivals) + len(self.late)
        raw = json.dumps(
            {
                "id": f"evt_{number:06d}",
                "object": "event",
                "api_version": "2025-09-30.clover",
                "created": int(day.timestamp()),
                "livemode": False,
                "type": kind,
                "data": {"object": body},
            }
        ).encode()
        digest = hashlib.sha256(raw).hexdigest()
        event = STRIPE.read(Incoming([], raw), digest=digest).events[0]
        self._arrives("stripe", event, raw, day, late=late)

    def _arrives(
        self, source: str, event: Event, raw: bytes, day: datetime, *, late: bool = False
    ) -> None:
        received = Instant(at(day) + 3 * SECOND)
        (self.late if late else self.arrivals).append(
            Arrival(
                delivery_id=new_id("dlv_", received),
                received_at=received,
                source=source,
                digest=event.digest,
                headers="content-type: application/json",
                body=raw,
                event=event,
            )
        )

    def _balance(
        self,
        category: str,
        payment: str,
        order: str,
        day: datetime,
        gross: int,
        fee: int = 0,
        *,
        country: str = "",
        payout: str | None = None,
        source: str = "",
    ) -> None:
        """Add a row to Stripe's itemized balance report. `payout`: other than that of its week."""
        month = self.files[f"{day:%Y-%m}"]
        week = min((day.day - 1) // 7, 3)
        utc = day.astimezone(ZoneInfo("UTC"))
        month.stripe.append(
            {
                "balance_transaction_id": f"txn_{len(month.stripe):05d}_{day:%Y%m}",
                "created_utc": f"{utc:%Y-%m-%d %H:%M:%S}",
                "available_on_utc": f"{utc:%Y-%m-%d} 00:00:00",
                "currency": "eur",
                "gross": plain(gross),
                "fee": plain(fee),
                "net": plain(gross - fee),
                "reporting_category": category,
                "source_id": source or payment.replace("pi_", "ch_"),
                "automatic_payout_effective_at_utc": "",
                "automatic_payout_id": f"po_{day:%Y%m}{week}" if payout is None else payout,
                "charge_id": payment.replace("pi_", "ch_"),
                "payment_intent_id": payment,
                "payment_method_type": "card" if country else "",
                "card_brand": "visa" if country else "",
                "card_country": country,
                "payment_metadata[order_id]": order,
            }
        )

    def _till(self, day: datetime) -> None:
        minor = 90_000 + self._number % 9 * 12_500
        order = self._order(day, minor, "KES", "M-PESA")
        self._paid_by_phone(order, day, minor)

    def _paid_by_phone(
        self, order: str, day: datetime, minor: int, *, typed: str | None = None
    ) -> str:
        """Let M-PESA take a payment for an order; `typed`: the account number that the customer
        wrote, if another one."""
        receipt = f"TK{day:%m%d}{self._number % 10_000:04d}"
        paid = day + timedelta(minutes=1)
        money = Money(minor=minor, currency="KES")
        named = order if typed is None else None
        raw = json.dumps({"receipt": receipt}).encode()
        event = Event(
            source="mpesa",
            event_id=f"{receipt}:0",
            digest=hashlib.sha256(raw).hexdigest(),
            kind="0",
            claim="succeeded",
            occurred_at=at(paid),
            order=named,
            payment=receipt,
            money=money,
            standing="fetched",
        )
        self._arrives("mpesa", event, raw, paid)
        self._row(
            "Utility", receipt, paid, f"Pay Bill from 2547******{day:%d} Acc. {typed or order}",
            minor, "Pay Bill Online", order=typed or order, party="2547******12 - A CUSTOMER",
        )  # fmt: skip
        self._row(
            "Utility", receipt, paid, "Pay Bill Charge", -half_up(minor, 5), "Pay Bill Charge"
        )
        return receipt

    def _row(
        self,
        account: str,
        receipt: str,
        day: datetime,
        details: str,
        minor: int,
        reason: str,
        **more: str,
    ) -> None:
        self.files[f"{day:%Y-%m}"].till.append(
            Till(account, receipt, day, details, minor, reason, **more)
        )

    # --- what is odd ------------------------------------------------------------------------------

    def _odd_ones(self, first: datetime, place: int) -> None:
        def day(of: int, hour: int = 12, minute: int = 0) -> datetime:
            return first + timedelta(days=of - 1, hours=hour, minutes=minute)

        if place == 0:
            self.odd["late"], payment = self._card(day(30), late=True)
            self._opens("settled_never_notified", self.odd["late"], settled=True)
            minor = next(
                round(float(row["gross"]) * 100)
                for row in self.files[MONTHS[0]].stripe
                if row["payment_intent_id"] == payment
            )
            self._leaves("Clearing:Provider", "EUR", -minor, settled=True)
            self.odd["never tried"] = self._order(
                day(2), 4_500, "EUR", "Shopify Payments", **{"Financial Status": "pending"}
            )
            self._refund_that_fails(day(28))
            self._yen(day(9), 12_000, 7_412)
            self._yen(day(10), 90, 55)
            self._of_the_other_shop(day(14))
            self._disputed(day(6))
            self._held_back(day(5), day(19))
        else:
            self._bank_transfers(day(4))
            self._told_otherwise(day(6))
            self._to_people(day(8))
            self.odd["mistyped"] = self._mistyped(day(11))
            self._two_at_once(day(13, 15, 1))
        self._by_paypal(day, last=place == 1)

    def _disputed(self, day: datetime) -> None:
        """Lose a dispute: what was paid, and a fee of 20.00, leave the balance as it is opened.
        Shopify still has the order as paid."""
        order, payment = self._card(day)
        minor = 1_500 + (self._number - 1) % 7 * 350
        self.odd["dispute lost"] = order
        opened, named = day + timedelta(days=3), f"du_{order[1:]}"
        dispute = {
            "id": named,
            "object": "dispute",
            "amount": minor,
            "charge": payment.replace("pi_", "ch_"),
            "currency": "eur",
            "metadata": {},
            "payment_intent": payment,
            "reason": "fraudulent",
        }
        self._says("charge.dispute.created", dispute | {"status": "needs_response"}, opened)
        lost = opened + timedelta(days=9)
        self._says("charge.dispute.closed", dispute | {"status": "lost"}, lost)
        self._balance("dispute", payment, order, opened, -minor, 2_000, source=named)
        self._opens("refund_not_in_book", order)

    def _by_paypal(self, day: Callable[[int], datetime], *, last: bool) -> None:
        """Sell by PayPal, which holds some of the money for a while; withdraw all of it, but for
        what comes after that in November."""
        rows = self.files[self._month].paypal
        for number, of in enumerate((6, 8, 11, 25) if last else (6, 8, 11)):
            minor, paid = 2_000 + 725 * number, day(of) + timedelta(minutes=3)
            order = self._order(day(of), minor, "EUR", "PayPal Express Checkout")
            capture = f"5AA{self._number:014d}"
            raw = json.dumps({"id": capture}).encode()
            event = Event(
                source="paypal",
                event_id=f"WH-{capture}",
                digest=hashlib.sha256(raw).hexdigest(),
                kind="PAYMENT.CAPTURE.COMPLETED",
                claim="succeeded",
                occurred_at=at(paid),
                order=order,
                payment=capture,
                money=Money(minor=minor, currency="EUR"),
                standing="fetched",
            )
            self._arrives("paypal", event, raw, paid)
            fee = (minor * 249 + 5_000) // 10_000 + 35
            rows.append(PayPal(paid, capture, "Express Checkout Payment", minor, -fee, order=order))
        held, kind = f"5HA{day(12):%Y%m}", "Hold on Balance for Dispute Investigation"
        rows.append(PayPal(day(12), held, kind, -1_500, status="Placed"))
        kind = "Cancellation of Hold for Dispute Resolution"
        rows.append(PayPal(day(15), f"5HB{day(12):%Y%m}", kind, 1_500, reference=held))
        out, sent = day(24), f"5WA{day(12):%Y%m}"
        minor = sum(each.minor + each.fee for each in rows if each.at < out)
        rows.append(PayPal(out, sent, "General Withdrawal", -minor))
        self.files[self._month].euros.append(
            Bank(day(26), minor, "PayPal Europe S.a.r.l.", f"PAYPAL {sent}")
        )
        if last:
            left = sum(each.minor + each.fee for each in rows)
            self._leaves("Wallets:Paypal:Available", "EUR", left)

    def _refund_that_fails(self, day: datetime) -> None:
        """Refunded in October; the refund fails in November, and the money is back."""
        order, payment = self._card(day)
        minor = 1_500 + (self._number - 1) % 7 * 350
        self.odd["refund failed"] = order
        went, back = day + timedelta(days=2), day + timedelta(days=6)
        named = f"re_{order[1:]}"
        refund = {
            "id": named,
            "object": "refund",
            "amount": minor,
            "currency": "eur",
            "payment_intent": payment,
            "charge": payment.replace("pi_", "ch_"),
            "metadata": {},
        }
        self._says("refund.created", refund | {"status": "succeeded"}, went)
        self._says("refund.failed", refund | {"status": "failed"}, back)
        self._opens("refund_not_in_book", order, settled=True)
        self._balance("refund", payment, order, went, -minor, source=named)
        self._balance("refund_failure", payment, order, back, minor, source=named)

    def _yen(self, day: datetime, minor: int, settled: int) -> None:
        order = self._order(day, minor, "JPY", "Shopify Payments")
        self._paid_by_card(order, day, minor, currency="JPY", settled=settled, country="JP")
        self.odd[f"yen {minor}"] = order

    def _of_the_other_shop(self, day: datetime) -> None:
        """Another shop on the same Stripe account sells something, too."""
        self._number += 1
        order = f"#{self._number}"
        self.odd["other shop"] = order
        self._paid_by_card(order, day, 25_000, shop="outlet")

    def _held_back(self, held: datetime, free: datetime) -> None:
        """Stripe holds 200.00 in reserve for two weeks."""
        for day, minor, what in ((held, -20_000, "held"), (free, 20_000, "released")):
            self._balance("risk_reserved_funds", "", "", day, minor, source=f"rsv_{what}")

    def _bank_transfers(self, day: datetime) -> None:
        """Orders paid by bank transfer, on delivery, and with a gift card."""
        name = self.odd["transfer"] = self._order(day, 8_900, "EUR", "Bank Deposit")
        self.files[f"{day:%Y-%m}"].euros.append(
            Bank(day + timedelta(days=1), 8_900, "Erika Muster", f"Bestellung {name} vielen Dank")
        )
        self.odd["on delivery"] = self._order(day, 3_200, "EUR", "Cash on Delivery (COD)")
        self.odd["gift card"] = self._order(day, 2_500, "EUR", "Gift Card")

    def _told_otherwise(self, day: datetime) -> None:
        """Let a customer pay in part with a gift card: the book says both, Stripe the rest."""
        order = self._order(day, 6_000, "EUR", "gift_card + Shopify Payments")
        self.odd["gift card in part"] = order
        self._paid_by_card(order, day, 4_000)

    def _to_people(self, day: datetime) -> None:
        """Money sent to people by phone: a salary, and one that looks like a refund."""
        order = self._order(day, 77_700, "KES", "M-PESA")
        self._paid_by_phone(order, day, 77_700)
        self.odd["looks refunded"] = order
        for number, minor in enumerate((250_000, 77_700)):
            self._row(
                "Utility", f"TKB2C{day:%m%d}{number}", day + timedelta(days=1, minutes=number),
                "Business Payment to 2547******12", -minor, "Business Payment to Customer",
                party="2547******12 - A CUSTOMER",
            )  # fmt: skip

    def _mistyped(self, day: datetime) -> str:
        order = self._order(day, 64_000, "KES", "M-PESA")
        receipt = self._paid_by_phone(order, day, 64_000, typed="BASKET")
        self._opens("book_paid_not_received", order)
        self._opens("payment_unallocated", receipt)
        self._leaves("Liabilities:Unallocated", "KES", -64_000)
        return order

    def _two_at_once(self, day: datetime) -> None:
        """Let a payment that names no order come minutes after an order of the same sum."""
        order = self.odd["three minutes apart"] = self._order(day, 5_432, "EUR", "Shopify Payments")
        paid = day + timedelta(minutes=1)
        self._number += 1
        payment = f"pi_{self._number}"
        body = {
            "id": payment,
            "object": "payment_intent",
            "amount": 5_432,
            "amount_received": 5_432,
            "currency": "eur",
            "status": "succeeded",
            "metadata": {"shop": "main"},
        }
        self._says("payment_intent.succeeded", body, paid)
        self._balance("charge", payment, "", paid, 5_432, half_up(5_432, 15) + 25, country="DE")
        self._opens("book_paid_not_received", order)
        self._opens("payment_unallocated", payment)
        self._leaves("Liabilities:Unallocated", "EUR", -5_432)

    def _opens(self, cause: str, name: str, *, settled: bool = False) -> None:
        self._breaks.append(Open(self._month, settled, (cause, name)))

    def _leaves(self, account: str, currency: str, minor: int, *, settled: bool = False) -> None:
        role = account if account.startswith("Liabilities") else f"Assets:{account}"
        self._held.append(Open(self._month, settled, (role, currency), minor))

    def expected(self, month: str) -> Counter[tuple[str, str]]:
        """Return (cause, and order, payment or payout) of what is open at a month's end."""
        return Counter(each.what for each in _open(self._breaks, month))

    def left(self, month: str) -> dict[tuple[str, str], Decimal]:
        """Return what accounts of money under way then hold, by account and currency."""
        held = Counter[tuple[str, str]]()
        for each in _open(self._held, month):
            held[each.what] += each.minor
        return {key: Decimal(plain(minor)) for key, minor in held.items() if minor}

    # --- payouts, files ---------------------------------------------------------------------------

    def _pay_out(self) -> None:
        """Let Stripe pay out each week, and move what is on the till to the bank."""
        for name, files in self.files.items():
            self._month = name
            due = defaultdict[str, int](int)
            for row in files.stripe:
                due[row["automatic_payout_id"]] += round(float(row["net"]) * 100)
            first = datetime.fromisoformat(f"{name}-01").replace(tzinfo=ZONE)
            for place, (payout, minor) in enumerate(sorted(due.items())):
                sent = first + timedelta(days=7 * place + 7, hours=11)
                if place == 3:
                    sent = first + timedelta(days=28, hours=11)
                self._sent(files, payout, sent, minor, odd=(name, place))
            for place in range(4):
                until = first + timedelta(days=7 * place + 7 if place < 3 else 28)
                have = sum(row.minor for row in files.till if row.at < until)
                if have > 0:
                    self._swept(files, until, have, short=(name, place) == (MONTHS[1], 1))

    def _sent(
        self, files: Files, payout: str, day: datetime, minor: int, *, odd: tuple[str, int]
    ) -> None:
        """Pay out to the bank. The second of November fails, and is sent again two days later; the
        third of November comes 12.00 short."""
        for row in files.stripe:
            if row["automatic_payout_id"] == payout:
                row["automatic_payout_effective_at_utc"] = f"{day:%Y-%m-%d} 00:00:00"
        self._balance("payout", "", "", day, -minor, payout=payout, source=payout)
        if odd == (MONTHS[1], 1):
            back = day + timedelta(days=1)
            self._balance("payout_reversal", "", "", back, minor, payout=payout, source=payout)
            again = payout + "b"
            day += timedelta(days=2)
            self._balance("payout", "", "", day, -minor, payout=again, source=again)
        missing = 1_200 if odd == (MONTHS[1], 2) else 0
        files.euros.append(
            Bank(day + timedelta(days=1), minor - missing, "Stripe Payments Europe", "STRIPE")
        )
        if missing:  # nothing but the day speaks for the two being one: a person says so
            self._opens("payout_not_in_bank", payout)
            self._opens("bank_line_unknown", plain(minor - missing))
            self._leaves("Clearing:InTransit", "EUR", missing)

    def _swept(self, files: Files, day: datetime, minor: int, *, short: bool) -> None:
        """Move the till's money over the working account to the bank; `short`: it never comes."""
        receipt = f"TKS{day:%m%d}"
        to = f"Organization Settlement Account transfer {receipt}"
        sweep = "Utility Account to Organization Settlement Account"
        self._row("Utility", receipt, day, to, -minor, sweep)
        self._row("Working", receipt, day, to, minor, sweep)
        later = day + timedelta(hours=1)
        self._row(
            "Working", f"TKW{day:%m%d}", later, f"Withdrawal to bank account {SHILLINGS}", -minor,
            "Withdraw Funds to Bank",
        )  # fmt: skip
        if short:
            self._opens("payout_not_in_bank", f"TKW{day:%m%d}")
            self._leaves("Clearing:InTransit", "KES", minor)
            return
        files.shillings.append(
            Bank(day + timedelta(days=1), minor, "SAFARICOM PLC", f"MPESA TKW{day:%m%d}")
        )

    def write(self) -> dict[str, Path]:
        """Write every file; return them by month and kind, as `2024-10/till-utility`."""
        found: dict[str, Path] = {}
        opening: Counter[str] = Counter(euros=1_000_000, shillings=50_000_000)
        for name, files in self.files.items():
            folder = self.folder / name
            folder.mkdir(parents=True, exist_ok=True)
            found[f"{name}/book"] = exports.table(folder / "orders_export.csv", files.book)
            found[f"{name}/stripe"] = exports.table(
                folder / "Itemized_balance_change_from_activity_EUR.csv",
                sorted(files.stripe, key=lambda row: row["created_utc"]),
            )
            opening["paypal"] = exports.paypal(
                folder / "Download.CSV", files.paypal, opening=opening["paypal"]
            )
            found[f"{name}/paypal"] = folder / "Download.CSV"
            for account in ("Utility", "Working"):
                rows = [row for row in files.till if row.account == account]
                path = folder / f"ORG_{SHORT_CODE}_{account}_{name}.csv"
                opening[account] = exports.till(path, account, name, rows, opening=opening[account])
                found[f"{name}/till-{account.lower()}"] = path
            path = folder / f"{EUROS}_{name}.xml"
            opening["euros"] = exports.camt(path, name, files.euros, opening=opening["euros"])
            found[f"{name}/euros"] = path
            path = folder / f"{SHILLINGS}_{name}.sta"
            opening["shillings"] = exports.mt940(
                path, name, files.shillings, opening=opening["shillings"]
            )
            found[f"{name}/shillings"] = path
        return found

    async def heard(self, inbox: Inbox, month: str, *, now: Instant | None = None) -> None:
        """Store what the shop said and what arrived in time in a month. `now`: when it is stored,
        if after a closing."""
        first = datetime.fromisoformat(f"{month}-01").replace(tzinfo=ZONE)
        start, end = at(first), at((first + timedelta(days=31)).replace(day=1))
        records = [each for each in self.records if start <= each.recorded_at < end]
        if now is not None:
            records = [replace(each, recorded_at=now) for each in records]
        async with inbox.database.writing() as connection:
            await add_records(connection, records)
        some = [each for each in self.arrivals if start <= each.received_at < end]
        await self._stored(inbox, sorted(some, key=lambda each: each.received_at), now=now)

    async def heard_late(self, inbox: Inbox, now: Instant) -> None:
        """Store what arrives after the first closing."""
        await self._stored(inbox, self.late, now=now)

    @staticmethod
    async def _stored(inbox: Inbox, some: Sequence[Arrival], *, now: Instant | None) -> None:
        if now is not None:
            some = [e._replace(delivery_id=new_id("dlv_", now), received_at=now) for e in some]
        for begin in range(0, len(some), 1_000):
            await inbox.append([Ready(None, list(some[begin : begin + 1_000]))])


def _open(some: Iterable[Open], month: str) -> Iterator[Open]:
    return (e for e in some if e.month == month or (e.month < month and not e.settled))
