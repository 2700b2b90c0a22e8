"""Evidence for outsiders: the evidence key, and the two formats that it signs."""

__all__ = (
    "attachment_store",
    "attachments",
    "bundle",
    "bundle_letter",
    "dispute",
    "dispute_case",
    "dispute_letter",
    "keys",
    "letter_forms",
    "letter_times",
    "prove_sealed",
    "rendering",
    "seal",
    "store",
    "tell_scenario",
    "verify",
    "verify_evidence",
    "verify_log",
    "witnesses",
)
