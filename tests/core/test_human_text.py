"""Characters in a person's name or reason: visible ones, and those that join them."""

import pytest

from app.core.text import is_human_text, printable


@pytest.mark.parametrize(
    "text",
    [
        "Ann", "O'Brien, José", "علی\u200cرضا", "می\u200cخواهم", "क्\u200dष", "ශ්\u200dරී",
        "র\u200d্যাব", "ಕ್\u200cಷ", "👩\u200d💻", "🏳\ufe0f\u200d🌈", "👩🏽\u200d⚕\ufe0f", "",
    ],
)  # fmt: skip
def test_joiners_are_taken_and_printed_where_writing_needs_them(text: str) -> None:
    assert is_human_text(text)
    assert printable(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a\nb", "a\tb", "a\0b", "\u202eAnn", "Ann\u202c", "\u2066Ann\u2069", "\u200fAnn",
        "\u061cعلی",
        "A\u200bnn", "A\u00adnn", "\ufeffAnn", "A\u2060nn", "A\U000e0041nn", "a\u2028b", "A\u00a0B",
        "A\u200dnn", "A\u200cnn", "А\u200dня", "山\u200d田", "\u200dAnn", "Ann\u200c",
        "علی\u200c", "\u200cعلی", "علی\u200c\u200cرضا", "ع\u200c ر", "👩\u200c💻", "👩\u200dAnn",
    ],
)  # fmt: skip
def test_what_nobody_sees_is_refused(text: str) -> None:
    """Direction marks, and joiners without effect: two names would look alike."""
    assert not is_human_text(text)
    assert printable(text).isprintable()
