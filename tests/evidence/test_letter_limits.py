"""A letter is refused, with what to drop, where it is more than the bank's channel accepts."""

import re
from typing import Any

from app.evidence.letter_limits import (
    MB,
    OF_CHANNELS,
    OF_NETWORKS,
    LetterLimits,
    SentFile,
    fault_of_sending,
    limits_of,
)
from tests.rows import for_each


def test_each_row_names_its_source() -> None:
    for row in (*OF_CHANNELS.values(), *OF_NETWORKS.values()):
        assert row.sources
        for each in row.sources:
            assert re.match(r"https://\S+.*\b20\d\d-\d\d-\d\d", each), each


@for_each(
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
    assert (
        limits_of("mpesa_stk", None).words
        == "No page was found that states what mpesa_stk accepts."
    )


def made(name: str = "letter.pdf", size: int = 1000, pages: int = 2) -> SentFile:
    return SentFile(name=name, ending=name.rpartition(".")[2], size=size, pages=pages)


BEHIND = (
    SentFile(name="exhibit 1, terms", ending="pdf", size=400, pages=9, behind=True),
    SentFile(name="exhibit 2, scan", ending="png", size=2_400_000, pages=1, behind=True),
)
BIG_BEHIND = SentFile(name="exhibit 4, all", ending="pdf", size=9_000_000, pages=3, behind=True)
TEXT = SentFile(name="exhibit 5, terms.txt", ending="txt", size=20_000, behind=True)
ALONE = SentFile(name="exhibit 3, big", ending="png", size=3_000_000)


@for_each(
    ("letter", "exhibits", "limits", "fault"),
    [
        (made(), BEHIND, {}, None),
        (made(size=2_000_001), BEHIND, {"size": 2 * MB},
         "the maximum is 2 MB: drop exhibit 2, scan (2.4 MB), or attach a smaller scan"),
        (made(), (*BEHIND, ALONE), {"size": 2 * MB}, "3 MB, but the maximum is 2 MB: drop"),
        (made(size=2_000_001), BEHIND, {"each": 2 * MB}, "for a file is 2 MB: drop exhibit 2"),
        (made(), (ALONE,), {"each": 2 * MB}, "the size of exhibit 3, big is 3 MB, but"),
        (made(), (BIG_BEHIND, ALONE), {"each": 2 * MB}, "2 MB: drop exhibit 3, big, or attach"),
        (made(pages=19), (ALONE,), {"pages": 18}, "is 18: send fewer exhibits with it"),
        (made(pages=19), (TEXT,), {"pages": 18}, "maximum is 18: drop exhibit 5, terms.txt"),
        (made(pages=19), BEHIND, {"pages": 18}, "maximum is 18: drop exhibit 1, terms (9 pages"),
        (made(), (ALONE, ALONE), {"files": 2}, "3 files, but at most 2 are accepted: drop"),
        (made("letter.html"), (), {"formats": ("pdf",)}, "name a file that ends in .pdf"),
        (made(), (ALONE,), {"formats": ("pdf",)}, ".png is not accepted: drop exhibit 3, big"),
        (made("letter-ORD-1.pdf"), (), {"name_chars": 16}, "such as letter.pdf"),
        (made("answertodispute.pdf"), (), {"name_chars": 16}, "16 characters with the ending"),
        (made(size=MB), BEHIND, {"name_chars": 16, "size": MB, "pages": 2, "files": 1,
                                 "formats": ("pdf",)}, None),
    ],
)  # fmt: skip
def test_a_letter_beyond_a_limit_is_refused_with_what_to_drop(
    letter: SentFile, exhibits: tuple[SentFile, ...], limits: dict[str, Any], fault: str | None
) -> None:
    found = fault_of_sending(letter, exhibits, LetterLimits(**limits))
    assert found is None if fault is None else fault in str(found), found
