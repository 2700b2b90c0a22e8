"""Forms of all actions, refused and sent."""

from dataclasses import replace

import pytest

from app.access.operators import retire_operator
from app.console.application import build_console
from app.console.view import Act, Form, View
from app.core.errors import UsageError
from tests.console.conftest import RunningConsole, send
from tests.console.test_finance_pages import breaks
from tests.console.test_pages import shown


@pytest.mark.parametrize(
    ("fields", "echoed"),
    [
        ({"reason": ""}, None),
        ({"reason": "she called from 0712 345 678"}, None),
        ({"reason": "good", "password": "wrong"}, "good"),
        ({"reason": "she called from 0712 345 678", "password": "wrong"}, None),
        ({"reason": "good", "password": "right"}, "good"),
    ],
)
async def test_a_refused_form_shows_what_was_sent_but_no_number(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, str], echoed: str | None,
) -> None:  # fmt: skip
    """The costly preview is made only once."""
    looked = []

    async def ask(view: View) -> Form:
        looked.append(view.subject)
        return Form("a thing", "/", password="password" in fields)

    async def do_try(view: View, reason: str) -> str:
        raise UsageError("it is jammed")

    async def confirms(*_: object) -> bool:
        return fields["password"] == "right"

    act = Act("Try", "orders", ask, do_try)
    monkeypatch.setattr("app.console.application.ACTS", (act,))
    monkeypatch.setattr("app.console.signing_in.SigningIn.confirms", confirms)
    made = replace(console, application=build_console(console.console))
    async with made.signed_in("viewer") as client:
        refused = await client.post("/do/try", data={"form": "once", **fields})
    assert (refused.status_code, len(looked)) == (400, 1)
    assert "345 678" not in refused.text
    assert f'name="reason" value="{echoed or ""}"' in refused.text


async def test_a_break_goes_to_who_may_work_on_it(console_with_breaks: RunningConsole) -> None:
    """Disabled operators and other roles are refused, for one break and for several."""
    console = console_with_breaks
    await retire_operator(console.context, name="a support", by="a admin")
    async with console.signed_in("finance") as client:
        name, *others = [each["id"] for each in (await breaks(client))["breaks"]]
        several = "&".join(f"break={each}" for each in (name, *others))
        assert others
        sent = [
            await send(client, f"/do/assign?{whose}", to=to)
            for whose in (f"break={name}", several)
            for to in ("a support", "a viewer", "nobody we know")
        ]
    assert {each.status_code for each in sent} == {400}
    assert all(
        "no operator of this name may work on breaks" in shown(each.text).lower() for each in sent
    )
    assert console.driver.rows("SELECT 1 FROM break_deeds") == []
