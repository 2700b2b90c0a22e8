"""Diagnosis of one refused delivery, and the secrets that are tried on it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.errors import NotFoundError, UsageError
from app.providers.doctor import Account
from app.providers.profile import load_profile
from app.receiving import diagnose as module
from app.receiving.diagnose import diagnose_delivery, unexplained
from app.receiving.inbox import Inbox
from app.receiving.refusal_store import Rejection
from tests.database.builders import context, keep, opened, rejection
from tests.reconcile.build import T

ACCOUNTS: Any = {name: SimpleNamespace(name=name) for name in ("shop", "till", "desk")}


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a serving store on a new database."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        yield opened_


async def mistakes(inbox: Inbox, kept: Rejection) -> list[str]:
    """List the mistakes that would explain it."""
    await keep(inbox, kept)
    found = await diagnose_delivery(context(inbox), kept.delivery_id, accounts=ACCOUNTS)
    assert found.rejection == kept
    return [each.mistake for each in found.diagnoses]


async def test_it_is_tried_with_its_own_source_and_with_all_others(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the request that it was, at the moment of its arrival."""
    asked: list[Any] = []

    def diagnose(account: Any, others: Any, request: Any, *, now: Any) -> list[Any]:
        asked.append((account.name, [each.name for each in others], request, now))
        return [SimpleNamespace(mistake="other_secret")]

    monkeypatch.setattr(module, "diagnose", diagnose)
    kept = rejection(headers=":method: GET\n:url: /webhooks/shop?a=1\nx: y", body=b"{7}")
    assert await mistakes(inbox, kept) == ["other_secret"]
    assert await mistakes(inbox, replace(rejection(headers="x: y"), source="desk")) != []
    (own, others, request, now), (_, _, plain, _) = asked
    assert (own, others, now) == ("shop", ["till", "desk"], T)
    assert request == ([(b"x", b"y")], b"{7}", "GET", "/webhooks/shop?a=1", "", "", False)
    assert (plain.method, plain.url) == ("POST", "/webhooks/desk")


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"verdict": "wrong_environment"}, "other_environment"),
        ({"verdict": "wrong_account"}, "other_account"),
        ({"source": "new", "verdict": "source_unknown"}, "source_unknown"),
    ],
)
async def test_what_needs_no_trial(inbox: Inbox, changes: Any, mistake: str) -> None:
    """Its signature is right, or there is none to try it with."""
    assert await mistakes(inbox, replace(rejection(), **changes)) == [mistake]


async def test_what_cannot_be_tried_is_reported(inbox: Inbox) -> None:
    """One that is not there, and one of which too little was kept."""
    with pytest.raises(NotFoundError, match="no refused delivery 'dlv_none'"):
        await diagnose_delivery(context(inbox), "dlv_none", accounts=ACCOUNTS)
    cut = replace(rejection(body=b"xy"), size=3)
    with pytest.raises(UsageError, match="only 2 of the 3 bytes of its body"):
        await mistakes(inbox, cut)


async def test_what_nothing_explains_says_which_secret_is_meant(inbox: Inbox) -> None:
    """A provider has several keys, and another one is easily taken for the one that signs."""
    account = Account(name="shop", profile=load_profile("stripe"), secrets=["whsec_" + "k7" * 16])
    kept = rejection(headers="stripe-signature: t=1,v1=00", body=b"{7}")
    await keep(inbox, kept)
    found = await diagnose_delivery(context(inbox), kept.delivery_id, accounts={"shop": account})
    assert (kept.verdict, found.diagnoses) == ("signature_mismatch", [])
    assert "SOURCES__SHOP__SECRETS is the endpoint's signing secret (whsec_" in (
        found.unexplained or ""
    )
    missing = unexplained("signature_missing", account)
    assert "puts its signature elsewhere than the profile says" in missing
    assert "SECRETS" not in missing
    for verdict, other in (
        ("timestamp_too_old", account),
        ("signature_mismatch", None),
        ("signature_mismatch", replace(account, profile=load_profile("mpesa_stk"))),
    ):
        assert unexplained(verdict, other).endswith("or it never came from the provider.")


async def test_an_unknown_name_is_reported_with_those_that_are_known(inbox: Inbox) -> None:
    """A slip in the address is seen at once."""
    kept = replace(rejection(), source="shp", verdict="source_unknown")
    await keep(inbox, kept)
    found = await diagnose_delivery(context(inbox), kept.delivery_id, accounts=ACCOUNTS)
    assert found.diagnoses[0].sentence.endswith("to a configured name: desk, shop, till.")


async def test_a_name_in_capitals_is_reported_with_its_address(inbox: Inbox) -> None:
    """To configure what is configured would help nobody."""
    kept = replace(rejection(), source="Shop", verdict="source_unknown")
    await keep(inbox, kept)
    found = await diagnose_delivery(context(inbox), kept.delivery_id, accounts=ACCOUNTS)
    assert found.diagnoses[0].sentence.endswith("have the provider send to /webhooks/shop.")


@pytest.mark.parametrize(("count", "end"), [(0, "name."), (12, ", s11."), (13, ", s11, ….")])
async def test_an_unknown_name_is_reported_with_twelve_known_names_at_most(
    inbox: Inbox, count: int, end: str
) -> None:
    kept = replace(rejection(), source="shp", verdict="source_unknown")
    await keep(inbox, kept)
    accounts: Any = {f"s{number:02}": None for number in range(count)}
    found = await diagnose_delivery(context(inbox), kept.delivery_id, accounts=accounts)
    assert found.diagnoses[0].sentence.endswith(end)
