"""The customers' numbers of several orders: proposed, approved by another, seen by the proposer."""

import csv
import io
import re

import pytest

from app.access.operators import Proven, Role, register_operator, retire_operator
from app.core.errors import UsageError
from app.core.masking import masked_phone
from app.evidence.bundle import BundleRequest, build_evidence
from app.finance.read_lines import lines_naming
from app.orders import customers
from app.orders.customers import OPEN_FOR, reveal_body, unmask
from app.privacy.erase import ErasureRequest, erase
from app.receiving.kept_request import kept_request
from reconcile.instants import HOUR, SECOND, Instant
from tests.api.driving import event
from tests.console.conftest import (
    AWKWARD,
    PHONE,
    SAME_SITE,
    RunningConsole,
    erasure_proposed,
    of_form,
    send,
    session_for,
)
from tests.console.test_pages import shown
from tests.contexts import with_settings
from tests.waiting import soon

REASON = "the refund came back"
OTHER_PHONE = "254787654321"


@pytest.fixture
async def numbers(folding: None, console: RunningConsole) -> RunningConsole:
    """Run a console with two customers with numbers, and a second person in each role that may see
    them."""
    payment, order = {"reference": "pay_5", "amount": 20}, {"reference": "ORD-5", "amount": 20}
    customer = {"phone": f"+{OTHER_PHONE}"}
    await console.driver.send(
        event(
            "evt_5", payment=payment, order=order, session={"reference": "cs_5"}, customer=customer
        )
    )
    await soon(lambda: len(console.driver.rows("SELECT 1 FROM ledgers")) == 3)
    people: dict[str, Role] = {"Sue": "support", "Bea": "admin"}
    for name, role in people.items():
        await register_operator(console.context, name=name, role=role, by="a admin")
    return console


async def asked_for(console: RunningConsole, *orders: str) -> str:
    """Return the id of a support person's proposal."""
    async with console.signed_in("support") as client:
        told = await send(
            client, "/do/unmask-many", orders="\r\n".join(orders), purpose="payment", reason=REASON
        )
    assert told.status_code == 200, shown(told.text)
    assert "Proposed to a second person" in told.text
    found = re.search(r"/proposals/(prp_\w+)", told.text)
    assert found
    return found[1]


async def approved(console: RunningConsole, proposal: str, *, by: str = "Sue") -> None:
    done = await console.console.proposals.approve(proposal, by=Proven(by), reason="it is needed")
    assert done.decided is not None


async def look(console: RunningConsole, proposal: str, form: str = "page", *, by: str = "") -> str:
    """Return what the proposer is shown, or why not."""
    token = await session_for(console.context, by or "a support")
    async with console.client(token, **SAME_SITE) as client:
        answer = await send(client, f"/do/see-numbers?proposal={proposal}", **{"as": form})
    return answer.text


def looks(console: RunningConsole) -> list[tuple[object, ...]]:
    return console.driver.rows(
        "SELECT who, subject, reason FROM audit WHERE action='unmasked' ORDER BY number"
    )


async def test_the_proposer_sees_them_once_another_agreed_and_nothing_else_holds_them(
    numbers: RunningConsole, log: io.StringIO
) -> None:
    """Each look is an audit entry for each order; the number is only in the answer."""
    console = numbers
    proposal = await asked_for(console, "ORD-1", AWKWARD, "ORD-5")
    before = shown(await look_at_form(console, proposal))
    assert "nobody has approved the proposal" in before.lower()
    assert looks(console) == []
    async with console.signed_in("support") as client:
        address = f"/do/approve?proposal={proposal}"
        own = await client.post(address, data={"form": "mine", "reason": "I am sure"})
    assert (own.status_code, "ou made this proposal yourself" in shown(own.text)) == (400, True)
    token = await session_for(console.context, "Sue")
    async with console.client(token, **SAME_SITE) as client:
        listed = (await client.get("/proposals.json")).json()["proposals"]
        form = (await client.get(f"/do/approve?proposal={proposal}")).text
        done = await send(client, f"/do/approve?proposal={proposal}", reason="it is needed")
        of_other = (await client.get(f"/proposals/{proposal}")).text
    assert [each["id"] for each in listed] == [proposal]
    assert done.status_code == 303
    assert "See the numbers" not in of_other
    async with console.signed_in("support") as client:
        page = (await client.get(f"/proposals/{proposal}")).text
        document = (await client.get(f"/proposals/{proposal}.json")).text
        orders = (await client.get("/orders")).text
    assert f"/do/see-numbers?proposal={proposal}" in page
    answer = await look(console, proposal)
    assert f"+{PHONE}" in answer
    assert f"+{OTHER_PHONE}" in answer
    assert "No phone number came with this order." in answer
    assert looks(console) == [("a support", order, REASON) for order in ("ORD-1", AWKWARD, "ORD-5")]
    (line, none, last) = csv.DictReader(
        (await look(console, proposal, "csv")).lstrip("\ufeff").splitlines()
    )
    assert (line["order"], line["phones"], last["phones"]) == ("ORD-1", PHONE, OTHER_PHONE)
    assert (none["order"], none["phones"]) == (AWKWARD, "")
    assert PHONE in await look(console, proposal, "json")
    assert len(looks(console)) == 9
    facts = console.driver.rows("SELECT facts FROM audit WHERE action='unmasked' LIMIT 1")
    assert '"second":"Sue"' in str(facts).replace(" ", "")
    async with console.signed_in("admin") as client:
        trail = (await client.get("/audit")).text
    kept = console.driver.rows("SELECT * FROM proposals, audit, proposal_decisions")
    for text in (before, form, of_other, page, document, orders, trail, str(kept), log.getvalue()):
        assert PHONE[-8:] not in text
        assert OTHER_PHONE[-8:] not in text


@pytest.mark.parametrize("by", ["Sue", "Bea", "a finance", "a viewer"])
async def test_nobody_else_sees_them(numbers: RunningConsole, by: str) -> None:
    proposal = await asked_for(numbers, "ORD-1")
    await approved(numbers, proposal)
    text = await refused_look(numbers, proposal, by=by)
    assert PHONE[-8:] not in text
    assert looks(numbers) == []


async def refused_look(console: RunningConsole, proposal: str, *, by: str) -> str:
    token = await session_for(console.context, by)
    async with console.client(token, **SAME_SITE) as client:
        address = f"/do/see-numbers?proposal={proposal}"
        asked = await client.get(address)
        sent = await client.post(address, data={"form": "once", "as": "page"})
    assert sent.status_code in (400, 403)
    return asked.text + sent.text


async def test_the_approval_ends(numbers: RunningConsole) -> None:
    """It holds until just before its end; a proposer whose role has changed sees nothing."""
    proposal = await asked_for(numbers, "ORD-1")
    await approved(numbers, proposal)
    agreed = numbers.driver.clock.now()
    numbers.driver.clock.put(Instant(agreed + OPEN_FOR - SECOND))
    assert PHONE in await look(numbers, proposal)
    numbers.driver.clock.put(Instant(agreed + OPEN_FOR))
    over = shown(await look_at_form(numbers, proposal))
    assert "The approval expired at" in over
    assert PHONE[-8:] not in await refused_look(numbers, proposal, by="a support")
    assert len(looks(numbers)) == 1


async def look_at_form(console: RunningConsole, proposal: str) -> str:
    async with console.signed_in("support") as client:
        return (await client.get(f"/do/see-numbers?proposal={proposal}")).text


async def test_who_was_erased_meanwhile_is_said_to_be(numbers: RunningConsole) -> None:
    console = numbers
    proposal = await asked_for(console, "ORD-1", "ORD-5")
    await approved(console, proposal)
    asked = ErasureRequest(order="ORD-1", reason="asked for it", by="a admin")
    await erase(console.context, asked, dry_run=False)
    answer = shown(await look(console, proposal))
    assert "ORD-1 Erased at" in answer
    assert PHONE[-8:] not in answer
    assert OTHER_PHONE in answer


async def test_what_is_refused_before_it_is_proposed(
    numbers: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused are no order, an unknown one (without repeating a number), too many, no purpose, and
    a number in the reason."""
    monkeypatch.setattr(customers, "MOST_ORDERS", 2)
    right = {"orders": "ORD-1", "purpose": "payment", "reason": REASON}
    async with numbers.signed_in("support") as client:
        for wrong, said in (
            ({"orders": ""}, "Name 1 to"),
            ({"orders": f"ORD-1\n+{PHONE}"}, "number 2 in your list"),
            ({"orders": "ORD-1\nORD-404"}, "ORD-404"),
            ({"orders": f"ORD-1\nORD-5\n{AWKWARD}"}, "Name 1 to 2 orders"),
            ({"purpose": "curiosity"}, "The purpose is one of"),
            ({"reason": "she called from 0712 345 678"}, "emove the phone number"),
        ):
            refused = await send(client, "/do/unmask-many", **(right | wrong))
            assert refused.status_code == 400, wrong
            assert said in shown(refused.text)
            assert PHONE[-8:] not in refused.text.replace(" ", "")
        whole = await client.get("/do/unmask-many?list=orders")
    assert "more than 2 orders match" in shown(whole.text).lower()
    assert numbers.driver.rows("SELECT 1 FROM proposals") == []


async def test_which_orders_stand_in_the_form(numbers: RunningConsole) -> None:
    """They are the ticked ones, those of the list's filters, or none."""
    async with numbers.signed_in("support") as client:
        listed = (await client.get("/orders?outcome=failed&choose=numbers")).text
        plain = (await client.get("/orders?outcome=failed")).text
        ticked = (await client.get("/do/unmask-many", params={"order": ["ORD-1", AWKWARD]})).text
        failed = (await client.get("/do/unmask-many?list=orders&outcome=failed")).text
        none = (await client.get("/do/unmask-many")).text
    assert f'name="order" value="{AWKWARD}"' in listed
    assert 'href="/orders?outcome=failed&amp;choose=numbers"' in plain
    assert 'type="checkbox" name="order"' not in plain
    assert 'href="/do/unmask-many?outcome=failed&amp;list=orders"' in listed
    written = [
        re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", each, re.S)
        for each in (ticked, failed, none)
    ]
    assert written == [[f"ORD-1\n{AWKWARD}"], [AWKWARD], [""]]
    async with numbers.signed_in("viewer") as client:
        for address in ("/orders", "/orders?choose=numbers"):
            refused = (await client.get(address)).text
            assert ("numbers of" in refused, 'name="order"' in refused) == (False, False)


async def test_a_proposer_who_may_no_more_sees_nothing(numbers: RunningConsole) -> None:
    proposal = await asked_for(numbers, "ORD-1")
    await approved(numbers, proposal)
    await retire_operator(numbers.context, name="a support", by="a admin")
    token = await session_for(numbers.context, "a support")
    async with numbers.client(token, **SAME_SITE) as client:
        gone = await client.get(f"/do/see-numbers?proposal={proposal}")
    assert gone.status_code == 303
    assert masked_phone(PHONE) not in gone.text
    assert looks(numbers) == []


async def test_support_sees_proposals_of_what_it_may_do_alone(numbers: RunningConsole) -> None:
    """Support does not learn of an erasure from the list, its address or its form."""
    asked = ErasureRequest(order="ORD-5", reason="asked for it", by=Proven("a admin"))
    erasing = await erasure_proposed(numbers.context, asked)
    own = await asked_for(numbers, "ORD-1")
    async with numbers.signed_in("support") as client:
        listed = (await client.get("/proposals.json")).json()
        refused = [
            (await client.get(address)).status_code
            for address in (f"/proposals/{erasing}", f"/do/reject?proposal={erasing}")
        ]
        await of_form(client, f"/do/withdraw?proposal={own}")
        back = await send(client, f"/do/withdraw?proposal={own}", reason="they called")
    assert ([each["id"] for each in listed["proposals"]], refused) == ([own], [404, 404])
    assert back.status_code == 303
    async with numbers.signed_in("finance") as client:
        every = (await client.get("/proposals.json")).json()["proposals"]
    assert {each["id"] for each in every} == {erasing, own}


async def test_one_person_sees_only_some_numbers_alone_within_an_hour(
    numbers: RunningConsole,
) -> None:
    """Numbers and bodies count together; others, approved proposals and the owner don't."""
    limited = with_settings(numbers.context, phones={"shown_per_hour": 2})
    support, other = Proven("a support"), Proven("Sue")
    delivery = numbers.driver.rows("SELECT id FROM deliveries LIMIT 1")[0][0]

    async def sees(who: str, order: str = "ORD-1") -> bool:
        try:
            return len(await unmask(limited, order, reason=REASON, by=who)) == 1
        except UsageError:
            return False

    assert [await sees(support, order) for order in ("ORD-1", "ORD-5", "ORD-1")] == [
        True, True, False,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="make a proposal to see the phone numbers"):
        await reveal_body(limited, delivery, reason=REASON, by=support)
    assert await sees(other)
    await reveal_body(limited, delivery, reason=REASON, by=other)
    assert [await sees(other), await sees("Sue")] == [False, True]
    with pytest.raises(UsageError, match="make a proposal to see the phone numbers"):
        await kept_request(limited, delivery, to="here", by=other)
    await kept_request(limited, delivery, to="here", by="Sue")
    asked = BundleRequest(order="ORD-1", reason=REASON, by=other)
    with pytest.raises(UsageError, match="make a proposal to see the phone numbers"):
        await build_evidence(limited, asked, lines=lines_naming)
    proposal = await asked_for(numbers, "ORD-1", "ORD-5")
    await approved(numbers, proposal)
    assert OTHER_PHONE[-9:] in (await look(numbers, proposal)).replace(" ", "")
    numbers.driver.clock.put(numbers.driver.clock.now() + HOUR + SECOND)
    assert await sees(support)
