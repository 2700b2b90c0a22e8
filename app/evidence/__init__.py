"""What proves itself to strangers: the evidence key, and the two forms in which it signs."""

__all__ = (
    "bundle",
    "cosigning",
    "gather_evidence",
    "keys",
    "letter",
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
