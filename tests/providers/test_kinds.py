"""Tables of every event kind that a provider documents: its profile reads each kind as listed.

The table of a profile is `kinds/PROFILE.txt`. Its head names the source with version or date. Each
further line has one kind, sorted, and composed as the profile composes it:

    payment_intent.succeeded = succeeded
    customer.updated = ignored
    v1.refund.created = not yet: a thin event states no amount

Kinds that are not read yet are `unrecognized`, so that one about money going back holds its
payment. Words of [claims] that no documented kind contains follow a line `# status words`.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from app.providers.profile import load_profile
from app.providers.reader import ClaimWords
from reconcile.ledger.events import CLAIM_KINDS
from tests.rows import for_each

TABLES: Final = Path(__file__).parent / "kinds"

LEAST: Final = {
    "adyen": 100,
    "braintree": 44,
    "checkout_com": 40,
    "flutterwave": 13,
    "flutterwave_v3": 8,
    "mercadopago": 17,
    "mollie": 37,
    "mollie_classic": 2,
    "mpesa_stk": 13,
    "paypal": 95,
    "paystack": 33,
    "razorpay": 75,
    "square": 150,
    "stripe": 270,
}
"""Smallest number of kinds in each table. A truncated table would still parse."""

NOT_YET: Final = "not yet: "
STATUS_WORDS: Final = "# status words"


class Table(NamedTuple):
    """Kinds of a provider, and words that are no kinds, each with its meaning."""

    head: list[str]
    kinds: list[tuple[str, str]]
    words: list[tuple[str, str]]


def table_of(profile: str) -> Table:
    lines = (TABLES / f"{profile}.txt").read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#") and line != STATUS_WORDS]
    assert lines[: len(head)] == head, "comments stand at the top"
    end = lines.index(STATUS_WORDS) if STATUS_WORDS in lines else len(lines)
    rows = [tuple(line.split(" = ", 1)) for line in lines if not line.startswith("#")]
    assert all(len(row) == 2 for row in rows), "a line is `kind = meaning`"
    kinds = end - len(head)
    return Table(head, rows[:kinds], rows[kinds:])  # type: ignore[arg-type]


@for_each("profile", LEAST)
def test_a_profile_reads_each_documented_kind_as_its_table_says(profile: str) -> None:
    table = table_of(profile)
    meaning = ClaimWords(load_profile(profile).claims).meaning
    assert {
        kind: meaning(kind)
        for kind, said in table.kinds + table.words
        if meaning(kind) != ("unrecognized" if said.startswith(NOT_YET) else said)
    } == {}


@for_each("profile", LEAST)
def test_a_table_has_every_word_of_its_profile(profile: str) -> None:
    table = table_of(profile)
    named = [kind for kind, _ in table.kinds + table.words]
    assert [
        word
        for word, _ in load_profile(profile).claims
        if not any(fnmatchcase(kind, word.replace("[", "[[]")) for kind in named)
    ] == []


@for_each("profile", LEAST)
def test_a_table_is_sorted_whole_and_names_its_source(profile: str) -> None:
    head, kinds, words = table_of(profile)
    names = [kind for kind, _ in kinds]
    assert names == sorted(set(names))
    assert len(names) >= LEAST[profile]
    assert head
    assert [
        (kind, said)
        for kind, said in kinds + words
        if said not in CLAIM_KINDS
        and not (said.startswith(NOT_YET) and " " in said[len(NOT_YET) :])
    ] == []
    assert "unrecognized" not in {said for _, said in kinds}, "say `not yet`, and why"
