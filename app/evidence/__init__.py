"""What proves itself to strangers: the evidence key, and the two forms in which it signs."""

__all__ = (
    "attachment_store",
    "attachments",
    "bundle",
    "cosigning",
    "dispute",
    "dispute_case",
    "dispute_letter",
    "gather_evidence",
    "keys",
    "letter",
    "letter_forms",
    "prove_sealed",
    "seal",
    "seal_orders",
    "store",
    "tell_scenario",
    "verify",
    "verify_evidence",
    "verify_log",
    "witnesses",
)
