"""A closing is read again as it was written, and shows what has changed since."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.canonical import canonical_json
from reconcile.instants import TICK, Instant
from reconcile.periods import Month
from reconcile.reporting import closing
from reconcile.reporting.journal import Revenue
from tests.reconcile.build import T


def figure(line: str, count: int, total: int) -> closing.Figure:
    return closing.Figure(
        table="control", currency="KES", line=line, what="orders", count=count, sum=total
    )


def sealed(
    part: str, day: str, count: int = 1, digest: str = "sha256:00"
) -> closing.EvidenceDigest:
    return closing.EvidenceDigest(part=part, day=day, count=count, digest=digest)


CLOSING = closing.Closing(
    month=Month(year=2026, number=10),
    as_of=T,
    closed_at=T + 5 * TICK,
    by="Ann",
    role="finance",
    margin_days=10,
    known_after=Instant(7),
    before="sha256:ab",
    policy={"grace": 5},
    program={"tallyhook": "1"},
    checkpoint={"size": 3, "head": "ab"},
    evidence=(sealed("events", "2026-10-01"),),
    figures=(figure("succeeded", 2, 30),),
    adjusted=(closing.Adjusted(period="2026-09", figures=(figure("failed", -1, -5),)),),
    report={"rows": [1]},
    prints=(closing.Print(format="json", sha256="00", size=2),),
)


def test_a_closing_comes_back_whole_from_its_document() -> None:
    document = closing.closing_document(CLOSING)
    assert closing.closing_of(document) == CLOSING
    assert closing.closing_of(document).digest == CLOSING.digest


def test_every_field_is_under_the_digest() -> None:
    changes: dict[str, Any] = {
        "month": Month(year=2026, number=11),
        "as_of": T + 1,
        "closed_at": T + 6,
        "by": "Ben",
        "role": "admin",
        "version": 2,
        "proposed_at": 4,
        "approved_by": "Ben",
        "revenue": Revenue(taxes={"sales": 160_000}),
        "margin_days": 3,
        "known_after": 8,
        "before": None,
        "policy": {"grace": 6},
        "program": {"tallyhook": "2"},
        "checkpoint": None,
        "evidence": (),
        "figures": (),
        "adjusted": (),
        "report": {"rows": [2]},
        "prints": (),
    }
    assert set(changes) == {field.name for field in fields(closing.Closing)}
    digests = {replace(CLOSING, **{name: value}).digest for name, value in changes.items()}
    assert len(digests) == len(changes)
    assert CLOSING.digest not in digests


def test_a_document_of_a_later_form_is_refused() -> None:
    document = closing.closing_document(CLOSING) | {"form": closing.FORM + 1}
    with pytest.raises(ValueError, match="later version"):
        closing.closing_of(document)


def test_the_first_difference_is_that_of_the_earliest_day() -> None:
    then = (sealed("events", "2026-10-02", 2), sealed("records", "2026-10-01"))
    assert closing.first_difference(then, then) is None
    now = (sealed("events", "2026-10-02", 3), sealed("records", "2026-10-01", 1, "sha256:01"))
    assert closing.first_difference(then, now) == (
        "records of 2026-10-01: 1 as at closing, but different ones"
    )
    assert closing.first_difference(then, then[:1]) == "records of 2026-10-01: 1 at closing, 0 now"
    assert closing.first_difference((), then) == "records of 2026-10-01: 0 at closing, 1 now"


FIGURES = st.lists(
    st.builds(
        figure,
        st.sampled_from(["succeeded", "failed", "refunded"]),
        st.integers(-9, 9),
        st.integers(-(10**6), 10**6),
    ),
    max_size=6,
)


@given(FIGURES, FIGURES)
def test_what_was_and_the_difference_are_what_is(
    then: list[closing.Figure], now: list[closing.Figure]
) -> None:
    """The law of adjustments, on any two sets of figures."""
    changes = closing.difference(then, now)
    assert sorted(closing.added([*then, *changes]), key=repr) == sorted(
        closing.added(now), key=repr
    )
    assert canonical_json([each.document() for each in closing.difference(now, now)]) == b"[]"
