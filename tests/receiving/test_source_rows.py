"""Rows from which a source's state is judged: its last deliveries, and its rejections by hour."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.receiving.refusal_store import (
    NOT_KEPT,
    Rejection,
    newest_refusal_ahead,
    redate_rejections,
)
from app.receiving.source_state_store import (
    REFUSALS_KEPT,
    Accepted,
    LastEvent,
    SourceArrivals,
    arrivals_by_source,
    last_events,
    last_read,
    not_kept_in,
    note_sources,
    put_back,
    refused_in,
)
from reconcile.instants import HOUR, MINUTE, SECOND, TICK
from reconcile.ledger.events import UNCONFIRMED
from tests.database.builders import arrival, keep, opened, rejection, said
from tests.receiving.test_inbox_rows import Plain, plain
from tests.reconcile.build import T, seconds

__all__ = ["plain"]

SOURCES: Any = {
    name: SimpleNamespace(unsigned=name == "till") for name in ("shop", "till", "quiet")
}


def refused(
    at: int = 0, verdict: str = "signature_mismatch", *, source: str = "shop", count: int = 1
) -> Rejection:
    """Return a rejection `at` seconds after T."""
    return replace(rejection(count=count), received_at=seconds(at), verdict=verdict, source=source)


def states(plain: Plain) -> dict[str, SourceArrivals]:
    return arrivals_by_source(plain, SOURCES)


NONE = SourceArrivals()


def refusing(since: int, **counts: int) -> dict[str, Any]:
    """Return the members of a source's arrivals that are about its rejections."""
    return {
        "refusing_since": seconds(since),
        "refused_since_then": sum(counts.values()),
        "refused_by_verdict": counts,
    }


def test_a_source_has_its_last_accepted_and_its_last_readable_delivery(plain: Plain) -> None:
    """In whatever order they are noted."""
    assert states(plain) == dict.fromkeys(SOURCES, NONE)
    note_sources(plain, [
        Accepted("shop", seconds(5), True), Accepted("shop", seconds(9), False),
        Accepted("shop", seconds(3), True), Accepted("till", seconds(7), False),
    ])  # fmt: skip
    shop = SourceArrivals(last_accepted_at=seconds(9), last_read_at=seconds(5))
    till = SourceArrivals(last_accepted_at=seconds(7))
    assert states(plain) == {"shop": shop, "till": till, "quiet": NONE}
    note_sources(plain, [Accepted("shop", seconds(4), True)])
    assert states(plain)["shop"] == shop
    note_sources(plain, [Accepted("shop", seconds(11), True)])
    assert states(plain)["shop"] == SourceArrivals(
        last_accepted_at=seconds(11), last_read_at=seconds(11)
    )


def test_rejections_count_since_the_last_accepted_delivery(plain: Plain) -> None:
    """By verdict, from the first of them on, also if they come in another order."""
    note_sources(plain, [], [
        refused(9), refused(7), refused(8, "signature_missing"), refused(3, source="till"),
    ])  # fmt: skip
    assert states(plain) == {
        "shop": replace(NONE, **refusing(7, signature_mismatch=2, signature_missing=1)),
        "till": replace(NONE, **refusing(3, signature_mismatch=1)),
        "quiet": NONE,
    }
    note_sources(plain, [], [refused(12), refused(5, "signature_missing")])
    assert states(plain)["shop"] == replace(
        NONE, **refusing(5, signature_mismatch=3, signature_missing=2)
    )
    note_sources(plain, [Accepted("shop", seconds(20), True)])
    assert states(plain)["shop"] == SourceArrivals(
        last_accepted_at=seconds(20), last_read_at=seconds(20)
    )
    assert states(plain)["till"] == replace(NONE, **refusing(3, signature_mismatch=1))
    note_sources(plain, [], [refused(30)])
    assert states(plain)["shop"] == SourceArrivals(
        last_accepted_at=seconds(20), last_read_at=seconds(20), **refusing(30, signature_mismatch=1)
    )


def test_rejections_that_came_with_an_accepted_delivery_count_if_they_came_after_it(
    plain: Plain,
) -> None:
    """Those of other sources count in any case."""
    came = [Accepted("shop", seconds(20), False)]
    note_sources(plain, came, [refused(19), refused(20), refused(2, source="till")])
    shop = SourceArrivals(last_accepted_at=seconds(20))
    assert states(plain)["shop"] == shop
    assert states(plain)["till"] == replace(NONE, **refusing(2, signature_mismatch=1))
    note_sources(plain, came, [refused(20), refused(22), refused(21)])
    assert states(plain)["shop"] == replace(shop, **refusing(21, signature_mismatch=2))


def test_what_anyone_can_send_says_nothing_of_a_source(plain: Plain) -> None:
    """Long bodies of an unsigned source, what exceeds its limit, and names of no source."""
    note_sources(plain, [], [
        refused(1, "body_too_large"), refused(2, "body_too_large", source="till"),
        refused(3, NOT_KEPT, source="till", count=9), refused(4, "source_unknown", source="quiet"),
    ])  # fmt: skip
    assert states(plain) == {
        "shop": replace(NONE, **refusing(1, body_too_large=1)), "till": NONE, "quiet": NONE
    }  # fmt: skip
    note_sources(plain, [], [refused(5, source="till")])
    assert states(plain)["till"] == replace(NONE, **refusing(5, signature_mismatch=1))


def test_rejections_are_counted_by_hour_and_for_ninety_days(plain: Plain) -> None:
    """Those that are only counted apart. All of an hour count as soon as one moment of it does."""
    hour, begun = HOUR // SECOND, int(T) % HOUR // SECOND
    came = [refused(-begun - 1), refused(-begun), refused(hour - begun - 1, count=4)]
    more = [refused(hour - begun), refused(1, NOT_KEPT, count=20), refused(1, source="till")]
    note_sources(plain, [], [*came, *more])

    def counts(since: int, until: int, *sources: str) -> tuple[int, int]:
        window = {"since": seconds(since), "until": seconds(until)}
        return refused_in(plain, sources, **window), not_kept_in(plain, sources, **window)

    assert counts(-hour, 2 * hour, "shop") == (7, 20)
    assert counts(-hour, 2 * hour, "shop", "till") == (8, 20)
    assert counts(-begun, hour - begun - 1, "shop") == (5, 20)
    assert counts(hour - begun, hour, "shop") == (1, 0)
    assert counts(-hour, -begun - 1, "shop", "none") == (1, 0)
    kept = REFUSALS_KEPT * hour
    for later, left in ((kept - begun - 1, 8), (kept - begun, 7)):
        note_sources(plain, [], [refused(later, source="quiet")])
        assert counts(-hour, 2 * hour, "shop", "till")[0] == left


PUT_BACK = "SELECT name, value FROM counters WHERE name <> 'last commit'"


def test_instants_in_the_future_are_put_back_to_now(plain: Plain) -> None:
    """Of all sources, and of one more counter; no other counter and no earlier instant changes."""
    note_sources(plain, [Accepted("shop", seconds(9), True), Accepted("till", seconds(3), True)])
    for name in ("also", "another"):
        plain.ask("INSERT INTO counters (name, value) VALUES (?, ?)", (name, seconds(9)))
    put_back(plain, seconds(5), also="also")
    assert dict(plain.ask(PUT_BACK)) == {
        "last accepted shop": seconds(5), "last read shop": seconds(5), "also": seconds(5),
        "last accepted till": seconds(3), "last read till": seconds(3), "another": seconds(9),
    }  # fmt: skip


def delivered(plain: Plain, *deliveries: tuple[int, str, str, str]) -> None:
    for number, (at, source, verdict, headers) in enumerate(deliveries):
        plain.ask(
            "INSERT INTO deliveries (id, received_at, source, verdict, digest, size, headers) "
            "VALUES (?, ?, ?, ?, '', 0, ?)",
            (f"dlv_{number}", seconds(at), source, verdict, headers),
        )


def test_the_last_readable_delivery_is_no_answer_to_a_question_of_ours(plain: Plain) -> None:
    delivered(
        plain, (1, "shop", "stored", ""), (2, "till", "stored", ""),
        (3, "shop", "duplicate", "x: :fetched: y"), (4, "shop", "unreadable", ""),
        (5, "shop", "stored", ":fetched: GET /"),
    )  # fmt: skip
    for until, found in ((9, 3), (3, 3), (2, 1), (1, 1)):
        assert last_read(plain, "shop", until=seconds(until)) == seconds(found)
    assert last_read(plain, "shop", until=seconds(0)) is None
    assert last_read(plain, "quiet", until=seconds(9)) is None


REFUSED = (
    "INSERT INTO rejections (id, received_at, source, verdict, digest, size, headers, problem) "
    "VALUES (?, ?, 'shop', 'signature_mismatch', '', 0, '', '')"
)


def kept_at(plain: Plain) -> Sequence[Any]:
    return [row[0] for row in plain.ask("SELECT received_at FROM rejections ORDER BY id")]


def test_rejections_in_the_future_are_dated_now(plain: Plain) -> None:
    """Their ids say when they came, too, so that older ones are not looked at."""
    now = seconds(60)
    assert newest_refusal_ahead(plain, now) == now
    ids = ("dlv_0", "dlv_z1", "dlv_z2", "dlv_z3")
    for name, at in zip(ids, (seconds(99), now, now + TICK, now + MINUTE), strict=True):
        plain.ask(REFUSED, (name, at))
    assert newest_refusal_ahead(plain, now) == now + MINUTE
    assert redate_rejections(plain, now) == 2
    assert kept_at(plain) == [seconds(99), now, now, now]
    assert (redate_rejections(plain, now), newest_refusal_ahead(plain, now)) == (0, now)


@pytest.mark.parametrize("looked_at", [9, 2])
async def test_the_latest_deliveries_of_a_source_with_what_became_of_them(
    tmp_path: Path, looked_at: int
) -> None:
    """Newest first, whichever are read; a redelivery is what its event is."""
    paid = said("e1", "succeeded", order="A")
    came = [
        (arrival(paid), LastEvent(T, False, True, True)),
        (arrival(said("e2", "ignored"), at=1), LastEvent(seconds(1), False, False, False)),
        (arrival(said("e3", "unrecognized"), at=2), LastEvent(seconds(2), False, False, False)),
        (arrival(said("e4", standing=UNCONFIRMED), at=3),
         LastEvent(seconds(3), False, False, False)),
        (arrival(None, at=4), LastEvent(seconds(4), True, False, False)),
        (arrival(said("e5", order="B", shop="other"), at=5),
         LastEvent(seconds(5), False, True, False, True)),
        (arrival(said("e6", order="C", shop="unstated"), at=6),
         LastEvent(seconds(6), False, True, True, True)),
        (arrival(paid, at=7), LastEvent(seconds(7), False, True, True)),
    ]  # fmt: skip
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        await keep(inbox, *(each for each, _ in came), arrival(said("e7", source="other")))
        found = await inbox.database.on_snapshot(last_events, ["shop", "none"], looked_at=looked_at)
        assert found == {"shop": [each for _, each in came[::-1]][:looked_at], "none": []}
