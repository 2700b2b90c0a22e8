"""Requests that are sent on to another address: which are whole, and how many one person sees."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import AuditEntry, Operator, add_entry, add_operator, audit_entries
from app.access.operators import Proven
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.recorded import Recorded
from app.database.statements import run
from app.receiving.append_store import Envelope
from app.receiving.inbox import Inbox
from app.receiving.kept_request import Kept, kept_request, refuse_too_many
from app.receiving.restriction_store import RestrictionRow, write_restrictions
from reconcile.instants import TICK, Instant
from tests.contexts import with_settings
from tests.database.builders import arrival, change, commit, context, keep, opened, rejection, said
from tests.reconcile.build import T, seconds

ANN = Operator(name="Ann", role="support", created_at=T)
HOUR_S = 3_600


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a serving store on a new database."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        yield opened_


async def seen(inbox: Inbox, at: Instant, facts: dict[str, Any], **changes: Any) -> None:
    """Note in the trail that Ann saw something."""
    entry = AuditEntry(
        at=at, who="Ann", role="support", action="unmasked", subject="A", reason="asked",
        facts=facts,
    )  # fmt: skip
    await commit(inbox, add_entry, replace(entry, **changes))


async def refused(at: AppContext, who: Operator, *, more: int) -> str | None:
    """Return why a person may not see so many numbers more."""
    async with at.database.reading() as connection:
        try:
            await refuse_too_many(at, connection, who, more=more)
        except UsageError as error:
            return str(error)
    return None


async def test_one_person_alone_sees_as_many_numbers_in_an_hour_as_the_setting_says(
    inbox: Inbox,
) -> None:
    """Of the last hour alone. A body counts as one; what was approved, what another saw and what
    the owner of the machine saw in this person's name does not count."""
    at = with_settings(context(inbox, at=HOUR_S), phones={"shown_per_hour": 6})
    await seen(inbox, Instant(T - TICK), {"phones": 5})
    await seen(inbox, T, {"phones": 2})
    await seen(inbox, seconds(9), {"bytes": "1 byte"})
    await seen(inbox, seconds(9), {"phones": 9, "proposal": "prp_1"})
    await seen(inbox, seconds(9), {"phones": 9, "account": "root"})
    await seen(inbox, seconds(9), {"phones": 9}, who="Ben")
    await seen(inbox, seconds(9), {"phones": 9}, action="data_exported")
    assert await refused(at, ANN, more=3) is None
    why = await refused(at, ANN, more=4)
    assert why is not None
    assert why.startswith(
        "you have seen 3 phone numbers or bodies in the last hour, and one person alone may see at "
        "most 6 an hour"
    )
    assert await refused(at, replace(ANN, account="root"), more=99) is None


@pytest.mark.parametrize("by", ["Ann", Proven("Ann")])
async def test_a_request_is_as_it_came_and_stands_in_the_trail(inbox: Inbox, by: str) -> None:
    """Without the values that were not stored. Of one event of several the whole body is sent on,
    of a redelivery and of what was not stored whole nothing."""
    await commit(inbox, add_operator, ANN)
    headers = ":method: PUT\n:url: /w?a=1\nx: é\ncookie: (left out)\nhost: a"
    one = arrival(said("e1", order="A"), headers=headers, body=b"{1}")
    part = arrival(said("e2", order="B"), whole=Envelope("f" * 64, b"[1,2]"))
    again = arrival(one.event)
    lone = arrival(said("e3", order="C"), whole=Envelope("e" * 64, b"[3]"))
    whole, cut = rejection(body=b"{refused}"), replace(rejection(body=b"{cut"), size=5)
    await keep(inbox, one, part, lone, whole, cut)
    await keep(inbox, again)
    await change(inbox, f"UPDATE envelopes SET body = NULL WHERE digest = '{'e' * 64}'")
    at = with_settings(context(inbox, at=9), phones={"shown_per_hour": 3})
    assert await kept_request(at, one.delivery_id, to="x" * 250, by=by) == Kept(
        Recorded(method="PUT", url="/w?a=1", headers=[("x", "é")], body=b"{1}"), ["cookie"]
    )
    for sent, body in ((part, b"[1,2]"), (whole, b"{refused}")):
        kept = await kept_request(at, sent.delivery_id, to="here", by=by)
        assert (kept.request.body, kept.left_out) == (body, [])
    async with inbox.database.reading() as connection:
        trail = await audit_entries(connection, limit=9)
    reason = f"sent on to {'x' * 250}"[:200]
    assert [(each.subject, each.at, each.who, each.reason) for each in trail] == [
        (one.delivery_id, seconds(9), "Ann", reason),
        (part.delivery_id, seconds(9), "Ann", "sent on to here"),
        (whole.delivery_id, seconds(9), "Ann", "sent on to here"),
    ]
    assert [each.facts["bytes"] for each in trail] == ["3 bytes", "5 bytes", "9 bytes"]
    if isinstance(by, Proven):  # as many as one person may see alone
        with pytest.raises(UsageError, match="you have seen 3 phone numbers or bodies"):
            await kept_request(at, one.delivery_id, to="here", by=by)
    for delivery, why in (
        (again, "is a redelivery, and the first delivery of its event stores the body"),
        (lone, "was not stored completely"),
        (cut, "was not stored completely"),
    ):
        with pytest.raises(UsageError, match=why):
            await kept_request(at, delivery.delivery_id, to="here", by=by)
    with pytest.raises(NotFoundError, match="there is no delivery 'dlv_none'"):
        await kept_request(at, "dlv_none", to="here", by=by)
    restricted = RestrictionRow("delivery", whole.delivery_id, T, None, "refused", T, T)
    async with inbox.database.writing() as connection:
        await run(connection, write_restrictions, [restricted])
    with pytest.raises(UsageError, match="Its customer's data are restricted"):
        await kept_request(at, whole.delivery_id, to="here", by=by)
    pruned = "UPDATE deliveries SET body = NULL, pruned_at = 9 WHERE id = "
    await change(inbox, f"{pruned}'{one.delivery_id}'")
    with pytest.raises(UsageError, match="was deleted"):
        await kept_request(at, one.delivery_id, to="here", by=by)
