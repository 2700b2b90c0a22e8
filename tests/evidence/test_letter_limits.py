"""A letter is refused, with what to drop, where it is more than the bank's channel takes."""

import re
from typing import Any

import pytest

from app.evidence.letter_limits import (
    MB,
    OF_CHANNELS,
    OF_NETWORKS,
    LetterLimits,
    SentFile,
    fault_of_sending,
    limits_of,
)


def test_each_row_names_its_source() -> None:
    for row in (*OF_CHANNELS.values(), *OF_NETWORKS.values()):
        assert row.sources
        for each in row.sources:
            assert re.match(r"https://\S+.*\b20\d\d-\d\d-\d\d", each), each


@pytest.mark.parametrize(
    ("channel", "network", "least"),
    [
        ("stripe", "visa", {"size": 2 * MB, "each": 5 * MB, "pages": 100, "formats": ("pdf",)}),
        ("checkout_com", "mastercard", {"pages": 18, "each": 4 * MB, "name_chars": 16}),
        ("paypal", "amex", {"files": 5, "size": MB, "pages": 20}),
        ("stripe", "jcb", {"size": None, "each": 5 * MB, "who": "Stripe for jcb"}),
        ("mpesa_stk", None, {"size": None, "pages": None, "formats": (), "sources": ()}),
    ],
)
def test_of_channel_and_network_the_smaller_limit_counts(
    channel: str, network: str | None, least: dict[str, Any]
) -> None:
    found = limits_of(channel, network)
    assert {name: getattr(found, name) for name in least} == least


def test_limits_are_said_and_so_is_that_no_source_was_found() -> None:
    assert limits_of("stripe", "visa").words == (
        "Stripe for Visa takes at most 100 pages, 2 MB in all, 5 MB a file as PDF."
    )
    assert limits_of("mpesa_stk", None).words == "No source was found for what mpesa_stk takes."


def sent(name: str = "letter.pdf", size: int = 1000, pages: int = 2) -> SentFile:
    behind = [("exhibit 1, terms.pdf", 400, 9), ("exhibit 2, scan.png", 2_400_000, 1)]
    return SentFile(name=name, size=size, pages=pages, behind=behind)


ALONE = SentFile(name="exhibit 3, big.pdf", size=3_000_000, pages=None)


@pytest.mark.parametrize(
    ("files", "limits", "fault"),
    [
        ([sent()], {}, None),
        ([sent(size=2_000_001)], {"size": 2 * MB},
         "2 MB are taken: drop exhibit 2, scan.png (2.4 MB), or attach a smaller scan"),
        ([sent(), ALONE], {"size": 2 * MB}, "3 MB, and 2 MB are taken: drop exhibit 3, big.pdf"),
        ([sent(size=2_000_001)], {"each": 2 * MB}, "2 MB a file are taken: drop exhibit 2"),
        ([sent(pages=19)], {"pages": 18}, "19 pages, and 18 are taken: drop exhibit 1, terms"),
        ([sent(), ALONE], {"files": 1}, "it is 2 files, and 1 are taken"),
        ([sent("letter.html")], {"formats": ("pdf",)}, "name one that ends in .pdf"),
        ([sent("letter-ORD-1.pdf")], {"name_chars": 16}, "such as letter.pdf"),
        ([sent("answertodispute.pdf")], {"name_chars": 16}, "16 characters with its ending"),
        ([sent("letter.pdf")], {"name_chars": 16, "size": MB, "pages": 2, "files": 1}, None),
    ],
)  # fmt: skip
def test_a_letter_beyond_a_limit_is_refused_with_what_to_drop(
    files: list[SentFile], limits: dict[str, Any], fault: str | None
) -> None:
    found = fault_of_sending(files, LetterLimits(**limits))
    assert found is None if fault is None else fault in str(found), found
