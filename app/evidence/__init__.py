"""What proves itself to strangers: the evidence key, and the two forms in which it signs."""

__all__ = (
    "bundle",
    "evidence_key",
    "gather_evidence",
    "letter",
    "log_check_store",
    "prove_sealed",
    "seal",
    "tell_scenario",
    "verify",
    "verify_evidence",
    "verify_log",
)
