"""The form in which references are compared."""

from hypothesis import given
from hypothesis import strategies as st

from reconcile.matching.books import match_key, match_keys

PRINTABLE = st.text(st.characters(blacklist_categories=("C", "Z"), whitelist_characters=" "))


@given(references=st.lists(PRINTABLE | st.from_regex(r"\A[A-C0-2 _-]{0,9}\Z"), max_size=8))
def test_many_keys_at_once_are_those_of_each(references: list[str]) -> None:
    assert match_keys(references) == [match_key(reference) for reference in references]


def test_case_blanks_dashes_and_underscores_do_not_matter_but_digits_do() -> None:
    assert len({match_key(one) for one in ("ORD-1042", "ord 1042", "Ord_1042", " ord1042 ")}) == 1
    assert len({match_key(one) for one in ("12-3", "1-23", "123", "0123")}) == 4
