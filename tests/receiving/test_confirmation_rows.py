"""Events that wait to be asked about: which are due, who has them, and which are given up."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.clock import SetClock
from app.providers.fetched import NOT_KNOWN
from app.receiving import confirm
from app.receiving.confirm import (
    Confirmer,
    _answers,
    _later,
    _settles,
    ask_before,
    confirm_due,
    confirming,
    unanswered_by,
)
from app.receiving.confirmation_store import (
    Asking,
    Confirmation,
    any_due,
    asked_count,
    await_again,
    drop_most_asked,
    is_known,
    put_off,
    settle,
    take_due,
)
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Instant
from reconcile.ledger.events import UNCONFIRMED, Event
from tests.database.builders import arrival, context, keep, opened, rows, said
from tests.reconcile.build import T, seconds


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a serving store on a new database."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        yield opened_


def unconfirmed(event_id: str, **fields: Any) -> Event:
    """Make an event that its signature does not cover."""
    return said(event_id, standing=UNCONFIRMED, **{"order": "A", **fields})


def asking(after: int = 0, *, source: str = "shop") -> Asking:
    """Return the questions due `seconds` after T, for two minutes, and again after an hour at the
    latest."""
    return Asking(source=source, now=seconds(after), lease=2 * MINUTE, longest=HOUR)


async def marks(inbox: Inbox) -> list[tuple[Any, ...]]:
    """Return event, seconds until it is due, and tries of each row."""
    found = await rows(inbox, "SELECT event_id, due_at, tries FROM confirmations ORDER BY 1")
    return [(name, (due - T) // SECOND, tries) for name, due, tries in found]


async def put(inbox: Inbox, due_at: int, tries: int, event_id: str = "e1") -> None:
    """Say when one is due, in ticks after T."""
    async with inbox.database.writing() as connection:
        await connection.exec_driver_sql(
            f"UPDATE confirmations SET due_at={T + due_at}, tries={tries} "
            f"WHERE event_id='{event_id}'"
        )


LEASED, LONGEST = 2 * MINUTE, 2 * MINUTE + HOUR


@pytest.mark.parametrize(
    ("due_at", "tries", "due"),
    [
        (0, 0, True),
        (1, 0, False),
        (LEASED, 0, False),
        (LEASED + 1, 0, True),
        (LEASED + 1, 1, False),
        (LONGEST, 1, False),
        (LONGEST + 1, 1, True),
        (0, 9, True),
    ],
)
async def test_which_are_due(inbox: Inbox, due_at: int, tries: int, due: bool) -> None:
    """From its moment on; and what only a clock that was ahead can have put off for so long."""
    await keep(inbox, arrival(unconfirmed("e1")))
    await put(inbox, due_at, tries)
    async with inbox.database.writing() as connection:
        assert await any_due(connection, asking()) is due
        assert await any_due(connection, asking(source="other")) is False
        taken = await take_due(connection, asking(), limit=9)
    assert [each.tries for each in taken] == [tries] * due
    assert await marks(inbox) == [("e1", 120 if due else due_at // SECOND, tries)]


async def test_the_least_often_asked_come_first(inbox: Inbox) -> None:
    """Of those the first that came; up to a limit, and only of their source."""
    names = ("e1", "e2", "e3", "e4")
    await keep(inbox, *(arrival(unconfirmed(name)) for name in names))
    await keep(inbox, arrival(unconfirmed("e5", source="other")))
    for name, due_at, tries in (("e1", -5, 1), ("e2", -1, 0), ("e3", -2, 0), ("e4", -9, 2)):
        await put(inbox, due_at, tries, name)
    async with inbox.database.writing() as connection:
        taken = await take_due(connection, asking(7), limit=3)
        assert await asked_count(connection, "shop") == 2
    assert [each.event.event_id for each in taken] == ["e2", "e3", "e1"]
    assert taken[0] == Confirmation(
        event=unconfirmed("e2"), asked_since=T, tries=0, taken_until=seconds(127)
    )
    assert {name: due for name, due, _ in await marks(inbox)} == {
        "e1": 127, "e2": 127, "e3": 127, "e4": -1, "e5": 0,
    }  # fmt: skip


async def test_what_came_again_meanwhile_is_asked_about_at_once(inbox: Inbox) -> None:
    """It is neither put off nor settled by an answer to the question before, and begins anew."""
    event = unconfirmed("e1")
    await keep(inbox, arrival(event), arrival(unconfirmed("e2")))
    async with inbox.database.writing() as connection:
        one, other = await take_due(connection, asking(), limit=9)
        await put_off(connection, one, until=seconds(500))
    assert await marks(inbox) == [("e1", 500, 1), ("e2", 120, 0)]
    async with inbox.database.writing() as connection:
        await settle(connection, one)
    assert len(await marks(inbox)) == 2
    await keep(inbox, arrival(unconfirmed("e2"), at=3))
    async with inbox.database.writing() as connection:
        await put_off(connection, other, until=seconds(500))
        await settle(connection, other)
    assert await marks(inbox) == [("e1", 500, 1), ("e2", 3, 0)]
    async with inbox.database.writing() as connection:
        (again,) = await take_due(connection, asking(3), limit=9)
        await settle(connection, again)
    assert await marks(inbox) == [("e1", 500, 1)]


async def order_asked(inbox: Inbox, count: int) -> list[str]:
    """Return the events that are asked about, in turn."""
    async with inbox.database.writing() as connection:
        return [each.event.event_id for each in await take_due(connection, asking(), limit=count)]


async def test_senders_are_asked_about_in_turn(inbox: Inbox) -> None:
    """One of three floods delays another sender by one question of each."""
    flood = [
        arrival(unconfirmed(f"f{n}{lane}"), lane=lane) for n in range(50) for lane in (1, 2, 3)
    ]
    await keep(inbox, *flood)
    assert len(await order_asked(inbox, 12)) == 12
    await keep(inbox, *(arrival(unconfirmed(f"g{n}"), lane=9) for n in range(4)))
    asked = await order_asked(inbox, 16)
    assert sorted(name for name in asked if name[0] == "g") == ["g0", "g1", "g2", "g3"]
    assert {name[-1] for name in asked if name[0] == "f"} == {"1", "2", "3"}


async def test_a_sender_with_a_backlog_waits_for_no_new_one(inbox: Inbox) -> None:
    await keep(inbox, *(arrival(unconfirmed(f"g{n}"), lane=9) for n in range(20)))
    await order_asked(inbox, 10)
    await keep(inbox, *(arrival(unconfirmed(f"f{n}"), lane=1) for n in range(50)))
    asked = await order_asked(inbox, 12)
    assert 5 <= sum(name[0] == "g" for name in asked) <= 7


@pytest.mark.parametrize("of", ["session", "payment"])
async def test_what_names_a_known_reference_is_asked_about_first(inbox: Inbox, of: str) -> None:
    """Many that name one reference delay those that name another by one question."""

    def naming(event_id: str, reference: str) -> Event:
        named: dict[str, Any] = {of: reference}
        return unconfirmed(event_id, **named)

    signed = [replace(naming(f"s{n}", f"known{n}"), standing="said") for n in (1, 2)]
    await keep(inbox, *map(arrival, signed))
    await keep(inbox, *(arrival(naming(f"f{n}", f"x{n}"), lane=n) for n in range(30)))
    await keep(inbox, *(arrival(naming(f"m{n}", "known1")) for n in range(9)))
    await keep(inbox, arrival(naming("genuine", "known2"), lane=1))
    asked = await order_asked(inbox, 10)
    assert "genuine" in asked[:2]
    assert all(name[0] in "mg" for name in asked)


@pytest.mark.parametrize(("most", "left"), [(3, "0123"), (2, "012"), (1, "01"), (0, "0")])
async def test_those_that_were_asked_about_most_are_given_up(
    inbox: Inbox, most: int, left: str
) -> None:
    """Of one source; as many as may wait stay, and all that were never asked about."""
    await keep(inbox, *(arrival(unconfirmed(f"e{n}")) for n in range(4)))
    await keep(inbox, arrival(unconfirmed("f1", source="other")))
    for number, tries in ((1, 1), (2, 2), (3, 5)):
        await put(inbox, 0, tries, f"e{number}")
    async with inbox.database.writing() as connection:
        assert await drop_most_asked(connection, "shop", keep=most) == 4 - len(left)
    assert [name for name, *_ in await marks(inbox)] == [*(f"e{n}" for n in left), "f1"]


@pytest.mark.parametrize(
    ("claim", "kind", "waits"),
    [
        ("succeeded", "paid", False),
        ("pending", "waits", True),
        ("unrecognized", "odd", True),
        ("unrecognized", NOT_KNOWN, False),
    ],
)
async def test_what_is_asked_about_after_the_index_was_rebuilt(
    inbox: Inbox, claim: Any, kind: str, waits: bool
) -> None:
    """What no final answer came after; not what means nothing, nor of a source not asked."""
    answer = said("answer", claim, order="A", standing="fetched", kind=kind)
    await keep(
        inbox,
        arrival(unconfirmed("e1")),
        arrival(answer, at=1),
        arrival(unconfirmed("e2", order="B"), at=2),
        arrival(unconfirmed("e3", order="C", source="other"), at=3),
        arrival(said("e4", "ignored", order="D", standing=UNCONFIRMED), at=4),
    )
    async with inbox.database.writing() as connection:
        await connection.exec_driver_sql("DELETE FROM confirmations")
        assert await is_known(connection, answer)
        assert not await is_known(connection, unconfirmed("e9"))
        await await_again(connection, now=seconds(9), not_known=NOT_KNOWN, never=["other"])
    assert await marks(inbox) == [*([("e1", 9, 0)] if waits else []), ("e2", 9, 0)]


# --- who asks -------------------------------------------------------------------------------------


def confirmer(inbox: Inbox, *, at: int = 0, **askers: Any) -> Confirmer:
    """Build a confirmer that asks these."""
    return Confirmer(context=context(inbox, at=at), sources={}, askers=askers)


def provider(status: int | None, problem: str | None = None) -> Any:
    """Build a provider that gives this answer to every question."""

    async def ask(event: Event) -> Any:
        answer = SimpleNamespace(status=status, problem=problem, headers={}, body=b"")
        return SimpleNamespace(answer=answer, question=SimpleNamespace(shown="GET /"))

    return SimpleNamespace(ask=ask)


@pytest.mark.parametrize(
    ("status", "problem", "reason"),
    [
        (500, None, "status_500"),
        (199, None, "status_199"),
        (300, None, "status_300"),
        (None, "no_answer", "no_answer"),
        (200, "too_long", "too_long"),
        (404, None, None),
    ],
)
async def test_a_provider_that_gives_no_answer(
    inbox: Inbox, log: StringIO, status: int | None, problem: str | None, reason: str | None
) -> None:
    """The log says of which event, and why; one that does not know it is asked again in silence."""
    await keep(inbox, arrival(unconfirmed("e1")))
    made = confirmer(inbox, shop=provider(status, problem))
    log.truncate(0)
    assert await confirm_due(made, "shop") == 1
    assert await confirm_due(made, "shop") == 0
    lines = [json.loads(line) for line in log.getvalue().strip("\0").splitlines()]
    assert [(line["source"], line["event_id"], line["reason"]) for line in lines] == (
        [("shop", "e1", reason)] if reason else []
    )
    assert await marks(inbox) == [("e1", 5, 1)]


@pytest.mark.parametrize(
    ("status", "answers"),
    [(199, False), (200, True), (299, True), (300, False), (404, True), (410, True), (403, False)],
)
def test_which_statuses_answer(status: int, answers: bool) -> None:
    assert _answers(status) is answers


@pytest.mark.parametrize(
    ("claim", "kind", "settles"),
    [
        ("succeeded", "paid", True),
        ("declined", "no", True),
        ("pending", "waits", False),
        ("unrecognized", "odd", False),
        ("unrecognized", NOT_KNOWN, True),
    ],
)
def test_which_answers_are_final(claim: Any, kind: str, settles: bool) -> None:
    assert _settles(said("e1", claim, kind=kind)) is settles


@pytest.mark.parametrize(
    ("after", "tries", "asked", "pause"),
    [
        (0, 0, 0, 5),
        (0, 3, 0, 40),
        (0, 3, 41, 41),
        (0, 9, 0, 2_560),
        (0, 10, 0, 3_600),
        (0, 99, 0, 3_600),
        (0, 0, 9_999, 3_600),
        (65 * DAY // SECOND, 0, 0, 5),
        (65 * DAY // SECOND + 1, 0, 0, None),
    ],
)
async def test_when_it_is_asked_again(
    inbox: Inbox, log: StringIO, after: int, tries: int, asked: int, pause: int | None
) -> None:
    """Twice as long each time, up to an hour; or as long as it asks for. Five days after
    the longest window of a slow payment no more, which the log says once."""
    await keep(inbox, arrival(unconfirmed("e1")))
    async with inbox.database.writing() as connection:
        (one,) = await take_due(connection, asking(after), limit=1)
    one = Confirmation(
        event=one.event, asked_since=T, tries=tries, taken_until=seconds(after + 120)
    )
    await _later(context(inbox, at=after), one, asked * SECOND, answered=False)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    over = [
        (line["event_id"], line["reason"]) for line in lines if "not confirmed" in line["event"]
    ]
    if pause is None:
        assert await marks(inbox) == []
        assert over == [("e1", "the provider gave no final answer in 65 days")]
    else:
        assert await marks(inbox) == [("e1", after + pause, 1)]
        assert over == []


@pytest.mark.parametrize(("waits", "left", "given_up"), [(3, 3, []), (4, 3, [("shop", 1)])])
async def test_as_many_as_may_wait(
    inbox: Inbox,
    log: StringIO,
    monkeypatch: pytest.MonkeyPatch,
    waits: int,
    left: int,
    given_up: list[Any],
) -> None:
    """At the bound nobody is given up; beyond it the log says how many are."""
    monkeypatch.setattr(confirm, "MAX_WAITING", 3)
    await keep(inbox, *(arrival(unconfirmed(f"e{n}")) for n in range(waits)))
    await confirm_due(confirmer(inbox, shop=provider(404)), "shop")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [
        (line["source"], line["count"]) for line in lines if line["event"].startswith("too many")
    ] == given_up
    assert len(await marks(inbox)) == left


async def test_an_error_of_one_is_raised_once_all_have_ended(inbox: Inbox) -> None:
    """None goes on by itself."""
    ended: list[str] = []

    async def ask(event: Event) -> Any:
        ended.append(event.event_id)
        if event.event_id == "e1":
            raise ValueError("planted")

    await keep(inbox, *(arrival(unconfirmed(name)) for name in ("e1", "e2")))
    with pytest.raises(ValueError, match="planted"):
        await confirm_due(confirmer(inbox, shop=SimpleNamespace(ask=ask)), "shop")
    assert sorted(ended) == ["e1", "e2"]
    assert [name for name, *_ in await marks(inbox)] == ["e1"]


def test_how_long_it_rests() -> None:
    """A second where nothing was due, else a twentieth for each question."""
    every: Any = SimpleNamespace(clock=SetClock(Instant(T)))
    group = confirming(Confirmer(context=every, sources={}, askers={"shop": provider(200)}))
    (task,) = group._tasks
    assert [task._rest(count) for count in (0, 1, 8)] == [1.0, 0.05, 0.4]


async def test_before_a_month_is_closed_the_first_of_many_are_asked_about_and_the_rest_is_named(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without an answer come first. What came later than the month does not count."""
    for name, value in (("MOST_ASKED_BEFORE", 2), ("PATIENCE_S", 0.02), ("_LOOK_S", 0.01)):
        monkeypatch.setattr(confirm, name, value)
    await keep(inbox, *(arrival(unconfirmed(f"e{n}"), at=n) for n in range(4)))
    then = context(inbox, at=60)

    async def left(until: int) -> str:
        return " ".join(each.event_id for each in await ask_before(then, until=seconds(until)))

    async def left_by(as_of: int) -> str:
        found = await unanswered_by(then, until=seconds(9), as_of=seconds(as_of))
        return " ".join(each.event_id for each in found)

    assert [await left(until) for until in (0, 1, 2, 9)] == ["", "e0", "e0 e1", "e0 e1 e2"]
    assert await left_by(99) == "e0 e1 e2"
    async with inbox.database.writing() as connection:
        first, second = await take_due(connection, asking(60), limit=2)
        await put_off(connection, second, until=seconds(70), answered=seconds(60))
    assert await left(9) == "e0 e2"
    async with inbox.database.writing() as connection:
        await put_off(connection, first, until=seconds(70), answered=seconds(61))
    assert await left(9) == "e2"
    assert [await left_by(as_of) for as_of in (59, 60, 61)] == ["e0 e1 e2", "e0 e2", "e2"]


@pytest.mark.parametrize(
    ("after", "answer", "words", "due"),
    [
        (0, said("a", "declined", kind="no"), {}, 900),
        (899, said("a", "declined", kind="no"), {}, 900),
        (900, said("a", "declined", kind="no"), {}, None),
        (900, said("a", "declined", kind="no"), {"window": 4 * HOUR}, 3_600),
        (0, said("a", "succeeded", kind="paid"), {}, None),
        (0, said("a", "declined", kind="no"), {"again": None}, None),
        (0, said("a", "declined", kind="no"), {"source": "gone"}, 5),
        (0, said("a", "pending", kind="waits"), {}, 5),
        (0, said("a", "pending", kind="waits"), {"with_event": True}, None),
        (0, None, {"with_event": True}, 5),
    ],
    ids=["at once", "before half of the window", "after it", "after an hour at most", "final",
         "no rule", "no source", "not final", "answered with an event", "no answer"],
)  # fmt: skip
async def test_an_answer_that_may_change_is_asked_for_again_halfway_to_the_deadline(
    inbox: Inbox,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    answer: Event | None,
    words: dict[str, Any],
    due: int | None,
) -> None:
    """Any other final answer settles the question."""

    async def store(*_: object) -> Event | None:
        return answer

    monkeypatch.setattr(confirm, "_store", store)
    again = words.get("again", frozenset({"no"}))
    rule = None if again is None else SimpleNamespace(again=again)
    source: Any = SimpleNamespace(
        answers_with_event="with_event" in words, profile=SimpleNamespace(fetch_back=rule)
    )
    at = context(inbox, at=after)
    at = replace(at, policy=replace(at.policy, payment_window=words.get("window", 30 * MINUTE)))
    sources = {words.get("source", "shop"): source}
    await keep(inbox, arrival(unconfirmed("e1")))
    made = Confirmer(context=at, sources=sources, askers={"shop": provider(200)})
    assert await confirm_due(made, "shop") == 1
    found = await rows(inbox, "SELECT due_at, tries, answered_at FROM confirmations")
    answered = None if answer is None else seconds(after)
    wait = None if due is None else seconds(due)
    assert found == ([] if wait is None else [(wait, 1, answered)])
