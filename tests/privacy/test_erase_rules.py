"""What settles an order whose data may not go yet."""

from __future__ import annotations

from app.privacy.erase_rules import OTHERWISE, SETTLED_BY
from reconcile.ledger.ledger import SEVERITY


def test_of_each_finding_that_a_person_must_settle_it_is_known_what_settles_it() -> None:
    """By a break that finance decides, or by a command; a new finding must say by which."""
    errors = {code for code, severity in SEVERITY.items() if severity == "error"}
    assert SETTLED_BY.keys() | OTHERWISE.keys() == errors | {"unresolved"}
    assert not SETTLED_BY.keys() & OTHERWISE.keys()
