"""Documented kinds of events about money going back: each shipped profile has a meaning for them.

A kind that no line of a profile names holds its payment if its words are about money going back. So
that no harmless event does this, the documented kinds of every profile are listed here, composed as
the profile composes them. A kind that a provider adds later is recognized by its words alone.
"""

from typing import Any, Final

from app.providers.profile import load_profile, shipped_profiles
from app.providers.reader import ClaimWords
from reconcile.ledger.events import speaks_of_money_going_back
from tests.providers.test_payloads import LINES
from tests.rows import for_each

DOCUMENTED: Final[dict[str, str]] = {
    "adyen": """
        CANCEL_OR_REFUND:true CANCEL_OR_REFUND:false CAPTURE_FAILED:true CHARGEBACK:true
        CHARGEBACK_REVERSED:true DISPUTE_DEFENSE_PERIOD_ENDED:true NOTIFICATION_OF_CHARGEBACK:true
        NOTIFICATION_OF_FRAUD:true PAIDOUT_REVERSED:true POSTPONED_REFUND:true REFUND:true
        REFUND:false REFUNDED_REVERSED:true REFUND_FAILED:true REFUND_WITH_DATA:true
        REFUND_WITH_DATA:false SECOND_CHARGEBACK:true VOID_PENDING_REFUND:true
    """,
    "braintree": """
        dispute_accepted dispute_auto_accepted dispute_disputed dispute_expired dispute_lost
        dispute_opened dispute_under_review dispute_won local_payment_reversed
        refund_failed:credit transaction_settled:credit transaction_settlement_declined:credit
    """,
    "cashfree": """
        REFUND_STATUS_WEBHOOK:SUCCESS REFUND_STATUS_WEBHOOK:PENDING REFUND_STATUS_WEBHOOK:CANCELLED
        REFUND_STATUS_WEBHOOK:ONHOLD REFUND_STATUS_WEBHOOK:FAILED AUTO_REFUND_STATUS_WEBHOOK
        SETTLEMENT_REVERSED DISPUTE:DISPUTE_CREATED DISPUTE:DISPUTE_DOCS_RECEIVED
        DISPUTE:RETRIEVAL_UNDER_REVIEW DISPUTE:CHARGEBACK_INSUFFICIENT_EVIDENCE
        DISPUTE:PRE_ARBITRATION_MERCHANT_WON DISPUTE:ARBITRATION_MERCHANT_LOST PRE_AUTH:VOID
    """,
    "chapa": "charge.refunded charge.reversed",
    "checkout": """
        payment.refunded payment.refund_pending payment.refund_failed payment.reversed
        payment.disputed payment.dispute_won payment.dispute_lost
    """,
    "checkout_com": """
        payment_voided payment_voided:0 payment_voided:40000
        payment_void_declined payment_refunded payment_refund_pending
        payment_refund_declined payment_returned dispute_received dispute_evidence_required
        dispute_evidence_submitted dispute_evidence_acknowledged_by_scheme dispute_accepted
        dispute_canceled dispute_expired dispute_lost dispute_resolved dispute_won
        dispute_resolved:rapid_dispute_resolution
        dispute_arbitration_sent_to_scheme dispute_arbitration_won dispute_arbitration_lost
        issuing_dispute_closed issuing_dispute_submitted
    """,
    "coinbase_cdp": """
        checkout.refund.success:REFUNDED checkout.refund.success:PARTIALLY_REFUNDED
        checkout.refund.failed:COMPLETED acceptance.payment_session.refund_succeeded
        acceptance.payment_session.void_succeeded
    """,
    "flutterwave": """
        refund.completed:succeeded refund.completed:pending refund.completed:failed
        transfer.reversal:FAILED
    """,
    "kopokopo": """
        buygoods_transaction_reversed b2b_transaction_reversed reversal:Processed reversal:Pending
        card_transaction_voided card_transaction_reversed
    """,
    "korapay": "refund.success refund.failed",
    "lemonsqueezy": """
        order_refunded:refunded order_refunded:partial_refund order_created:fraudulent
        subscription_payment_refunded:refunded subscription_payment_refunded:partial_refund
    """,
    "mollie": """
        refund.queued refund.pending refund.processing refund.refunded refund.failed
        refund.canceled chargeback.received chargeback.reversed
    """,
    "monnify": "SUCCESSFUL_REFUND FAILED_REFUND REVERSED_DISBURSEMENT",
    "nowpayments": "refunded",
    "paddle": """
        adjustment.created:refund:pending_approval adjustment.updated:refund:approved
        adjustment.updated:refund:rejected adjustment.updated:refund:reversed
        adjustment.created:credit:approved adjustment.created:credit_reverse:approved
        adjustment.created:chargeback:approved adjustment.updated:chargeback:reversed
        adjustment.created:chargeback_reverse:approved
        adjustment.created:chargeback_warning:approved
        adjustment.created:chargeback_warning_reverse:approved
    """,
    "pawapay": "refund:ACCEPTED:r-1 refund:ENQUEUED:r-1 refund:COMPLETED:r-1 refund:FAILED:r-1",
    "paypal": """
        CHECKOUT.PAYMENT-APPROVAL.REVERSED CHECKOUT.ORDER.VOIDED PAYMENT.AUTHORIZATION.VOIDED
        PAYMENT.CAPTURE.REFUNDED
        PAYMENT.CAPTURE.REVERSED PAYMENT.REFUND.PENDING PAYMENT.REFUND.FAILED
        PAYMENT.PAYOUTS-ITEM.REFUNDED PAYMENT.PAYOUTS-ITEM.RETURNED INVOICING.INVOICE.REFUNDED
        CUSTOMER.DISPUTE.CREATED CUSTOMER.DISPUTE.UPDATED RISK.DISPUTE.CREATED
        CUSTOMER.DISPUTE.RESOLVED:RESOLVED_BUYER_FAVOUR
        CUSTOMER.DISPUTE.RESOLVED:RESOLVED_SELLER_FAVOUR
        CUSTOMER.DISPUTE.RESOLVED:RESOLVED_WITH_PAYOUT CUSTOMER.DISPUTE.RESOLVED:CANCELED_BY_BUYER
        CUSTOMER.DISPUTE.RESOLVED:ACCEPTED CUSTOMER.DISPUTE.RESOLVED:DENIED
    """,
    "paystack": """
        refund.pending refund.processing refund.needs-attention refund.processed refund.failed
        charge.dispute.create charge.dispute.remind charge.dispute.resolve:declined
        transfer.reversed
        charge.dispute.resolve:merchant-accepted charge.dispute.resolve:auto-accepted
    """,
    "peach_checkout": "RF:000.000.000 RF:800.100.152 RV:000.000.000 RV:800.100.152 CB:000.000.000",
    "peach_oppwa": """
        PAYMENT:RF:000.000.000 PAYMENT:RF:800.100.152 PAYMENT:RV:000.000.000
        PAYMENT:RV:800.100.152 PAYMENT:CB:000.000.000 PAYMENT:CR:000.000.000
    """,
    "razorpay": """
        refund.created:pending refund.created:processed refund.created:failed
        refund.processed:processed refund.failed:failed refund.speed_changed:pending
        refund.speed_changed:processed refund.created:pending:false refund.created:processed:false
        refund.arn_updated:processed refund.arn_updated:processed:false
        refund.processed:processed:false refund.failed:failed:false
        refund.speed_changed:processed:false payment.dispute.created payment.dispute.under_review
        payment.dispute.action_required payment.dispute.won payment.dispute.lost
        payment.dispute.closed payout.reversed transfer.reversed
    """,
    "revolut": "DISPUTE_ACTION_REQUIRED DISPUTE_UNDER_REVIEW DISPUTE_WON DISPUTE_LOST",
    "square": """
        refund.created:PENDING refund.updated:COMPLETED refund.updated:REJECTED
        refund.updated:FAILED terminal.refund.created:PENDING terminal.refund.updated:COMPLETED
        invoice.refunded dispute:INQUIRY_EVIDENCE_REQUIRED dispute:INQUIRY_PROCESSING
        dispute:INQUIRY_CLOSED dispute:EVIDENCE_REQUIRED dispute:PROCESSING dispute:WON
        dispute:LOST dispute:ACCEPTED dispute:UNKNOWN_STATE
    """,
    "stripe": """
        charge.refunded:true charge.refunded:false refund.created:pending refund.created:succeeded
        refund.updated:requires_action refund.updated:canceled refund.failed:failed
        charge.refund.updated:succeeded charge.refund.updated:failed
        charge.dispute:warning_needs_response charge.dispute:warning_under_review
        charge.dispute:warning_closed charge.dispute:needs_response charge.dispute:under_review
        charge.dispute:won charge.dispute:lost charge.dispute:prevented
        charge.dispute:appeal_needs_response charge.dispute:appeal_under_review
        radar.early_fraud_warning.created radar.early_fraud_warning.updated
        source.refund_attributes_required
        application_fee.refunded application_fee.refund.updated credit_note.voided invoice.voided
        issuing_dispute.created issuing_dispute.funds_rescinded order_return.created
        topup.reversed transfer.reversed treasury.credit_reversal.created
        treasury.outbound_payment.returned treasury.outbound_transfer.returned
    """,
    "woovi": """
        OPENPIX:TRANSACTION_REFUND_RECEIVED PIX_TRANSACTION_REFUND_RECEIVED_CONFIRMED
        PIX_TRANSACTION_REFUND_SENT_CONFIRMED PIX_TRANSACTION_REFUND_SENT_REJECTED
        OPENPIX:DISPUTE_CREATED OPENPIX:DISPUTE_ACCEPTED OPENPIX:DISPUTE_REJECTED
        OPENPIX:DISPUTE_CANCELED
    """,
    "xendit": "refund.succeeded refund.failed",
    "yoco": "refund.succeeded refund.failed",
}

ANSWERS: Final[dict[str, str]] = {
    "gocardless": "failed charged_back",
    "korapay": "refund:processing:1000.00 refund:success:1000.00 refund:failed:1000.00",
    "mercadopago": """
        partially_refunded refunded in_mediation charged_back charged_back:settled
        charged_back:reimbursed charged_back:in_process
    """,
    "midtrans": """
        refund:accept partial_refund:accept chargeback:accept partial_chargeback:accept
        cancel:accept deny:accept
    """,
    "paypal": "PAYMENT.CAPTURE.REFUNDED PAYMENT.CAPTURE.REVERSED CUSTOMER.DISPUTE.CREATED",
    "pesapal": "3",
    "revolut": """
        refund:completed refund:processing refund:failed chargeback:completed
        chargeback_reversal:completed dispute:needs_response dispute:under_review dispute:won
        dispute:lost
    """,
    "xendit": "refund:SUCCEEDED:OVO refund:PENDING:OVO refund:FAILED:OVO refund:CANCELLED:OVO",
}


@for_each("profile", DOCUMENTED)
def test_documented_kinds_about_money_going_back_are_named(profile: str) -> None:
    meaning = ClaimWords(load_profile(profile).claims).meaning
    assert [k for k in DOCUMENTED[profile].split() if meaning(k) == "unrecognized"] == []


@for_each("profile", ANSWERS)
def test_documented_answers_about_money_going_back_are_named(profile: str) -> None:
    loaded = load_profile(profile)
    assert loaded.fetch_back is not None
    meaning = ClaimWords(loaded.fetch_back.claims or loaded.claims).meaning
    assert [k for k in ANSWERS[profile].split() if meaning(k) == "unrecognized"] == []


def test_each_profile_line_about_money_going_back_is_documented_here() -> None:
    names = {
        name
        for name in shipped_profiles()
        for word, _ in load_profile(name).claims
        if speaks_of_money_going_back(word)
    }
    assert names <= {*DOCUMENTED, *ANSWERS}


def unread(events: list[dict[str, Any]]) -> list[str]:
    """Return the kinds that would hold a payment. Unconfirmed events hold nothing."""
    return [
        event["kind"]
        for event in events
        if event["claim"] == "unrecognized"
        and event.get("standing") != "unconfirmed"
        and speaks_of_money_going_back(event["kind"])
    ]


@for_each("profile", LINES)
def test_no_documented_payload_is_an_unread_money_event(profile: str) -> None:
    stated = [event for line in LINES[profile] for event in line.get("events", ())]
    answered = [line["answered"] for line in LINES[profile] if "answered" in line]
    assert unread(stated) + unread(answered) == []


def test_the_engines_words_find_a_kind_that_no_line_names() -> None:
    assert unread([{"kind": "payment.clawback_started", "claim": "unrecognized"}])
    assert not unread([{"kind": "payment.settled", "claim": "unrecognized"}])
