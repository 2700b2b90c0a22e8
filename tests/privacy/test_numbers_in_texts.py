"""What may be a phone number in a text, by which a digest that is left of one is found."""

import pytest

from app.privacy.replay_erasures import numbers_in

FIFTEEN = "123456789012345"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1234567", []),
        ("12345678", ["12345678"]),
        (FIFTEEN, [FIFTEEN]),
        (f"{FIFTEEN}6", []),
        (f"00{FIFTEEN}", [FIFTEEN]),
        (f"00{FIFTEEN}6", []),
        ("0012345678", ["12345678"]),
        ("001234567", []),
        ("00012345678", []),
        ("0123456", ["254123456", "44123456"]),
        ("012345", []),
        ("+254 712 345678", ["254712345678", "712345678"]),
        ("+254\u00a0712 - 345678", ["254712345678", "712345678"]),
        ("+44(0)7123456", ["4407123456", "2547123456", "447123456"]),
        ("no number", []),
    ],
)
def test_what_may_be_a_number(text: str, numbers: list[str]) -> None:
    """Eight to fifteen digits, whole or behind 00; behind one 0 with the code of each country. Of
    digits in groups each row of them may be one."""
    assert sorted(set(numbers_in(f"x {text} y", ["254", "44"]))) == sorted(numbers)
