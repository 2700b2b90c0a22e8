"""Explain a ledger in plain words, for customers and for the shop's people."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from reconcile.instants import Duration, Instant, format_duration, plain_instant
from reconcile.ledger import ledger_documents
from reconcile.ledger.attention import acceptance
from reconcile.ledger.declines import WITHOUT_REASON, customer_words
from reconcile.ledger.grouping import ALIKE, grouped
from reconcile.ledger.ledger import Facts, FactValue, Finding, Ledger, Outcome, Reason
from reconcile.ledger.records import GAP_ACCEPTED, MAYBE_OTHERS, UNREADABLE
from reconcile.ledger.unheard import NOTHING, Unheard
from reconcile.ledger.vocabulary import FINDINGS, MANY, REASONS, FindingCode
from reconcile.money import Money

NEXT: Final[dict[Outcome, str]] = {
    "unresolved": "The order waits until this is settled with the payment service.",
    "failed": "As far as we have been told, no money was taken.",
    "canceled": "As far as we have been told, no money was taken.",
    "expired": "As far as we have been told, no money was taken.",
    "timed_out": "As far as we have been told, no money was taken. The payment may still come "
    "through.",
}
"""Sentence that tells a customer what follows, for each outcome."""

WAITING: Final[dict[Outcome, str]] = {
    "disputed": "The order waits until that is decided.",
    "authorized": "The order waits until it is taken.",
    "pending": "The order waits until the payment is finished.",
}
"""Sentence that asks the customer to wait, for each outcome."""

SHIPPING: Final[dict[Outcome, str]] = {
    "unresolved": "Do not ship.",
    "disputed": "Do not ship until the dispute is decided.",
    "charged_back": "Do not ship.",
    "refunded": "Do not ship.",
    "partially_refunded": "Do not ship before it is clear what is still to be sent.",
    "succeeded": "Ship the order.",
    "authorized": "Do not ship before the money is taken. Take it before the reservation ends.",
    "pending": "Do not ship yet.",
    "failed": "Do not ship: it is not paid.",
    "canceled": "Do not ship: it is not paid.",
    "expired": "Do not ship: it is not paid.",
    "timed_out": "Do not ship: no final word of the payment has come.",
    "not_attempted": "Do not ship: no payment for it is known.",
}
"""Instruction on shipping for the shop's people, for each outcome."""

IN_ANSWER: Final[tuple[FindingCode, ...]] = (
    "dispute_open",
    "dispute_lost",
    "dispute_won",
    "refund_overdue",
    "refund_pending",
    "refund_failed",
    "reversal_amount_mismatch",
    "other_currency_received",
    "unread_money_event",
    "paid_after_cancel",
    "fulfilled_but_not_paid",
)

_CLAIMS: Final = {
    "succeeded": "the payment went through",
    "authorized": "the money is reserved",
    "declined": "it was declined",
    "canceled": "it was canceled",
    "expired": "it expired",
    "dispute_won": "the shop won the dispute",
    "dispute_lost": "the shop lost it",
    "of this order": "a payment is for this order",
    "of another": "it is for another one",
}

_MOVEMENTS: Final = {
    "captured": "payment",
    "refunded": "refund",
    "reversed": "payment taken back",
    "dispute_lost": "lost dispute",
}

BESIDE_REFUNDS: Final = frozenset(("dispute_open", "charged_back_in_part"))
"""Reason codes that need an additional sentence about refunds."""

_OPTIONAL: Final = {
    "disputed": " of {}",
    "failed": " of {}",
    "lost": " of {}",
    "pending": " of {}",
    "still_lost": ", but {} of it stays lost",
    "not_lost": ", and {} of what was disputed stays with the shop",
    "under_way": ", and {} of it is already on its way",
    "on_top": " ({} of it on top)",
    "not_given_back": " but {} on top of the price",
}


UNREAD: Final = "A message came that we cannot read yet; ask again later."

REFUSED: Final = (
    "Messages of the payment service do not reach us at present, so we may not know of a payment; "
    "ask again later."
)

NOT_KEPT: Final = (
    "So many messages came to us at once that not all were kept, so we may not know of a payment; "
    "we have to ask the payment service."
)

LOST: Final = (
    "Messages that reached us between {since} and {until} may be lost, so we may not know of a "
    "payment; we have to ask the payment service."
)

UNALLOCATED: Final = (
    "A payment of {money} belongs to no order yet, and may be for this one: we are looking into it."
)
"""Sentence about an unallocated payment, perhaps for the order."""

NOT_SURELY_FOR_IT: Final = (
    "Money came with the number of this order. We are checking whether it is meant for this order."
)

FORGOTTEN: Final = "It is not known at present whether the shop has shipped the order already."

STATE_AGAIN: Final = (
    "A restore or an accepted gap lost statements of the shop, so Tallyhook does not know "
    "whether this order was shipped: check the shop's own books, and state `fulfilled_at`, or "
    "null, before anything is shipped."
)

ASK_AFTER_GAP: Final = (
    "Do not ship: messages in an accepted gap may be lost, such as a refund. Look the payment up "
    "at the payment service, and check in the shop's own books whether the order was shipped; "
    "then release it on its page, or with `tallyhook orders release --held-for gap_accepted`."
)

ABSENT: Final = frozenset(
    (
        "nothing_attempted",
        "nothing_known",
        "canceled_by_merchant",
        "last_word_no_final_event_by_deadline",
    )
)
"""Reason codes for orders without payments or events."""


def with_plain(
    document: ledger_documents.FoldedDocument,
    ledger: Ledger,
    *,
    behind_s: int = 0,
    unheard: Unheard = NOTHING,
    forgotten: bool = False,
) -> ledger_documents.PlainLedgerDocument:
    """Add sentences for customers and staff to a ledger's document.

    behind_s   age in seconds of an unread delivery; 0 without one
    forgotten  whether statements about shipping may be lost
    """
    pairs = zip(document["findings"], grouped(ledger.findings), strict=True)
    findings: list[ledger_documents.FindingDocument] = [
        {**each, "plain": plain_finding(finding), "staff": staff_finding(finding)}
        for each, finding in pairs
    ]
    plain: ledger_documents.PlainDocument = {
        "answer": list(
            plain_answer(ledger, behind_s=behind_s, unheard=unheard, forgotten=forgotten)
        ),
        "findings": [{"code": each["code"], "sentence": each["plain"]} for each in findings],
    }
    staff = list(staff_answer(ledger, behind_s=behind_s, unheard=unheard, forgotten=forgotten))
    return {**document, "findings": findings, "plain": plain, "staff": staff}


def plain_answer(
    ledger: Ledger, *, behind_s: int = 0, unheard: Unheard = NOTHING, forgotten: bool = False
) -> tuple[str, ...]:
    """Return sentences that tell a customer what happened and what follows.

    behind_s   age in seconds of an unread delivery
    unheard    evidence outside the ledger that can be about the order
    forgotten  whether the shop's statements about shipping may be lost
    """
    filed, codes = ledger.case.filed, {finding.code for finding in ledger.findings}
    concluded = {reason.code for reason in ledger.reasons}
    doubts = _unheard_by_customer(ledger, unheard)
    incomplete = bool(doubts or behind_s)
    reasons = [each for each in ledger.reasons if not (incomplete and each.code in ABSENT)]
    if MAYBE_OTHERS in filed.holds:
        sentences = [*doubts, NOT_SURELY_FOR_IT]
    else:
        sentences = doubts + [plain_reason(reason) for reason in reasons]
    if filed.canceled is not None and (incomplete or "canceled_by_merchant" not in concluded):
        sentences.append(REASONS["canceled_by_shop"].plain)
    elif filed.fulfilled is None:
        sentences += [plain_reason(reason) for reason in ledger.withheld]
    sentences.append(_owed_to_customer(ledger))
    for code in IN_ANSWER:
        if code != "reversal_amount_mismatch" or "reversal_amount_unclear" not in concluded:
            sentences += [plain_finding(each) for each in grouped(_of_code(ledger, code))]
    if ledger.held is None and not _REFUNDS.isdisjoint(codes):
        sentences.append("We do not know of the payment that this refund belongs to.")
    elif ledger.outcome == "unresolved" or not (incomplete or "canceled_by_merchant" in concluded):
        sentences.append(NEXT.get(ledger.outcome, ""))
    if filed.fulfilled is not None:
        if "fulfilled_but_not_paid" not in codes:
            sentences.append(f"The shop shipped the order on {plain_instant(filed.fulfilled.at)}.")
    elif filed.canceled is None:
        sentences.append(WAITING.get(ledger.outcome, ""))
        if ledger.fulfillable and forgotten:
            sentences.append(FORGOTTEN)
        elif ledger.fulfillable and not behind_s:
            sentences.append("The order can be shipped.")
    if behind_s:
        sentences.append(
            f"Messages of the last {behind_s} s have still to be read: ask again in a moment."
        )
    return tuple(dict.fromkeys(filter(None, sentences)))


def _unheard_by_customer(ledger: Ledger, unheard: Unheard) -> list[str]:
    found = [UNREAD] if unheard.messages or UNREADABLE in ledger.case.filed.holds else []
    if unheard.may_lack and not ledger.has_captures:
        found += [REFUSED] if unheard.refusing else [NOT_KEPT] if unheard.not_kept else []
        found += [
            LOST.format(since=plain_instant(gap.since), until=plain_instant(gap.until))
            for gap in unheard.gaps
        ]
    return found + [UNALLOCATED.format(money=each.amount) for each in unheard.payments]


def _unheard_by_staff(ledger: Ledger, unheard: Unheard) -> list[str]:
    found = []
    if unheard.messages:
        first, count = unheard.messages[0], len(unheard.messages)
        which = "A message" if count == 1 else f"{count} messages"
        found.append(
            f"{which} of {first.source} that may be about this order cannot be read: find out what "
            f"`tallyhook deliveries show {first.delivery}` says before anything else is done."
        )
    found += [
        f"The payment {each.id} of {each.amount} belongs to no order and may be for this one, "
        "judging by the order that it names or its payer's number: see `tallyhook unallocated "
        f"show {each.id}`, and assign it if it is for this order."
        for each in unheard.payments
    ]
    for each in unheard.refusing:
        assert each.refusing_since is not None
        found.append(
            f"Every delivery of {each.source} has been refused since "
            f"{plain_instant(each.refusing_since)}, {each.refused} so far: run `tallyhook doctor`."
        )
    if unheard.not_kept:
        found.append(
            f"{unheard.not_kept:,} unsigned requests were not stored in this order's time, and a "
            "callback about it may be among them: look the payment up at the provider."
        )
    if not ledger.has_captures or ledger.owed is not None:
        found += [
            f"Messages between {plain_instant(each.since)} and {plain_instant(each.until)} may be "
            "lost: look the payment up at the payment service before anything is given back or "
            "paid again."
            for each in unheard.gaps
            if not each.looked_at
        ]
    return found


def staff_answer(
    ledger: Ledger, *, behind_s: int = 0, unheard: Unheard = NOTHING, forgotten: bool = False
) -> tuple[str, ...]:
    """Return instructions for the shop's people, the most urgent first.

    behind_s   age in seconds of an unread delivery
    forgotten  whether statements about shipping may be lost
    """
    filed, sentences = ledger.case.filed, list[str]()
    if filed.fulfilled is not None:
        shipped = plain_instant(filed.fulfilled.at)
        sentences.append(f"The shop shipped the order on {shipped}: do not ship it again.")
    elif filed.canceled is not None:
        sentences.append(REASONS["canceled_by_shop"].staff)
    elif behind_s:
        sentences.append(
            f"Messages of the last {behind_s} s have still to be read: do not ship until they are."
        )
    elif forgotten and ledger.fulfillable:
        sentences.append(STATE_AGAIN)
    elif not ledger.withheld:
        sentences.append(SHIPPING[ledger.outcome])
    if ledger.outcome == "unresolved":
        sentences.append("Check at the payment service what was paid and what went back.")
    if filed.fulfilled is None and filed.canceled is None:
        sentences += [staff_reason(reason) for reason in ledger.withheld]
    elif ledger.outcome in _STILL_OPEN:
        shipped, canceled = _STILL_OPEN[ledger.outcome]
        sentences.append(canceled if filed.fulfilled is None else shipped)
    sentences += [staff_reason(reason) for reason in ledger.reasons]
    sentences += _unheard_by_staff(ledger, unheard)
    sentences.append(_owed_by_staff(ledger))
    ranked = sorted(_to_settle(ledger), key=lambda finding: _URGENCY.index(finding.severity))
    codes = {finding.code for finding in ledger.findings}
    sentences += [_with_more(_staff_of(each, ledger, codes), each) for each in grouped(ranked)]
    return tuple(dict.fromkeys(filter(None, sentences)))


_STILL_OPEN: Final[dict[Outcome, tuple[str, str]]] = {
    "authorized": (
        "Take the reserved money before the reservation ends.",
        "Release the reserved money at the payment service.",
    ),
    "pending": (
        "",
        "Cancel the payment at the payment service, so that no money comes after all.",
    ),
}

_REFUNDS: Final = frozenset(("refund_pending", "refund_overdue", "refund_failed"))

_URGENCY: Final = ("error", "warning", "info")


def _to_settle(ledger: Ledger) -> list[Finding]:
    filed = ledger.case.filed
    stronger = {"refund_pending": "refund_overdue", "unrecognized_event": "unread_money_event"}
    known, is_accepted = {(each.code, each.cites) for each in ledger.findings}, acceptance(ledger)
    over = {"success_after_deadline"} if filed.fulfilled or filed.canceled else set()
    return [
        each
        for each in ledger.findings
        if each.code not in over
        and (stronger.get(each.code), each.cites) not in known
        and not is_accepted(each)
    ]


def _staff_of(finding: Finding, ledger: Ledger, codes: Collection[FindingCode]) -> str:
    filed = ledger.case.filed
    if finding.code == "held_back" and (
        filed.fulfilled or filed.canceled or ("hold", MAYBE_OTHERS) in finding.facts
    ):
        return ""
    if finding.code in _REFUNDS and ledger.held is None:
        return _filled(
            "Ask the payment service which payment the refund{failed}{pending} belongs to: we know "
            "of none.",
            finding,
        )
    if finding.code == "refund_failed":
        gone = ledger.outcome in ("refunded", "charged_back")
        held = ledger.held_for_price
        if gone and held is not None and held.minor <= 0:
            return _filled("The refund{failed} failed. Nothing is left to give back.", finding)
        if "dispute_open" in codes:
            return _filled(
                "The refund{failed} failed. Do not send it again while a dispute is open.", finding
            )
        if ledger.outcome == "unresolved":
            return _filled(
                "The refund{failed} failed. Do not send it again before the rest is settled.",
                finding,
            )
        if "refund_pending" in codes:
            return _filled(
                "The refund{failed} failed. Another one is under way: look at that before you send "
                "it again.",
                finding,
            )
    return _staff_words(finding)


def _of_code(ledger: Ledger, code: FindingCode) -> list[Finding]:
    found = [each for each in ledger.findings if each.code == code]
    if code == "refund_pending":
        overdue = {each.cites for each in ledger.findings if each.code == "refund_overdue"}
        return [each for each in found if each.cites not in overdue]
    return found


def _owed_to_customer(ledger: Ledger) -> str:
    owed, returning = ledger.owed, ledger.returning
    if owed is None or not {MAYBE_OTHERS, GAP_ACCEPTED}.isdisjoint(ledger.case.filed.holds):
        return ""  # it is not known whose the payment is, or what went back already
    if ledger.returning_more:
        return f"{owed} is to be given back. A part of it, or all of it, is already on its way."
    if returning is None:
        return f"{owed} is to be given back."
    left = Money(minor=owed.minor - returning.minor, currency=owed.currency)
    if not left.minor:
        return f"{owed} is to be given back, and all of it is already on its way."
    return (
        f"{owed} is to be given back: {returning} of it is already on its way, and {left} has "
        "still to be sent."
    )


def _owed_by_staff(ledger: Ledger) -> str:
    owed, returning = ledger.owed, ledger.returning
    surplus = [each for each in ledger.findings if each.code in ("paid_twice", "overpaid")]
    accepted = ledger.case.filed.canceled is None and any(map(acceptance(ledger), surplus))
    if owed is None or accepted:
        return ""
    if MAYBE_OTHERS in ledger.case.filed.holds:
        return "Give nothing back before it is known whose payment it is."
    if GAP_ACCEPTED in ledger.case.filed.holds:
        return "Give nothing back before the payment service has said what went back already."
    if ledger.returning_more:
        return (
            f"{owed} is owed back, and a refund of an unknown amount is on its way: ask the "
            "payment service how much it is before you give anything back."
        )
    if returning is None:
        return f"Give back {owed}."
    left = Money(minor=owed.minor - returning.minor, currency=owed.currency)
    if not left.minor:
        return f"Give nothing more back: all of the {owed} that is owed is on its way already."
    return f"Give back {left}: {owed} is owed, and {returning} of it is on its way already."


def plain_outcome(ledger: Ledger, unheard: Unheard = NOTHING) -> tuple[str, ...]:
    """Return sentences that tell a customer what happened."""
    doubts = _unheard_by_customer(ledger, replace(unheard, payments=()))
    said = [each for each in ledger.reasons if not (doubts and each.code in ABSENT)]
    return tuple(dict.fromkeys([*doubts, *map(plain_reason, said)]))


def plain_headline(ledger: Ledger) -> str:
    """Return the first sentence that a customer is told about the order."""
    if ledger.reasons[0].code in ABSENT and UNREADABLE in ledger.case.filed.holds:
        return UNREAD
    if MAYBE_OTHERS in ledger.case.filed.holds:
        return NOT_SURELY_FOR_IT
    return plain_reason(ledger.reasons[0])


def plain_reason(reason: Reason) -> str:
    """Return a reason as a sentence for a customer."""
    facts = reason.facts
    words = _words(facts, optional=frozenset(("on_top", "not_given_back")))
    if ("hold", UNREADABLE) in facts:
        return UNREAD
    if reason.code in _NOT_PAID:
        words_of = customer_words(_code_of(reason))
        words["reason"] = "" if words_of is None else f": {words_of}"
        sentence = REASONS[reason.code].plain.format_map(words)
        declined = reason.code == "last_word_event_says_declined"
        return f"{sentence} {WITHOUT_REASON}" if words_of is None and declined else sentence
    if reason.code == "amount_off_by_factor":
        (captured,), (expected,) = _money(facts, "captured"), _money(facts, "expected")
        words["times"] = f"{captured.minor // expected.minor:,}"
    if reason.code == "amount_differs":
        return _differs(facts, words)
    if reason.code == "dispute_open" and ("captured", None) in facts:
        return f"A payment whose amount we do not know is disputed.{_refunded(words)}"
    sentence = REASONS[reason.code].plain.format_map(words)
    return sentence + _refunded(words) if reason.code in BESIDE_REFUNDS else sentence


_NOT_PAID: Final = frozenset(
    (
        "last_word_event_says_declined",
        "last_word_event_says_canceled",
        "last_word_event_says_released",
        "last_word_event_says_expired",
        "last_word_event_says_timed_out",
        "last_word_session_refused",
    )
)


def _code_of(reason: Reason) -> str | None:
    code = dict(reason.facts).get("reason")
    return None if code is None else str(code)


def staff_reason(reason: Reason) -> str:
    """Return the instruction for a reason; empty for none."""
    code = _code_of(reason) if reason.code in _NOT_PAID else None
    if ("hold", MAYBE_OTHERS) in reason.facts:
        return FINDINGS["maybe_other_shop"].staff
    if ("hold", GAP_ACCEPTED) in reason.facts:
        return ASK_AFTER_GAP
    if code is None:
        return REASONS[reason.code].staff.format_map(_words(reason.facts))
    if customer_words(code) is None:
        return f"Do not read this code of the payment service to the customer: {code}."
    return f"The payment service's code for it is {code}."


def plain_finding(finding: Finding) -> str:
    """Return a sentence for a customer about one finding or several similar findings."""
    if _count(finding) > 1 and finding.code in MANY:
        return _filled(MANY[finding.code].plain, finding)
    if finding.code == "success_after_deadline":
        return _after_deadline(finding)
    if ("hold", UNREADABLE) in finding.facts:
        return UNREAD
    template = FINDINGS[finding.code].plain
    if finding.code == "fulfilled_but_not_paid" and _gone(finding):
        template = "The order was shipped on {fulfilled_at}, but no money of it is left."
    return _with_more(_filled(template, finding), finding)


def staff_finding(finding: Finding) -> str:
    """Return the instruction for a finding; empty for none."""
    return _with_more(_staff_words(finding), finding)


def _staff_words(finding: Finding) -> str:
    if ("hold", GAP_ACCEPTED) in finding.facts:
        return ASK_AFTER_GAP
    template = FINDINGS[finding.code].staff
    if finding.code == "fulfilled_but_not_paid" and _gone(finding):
        template = (
            "The order was shipped on {fulfilled_at}, but its money has gone back: ask the "
            "customer for the money, or for the goods."
        )
    return _filled(template, finding)


def _count(finding: Finding) -> int:
    count = dict(finding.facts).get(ALIKE)
    return count if isinstance(count, int) else 1


def _with_more(sentence: str, finding: Finding) -> str:
    more = _count(finding) - 1
    if not sentence or not more or finding.code in MANY:
        return sentence
    return f"{sentence} {more:,} more {'is' if more == 1 else 'are'} like it."


def _gone(finding: Finding) -> bool:
    return dict(finding.facts)["outcome"] in ("refunded", "charged_back")


def _filled(template: str, finding: Finding) -> str:
    return template.format_map(_words(finding.facts, optional=frozenset(_OPTIONAL)))


def _after_deadline(finding: Finding) -> str:
    facts = dict(finding.facts)
    words, deadline = _words(finding.facts), facts["deadline_at"]
    happened, known = facts["occurred_at"], facts["received_at"]
    assert isinstance(happened, int)
    assert isinstance(known, int)
    if isinstance(deadline, int) and happened >= deadline:
        return FINDINGS[finding.code].plain.format_map(words)
    if isinstance(deadline, int) and known >= deadline:
        return (
            "The payment was made in time, on {occurred_at}, but we learned of it only on "
            "{received_at}, after we had stopped waiting for it."
        ).format_map(words)
    return (
        "The payment was made on {occurred_at}, after the payment service had given it up."
    ).format_map(words)


def _words(facts: Facts, *, optional: frozenset[str] = frozenset()) -> dict[str, str]:
    words = dict.fromkeys(optional, "")
    for name, value in facts:
        text = _in_words(name, value)
        if name.startswith("amount_"):
            name = "amounts"
        if name in optional:
            text = "" if value is None else _OPTIONAL[name].format(text)
        elif words.get(name):
            text = f"{words[name]} and {text}"
        words[name] = text
    tendered, discount = _money(facts, "tendered"), _money(facts, "discount")
    if tendered or discount:
        (expected,) = _money(facts, "expected")
        minor = sum([each.minor for each in (expected, *tendered, *discount)])
        less = [f"{each} paid otherwise" for each in tendered]
        less += [f"a discount of {each}" for each in discount]
        price = Money(minor=minor, currency=expected.currency)
        words["expected"] += f" ({price} less {' and '.join(less)})"
    return words


def _in_words(name: str, value: FactValue) -> str:
    if value is None:
        return "an unknown amount"
    if name == "claims":
        return " and that ".join(_CLAIMS[claim] for claim in str(value).split(", "))
    if name == "movement":
        return _MOVEMENTS[str(value)]
    if isinstance(value, int) and name.endswith("_at"):
        return plain_instant(Instant(value))
    if isinstance(value, int) and name.endswith("_us"):
        return format_duration(Duration(value))
    return f"{value:,}" if name == ALIKE else str(value)


def _money(facts: Facts, name: str) -> list[Money]:
    return [value for given, value in facts if given == name and isinstance(value, Money)]


def _differs(facts: Facts, words: dict[str, str]) -> str:
    (expected,) = _money(facts, "expected")
    kept = 0
    for name, sign in (("captured", 1), ("on_top", -1), ("refunded", -1)):
        amounts = [m.minor for m in _money(facts, name) if m.currency == expected.currency]
        kept += sign * sum(amounts)
    short = Money(minor=expected.minor - kept, currency=expected.currency)
    back = f", of which {words['refunded']} has been given back" if "refunded" in words else ""
    price, paid = words["expected"], words["captured"] + words["on_top"]
    return f"Paid {paid}{back}, but the price is {price}: {short} is missing."


def _refunded(words: dict[str, str]) -> str:
    return f" {words['refunded']} has been given back." if "refunded" in words else ""
