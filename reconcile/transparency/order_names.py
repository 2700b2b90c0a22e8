"""How leaves name an order: by a commitment under a key of that order alone.

Whoever is given the key can check which order a leaf is of; without it, a leaf tells nobody. Where
the key is erased, nobody can tell any more.
"""

from __future__ import annotations

import hashlib
import hmac


def order_commitment(key: bytes, reference: str) -> bytes:
    """HMAC-SHA256 of the order's reference in UTF-8."""
    return hmac.digest(key, reference.encode("utf-8", "surrogatepass"), hashlib.sha256)
