"""Evidence for outsiders: the evidence log, and bundles with an order's evidence.

The evidence key signs both.
"""

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
