"""Proposals through the API: read and decided with an operator's own token."""

from typing import Any

import pytest

from app.access.operators import Proven, register_operator
from app.access.proposals import STANDS_FOR
from app.access.tokens import issue_own_token
from app.core.errors import NotFoundError
from app.finance import break_acts
from app.finance.break_acts import BreakAct, act_on_breaks, living_breaks
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.orders.customers import UnmaskRequest, propose_unmasking, unmasking_kind
from reconcile.instants import SECOND, TICK, Instant
from tests.api.driving import Driver, event

PEOPLE = (
    ("Boss", "admin"), ("Ann", "finance"), ("Ben", "finance"), ("Sue", "support"),
    ("Sam", "support"), ("Vic", "viewer"),
)  # fmt: skip


class People:
    """Operators with their own tokens, and a proposal of Ann's."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.tokens: dict[str, str] = {}
        self.proposal = ""

    async def begin(self) -> None:
        """Create the operators, and let Ann propose to accept a break."""
        driver = self.driver
        await driver.send(event("evt_1"))
        await driver.send(event("evt_2", payment={"reference": "pay_2", "amount": 1500}))
        await reconcile_period(driver.context, RunRequest(), progress=lambda _: None)
        await save_rules(driver.context, '[accept_alone_max]\nKES = "1.00"\n', by="Boss")
        for name, role in PEOPLE:
            await register_operator(driver.context, name=name, role=role, by="Boss")  # type: ignore[arg-type]
            token, _ = await issue_own_token(driver.context, operator=name, until="30d", by="Boss")
            self.tokens[name] = token
        found = [each async for part in living_breaks(driver.context) for each in part]
        proposal = await act_on_breaks(
            driver.context,
            [found[0].identity],
            BreakAct(kind="accepted", reason="a gift", by=Proven("Ann")),
        )
        assert proposal is not None
        self.proposal = proposal.id

    async def ask(self, who: str, method: str, path: str = "", **words: Any) -> Any:
        """Return the answer to one operator's request about proposals."""
        return await self.to(who, method, f"proposals{path}", **words)

    async def to(self, who: str, method: str, path: str, **words: Any) -> Any:
        """Return the answer to one operator's request."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        address = f"/api/v1/{path}"
        return await self.driver.client.request(method, address, headers=headers, **words)

    async def decide(self, who: str, what: str, reason: str = "I saw it") -> Any:
        """Return the answer to a decision about the proposal."""
        return await self.ask(who, "POST", f"/{self.proposal}/{what}", json={"reason": reason})


@pytest.fixture
async def people(driver: Driver) -> People:
    found = People(driver)
    await found.begin()
    return found


async def test_a_second_operator_approves(people: People) -> None:
    """The proposer cannot approve, and nobody approves twice."""
    listed = (await people.ask("Ben", "GET")).json()
    one = (await people.ask("Ben", "GET", f"/{people.proposal}")).json()
    assert (listed["proposals"], listed["next"]) == ([one], None)
    assert (one["state"], one["by"], one["reason"]) == ("waiting", "Ann", "a gift")
    described = (await people.driver.client.get("/api/v1/openapi.json")).json()
    schemas = described["components"]["schemas"]
    assert set(one) == set(schemas["Proposal"]["properties"])
    assert set(listed) == set(schemas["ProposalPage"]["properties"])
    own = await people.decide("Ann", "approve")
    assert (own.status_code, own.json()["code"]) == (409, "proposal_refused")
    assert "let a second operator decide" in own.json()["detail"]
    assert people.driver.rows("SELECT 1 FROM break_deeds") == []
    done = (await people.decide("Ben", "approve")).json()
    assert (done["state"], done["decided_by"], done["decided_because"]) == (
        "approved", "Ben", "I saw it",
    )  # fmt: skip
    assert people.driver.rows("SELECT who, second FROM break_deeds") == [("Ann", "Ben")]
    again = await people.decide("Boss", "reject")
    assert (again.status_code, "Ben has already approved this" in again.json()["detail"]) == (
        409,
        True,
    )


async def test_who_may_not_is_refused(people: People) -> None:
    """Refused are wrong roles, also for reading, a missing reason, and an unknown proposal."""
    one = f"/{people.proposal}"
    for who, method, path in (("Vic", "GET", ""), ("Vic", "GET", one), ("Sue", "GET", one)):
        refused = await people.ask(who, method, path)
        assert (refused.status_code, refused.json()["code"]) == (403, "role_missing")
    assert (await people.ask("Sue", "GET")).json() == {"proposals": [], "next": None}
    for what in ("approve", "reject", "withdraw"):
        assert (await people.decide("Sue", what)).status_code == 403
        for wrong in ({}, {"reason": " "}, {"reason": 7}, {"reason": "x", "by": "Ben"}):
            path = f"/{people.proposal}/{what}"
            assert (await people.ask("Ben", "POST", path, json=wrong)).status_code == 422
    assert (await people.ask("Ben", "GET", "/prp_0")).status_code == 404
    assert (
        await people.ask("Ben", "POST", "/prp_0/reject", json={"reason": "x"})
    ).status_code == 404
    assert (await people.decide("Ben", "withdraw")).status_code == 409
    assert people.driver.rows("SELECT 1 FROM proposal_decisions") == []


async def test_numbers_are_seen_by_who_proposed_to_see_them(people: People) -> None:
    """A second person agreed first, and nobody else sees them."""
    context, kind = people.driver.context, unmasking_kind(people.driver.context)
    asked = UnmaskRequest(
        orders=["ORD-1"], purpose="refund", reason="it came back", by=Proven("Sue")
    )
    path = f"/{(await propose_unmasking(context, kind, asked)).id}"
    early = await people.ask("Sue", "POST", f"{path}/numbers")
    assert (early.status_code, "Nobody has approved the proposal" in early.json()["detail"]) == (
        409,
        True,
    )
    agreed = await people.ask("Sam", "POST", f"{path}/approve", json={"reason": "I saw it"})
    assert agreed.json()["open_until"] is not None
    seen = (await people.ask("Sue", "POST", f"{path}/numbers")).json()
    assert seen["orders"] == [
        {"order": "ORD-1", "phones": [], "note": "No phone number came with this order."}
    ]
    assert seen["open_until"] == agreed.json()["open_until"]
    for who, status in (("Sam", 409), ("Ben", 403), ("Vic", 403)):
        assert (await people.ask(who, "POST", f"{path}/numbers")).status_code == status
    rows = people.driver.rows("SELECT who, subject FROM audit WHERE action='unmasked'")
    assert rows == [("Sue", "ORD-1")]


async def test_what_it_is_about_may_be_gone(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: Any) -> None:
        raise NotFoundError("there is no such break any more")

    monkeypatch.setattr(break_acts, "living_break", gone)
    refused = await people.decide("Ben", "approve")
    assert (refused.status_code, refused.json()["code"]) == (409, "proposal_refused")
    assert "no such break any more" in refused.json()["detail"]


async def test_it_is_withdrawn_by_who_made_it_and_ends_by_itself(people: People) -> None:
    driver = people.driver
    assert (await people.decide("Ann", "withdraw")).json()["state"] == "withdrawn"
    driver.clock.put(Instant(driver.clock.now() + SECOND))
    other = await save_rules(driver.context, "", by=Proven("Ben"), reason="no limits")
    driver.clock.put(Instant(driver.clock.now() + STANDS_FOR + TICK))
    listed = (await people.ask("Boss", "GET", "?limit=1")).json()
    assert [each["state"] for each in listed["proposals"]] == ["expired"]
    following = (await people.ask("Boss", "GET", f"?before={listed['next']}")).json()
    assert [each["state"] for each in following["proposals"]] == ["withdrawn"]
    people.proposal = getattr(other, "id", "")
    late = await people.decide("Boss", "approve")
    assert (late.status_code, "the proposal expired at" in late.json()["detail"]) == (409, True)
