"""Scenarios from incidents: an order played elsewhere comes out the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token
from app.core.clock import SetClock
from app.core.errors import ConfigurationError, UsageError
from app.evidence.tell_scenario import (
    OrderScenario,
    StandIns,
    date_form,
    date_moment,
    dated,
    tell_scenario,
    written,
)
from app.finance.read_lines import lines_naming
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import ProfileReader
from app.sandbox.playing import Stage, comparable, play_script, read_script
from app.sandbox.settings import SANDBOX_SECRET
from reconcile.instants import DAY, MINUTE, SECOND, TICK, Duration, Instant
from tests.api.driving import Driver, driving, event
from tests.copied import copy_of
from tests.evidence.world import LATER, NAME, PHONE, live_through
from tests.reconcile.build import T
from tests.rows import for_each

CUSTOMER = {
    "phone": PHONE,
    "name": NAME,
    "msisdn": 254711223344,
    "note": f"call {PHONE}",
    "age": 41,
}


async def tell(driver: Driver, folder: Path, order: str = "ORD-1") -> OrderScenario:
    return await tell_scenario(driver.context, order, as_of=LATER, by=None, lines=lines_naming)


async def _scenario(folder: Path) -> OrderScenario:
    async with driving(folder, looking=True) as driver:
        await live_through(driver, customer=CUSTOMER)
        return await tell(driver, folder)


@pytest.fixture
def scenario(tmp_path: Path) -> OrderScenario:
    """Write the scenario of the whole story of ORD-1."""
    return copy_of(_scenario, tmp_path)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Make the folder of an instance that knows nothing."""
    folder = tmp_path / "fresh"
    folder.mkdir(0o700)
    return folder


async def played(
    folder: Path, document: Any, *, start: Instant, speed: float = 1.0, **settings: Any
) -> list[str]:
    """List what came otherwise in a fresh instance that begins at `start` and knows the sandbox."""
    scenario = folder / "scenario.json"
    scenario.write_text(json.dumps(document))  # nobody waits
    said: list[str] = []
    async with driving(
        folder, SOURCES__SHOP__SECRETS=SANDBOX_SECRET, looking=True, **settings
    ) as driver:
        driver.clock.put(start)
        stage = Stage(
            client=driver.client,
            webhook_url="http://service/webhooks/shop",
            clock=driver.clock,
            sleep=lambda seconds: _advance(driver.clock, seconds),
            speed=speed,
            token=await issue_token(driver.context, name="player"),
        )
        script = read_script(scenario, secret=SANDBOX_SECRET)
        differences = await play_script(script, stage, said.append)
    assert len(said) == len(script.steps)
    return differences


async def _advance(clock: SetClock, seconds: float) -> None:
    clock.put(clock.now() + Duration(round(seconds * SECOND)))


@pytest.mark.slow
async def test_a_replay_comes_to_the_same(fresh: Path, scenario: OrderScenario) -> None:
    """Outcome, findings, explanation and every verdict, a year later, in an empty instance."""
    assert scenario.document["expected"]["outcome"] == "partially_refunded"
    assert "redelivered" in scenario.document["expected"]["findings"]
    assert "delivered_late" not in scenario.document["expected"]["findings"]
    assert "out_of_order" in scenario.document["expected"]["findings"]
    assert [each["verdict"] for each in scenario.document["steps"] if "body" in each].count(
        "duplicate"
    ) == 13
    assert await played(fresh, scenario.document, start=T + 365 * DAY + 7 * TICK) == []


@pytest.mark.slow
async def test_a_replay_can_be_faster(fresh: Path, scenario: OrderScenario) -> None:
    """Sixty times as fast, where all windows of time are a sixtieth too."""
    windows = {"PAYMENT_WINDOW_S": "30", "GRACE_S": "5", "LATE_AFTER_S": "5",
               "FUTURE_TOLERANCE_S": "5", "FULFILLMENT_WINDOW_S": "1440"}  # fmt: skip
    assert await played(fresh, scenario.document, start=T, speed=60.0, **windows) == []


@pytest.mark.slow
async def test_what_comes_otherwise_is_reported(fresh: Path, scenario: OrderScenario) -> None:
    """Another amount, verdict or expectation: the replay says what differs."""
    document = json.loads(json.dumps(scenario.document).replace("1500, ", "1400, "))
    document["expected"]["findings"].remove("redelivered")
    again = next(each for each in document["steps"] if each.get("verdict") == "duplicate")
    again["verdict"] = "stored"
    differences = await played(fresh, document, start=T)
    assert {each.partition(":")[0] for each in differences} == {
        "e1", "outcome", "findings", "explanation",
    }  # fmt: skip


async def test_nothing_personal_and_no_secret_is_in_it(scenario: OrderScenario) -> None:
    """Stand-ins are consistent; amounts, structure and what is small stay."""
    text = json.dumps(scenario.document)
    for each in (PHONE, PHONE[3:], NAME, "call "):
        assert each not in text
    bodies = [each["body"] for each in scenario.document["steps"] if "body" in each]
    customers = {body[2].partition('"customer": ')[2].partition("}")[0] for body in bodies}
    assert len(customers) == 1
    (customer,) = customers
    assert json.loads(customer + "}")["age"] == 41
    assert "1500" in bodies[0][2]
    assert scenario.left_out == (
        ("its checkout session, because a replay begins with the first webhook"),
    )


async def test_a_deadline_that_passed_is_part_of_it(tmp_path: Path, fresh: Path) -> None:
    """An order that timed out: the replay waits until it has, and no longer."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1", "pending"))
        driver.clock.put(LATER)
        scenario = (await tell(driver, tmp_path)).document
    assert scenario["expected"]["outcome"] == "timed_out"
    assert scenario["expected"]["at"] == "2026-11-20T10:35:00Z"
    assert await played(fresh, scenario, start=T + DAY) == []


async def test_what_makes_no_scenario_is_reported(tmp_path: Path) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1", order={"reference": PHONE}, customer={"phone": PHONE}))
        driver.clock.put(LATER)
        with pytest.raises(UsageError, match=r"^data\.order\.reference of .* e1 holds"):
            await tell(driver, tmp_path, PHONE)
        async with driver.context.database.writing() as connection:
            await connection.exec_driver_sql("UPDATE deliveries SET body=NULL, headers=''")
        with pytest.raises(UsageError, match="were deleted"):
            await tell(driver, tmp_path, PHONE)


async def test_a_reason_is_shown_without_the_number_in_it(tmp_path: Path, fresh: Path) -> None:
    async with driving(tmp_path, looking=True) as driver:
        said = {"reason": f"no wallet of {PHONE}"}
        await driver.send(event("e1", "declined", payment=said, customer={"phone": PHONE}))
        driver.clock.put(LATER)
        scenario = (await tell(driver, tmp_path)).document
    assert PHONE not in json.dumps(scenario)
    assert "no wallet of •344" in json.dumps(scenario, ensure_ascii=False)
    assert await played(fresh, scenario, start=T + DAY) == []


@for_each(
    "text",
    ["", "{}", "[]", "null", '{"format": "tallyhook scenario 1"}', '{"format": "other"}',
     '{"format": "tallyhook scenario 1", "steps": [], "sources": [], "expected": {}}', "[" * 9999],
)  # fmt: skip
def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a Tallyhook scenario"):
        read_script(path, secret=SANDBOX_SECRET)


async def test_a_profile_that_the_sandbox_cannot_sign_for_is_said(
    tmp_path: Path, scenario: OrderScenario
) -> None:
    document = json.loads(json.dumps(scenario.document))
    document["sources"][0]["text"] = document["sources"][0]["text"].replace(
        '"hmac-sha256"', '"ed25519"'
    )
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError):
        read_script(path, secret=SANDBOX_SECRET)


@for_each(
    ("leaf", "form"),
    [("2026-11-20T10:00:00Z", "rfc3339"), ("1795168800", "s"), ("1795168800123", "ms"),
     ("1795168800123456", "us")],
)  # fmt: skip
def test_dates_are_moved_in_their_own_form(leaf: str, form: str) -> None:
    assert date_form(leaf) == form
    assert dated(date_moment(leaf, form), form) == leaf
    assert date_moment(dated(date_moment(leaf, form) + MINUTE, form), form) == (
        date_moment(leaf, form) + MINUTE
    )


def test_a_text_of_its_own_that_is_read_is_refused() -> None:
    """A reference in which a document of its own could hide."""
    reader = ProfileReader("shop", load_profile("checkout"))

    def read(body: bytes) -> Any:
        return reader.read(Incoming([], body), digest="").events[0]

    body = json.dumps(event("e1", order={"reference": '{"name": "x"}'})).encode()
    with pytest.raises(UsageError, match="only inside a longer text"):
        StandIns().body(body, read)


def test_what_passes_is_left_out_of_a_comparison() -> None:
    said = "Paid [e1, rec_01a1f8660d00].", "Arrived 5 min after 2026-11-20T10:00:00.1Z"
    assert comparable(list(said)) == ["Paid [e1, …].", "Arrived … after …"]
    assert written({"a": [True, None, "é"]}) == '{"a": [true, null, "é"]}'
