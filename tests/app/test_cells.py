"""No text becomes a formula in a spreadsheet, and every text comes back."""

from __future__ import annotations

import pytest

from app.cells import plain_text, safe_cell
from tests.app.reports.payloads import PAYLOADS, is_formula


@pytest.mark.parametrize("text", ["", "ORD-1", "a=b", "1+1", "ö", "x@y.example", " plain", "a\tb"])
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert safe_cell(text) == text
    assert plain_text(text) == text


def test_no_payload_is_a_formula_and_each_comes_back() -> None:
    assert len(set(PAYLOADS)) >= 200
    for text in PAYLOADS:
        assert is_formula(text), f"{text!r} is no payload"
        assert not is_formula(safe_cell(text)), repr(text)
        assert plain_text(safe_cell(text)) == text


@pytest.mark.parametrize("text", ["'", "'=1+1", "''x"])
def test_text_that_begins_with_the_mark_is_not_taken_for_marked(text: str) -> None:
    assert plain_text(safe_cell(text)) == text != safe_cell(text)
