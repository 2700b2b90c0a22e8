"""Template filters that render codes, money and moments for people."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from app.access.operators import Action
from app.console.locales import local_day, local_number
from app.console.view import FORMATS
from app.core.text import capital
from app.core.zones import local_pieces, wall_clock
from reconcile.instants import DAY, Instant, format_instant, moment_of, parse_instant
from reconcile.ledger.records import HoldReason
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.breaks import LateDecision
from reconcile.matching.control import Bucket, Side
from reconcile.money import EXPONENTS
from reconcile.reporting.words import BUCKET_WORDS

TONES: Final[Mapping[str, str]] = {
    "succeeded": "good",
    "authorized": "wait",
    "pending": "wait",
    "not_attempted": "quiet",
    "unresolved": "look",
    "disputed": "look",
    "charged_back": "bad",
    "failed": "bad",
    "canceled": "quiet",
    "expired": "quiet",
    "timed_out": "quiet",
    "refunded": "back",
    "partially_refunded": "back",
    "stored": "good",
    "duplicate": "quiet",
    "duplicate_with_different_body": "look",
    "unreadable": "bad",
    "not_ours": "quiet",
    "delivered": "good",
    "waiting": "wait",
    "stuck": "bad",
    "dead": "bad",
    "open": "look",
    "assigned": "wait",
    "accepted": "good",
    "closed": "quiet",
    "approved": "good",
    "rejected": "bad",
    "withdrawn": "quiet",
    "done": "good",
    "running": "wait",
    "to_decide": "look",
    "waits_for_refund": "wait",
    "settled": "good",
    "passed": "good",
    "to_sign": "wait",
    "not_run_yet": "wait",
    "not_yet": "wait",
    "to_do": "look",
    "reading": "wait",
    "to_choose": "look",
    "to_confirm": "look",
    "refused": "bad",
    "importing": "wait",
    "imported": "good",
    "ok": "good",
    "refusing": "bad",
    "not_placed": "look",
    "flooded": "look",
    "never_delivered": "wait",
    "quiet": "quiet",
    "info": "quiet",
    "warning": "look",
    "error": "bad",
    "matched": "good",
    "break": "look",
}
"""Tone of each code, which determines the colour of its badge beside the text."""

VERDICTS: Final[Mapping[str, str]] = {
    "stored": "Accepted: its signature is right, and it is stored.",
    "duplicate": "A repeat of an earlier event; it counts once.",
    "duplicate_with_different_body": "The event id of an earlier event, but other content: both "
    "are stored, and a person must look at them.",
    "unreadable": "Genuine, but the source's profile cannot read it: correct the profile.",
    "not_ours": (
        "Genuine, but for another shop or seller on the same provider account: it is stored, "
        "and counts for no order."
    ),
    "signature_missing": "Refused: no signature came with it.",
    "signature_mismatch": "Refused: its signature matches none of the source's secrets.",
    "timestamp_missing": "Refused: it does not say when it was signed.",
    "timestamp_too_old": "Refused: it was signed too long ago.",
    "timestamp_too_new": "Refused: it was signed in the future; look at the clocks.",
    "source_unknown": "Refused: no source of this name is configured.",
    "body_too_large": "Refused: it is larger than the limit.",
    "wrong_environment": "Refused: it belongs to the other environment.",
    "wrong_account": "Refused: it belongs to another account of the provider.",
}

OUTCOMES: Final[Mapping[str, str]] = {
    "succeeded": "The money has arrived.",
    "authorized": "The money is reserved at the provider and not taken yet.",
    "pending": "The payment is still under way.",
    "failed": "The payment was declined. As far as is known, no money arrived.",
    "canceled": "The payment was canceled. As far as is known, no money arrived.",
    "expired": "The payment expired before it was made. As far as is known, no money arrived.",
    "timed_out": (
        "No final result of the payment arrived in time. As far as is known, no money arrived."
    ),
    "not_attempted": "No payment is known.",
    "refunded": "The money was given back.",
    "partially_refunded": "A part of the money was given back.",
    "disputed": "The payment is disputed at the customer's bank, and that is not decided yet.",
    "charged_back": "The payment was lost in a dispute: the money went back.",
    "unresolved": "What arrived does not fit the order; a person must settle it.",
}

FINDINGS: Final[Mapping[FindingCode, str]] = {
    "redelivered": "Message sent again",
    "semantic_duplicate": "Reported more than once",
    "out_of_order": "Messages out of order",
    "delivered_late": "Message came late",
    "recovered_on_later_attempt": "Paid at a later attempt",
    "dispute_won": "Dispute won",
    "success_after_deadline": "Payment reported after the deadline",
    "contradictory_claims": "Messages contradict each other",
    "unrecognized_event": "Message of an unknown kind",
    "dated_in_future": "Message dated in the future",
    "order_unknown": "Order not registered by the shop",
    "session_unknown": "No answer to the payment request",
    "refund_without_payment": "Refund of an unknown payment",
    "refund_standalone": "Refund without a payment",
    "paid_but_not_fulfilled": "Paid, not shipped",
    "price_changed": "Price changed",
    "dispute_open": "Dispute open",
    "dispute_lost": "Dispute lost",
    "refund_pending": "Refund under way",
    "refund_overdue": "Refund overdue at the provider",
    "refund_failed": "Refund failed",
    "reversal_amount_mismatch": "Reversal of another amount",
    "amount_not_price": "Amount matches no price of the order",
    "maybe_other_shop": "Perhaps another shop's payment",
    "assignment_contradicted": "Assigned, but its event names another order",
    "same_id_different_body": "Message with two different contents",
    "conflicting_amounts": "Messages state different amounts",
    "paid_twice": "Paid more than once",
    "amount_mismatch": "Amount is not the price",
    "amount_off_by_minor_unit": "Amount in the wrong unit",
    "currency_mismatch": "Currency differs from the price",
    "refund_exceeds_capture": "More given back than was paid",
    "fulfilled_but_not_paid": "Shipped, not paid",
    "paid_after_cancel": "Paid after the cancellation",
    "overpaid": "Overpaid",
    "other_currency_received": "Money in another currency",
    "unread_money_event": "Unknown kind of message about money",
    "held_back": "On hold until a person releases it",
}

HOLDS: Final[Mapping[HoldReason, str]] = {
    "rules_changed": "Only a newer version allows shipping it",
    "poisoned_delivery": "A message about it was set aside",
    "unreadable_delivery": "A message about it cannot be read",
    "maybe_other_shop": "Its payment may be another shop's",
    "gap_accepted": "Reports about its money may be lost",
}

AGES: Final = {
    "week": "Up to a week old",
    "month": "8 to 30 days old",
    "older": "Older than 30 days",
}

SETTLINGS: Final[Mapping[LateDecision, str]] = {
    "refund": "Give it back",
    "accept": "Keep it",
    "credit": "Credit it to the customer",
}

BANK_PLACES: Final[Mapping[Bucket, str]] = {
    "by_reference": "It names its payout, and the amounts are equal.",
    "by_group": "Several payouts or bookings that name each other, and whose sums are equal.",
    "by_tolerance": "It names its payout, and differs by less than the rules tolerate.",
    "by_date_window": "Its amount equals a payout of those days; neither names the other.",
    "by_hand": "A person matched it with its payout.",
    "by_exchange": "It names its payout, which was in another currency.",
    "payout_amount_differs": "It names its payout, but the amounts differ.",
    "bank_line_unknown": "No payout of any provider's statement is known for it.",
    "awaiting_statement": "Booked after the last day that imported statements cover.",
    "not_covered": "Its payout may be of a day that no imported statement covers.",
    "other_business": "Not a payout: outgoing money, or money that no provider sent.",
}

SIDE_SENTENCES: Final[Mapping[Side, str]] = {
    "book": "Lines of the order book.",
    "takings": "Captures, compared with the order book.",
    "settlement": "Captures, compared with the provider's statements.",
    "statement": "Lines of the provider's statements.",
    "payouts": "Payouts of the statements, compared with the bank.",
    "bank": "What the bank booked.",
}

BREAK_STATES: Final[Mapping[str, str]] = {
    "open": "Nobody has taken it yet.",
    "assigned": "Somebody is working on it.",
    "accepted": "Written off. It opens again as soon as its money changes.",
    "closed": "Nothing differs any more.",
    "to_decide": "Nobody has decided about it yet.",
    "waits_for_refund": "The money is to go back, but the refund has not come yet.",
    "settled": "The money is kept or credited.",
}
"""Sentence that explains each state of a break and of late money."""

STEPS: Final[Mapping[str, str]] = {
    "opened": "saw it first",
    "changed": "saw it changed",
    "closed": "no longer saw it",
    "reopened": "saw it again",
    "assigned": "assigned it to somebody",
    "commented": "noted",
    "accepted": "accepted it",
    "matched": "matched it with a line",
    "unmatched": "undid the match",
    "settled": "decided about its money",
}

NOTIFICATIONS: Final[Mapping[str, str]] = {
    "waiting": "The shop has not accepted it yet; it is sent again automatically.",
    "stuck": (
        "The shop refuses it again and again; its log says why. It is sent again automatically."
    ),
    "delivered": "The shop has accepted it.",
    "dead": "The shop did not accept it for three days. It is sent again when a person asks.",
}

PROPOSALS: Final[Mapping[str, str]] = {
    "waiting": "It waits for a second person. Until then nothing is done.",
    "expired": "Nobody decided in time, and nothing was done.",
    "approved": "Another operator approved it, and it was done.",
    "rejected": "Another operator rejected it, and nothing was done.",
    "withdrawn": "Its proposer withdrew it, and nothing was done.",
}

BEGUN: Final = "Another operator approved it, and it was started."

OPEN: Final = (
    "Another operator approved it. For a limited time, only its proposer may carry it out."
)

DONE_BY: Final[Mapping[str, str]] = {"unmask": "see-numbers", "export": "take-copy"}

TAKEN: Final[Mapping[str, str]] = {
    "looking": "is working on it",
    "waiting": "waits for somebody else",
}

ACTIONS: Final[Mapping[Action, str]] = {
    "records_imported": "imported records",
    "statement_imported": "imported a statement",
    "bank_imported": "imported a bank's file",
    "mapping_saved": "saved a mapping",
    "mapping_deleted": "deleted a mapping",
    "records_withdrawn": "withdrew an import of records",
    "statement_withdrawn": "withdrew a statement",
    "bank_withdrawn": "withdrew a bank's file",
    "coverage_declared": "declared what files cover",
    "coverage_withdrawn": "withdrew a declaration of what files cover",
    "rules_saved": "put matching rules in force",
    "break_assigned": "assigned a break",
    "break_commented": "commented on a break",
    "break_accepted": "accepted a break",
    "break_matched": "matched a break by hand",
    "break_unmatched": "undid a match by hand",
    "late_money_settled": "decided about late money",
    "payment_proposed": "proposed what to do about a payment",
    "payment_assigned": "assigned a payment to an order",
    "payment_withdrawn": "withdrew a decision about a payment",
    "payment_dismissed": "dismissed a payment that belongs to no order",
    "reconciled": "started a run",
    "schedule_run": "ran an entry of the schedule",
    "report_delivered": "delivered a report",
    "period_closed": "closed a month",
    "period_reopened": "reopened a month",
    "evidence_built": "took an evidence bundle",
    "letter_taken": "took an order's letter",
    "attached": "attached a file",
    "detached": "deleted an attachment",
    "attachment_read": "looked at an attachment",
    "unmasked": "saw a phone number, or a body, in full",
    "person_sought": "searched for a person",
    "erased": "erased personal data",
    "data_exported": "took a copy of a person's data",
    "restored_without_erasures": "restored a backup without its erasures",
    "key_rotated": "began a new evidence key",
    "log_renamed": "gave the log a new origin",
    "operator_added": "added an operator",
    "operator_disabled": "disabled an operator",
    "operator_invited": "invited an operator",
    "notices_chosen": "chose how an operator is notified of work",
    "founders_vouched": "vouched for two founders",
    "sessions_ended": "ended somebody's sessions",
    "token_added": "made a token",
    "token_revoked": "revoked a token",
    "item_signed": "signed an item of the go-live checklist",
    "notifications_redelivered": "notified the shop again",
    "orders_released": "released orders",
    "finding_accepted": "accepted a finding of an order",
    "clock_put_right": "redated entries from a clock that was ahead",
    "deliveries_reverified": "judged refused deliveries again",
    "message_judged": "judged a message that could not be read",
    "deliveries_retried": "had set-aside deliveries read again",
    "rejection_read": "looked at a refused delivery",
    "pruned": "deleted data past its retention period",
    "price_changed": "changed an order's price",
    "backed_up": "made a backup",
    "restored": "restored a backup",
    "inbox_adopted": "took over an inbox",
    "gap_accepted": "accepted a gap",
    "took_over": "went on after a standby took over",
    "proposed": "proposed what needs a second person",
    "proposal_approved": "approved a proposal",
    "proposal_rejected": "rejected a proposal",
    "proposal_withdrawn": "withdrew a proposal",
    "note_added": "noted something on an order",
    "alarm_taken": "took an alarm",
    "test_event_sent": "sent a test event",
    "golive_checked": "had the go-live checks run",
    "signed_in": "signed in to the console",
    "sign_in_failed": "did not prove who they are",
    "password_changed": "changed their password",
    "second_factor_set": "set a second factor",
    "passkey_added": "added a passkey",
    "passkey_removed": "removed a passkey",
    "company_linked": "linked the company's account",
    "role_changed": "signed in with another role of the company's account",
}


def with_words(filters: Mapping[str, Any], **changed: Any) -> str:
    """Return a query string of the filters with some changes.

    None removes a filter.
    """
    chosen = {name: value for name, value in {**filters, **changed}.items() if value is not None}
    return f"?{urlencode(chosen)}" if chosen else ""


def badge(word: str) -> Markup:
    """Render a code as a badge with a colour and a symbol."""
    tone, words = TONES.get(word, "bad"), word.replace("_", " ")
    return Markup('<span class="badge {}">{}</span>').format(tone, words)


_AMOUNT: Final = re.compile(r"\b([A-Z]{3} )(-?\d{1,3}(?:,\d{3})*(?:\.\d+)?)(?![\w.,]*\d)", re.ASCII)


def prose_in(zone: tzinfo) -> Callable[[str], Markup]:
    """Return the template filter for sentences that the program writes."""

    def local(found: re.Match[str]) -> str:
        if found[1].strip() not in EXPONENTS:
            return found[0]
        return found[1] + major(found[2].replace(",", ""))

    def plain(text: str) -> Markup:
        return Markup().join(
            escape(_AMOUNT.sub(local, piece.text))
            if piece.at is None
            else Markup('<time title="{} UTC">{}</time>').format(
                format_instant(piece.at).replace("T", " ").rstrip("Z"), piece.text
            )
            for piece in local_pieces(text, zone)
        )

    def prose(text: str) -> Markup:
        parts = text.split("`")
        if len(parts) % 2 == 0:  # an unpaired backquote is shown as it is
            return plain(text)
        return Markup().join(
            _code(part) if place % 2 else plain(part) for place, part in enumerate(parts)
        )

    return prose


_SHOWS: Final = re.compile(r"tallyhook (deliveries|proposals) show (\w+)", re.ASCII)

_LISTS: Final = {
    "tallyhook proposals list": ("/proposals", "the list"),
    "tallyhook deliveries list": ("/deliveries", "the list of deliveries"),
    "tallyhook unallocated list": ("/unallocated", "the list of payments without an order"),
    "tallyhook reconcile list": ("/runs", "the list of runs"),
    "tallyhook breaks list": ("/breaks", "the list of breaks"),
    "tallyhook bank list": ("/bank", "the list of bookings"),
    "tallyhook period list": ("/periods", "the list of months"),
    "tallyhook records imports": ("/imports?kind=book", "the list of order books"),
    "statement imports": ("/imports?kind=statement", "of statements"),
    "tallyhook statement imports": ("/imports?kind=statement", "the list of statements"),
    "bank imports": ("/imports?kind=bank", "of the bank's files"),
    "tallyhook bank imports": ("/imports?kind=bank", "the list of the bank's files"),
}


def _code(command: str) -> Markup:
    if command in _LISTS:
        path, word = _LISTS[command]
        return Markup('<a href="{}">{}</a>').format(path, word)
    found = _SHOWS.fullmatch(command)
    if found is None:
        return Markup("<code>{}</code>").format(command)
    return Markup('<a href="{}">its page</a>').format(address(found[1], found[2]))


_OPTIONS: Final = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        (r"--where: ", ""),
        (r"(?:, or|, )? ?with --jobs 1(?: if memory was short)?", ""),
        (r"--where fits", "The choice fits"),
        (r"give --source, the", "choose the"),
        (r"give --source \S+(?: or \S+)*\. ", "choose another source. "),
        (r"give --kind.*", "choose which"),
        (r"name it with --sheet", "read the file again and choose it"),
        (
            r"(?:, )?(?:or )?give --dates(?: excel)?",
            ", or choose in the form how dates are written",
        ),
        (r"give --encoding NAME", "write its encoding in the form"),
        (r"give --encoding (\S+?)([).,;]|$)", r"write \1 as its encoding in the form\2"),
        (r"\(--encoding (\S+?)\)", r"(encoding \1)"),
        (r'give --delimiter ";", for example', "choose the delimiter in the form"),
        (r", or with --currency [A-Z]{3}", ", or in the form"),
        (r"^--currency ", "the currency "),
        (r", or give --account NAME", ", or in the form"),
        (r" with --account NAME", " in the form"),
        (r" or --zone Africa/Nairobi,", ","),
        (r"--preset ", "the export "),
        (r"--mapping", "a mapping"),
        (r"--reason", "the reason"),
        (r"^--phone must be", "a phone number must be"),
        (r"^--email must be one complete email", "write one complete email"),
        (r"--from must be before --to", "the first day must not lie after the last one"),
        (r"^--to takes", "the field takes"),
        ("--as-of is in", "that moment is in"),
        (r"had not begun at --as-of: choose a later moment", "has not begun: choose earlier days"),
        (r"or take --format html", "or choose HTML"),
        (r"give an earlier --as-of", "choose an earlier moment"),
        (r"name one of these lines with --line", "choose one of these lines"),
    )
)


def file_part(text: str) -> str:
    """Return a text without the characters that a file's name may not have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80] or "order"


def spoken(text: str) -> str:
    """Return an error's text in the words of forms."""
    sentence = capital(of_forms(text))
    return sentence + ("" if sentence.endswith((".", "?", "!")) else ".")


def of_forms(text: str) -> str:
    """Replace command options by the names of form fields."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        for pattern, words in _OPTIONS:
            parts[place] = pattern.sub(words, parts[place])
    return "`".join(parts)


def ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def major(amount: str) -> str:
    """Format an amount in major units with the locale's separators."""
    return local_number(Decimal(amount))


def money(value: Mapping[str, Any] | None) -> Markup:
    """Render an amount of money, or a dash for None."""
    if value is None:
        return Markup('<span class="none">—</span>')
    return Markup('<span class="money">{}</span>').format(money_cell(value))


def money_cell(value: Mapping[str, Any] | None) -> Markup:
    """Render an amount for a table cell."""
    if value is None:
        return Markup('<span class="none">—</span>')
    shown = Markup("<small>{}</small> {}")
    return shown.format(value["currency"], major(value["amount"]))


def plain_money(value: Mapping[str, Any]) -> str:
    return f"{value['currency']} {Decimal(value['amount']):,}"


def moment_in(zone: tzinfo) -> Callable[[str | None], Markup]:
    """Return the template filter that shows moments in the zone."""

    def moment(value: str | None) -> Markup:
        if value is None:
            return Markup('<span class="none">—</span>')
        local = datetime.fromisoformat(value)
        with suppress(OverflowError):  # at the ends of the calendar, where conversion fails
            local = local.astimezone(zone)
        shown = Markup('<time title="{} UTC"><span class="day">{}</span> {}</time>')
        utc = value.replace("T", " ").rstrip("Z")
        return shown.format(utc, local_day(local), f"{local:%H:%M:%S}")

    return moment


def booked_in(zone: tzinfo) -> Callable[[str], Markup]:
    """Return the template filter for booking dates of imported files."""
    moment = moment_in(zone)

    def booked(value: str) -> Markup:
        local = wall_clock(parse_instant(value), zone)
        if local % DAY:
            return moment(value)
        return Markup('<time title="{} UTC"><span class="day">{}</span></time>').format(
            value.replace("T", " ").rstrip("Z"), local_day(moment_of(local))
        )

    return booked


def clock_time(instant: Instant, zone: tzinfo) -> str:
    return format_instant(wall_clock(instant, zone))[11:16]


def address(kind: str, name: str, form: str = "") -> str:
    """Return the address of a subject's page.

    kind  first part of the address, such as `orders`
    form  ending for a format; empty for HTML
    """
    ending = f".{form}" if form else ""
    if not form and name.rpartition(".")[2] in FORMATS:
        ending = ".html"
    return f"/{kind}/{quote(name, safe='')}{ending}"


def size(count: int) -> str:
    """Format a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 10_240 or unit == "GiB":
            return f"{local_number(count)} {unit}"
        count //= 1024
    raise AssertionError


def called(code: str) -> str:
    """Return the readable name of a cause or bucket."""
    return _named(BUCKET_WORDS, code)


def finding(code: str) -> str:
    return _named(FINDINGS, code)


def _named(names: Mapping[Any, str], code: str) -> str:
    return names.get(code, code.replace("_", " ").capitalize())


def marked(value: object) -> str:
    """Return a code as words, escaped for HTML."""
    return str(escape(str(value).replace("_", " ")))
