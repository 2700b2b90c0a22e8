"""Whatever was not heard: no answer says "no" where the truth is "not known", or "on no order".

    seed ──draw──▶ messages, each read, unreadable, refused, set aside, of no order, or unread
         ──send──▶ service ──ask every answer──▶ statements ──compare──▶ what really came

Every world is small, so that the sentence at fault is found by reading it.
"""

import io
import json
import os
import random
import re
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from app.core.errors import NotAllRead
from app.database.statements import insert_rows
from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.dispute_case import CaseRequest
from app.evidence.letter_forms import take_letter
from app.finance.read_lines import lines_naming
from app.finance.report_period import report_in
from app.monitoring.preflight import of_source
from app.orders.find_orders import find_orders
from app.orders.refold import refold_until_quiet
from app.orders.set_aside import hold_orders
from app.receiving import caught_up, reader
from app.receiving.framing import Received, framed
from app.receiving.inbox_store import next_suspects
from app.receiving.source_state import source_states
from reconcile.instants import SECOND, format_instant, parse_instant
from reconcile.reporting.report import Scope
from tests.api.driving import Driver, driving, event
from tests.reconcile.build import T

Fate = Literal["read", "unreadable", "nameless", "refused", "set_aside", "no_order", "unread"]

FATES: Final[tuple[Fate, ...]] = (
    "read", "read", "unreadable", "nameless", "refused", "set_aside", "no_order",
)  # fmt: skip
ORDERS: Final = ("ORD-1", "ORD-2", "ORD-3")
PLACED: Final = {"amount": "1500.00", "currency": "KES"}
WORLDS = 260 if os.environ.get("TALLYHOOK_LONG") else 12

DENIES: Final = re.compile(
    r"no (?:word|payment|event|request|message|delivery|money)\b(?! that| of a provider that)"
    r"|nobody has (?:tried|told|spoken)|nothing (?:came|has come|was found|is known|was paid)"
    r"|has said nothing|not paid|Paid: nothing|<td>nothing</td>",
    re.IGNORECASE,
)
"""Words by which a customer or a bank is told that there is no payment."""


@dataclass(frozen=True)
class Message:
    """One message about a payment of its own, which names an order unless its fate says otherwise.

    claim  what it says of the payment
    """

    number: int
    order: str
    claim: str
    fate: Fate

    @property
    def payment(self) -> str:
        return f"pay_{self.order}_{self.number}"

    @property
    def is_hidden(self) -> bool:
        """Return whether it is genuine, accepted, in no ledger, and no wait will have it read."""
        return self.fate in ("unreadable", "nameless", "set_aside")


@dataclass(frozen=True)
class World:
    """The messages in the order of their arrival, and the orders that the shop placed."""

    messages: tuple[Message, ...]
    placed: tuple[str, ...]

    def of(self, *fates: Fate) -> list[Message]:
        return [each for each in self.messages if each.fate in fates]

    def read(self, order: str) -> list[Message]:
        return [each for each in self.of("read") if each.order == order]

    def hidden(self, order: str) -> list[Message]:
        """Return the messages that may be about the order and are in no ledger."""
        captured = any(each.claim == "succeeded" for each in self.read(order))
        return [
            each
            for each in self.messages
            if each.is_hidden and (each.order == order if each.fate != "nameless" else not captured)
        ]

    @property
    def refusing(self) -> bool:
        """Return whether nothing was accepted since the last refusals began. Unread ones count as
        accepted once it is read, and what is set aside never did."""
        counted = [m for m in self.messages if m.fate not in ("unread", "set_aside")]
        return bool(counted) and counted[-1].fate == "refused"

    @property
    def has_unread(self) -> bool:
        return bool(self.of("unread"))


def drawn(seed: int) -> World:
    """Draw a world. In a third of them the reader stands still before the last messages come."""
    dice = random.Random(seed)  # a test repeats it
    claims = ("succeeded", "succeeded", "pending", "declined")
    fates: list[Fate] = [dice.choice(FATES) for _ in range(dice.randint(1, 7))]
    if seed % 3 == 0:
        fates += ["unread"] * dice.randint(1, 2)
    messages = [
        Message(n, dice.choice(ORDERS[:2]), dice.choice(claims), fate)
        for n, fate in enumerate(fates)
    ]
    placed = [each for each in ORDERS if dice.random() < 0.6]
    return World(tuple(messages), tuple(placed))


# --- sending --------------------------------------------------------------------------------------


async def send(driver: Driver, message: Message) -> None:
    """Bring one message to its fate."""
    body: dict[str, Any] = event(
        f"evt_{message.number}",
        message.claim,
        order=None if message.fate == "no_order" else {"reference": message.order},
        session=None,
        payment={"reference": message.payment},
        occurred_at=format_instant(driver.clock.now()),
    )
    content = json.dumps(body).encode()
    if message.fate == "set_aside":
        await set_aside(driver, message, content)
    elif message.fate == "refused":
        assert (await driver.send(content, headers=[])).status_code == 401
    else:
        if message.fate == "unreadable":
            content = json.dumps({**body, "occurred_at": "yesterday"}).encode()
        elif message.fate == "nameless":
            content = b"\x00\x01"
        verdict = (await driver.send(content)).json()["verdict"]
        wanted = {"unreadable": "unreadable", "nameless": "unreadable", "unread": "accepted"}
        assert verdict == wanted.get(message.fate, "stored")


async def set_aside(driver: Driver, message: Message, content: bytes) -> None:
    """Set a genuine delivery aside, as the reader does with one that ended it three times."""
    context, now = driver.context, driver.clock.now()
    received = Received(
        delivery_id=f"dlv_aside_{message.number}",
        received_at=now,
        source="shop",
        headers="",
        body=content,
    )
    record = framed([received])
    columns = ("received_at", "tries", "aside", "orders", "record")
    await context.database.writer.commit(
        insert_rows, table="suspects", columns=columns, rows=[(now, 3, 1, message.order, record)]
    )
    found = await context.database.on_snapshot(next_suspects, aside=True, limit=100)
    (suspect,) = [each for each in found if each.item == received]
    await hold_orders(context, suspect, [message.order])


async def play(driver: Driver, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring every message to its fate; from the first unread one on the reader stands still."""

    async def nothing(reading: Any, **_: Any) -> int:
        return 0

    for order in world.placed:
        await driver.api("PUT", f"/orders/{order}", json=PLACED)
    for message in world.messages:
        driver.clock.put(driver.clock.now() + SECOND)
        if message.fate == "unread":
            await refold_until_quiet(driver.context, limit=50, progress=lambda count: None)
            monkeypatch.setattr(reader, "read_some", nothing)
            monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.02)
        await send(driver, message)
    if not world.has_unread:
        await refold_until_quiet(driver.context, limit=50, progress=lambda count: None)
    driver.clock.put(driver.clock.now() + 10 * SECOND)


# --- what every answer may say --------------------------------------------------------------------


def denials(texts: Sequence[str]) -> list[str]:
    return [each for each in texts if DENIES.search(each)]


async def check_order(driver: Driver, world: World, order: str) -> None:
    """Check the document of the order: its answer, what withholds it, what is listed, and 404."""
    answer = await driver.api("GET", f"/orders/{order}")
    document = answer.json()
    hidden, read = world.hidden(order), world.read(order)
    named = [each for each in hidden if each.fate != "nameless"]
    assert ("tallyhook-behind" in answer.headers) == world.has_unread
    if answer.status_code == 404:
        assert not read
        assert order not in world.placed
        if named:
            assert "is unreadable" in document["detail"], document
        return
    said = document["plain"]["answer"]
    if hidden or world.refusing or world.has_unread:
        assert not denials(said), said
    if hidden:
        assert len(document["unread"]) == len(hidden)
    if named or world.has_unread:
        assert not document["fulfillable"]
    if world.refusing:
        assert document["refusing"]
    if not (hidden or read or world.refusing or world.has_unread):
        assert denials(said), "an absence that was looked for is said"


async def check_search(driver: Driver, world: World) -> None:
    """Check the search by order and by payment: what is known is found, or said not to be read."""
    for message in world.messages:
        for text in (message.order, message.payment):
            found = await find_orders(driver.context, text, limit=10)
            said = " ".join(found.notes)
            whole = json.dumps(asdict(found))
            if message.fate == "read":
                assert message.order in [each["order"] for each in found.hits], whole
            elif message.fate == "no_order" and text == message.payment:
                assert found.unallocated, whole
            elif message.fate in ("unreadable", "set_aside"):
                assert "but is unreadable" in said or any(h.get("unread") for h in found.hits), (
                    whole
                )
            elif message.fate == "refused" and not found.hits and not found.unallocated:
                assert "refused" in said, whole
            if not (found.hits or found.unallocated):
                assert found.looked_in, whole


async def check_evidence(driver: Driver, world: World, order: str) -> None:
    """Check the signed bundle of the order. It is refused while deliveries are unread."""
    request = BundleRequest(order=order)
    if world.has_unread:
        with pytest.raises(NotAllRead):
            await build_evidence(driver.context, request, lines=lines_naming)
        return
    built = await build_evidence(driver.context, request, lines=lines_naming)
    with zipfile.ZipFile(io.BytesIO(built.archive)) as bundle:
        heard = json.loads(bundle.read("heard.json"))
        shown = {name: bundle.read(name).decode() for name in ("report.html", "explanation.txt")}
    hidden = world.hidden(order)
    assert len(heard["unread"]) == len(hidden)
    assert all(("last_read_at" in each) for each in heard["sources"])
    if hidden or world.refusing:
        for name, text in shown.items():
            assert not re.search(r"has said nothing|<td>nothing</td>|Paid: nothing", text), name
        first = shown["report.html"]
        assert "cannot be read" in first or "has been refused since" in first
    if world.of("refused"):
        assert heard["refused"] or any(each["refusing_since"] for each in heard["sources"])


async def check_letter(driver: Driver, world: World, order: str) -> None:
    """Check the letter about the order: money that is not known is not stated as nothing."""
    request = CaseRequest(order=order)
    if world.has_unread:
        with pytest.raises(NotAllRead):
            await take_letter(driver.context, request, None, lines=lines_naming)
        return
    letter, _ = await take_letter(driver.context, request, None, lines=lines_naming)
    if world.hidden(order) or world.refusing:
        assert ["Paid", "nothing"] not in [list(each) for each in letter.document["money"]]


async def check_report(driver: Driver, world: World) -> None:
    """Check the month's report: money of no order has a line, and unread deliveries refuse it."""
    scope = Scope(
        start=parse_instant("2026-11-01T00:00:00Z"),
        end=parse_instant("2026-12-01T00:00:00Z"),
        as_of=driver.clock.now(),
        zone="UTC",
        basis="captured",
        environment="sandbox",
    )
    if world.has_unread:
        with pytest.raises(NotAllRead):
            await report_in(driver.context, scope, "json")
        return
    report = json.loads(await report_in(driver.context, scope, "json"))
    assert report["ties_hold"]
    waiting = [each for each in world.of("no_order") if each.claim == "succeeded"]
    closing = [each["count"] for each in report["suspense"] if each["line"] == "closing"]
    assert sum(closing) == len(waiting)
    unallocated = [e["count"] for e in report["breaks"] if e["cause"] == "payment_unallocated"]
    assert sum(unallocated) == len(waiting)


async def check_tools(driver: Driver, world: World) -> None:
    """Doctor and readiness: `ok` is said of a source only if what it sends is read and placed."""
    ready = (await driver.client.get("/readyz")).json()
    (state,) = await source_states(driver.context)
    assert [each["state"] for each in ready["sources"]] == [state.state]
    counted = [each for each in world.messages if each.fate not in ("unread", "set_aside")]
    accepted = [each for each in counted if each.fate != "refused"]
    if world.refusing:
        assert state.state == "refusing"
    elif not accepted:
        assert state.state == "never_delivered"
    elif not world.of("read"):
        assert state.state == "not_placed"
    else:
        assert state.state == "ok"
    if world.has_unread:
        assert "not been read yet" in state.sentence
    if state.state != "ok":
        assert of_source(state).state != "ok"


@pytest.mark.parametrize("seed", range(WORLDS))
async def test_no_answer_says_what_is_not_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world = drawn(seed)
    print(world)  # shown where it fails
    async with driving(tmp_path, with_worker=False, at=T) as driver:
        await play(driver, world, monkeypatch)
        await check_tools(driver, world)
        for order in ORDERS:
            await check_order(driver, world, order)
            if world.read(order) or order in world.placed:
                await check_evidence(driver, world, order)
                await check_letter(driver, world, order)
        if not world.has_unread:
            await check_search(driver, world)
        await check_report(driver, world)


def test_the_worlds_have_every_kind_of_evidence() -> None:
    fates = {each.fate for seed in range(WORLDS) for each in drawn(seed).messages}
    assert fates == {*FATES, "unread"}
