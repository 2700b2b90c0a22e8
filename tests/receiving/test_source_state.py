"""The state of each source's deliveries: judged by what arrived, and alike wherever it is shown."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from app.core.errors import NotFoundError, UsageError
from app.monitoring.preflight import of_source
from app.providers.profile import load_profile
from app.receiving import source_state
from app.receiving.source_state import (
    PAYMENTS,
    SourceState,
    SourceWord,
    explained_states,
    judged,
    source_states,
)
from app.receiving.source_state_store import LastEvent, SourceArrivals
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Instant
from tests.api.driving import Driver, driving, event, signed
from tests.contexts import with_given
from tests.database.builders import arrival, context, keep, opened, rejection, said
from tests.database.contract_gaps import accept_gap
from tests.reconcile.build import T, seconds


@pytest.mark.parametrize(
    ("profile", "read", "state"),
    [
        ("mpesa_stk", DAY, "flooded"),
        ("gocardless", DAY, "flooded"),
        ("mpesa_stk", DAY + 1, "not_placed"),
        ("checkout", 0, "not_placed"),
    ],
)
def test_junk_from_anybody_is_no_mistake_of_a_profile_while_others_are_read(
    profile: str, read: int, state: str
) -> None:
    came = SourceArrivals(last_accepted_at=T + 2 * DAY, last_read_at=Instant(T + 2 * DAY - read))
    junk = [LastEvent(Instant(T + 2 * DAY), True, False, False, False)] * 9
    now = Instant(T + 2 * DAY)
    found = judged("shop", load_profile(profile), came, junk, now=now, behind=0, not_kept=1_000)
    assert found.state == state
    assert "1,000 unsigned requests were not stored" in found.sentence


UNSIGNED: dict[str, Any] = {
    "SOURCES__TILL_9F3A__PROFILE": "mpesa_stk",
    "SOURCES__TILL_9F3A__CREDENTIALS": json.dumps(
        {"consumer": "k:s", "shortcode": "1", "timestamp": "20261120100000", "password": "cA=="}
    ),
    "SOURCES__PUSH_77__PROFILE": "mpesa_stk",
    "SOURCES__PUSH_77__CREDENTIALS": json.dumps(
        {"consumer": "k:s", "shortcode": "1", "timestamp": "20261120100000", "password": "cA=="}
    ),
}
WRONG = b"another key altogether, not a secret"
NAMELESS: dict[str, Any] = {"order": None, "session": None}


def last(
    *,
    unreadable: bool = False,
    of_payment: bool = True,
    placed: bool = True,
    others: bool = False,
) -> LastEvent:
    is_read = not unreadable
    return LastEvent(T, unreadable, of_payment and is_read, placed and is_read, others)


ACCEPTED = SourceArrivals(last_accepted_at=T, last_read_at=T)
REFUSED = SourceArrivals(refusing_since=T, refused_since_then=8)


@pytest.mark.parametrize(
    ("came", "latest", "state", "said"),
    [
        (SourceArrivals(), [], "never_delivered", "No delivery of it was ever accepted"),
        (REFUSED, [], "refusing", "8 deliveries were refused from 2026-"),
        (REFUSED, [], "refusing", "none was ever accepted"),
        (
            SourceArrivals(last_accepted_at=T, refusing_since=T + MINUTE, refused_since_then=1),
            [last()],
            "refusing",
            "1 delivery was refused from 2026-",
        ),
        (ACCEPTED, [last(placed=False)], "not_placed", "none of its last 1 event of payments"),
        (ACCEPTED, [last(placed=False), last()], "ok", "its payments are in orders"),
        (ACCEPTED, [last(placed=False)] * PAYMENTS + [last()], "not_placed", "is in an order"),
        (ACCEPTED, [last(placed=False, others=True)], "not_ours", ": 1 state another shop"),
        (ACCEPTED, [last(placed=True, others=True)], "not_ours", "is this shop's: "),
        (ACCEPTED, [last(placed=False), last(others=True)], "not_ours", "last 2 events"),
        (ACCEPTED, [last(), last(placed=False, others=True)], "ok", "payments are in orders"),
        (ACCEPTED, [last(of_payment=False, placed=False)], "ok", "no payment is among them yet"),
        (ACCEPTED, [last(unreadable=True)] * 2, "not_placed", "last 2 deliveries could be read"),
        (ACCEPTED, [last(unreadable=True), last()], "ok", ""),
    ],
)
def test_a_state_says_what_arrived(
    came: SourceArrivals, latest: list[LastEvent], state: str, said: str
) -> None:
    found = judge(came, latest)
    assert found.state == state
    assert said in found.sentence
    assert (found.do is None) is (state == "ok")


def at(after: int, **changes: Any) -> LastEvent:
    """Return a delivery that arrived then, in seconds after T."""
    return last(**changes)._replace(received_at=seconds(after))


DATED = SourceArrivals(last_accepted_at=seconds(90), last_read_at=seconds(80))
STRANGE = [at(n, placed=False, of_payment=n != 88) for n in range(90, 60, -1)]


@pytest.mark.parametrize(
    ("came", "latest", "state", "since", "count"),
    [
        (replace(DATED, refusing_since=seconds(95)), STRANGE, "refusing", seconds(95), None),
        (DATED, [at(90, unreadable=True), at(85, unreadable=True), at(70, unreadable=True)],
         "not_placed", seconds(70), "last 3 deliveries could"),
        (DATED, STRANGE, "not_placed", seconds(70), "last 20 events"),
        (DATED, [each._replace(others=True) for each in STRANGE], "not_ours", seconds(70),
         "last 20 events of payments is this shop's: 20 state"),
        (DATED, [*STRANGE[:4], at(70, others=True)], "not_ours", seconds(70),
         "last 4 events of payments is this shop's: 1 state"),
        (DATED, [at(90)], "ok", None, None),
    ],
    ids=["refusing", "unreadable", "in no order", "of others", "of one other", "ok"],
)  # fmt: skip
def test_a_state_began_with_the_first_delivery_that_was_looked_at(
    came: SourceArrivals, latest: list[LastEvent], state: str, since: Instant | None,
    count: str | None,
) -> None:  # fmt: skip
    """Of twenty payments at most. The last delivery is the last readable one."""
    found = judge(came, latest)
    assert (found.source, found.state, found.since) == ("shop", state, since)
    assert found.last == seconds(80)
    assert (count or "") in found.sentence


def test_a_quiet_source_that_is_flooded_is_quiet_no_more() -> None:
    """Its sentence stays, and has what was not stored and what a gap may have lost after it."""
    gap: Any = SimpleNamespace(since=T, until=seconds(60))
    found = judged(
        "shop", load_profile("checkout"), ACCEPTED, [last()], now=Instant(T + DAY + SECOND),
        behind=0, not_kept=2, gaps=[gap, gap],
    )  # fmt: skip
    assert (found.state, found.since) == ("flooded", None)
    span = "from 2026-11-20T10:00:00Z to 2026-11-20T10:01:00Z"
    assert found.sentence == (
        f"Its last delivery came at 2026-11-20T10:00:00Z. Its deliveries {span} and {span} may be "
        "lost. 2 unsigned requests were not stored in the last day, so genuine callbacks may be "
        "missing."
    )


def test_the_document_of_a_state_has_its_explanation_and_nothing_to_do() -> None:
    found = SourceState(
        source="shop", state="refusing", since=T, last=None, sentence="It is so.", do="look"
    )
    for explanation, sentence in (
        (None, "It is so."),
        ("It is wrong.", "It is so. The latest: It is wrong."),
    ):
        assert replace(found, explanation=explanation).document() == {
            "source": "shop",
            "state": "refusing",
            "since": "2026-11-20T10:00:00Z",
            "sentence": sentence,
        }


@pytest.mark.parametrize(
    ("found", "explanation"),
    [
        ([UsageError("cut"), "none", "a mistake", "another"], "a mistake"),
        (["none", NotFoundError("gone"), "later"], "later"),
        (["none", "none 2"], "none"),
        ([NotFoundError("gone")], None),
        ([], None),
    ],
)
async def test_refusals_are_explained_by_the_first_known_mistake(
    monkeypatch: pytest.MonkeyPatch, found: list[Any], explanation: str | None
) -> None:
    """Else by what to check, as far as the doctor has seen a whole delivery."""

    async def diagnosed(context: Any, delivery: str, *, accounts: Any) -> Any:
        result = found[int(delivery)]
        if isinstance(result, Exception):
            raise result
        words = [] if result.startswith("none") else [result, "and another"]
        known = [SimpleNamespace(sentence=each) for each in words]
        return SimpleNamespace(diagnoses=known, unexplained=result)

    monkeypatch.setattr(source_state, "diagnose_delivery", diagnosed)
    names = [str(number) for number in range(len(found))]
    assert await source_state._explained(cast(Any, None), names, {}) == explanation


def judge(
    came: SourceArrivals, latest: list[LastEvent], *, after: Any = HOUR, behind: int = 0
) -> SourceState:
    profile = load_profile("checkout")
    now = Instant(T + after)
    return judged("shop", profile, came, latest, now=now, behind=behind)


@pytest.mark.parametrize(("after", "state"), [(DAY, "ok"), (DAY + SECOND, "quiet")])
def test_a_source_is_quiet_after_a_day(after: Any, state: str) -> None:
    found = judge(ACCEPTED, [last()], after=after)
    assert (found.state, found.since) == (state, T if state == "quiet" else None)


@pytest.mark.parametrize(
    ("came", "latest", "state"),
    [
        (ACCEPTED, [last()], "flooded"),
        (SourceArrivals(), [], "flooded"),
        (REFUSED, [], "refusing"),
        (ACCEPTED, [last(placed=False)], "not_placed"),
    ],
)
def test_requests_that_were_not_kept_are_a_state_of_their_own(
    came: SourceArrivals, latest: list[LastEvent], state: str
) -> None:
    """Where nothing worse is known of the source."""
    found = judged("shop", load_profile("checkout"), came, latest, now=T, behind=0, not_kept=7)
    assert (found.state, bool(found.do)) == (state, True)
    assert "7 unsigned requests were not stored in the last day" in found.sentence
    single = judged("shop", load_profile("checkout"), came, latest, now=T, behind=0, not_kept=1)
    assert " 1 unsigned request was not stored in the last day" in single.sentence


def test_what_is_unread_is_not_known() -> None:
    """Nothing came, as far as is known; the sentence says up to when."""
    found = judge(SourceArrivals(), [], behind=90)
    assert "the oldest for 1 min 30 s, so" in found.sentence


def test_every_state_has_a_row_of_the_doctor() -> None:
    """Only `ok` is none to look at, and each names its word."""
    for word in get_args(SourceWord):
        state = SourceState(
            source="shop", state=word, since=None, last=None, sentence="It is so.", do="look"
        )
        row = of_source(state)
        assert row.what == "source shop"
        assert row.sentence.startswith(f"{word}: ")
        assert (row.state == "ok") is (word == "ok")
        assert (row.state == "must") is (word == "refusing")


@pytest.mark.parametrize(
    ("until", "not_kept", "words"),
    [(0, 0, "are read, but no payment"), (1, 0, "may be lost."), (0, 7, "7 unsigned requests")],
)
async def test_the_states_of_all_sources_tell_of_the_last_day(
    tmp_path: Path, until: int, not_kept: int, words: str
) -> None:
    """A gap that ended before it says nothing."""
    each = SimpleNamespace(profile=load_profile("checkout"), unsigned=False)
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        day = DAY // SECOND
        at_ = with_given(context(inbox, at=day), sources={"till": each, "shop": each})
        await keep(inbox, arrival(said("e1", "ignored"), at=day - 9))
        await accept_gap(inbox, since=-60, until=until, at=60)
        for verdict in ("not_kept", "not_kept", "signature_mismatch") if not_kept else ():
            count = {"not_kept": 3, "signature_mismatch": 2}[verdict]
            await keep(inbox, replace(rejection(count=count), verdict=verdict))
        if not_kept:
            late = replace(rejection(), received_at=seconds(day), verdict="not_kept")
            early = replace(rejection(), received_at=Instant(T - HOUR), verdict="not_kept")
            await keep(inbox, early, late)
        shop, till = await source_states(at_)
    assert (shop.source, shop.last, till.source, till.last) == (
        "shop", seconds(day - 9), "till", None
    )  # fmt: skip
    assert words in shop.sentence
    assert ("may be lost" in till.sentence) is (until == 1)
    assert "unsigned" not in till.sentence


async def shop_state(driver: Driver) -> SourceState:
    (found,) = await explained_states(driver.context)
    return found


async def send_refused(driver: Driver, count: int) -> None:
    for number in range(count):
        body = json.dumps(event(f"r{number}")).encode()
        headers = signed(body, at=driver.clock.now(), key=WRONG)
        assert (await driver.send(body, headers)).status_code == 401


async def test_a_source_refuses_until_a_delivery_is_accepted(tmp_path: Path) -> None:
    """With what the signature doctor says of the latest refusals. Junk that a ring has lost counts
    all the same."""
    async with driving(tmp_path, with_worker=False, REJECTIONS_MAX_COUNT="3") as driver:
        assert (await shop_state(driver)).state == "never_delivered"
        await send_refused(driver, 8)
        found = await shop_state(driver)
        assert (found.state, found.since) == ("refusing", T)
        assert "8 deliveries were refused" in found.sentence
        assert found.explanation is not None
        assert "the secret is not configured here" in found.explanation
        await driver.send(event("e1"))
        assert (await shop_state(driver)).state == "ok"


async def test_a_known_mistake_explains_refusals_although_a_stranger_posts_too(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        body = json.dumps(event("e1")).encode()
        spelled = json.dumps(event("e1"), indent=1).encode()
        await driver.send(spelled, signed(body, at=T))
        await driver.send(b"{}", headers=[])
        found = await shop_state(driver)
    assert found.state == "refusing"
    assert found.explanation is not None
    assert "No known mistake" not in found.explanation


async def test_payments_of_no_order_do_not_look_like_success(tmp_path: Path) -> None:
    """What is wrong and where the reference goes; over as soon as one is in an order."""
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1", **NAMELESS))
        found = await shop_state(driver)
        assert (found.state, found.since) == ("not_placed", T)
        assert found.do is not None
        assert found.do.startswith("put the reference into order.reference of the checkout session")
        await driver.send(event("e2", payment={"reference": "pay_2"}))
        assert (await shop_state(driver)).state == "ok"


# --- readiness ------------------------------------------------------------------------------------


async def sources(driver: Driver) -> tuple[int, list[dict[str, Any]], str]:
    answer = await driver.client.get("/readyz")
    return answer.status_code, answer.json()["sources"], answer.text


async def test_readiness_shows_states_and_stays_ready_whatever_strangers_send(
    tmp_path: Path,
) -> None:
    """The state at once; the explanation with the watchdog's next look."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await send_refused(driver, 30)
        status, (shop,), _ = await sources(driver)
        assert (status, shop["source"], shop["state"]) == (200, "shop", "refusing")
        assert shop["since"] == "2026-11-20T10:00:00Z"
        await driver.service.watchdog.look()
        status, (shop,), _ = await sources(driver)
        assert "No known mistake explains this" in shop["sentence"]
        (expected,) = await explained_states(driver.context)
        assert shop == expected.document()


async def test_readiness_is_not_lost_to_old_requests(tmp_path: Path) -> None:
    """Genuine deliveries that are refused for their age raise an alarm and no more."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        for number in range(30):
            body = json.dumps(event(f"e{number}")).encode()
            answer = await driver.send(body, signed(body, at=Instant(T - HOUR)))
            assert answer.status_code == 401
        await driver.service.watchdog.look()
        answer = await driver.client.get("/readyz")
    assert answer.status_code == 200
    assert "refused because of their age" in answer.json()["clock"][0]


async def test_readiness_names_no_unsigned_source(tmp_path: Path) -> None:
    """Its name is its address: states, alarms and explanations number it. One with a secret address
    is named."""
    addressed = {
        f"SOURCES__LATER__{name}": value
        for name, value in {
            "PROFILE": UNSIGNED["SOURCES__PUSH_77__PROFILE"],
            "CREDENTIALS": UNSIGNED["SOURCES__PUSH_77__CREDENTIALS"],
            "ADDRESS": "Kq7wZt2mXc9LbR4vN8sD",
        }.items()
    }
    given = UNSIGNED | addressed
    async with driving(tmp_path, with_worker=False, looking=True, **given) as driver:
        body = b"[" + b"1," * 3_000 + b"1]"
        for name in ("till_9f3a", "push_77"):
            assert (await driver.send(body, [], source=name)).status_code == 413
        await driver.service.watchdog.look()
        _, shown, text = await sources(driver)
        known = [each.source for each in await source_states(driver.context)]
    assert known == ["later", "push_77", "shop", "till_9f3a"]
    assert [each["source"] for each in shown] == [
        *("later", "unsigned source 1", "shop", "unsigned source 2"),
    ]
    assert [each["state"] for each in shown] == ["never_delivered"] * 4
    for name in ("till_9f3a", "push_77"):
        assert name not in text.lower()
